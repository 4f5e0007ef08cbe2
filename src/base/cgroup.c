/* Limits of control groups. The list of the process's groups names a path for each hierarchy; walk()
 * visits the directory of that path and of every parent. Inside a container the path may name directories
 * of the host that are not mounted: their files cannot be read, count as no limit, and the walk goes on to
 * the root that is mounted. */
#include "src/base/cgroup.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/base.h"

static const struct cgroup_tree machine = { "/proc/self/cgroup", "/sys/fs/cgroup" };

enum { PATH_ROOM = 8192 };

size_t read_keyed_number(const char *path, const char *key, size_t scale)
{
    char line[4096];
    size_t v = SIZE_MAX;
    const size_t n = strlen(key);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0) {
            char *end, *p = line + n + strspn(line + n, " \t:");
            const unsigned long long x = strtoull(p, &end, 10);
            if (end == p || *p == '-' || !mul_size(x, scale, &v))
                v = SIZE_MAX;
            break;
        }
    if (f)
        fclose(f);
    return v;
}

static size_t number_in(const char *dir, const char *file, const char *key)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return read_keyed_number(path, key, 1);
}

/* Calls visit for each group that controls `controller`, from the process's own group up to the root. */
static void walk(const struct cgroup_tree *tree, const char *controller,
                 void (*visit)(const char *dir, bool v2, void *least), void *least)
{
    char line[4096], dir[PATH_ROOM - 64];
    tree = tree ? tree : &machine;
    FILE *f = fopen(tree->membership, "re");
    while (f && fgets(line, sizeof line, f)) {       /* "number:controllers:path"; v2 names no controllers */
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        const bool v2 = !*++names;
        bool listed = v2;
        for (char *rest = names, *name; (name = strsep(&rest, ",")); )
            listed |= strcmp(name, controller) == 0;
        for (char *slash = path; listed && slash; ) {
            snprintf(dir, sizeof dir, "%s%s%s%s", tree->root, v2 ? "" : "/", v2 ? "" : controller,
                     strcmp(path, "/") ? path : "");
            visit(dir, v2, least);
            slash = path[0] && path[1] ? strrchr(path, '/') : NULL;
            if (slash)
                slash[slash == path] = 0;
        }
    }
    if (f)
        fclose(f);
}

static void visit_memory(const char *dir, bool v2, void *least)
{
    size_t *room = least;
    const size_t limit = number_in(dir, v2 ? "memory.max" : "memory.limit_in_bytes", "");
    size_t used = number_in(dir, v2 ? "memory.current" : "memory.usage_in_bytes", "");
    const size_t cache = number_in(dir, "memory.stat", v2 ? "inactive_file " : "total_inactive_file ");
    if (limit == SIZE_MAX || used == SIZE_MAX)
        return;
    if (cache != SIZE_MAX)
        used -= MIN(used, cache);
    *room = MIN(*room, limit - MIN(limit, used));
}

size_t cgroup_memory_room(const struct cgroup_tree *tree)
{
    size_t room = SIZE_MAX;
    walk(tree, "memory", visit_memory, &room);
    return room;
}

static void visit_cpu(const char *dir, bool v2, void *least)
{
    double *cpus = least, quota = 0, period = 0;
    char path[PATH_ROOM];
    if (v2) {                                        /* "QUOTA PERIOD", or "max PERIOD" */
        snprintf(path, sizeof path, "%s/cpu.max", dir);
        FILE *f = fopen(path, "re");
        if (f && fscanf(f, "%lf %lf", &quota, &period) != 2)
            period = 0;
        if (f)
            fclose(f);
    } else {                                         /* the quota is -1 where there is no limit */
        const size_t q = number_in(dir, "cpu.cfs_quota_us", ""), p = number_in(dir, "cpu.cfs_period_us", "");
        if (q != SIZE_MAX && p != SIZE_MAX)
            quota = (double)q, period = (double)p;
    }
    if (quota > 0 && period > 0)
        *cpus = MIN(*cpus, quota / period);
}

double cgroup_cpus(const struct cgroup_tree *tree)
{
    double cpus = INFINITY;
    walk(tree, "cpu", visit_cpu, &cpus);
    return cpus;
}
