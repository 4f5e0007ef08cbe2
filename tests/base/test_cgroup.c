/* Limits of control groups (src/base/cgroup.h), read from fake hierarchies in a directory of this test. */
#include "kernels/pool.h"
#include "src/base/cgroup.h"
#include "tests/test.h"
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/test_cgroup_XXXXXX", membership[64], root[64];
static struct cgroup_tree tree = { membership, root };

/* Writes text to folder/path and makes the directories above the file. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", folder, path);
    for (char *p = full + strlen(folder) + 1; (p = strchr(p, '/')); p++) {
        *p = 0, mkdir(full, 0700), *p = '/';
    }
    FILE *f = fopen(full, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", full);
}

static void start(const char *groups)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s/root' && mkdir '%s/root'", folder, folder);
    CHECK(system(command) == 0);
    put("membership", groups);
}

static void no_group_is_no_limit(void)
{
    start("0::/\n");
    CHECK(cgroup_cpus(&tree) == INFINITY && cgroup_memory_room(&tree) == SIZE_MAX);
    start("0::/not/mounted/here\n");
    CHECK(cgroup_cpus(&tree) == INFINITY && cgroup_memory_room(&tree) == SIZE_MAX);
    start("");
    CHECK(cgroup_cpus(&tree) == INFINITY && cgroup_memory_room(&tree) == SIZE_MAX);
    const struct cgroup_tree none = { "/nonexistent", root };
    CHECK(cgroup_cpus(&none) == INFINITY && cgroup_memory_room(&none) == SIZE_MAX);
}

/* As under `systemd-run -p CPUQuota=100%`: the root has no cpu.max; the limit stands in a nested group. */
static void the_quota_of_a_nested_group_counts(void)
{
    start("0::/system.slice/run-1.service\n");
    put("root/system.slice/run-1.service/cpu.max", "100000 100000\n");
    put("root/system.slice/cpu.max", "max 100000\n");
    CHECK(cgroup_cpus(&tree) == 1, "%g", cgroup_cpus(&tree));
    put("root/system.slice/run-1.service/cpu.max", "max 100000\n");
    CHECK(cgroup_cpus(&tree) == INFINITY);
    put("root/system.slice/cpu.max", "250000 100000\n");
    CHECK(cgroup_cpus(&tree) == 2.5, "%g", cgroup_cpus(&tree));
    put("root/cpu.max", "20000 100000\n");               /* a container sees its own group as the root */
    CHECK(cgroup_cpus(&tree) == 0.2, "%g", cgroup_cpus(&tree));
}

static void version_1_has_a_hierarchy_for_each_controller(void)
{
    start("12:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n1:name=systemd:/docker/a\n");
    put("root/cpu/docker/a/cpu.cfs_quota_us", "-1\n");
    put("root/cpu/docker/a/cpu.cfs_period_us", "100000\n");
    put("root/cpuacct/docker/a/cpu.cfs_quota_us", "1\n");
    put("root/cpuacct/docker/a/cpu.cfs_period_us", "100000\n");
    CHECK(cgroup_cpus(&tree) == INFINITY);
    put("root/cpu/docker/cpu.cfs_quota_us", "150000\n");
    put("root/cpu/docker/cpu.cfs_period_us", "50000\n");
    CHECK(cgroup_cpus(&tree) == 3, "%g", cgroup_cpus(&tree));
    put("root/memory/docker/a/memory.limit_in_bytes", "5000\n");
    put("root/memory/docker/a/memory.usage_in_bytes", "3000\n");
    put("root/memory/docker/a/memory.stat", "cache 2000\ninactive_file 7\ntotal_inactive_file 1000\n");
    CHECK(cgroup_memory_room(&tree) == 3000, "%zu", cgroup_memory_room(&tree));
}

static void the_group_with_the_least_memory_counts(void)
{
    start("0::/a/b\n");
    put("root/a/b/memory.max", "9000\n");
    put("root/a/b/memory.current", "1000\n");
    CHECK(cgroup_memory_room(&tree) == 8000, "%zu", cgroup_memory_room(&tree));
    put("root/a/memory.max", "10000\n");
    put("root/a/memory.current", "8000\n");
    put("root/a/memory.stat", "anon 6000\ninactive_file 500\n");
    CHECK(cgroup_memory_room(&tree) == 2500, "%zu", cgroup_memory_room(&tree));
    put("root/memory.max", "max\n");
    put("root/memory.current", "9000\n");
    CHECK(cgroup_memory_room(&tree) == 2500, "%zu", cgroup_memory_room(&tree));
    put("root/a/b/memory.current", "9500\n");            /* over its limit */
    CHECK(cgroup_memory_room(&tree) == 0);
}

static void threads_fit_the_quota(void)
{
    CHECK(pool_threads_for(32, INFINITY) == 32);
    CHECK(pool_threads_for(32, 1) == 1);
    CHECK(pool_threads_for(32, 0.2) == 1, "a quota below one CPU");
    CHECK(pool_threads_for(32, 2.5) == 2);
    CHECK(pool_threads_for(4, 8) == 4);
    CHECK(pool_threads_for(0, INFINITY) == 1);
    CHECK(pool_threads_for(100000, INFINITY) == POOL_THREADS_MAX);
}

int main(void)
{
    char command[64];
    if (!mkdtemp(folder)) return 1;
    snprintf(membership, sizeof membership, "%s/membership", folder);
    snprintf(root, sizeof root, "%s/root", folder);
    RUN(no_group_is_no_limit);
    RUN(the_quota_of_a_nested_group_counts);
    RUN(version_1_has_a_hierarchy_for_each_controller);
    RUN(the_group_with_the_least_memory_counts);
    RUN(threads_fit_the_quota);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) || test_end();
}
