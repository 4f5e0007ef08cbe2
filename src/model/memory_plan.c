#include "src/model/memory_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "kernels/device.h"

static void add(struct memory_plan *p, const char *name, size_t bytes, bool on_device)
{
    size_t *total = on_device ? &p->device_total : &p->total;
    assert(p->n < MEMORY_ITEMS_MAX);
    p->item[p->n].name = name;
    p->item[p->n].on_device = on_device;
    p->item[p->n++].bytes = bytes;
    if (!add_size(*total, bytes, total))
        *total = SIZE_MAX;
}

void memory_plan_add(struct memory_plan *p, const char *name, size_t bytes) { add(p, name, bytes, false); }

void memory_plan_add_on(struct memory_plan *p, struct device *dev, const char *name, size_t bytes)
{
    if (!dev->host_memory)
        p->dev = dev;
    add(p, name, bytes, !dev->host_memory);
}

void memory_plan_deduct(struct memory_plan *p, size_t i, size_t bytes)
{
    size_t *total = p->item[i].on_device ? &p->device_total : &p->total;
    *total -= MIN(bytes, *total);
    p->item[i].bytes -= MIN(bytes, p->item[i].bytes);
}

/* The first number behind `key` in a text file, `scale` bytes each; SIZE_MAX when there is none ("max"). */
static size_t read_number(const char *path, const char *key, size_t scale)
{
    char line[4096];
    size_t v = SIZE_MAX, n = strlen(key);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0) {
            char *end, *p = line + n + strspn(line + n, " \t:");
            unsigned long long x = strtoull(p, &end, 10);
            if (end != p && !mul_size(x, scale, &v))
                v = SIZE_MAX;
            break;
        }
    if (f)
        fclose(f);
    return v;
}

/* Room under one cgroup: its limit less what is used, page cache that can go not counted. */
static size_t cgroup_room(const char *dir, const char *max, const char *current, const char *inactive)
{
    char path[4600];
    snprintf(path, sizeof path, "%s/%s", dir, max);
    size_t limit = read_number(path, "", 1);
    snprintf(path, sizeof path, "%s/%s", dir, current);
    size_t used = read_number(path, "", 1);
    if (limit == SIZE_MAX || used == SIZE_MAX)
        return SIZE_MAX;
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    size_t cache = read_number(path, inactive, 1);
    if (cache != SIZE_MAX)
        used -= MIN(used, cache);
    return limit - MIN(limit, used);
}

/* The least room in the cgroups that hold this process, up to the root of the hierarchy that is mounted. */
static size_t cgroups_room(void)
{
    char line[4096], dir[4400];
    size_t least = SIZE_MAX;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *path = strchr(line, ':'), *names = path ? path + 1 : NULL;
        path = names ? strchr(names, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        bool v2 = !*names;
        if (!v2 && strcmp(names, "memory"))
            continue;
        const char *root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        for (;;) {
            snprintf(dir, sizeof dir, "%s%s", root, strcmp(path, "/") ? path : "");
            size_t room = v2 ? cgroup_room(dir, "memory.max", "memory.current", "inactive_file ")
                             : cgroup_room(dir, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                           "total_inactive_file ");
            least = MIN(least, room);
            char *slash = strrchr(path, '/');
            if (!slash || !path[1])
                break;
            slash[slash == path] = 0;
        }
    }
    if (f)
        fclose(f);
    return least;
}

size_t memory_available(const char **limit)
{
    size_t best = read_number("/proc/meminfo", "MemAvailable", 1024), room = cgroups_room();
    *limit = best == SIZE_MAX ? "unknown" : "MemAvailable";
    if (room < best) {
        best = room;
        *limit = "cgroup limit";
    }
    struct rlimit r;
    if (getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY) {
        size_t used = read_number("/proc/self/status", "VmSize", 1024);
        size_t left = (size_t)r.rlim_cur - MIN((size_t)r.rlim_cur, used == SIZE_MAX ? 0 : used);
        if (left < best) {
            best = left;
            *limit = "ulimit -v";
        }
    }
    return best;
}

static const char *list(char items[700], const struct memory_plan *p, bool on_device)
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
        return err_set(
            e, ERR_INPUT,
            "this needs %.1f MiB of memory (%s, rounding up %.1f), %.1f MiB are available (%s); %s",
            (double)p->total / 1048576 + (double)rounding / 1048576, list(items, p, false),
            (double)rounding / 1048576, (double)available / 1048576, limit, helps);
    available = p->dev ? p->dev->bytes_free(p->dev) : SIZE_MAX;
    if (p->device_total > available)
        return err_set(e, ERR_INPUT,
                       "this needs %.1f MiB of memory on %s (%s), %.1f MiB are free there; %s; --device cpu",
                       (double)p->device_total / 1048576, p->dev->name, list(items, p, true),
                       (double)available / 1048576, helps);
    return 0;
}
