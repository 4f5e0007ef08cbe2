/* Memory, itemised before it is taken: what a run will hold, and what this machine can still give. */
#pragma once
#include "src/base/base.h"

enum { MEMORY_ITEMS_MAX = 16 };

struct device;

struct memory_plan {                 /* {0} is empty */
    struct { const char *name; size_t bytes; bool on_device; } item[MEMORY_ITEMS_MAX];
    size_t n, total, device_total;   /* total: of the host */
    struct device *dev;              /* borrowed: whose memory it is, where that is not the host's */
};

/* Add an item; a sum that does not fit size_t stays SIZE_MAX. */
void memory_plan_add(struct memory_plan *p, const char *name, size_t bytes);
/* The same in the memory of a device, which may be the host's. */
void memory_plan_add_on(struct memory_plan *p, struct device *dev, const char *name, size_t bytes);
/* So much of item i is there already. */
void memory_plan_deduct(struct memory_plan *p, size_t i, size_t bytes);

/* Bytes that this process may still take: the least of MemAvailable, the room in its cgroups and under
 * RLIMIT_AS. *limit says which one it is. SIZE_MAX when nothing can be read. */
size_t memory_available(const char **limit);

/* ERR_INPUT that lists the items, their sum and what is available, unless it fits: on the host, then on the device. `helps` names the
 * options that change it. */
int memory_plan_check(const struct memory_plan *p, const char *helps, struct err *e);
