/* The memory plan, and the memory that is available: /proc/meminfo, the cgroups of this process,
 * RLIMIT_AS. Start at memory_plan_check. */
#include "src/model/memory_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "kernels/device.h"
#include "src/base/cgroup.h"

void memory_plan_add_on(struct memory_plan *p, struct device *dev, const char *name, size_t bytes)
{
    const bool on_device = dev && !dev->host_memory;
    size_t *total = on_device ? &p->device_total : &p->total;
    assert(p->n < MEMORY_ITEMS_MAX);
    p->dev = on_device ? dev : p->dev;
    p->item[p->n].name = name;
    p->item[p->n].on_device = on_device;
    p->item[p->n++].bytes = bytes;
    if (!add_size(*total, bytes, total))
        *total = SIZE_MAX;
}

void memory_plan_add(struct memory_plan *p, const char *name, size_t bytes)
{
    memory_plan_add_on(p, NULL, name, bytes);
}

void memory_plan_deduct(struct memory_plan *p, size_t i, size_t bytes)
{
    size_t *total = p->item[i].on_device ? &p->device_total : &p->total;
    *total -= MIN(bytes, *total);
    p->item[i].bytes -= MIN(bytes, p->item[i].bytes);
}

/* Bytes left under RLIMIT_AS; SIZE_MAX: no such limit. */
static size_t address_space_left(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_AS, &r) || r.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    const size_t used = read_keyed_number("/proc/self/status", "VmSize", 1024);
    return (size_t)r.rlim_cur - MIN((size_t)r.rlim_cur, used == SIZE_MAX ? 0 : used);
}

/* The least of three limits, of which the first two count memory that was touched. */
static size_t least(size_t machine, size_t cgroup, size_t address_space, const char **limit)
{
    *limit = machine == SIZE_MAX ? "unknown" : "MemAvailable";
    if (cgroup < machine) {
        machine = cgroup;
        *limit = "cgroup limit";
    }
    if (address_space < machine) {
        machine = address_space;
        *limit = "ulimit -v";
    }
    return machine;
}

size_t memory_available(const char **limit)
{
    return least(read_keyed_number("/proc/meminfo", "MemAvailable", 1024), cgroup_memory_room(NULL),
                 address_space_left(), limit);
}

static size_t sum_or_max(size_t a, size_t b) { return add_size(a, b, &a) ? a : SIZE_MAX; }

size_t memory_limit(size_t reserved, const char **limit)
{
    const size_t anon = read_keyed_number("/proc/self/status", "RssAnon", 1024),
                 shared = read_keyed_number("/proc/self/status", "RssShmem", 1024),
                 held = (anon == SIZE_MAX ? 0 : anon) + (shared == SIZE_MAX ? 0 : shared);
    return least(sum_or_max(read_keyed_number("/proc/meminfo", "MemAvailable", 1024), held),
                 sum_or_max(cgroup_memory_room(NULL), held), sum_or_max(address_space_left(), reserved),
                 limit);
}

static const char *list_items(char items[700], const struct memory_plan *p, bool on_device)
{
    size_t n = 0;
    items[0] = 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->item[i].on_device == on_device && n < 700)
            n += (size_t)snprintf(items + n, 700 - n, "%s%s %.1f", n ? ", " : "", p->item[i].name,
                                  (double)p->item[i].bytes / 1048576);
    return items;
}

int memory_plan_check(const struct memory_plan *p, const char *helps, struct err *e)
{
    const char *limit;
    const size_t available = memory_available(&limit);
    return memory_plan_check_in(p, available, limit, helps, e);
}

int memory_plan_check_in(const struct memory_plan *p, size_t available, const char *limit, const char *helps,
                         struct err *e)
{
    char items[700];
    size_t rounding = 0, total;
    for (size_t i = 0; i < p->n; i++)
        rounding += p->item[i].on_device ? 0 : mem_rounded(p->item[i].bytes) - p->item[i].bytes;
    if (!add_size(p->total, rounding, &total) || total > available)
        return err_set(e, ERR_INPUT,
            "this needs %.1f MiB of memory (%s, rounding up %.1f), %.1f MiB are available (%s); %s",
            (double)p->total / 1048576 + (double)rounding / 1048576, list_items(items, p, false),
            (double)rounding / 1048576, (double)available / 1048576, limit, helps);
    available = p->dev ? p->dev->bytes_free(p->dev) : SIZE_MAX;
    if (p->device_total > available)
        return err_set(e, ERR_INPUT,
                       "this needs %.1f MiB of memory on %s (%s), %.1f MiB are free there; %s; --device cpu",
                       (double)p->device_total / 1048576, p->dev->name, list_items(items, p, true),
                       (double)available / 1048576, helps);
    return 0;
}
