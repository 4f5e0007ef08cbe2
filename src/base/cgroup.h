/* Limits that control groups set for this process, under cgroup v1 and v2. A limit of any group from the
 * process's own group up to the root of the mounted hierarchy counts, so the functions return the
 * tightest. */
#pragma once
#include <stddef.h>

/* Where to read. Tests pass a directory of their own; NULL stands for the machine's files. */
struct cgroup_tree {
    const char *membership;          /* the process's groups: /proc/self/cgroup */
    const char *root;                /* the mounted hierarchy: /sys/fs/cgroup */
};

/* Bytes that the groups still allow: the limit less the memory in use, where page cache that can be
 * dropped does not count as used. SIZE_MAX: no limit. */
size_t cgroup_memory_room(const struct cgroup_tree *tree);

/* CPUs whose time the groups allow, such as 0.5 or 8. INFINITY: no limit. */
double cgroup_cpus(const struct cgroup_tree *tree);

/* The number after `key` at the start of a line of a text file, times `scale`. SIZE_MAX: no such number
 * ("max"), or it does not fit. An empty key reads the first line. */
size_t read_keyed_number(const char *path, const char *key, size_t scale);
