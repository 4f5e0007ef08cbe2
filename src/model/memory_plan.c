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

size_t memory_available(const char **limit)
{
    size_t best = read_keyed_number("/proc/meminfo", "MemAvailable", 1024), room = cgroup_memory_room(NULL);
    *limit = best == SIZE_MAX ? "unknown" : "MemAvailable";
    if (room < best) {
        best = room;
        *limit = "cgroup limit";
    }
    struct rlimit r;
    if (getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY) {
        size_t used = read_keyed_number("/proc/self/status", "VmSize", 1024);
        size_t left = (size_t)r.rlim_cur - MIN((size_t)r.rlim_cur, used == SIZE_MAX ? 0 : used);
        if (left < best) {
            best = left;
            *limit = "ulimit -v";
        }
    }
    return best;
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
    char items[700];
    const char *limit;
    size_t available = memory_available(&limit), rounding = 0, total;
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
