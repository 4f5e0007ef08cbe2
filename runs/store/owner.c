/* Naming this process and watching other ones, by /proc and by beats. Start at owner_liveness and
 * watch_beat. */
#include "runs/store/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Read a small file of /proc. buf ends with a NUL. */
static int read_small(char *buf, size_t size, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n;
    do
        n = read(fd, buf, size - 1);
    while (n < 0 && errno == EINTR);
    close(fd);
    if (n <= 0)
        return -1;
    buf[n] = 0;
    return 0;
}

/* Read the state and start time of a process: fields 3 and 22 of /proc/PID/stat (proc(5)). Field 2 is a
 * name in parentheses, which may itself contain parentheses: the last one ends it. */
static int read_stat(char *state, uint64_t *start, const char *pid)
{
    char path[64], buf[2048];
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    if (read_small(buf, sizeof buf, path))
        return -1;
    char *p = strrchr(buf, ')');
    if (!p || p[1] != ' ' || !p[2])
        return -1;
    *state = p[2];
    p += 2;
    for (int field = 3; field < 22; field++) {
        p = strchr(p, ' ');
        if (!p)
            return -1;
        p++;
    }
    char *end;
    errno = 0;
    *start = strtoull(p, &end, 10);
    return errno || end == p ? -1 : 0;
}

void owner_self(struct owner *o)
{
    char boot[64] = "", pid_space[32] = "", time_space[32] = "", state;
    memset(o, 0, sizeof *o);
    if (gethostname(o->host, sizeof o->host - 1) || !o->host[0])
        strcpy(o->host, "?");
    o->pid = getpid();
    /* Linux before 5.6 has no time namespaces. */
    if (readlink("/proc/self/ns/time", time_space, sizeof time_space - 1) < 0)
        time_space[0] = 0;
    if (read_small(boot, sizeof boot, "/proc/sys/kernel/random/boot_id") ||
        readlink("/proc/self/ns/pid", pid_space, sizeof pid_space - 1) < 0 ||
        read_stat(&state, &o->start, "self"))
        return;                          /* without a boot */
    boot[strcspn(boot, "\n")] = 0;
    snprintf(o->boot, sizeof o->boot, "%.36s", boot);
    snprintf(o->spaces, sizeof o->spaces, "%s%s%s", pid_space, time_space[0] ? " " : "", time_space);
}

/* Whether /proc shows this process's pid namespace. It does not if the namespace was made without mounting
 * /proc again. */
static bool proc_is_ours(void)
{
    char seen[32] = "", want[32];
    snprintf(want, sizeof want, "%ld", (long)getpid());
    return readlink("/proc/self", seen, sizeof seen - 1) > 0 && strcmp(seen, want) == 0;
}

enum liveness owner_liveness(const struct owner *o, const struct owner *self, bool one_host)
{
    char state, pid[32];
    uint64_t start;
    if (!o->boot[0] || !self->boot[0])
        return OWNER_UNSEEN;
    if (strcmp(o->boot, self->boot))
        return one_host ? OWNER_DEAD : OWNER_UNSEEN;
    if (strcmp(o->spaces, self->spaces))
        return OWNER_UNSEEN;
    if (o->pid <= 0 || o->pid > INT32_MAX || (kill((pid_t)o->pid, 0) && errno == ESRCH))
        return OWNER_DEAD;
    snprintf(pid, sizeof pid, "%" PRId64, o->pid);
    if (!proc_is_ours() || read_stat(&state, &start, pid))
        return OWNER_UNSEEN;             /* it has just ended, or /proc hides other users' processes */
    return start == o->start && state != 'Z' && state != 'X' ? OWNER_ALIVE : OWNER_DEAD;
}

bool owner_is_stopped(const struct owner *o, const struct owner *self)
{
    char state, pid[32];
    uint64_t start;
    snprintf(pid, sizeof pid, "%" PRId64, o->pid);
    return o->boot[0] && strcmp(o->boot, self->boot) == 0 && strcmp(o->spaces, self->spaces) == 0 &&
           proc_is_ours() && read_stat(&state, &start, pid) == 0 && start == o->start &&
           (state == 'T' || state == 't');
}

double watch_beat(struct watch *w, int64_t worker, int64_t beat, double now, double lease)
{
    struct beat_seen *b = NULL;
    for (size_t i = 0; i < w->n && !b; i++)
        if (w->v[i].worker == worker)
            b = &w->v[i];
    if (!b) {
        if (!array_grow(&w->v, w->n, sizeof *w->v))
            return -1;
        b = &w->v[w->n++];
        *b = (struct beat_seen){ .worker = worker, .beat = beat, .at = now };
    }
    b->still = b->beat == beat ? b->still + MIN(MAX(now - b->at, 0), lease / 4) : 0;
    b->beat = beat;
    b->at = now;
    return b->still;
}

void watch_free(struct watch *w)
{
    free(w->v);
    *w = (struct watch){0};
}
