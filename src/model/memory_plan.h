/* The memory plan: the bytes that a run will hold, itemised before any is taken, and the bytes that this
 * machine can still give. */
#pragma once
#include "src/base/base.h"

enum { MEMORY_ITEMS_MAX = 32 };

struct device;

struct memory_plan {                 /* {0} is empty */
    struct { const char *name; size_t bytes; bool on_device; } item[MEMORY_ITEMS_MAX];
    size_t n, total, device_total;   /* total: the host's */
    struct device *dev;              /* borrowed: the device whose own memory some items use, or NULL */
};

/* Adds an item of the host's memory. A sum beyond size_t stays SIZE_MAX. */
void memory_plan_add(struct memory_plan *p, const char *name, size_t bytes);
/* Adds an item of a device's memory, which may be the host's. */
void memory_plan_add_on(struct memory_plan *p, struct device *dev, const char *name, size_t bytes);
/* Subtracts bytes of item i that the process holds already. */
void memory_plan_deduct(struct memory_plan *p, size_t i, size_t bytes);

/* Bytes that this process may still take: the least of MemAvailable, the room in its cgroups and the room
 * under RLIMIT_AS. *limit names the limit that decided. SIZE_MAX if none can be read. */
size_t memory_available(const char **limit);

/* Bytes that this process may hold in all, of which it has reserved `reserved` and may not have touched them
 * yet. *limit: as memory_available. SIZE_MAX if no limit can be read. */
size_t memory_limit(size_t reserved, const char **limit);

/* Checks that the plan fits the host and then the device. ERR_INPUT lists the items, their sum, the
 * available bytes, and `helps`: the options that change the sum. */
int memory_plan_check(const struct memory_plan *p, const char *helps, struct err *e);
/* The same, for a host that has `available` bytes by the limit named `limit`. */
int memory_plan_check_in(const struct memory_plan *p, size_t available, const char *limit, const char *helps,
                         struct err *e);
