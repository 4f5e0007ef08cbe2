/* work --device cuda:all: one worker process for each GPU, all on one queue. CUDA does not survive a fork,
 * so the parent never touches it: a process of its own counts the GPUs, and each worker opens its GPU.
 * Start at work_all. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/base/stopping.h"
#include "src/cli/cmd_store.h"
#include "src/model/device_choice.h"

enum { GPUS_MAX = 64 };
struct gpus { size_t n; char why[512]; };

/* Counts the GPUs that `word` means; g->why says why none was found. */
static int count_gpus(const char *word, struct gpus *g, struct err *e)
{
    int ends[2], status;
    if (pipe(ends))
        return err_set(e, ERR_FAILED, "--device %s: no pipe: %s", word, strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        *g = (struct gpus){0};
        g->n = device_choice_count(word, g->why, sizeof g->why);
        _exit(write(ends[1], g, sizeof *g) == sizeof *g ? 0 : 1);
    }
    close(ends[1]);
    ssize_t n = -1;
    while (pid > 0 && (n = read(ends[0], g, sizeof *g)) < 0 && errno == EINTR)
        ;
    const bool whole = n == sizeof *g;
    close(ends[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!whole)
        return err_set(e, ERR_FAILED, "--device %s: the GPUs could not be counted", word);
    return g->n ? 0 : err_set(e, ERR_INPUT, "--device %s: %s (auto and cpu are available)", word, g->why);
}

/* Runs a worker in this child process; never returns. The child has its own process group, so Ctrl-C
 * reaches it only through the parent, once for each signal. */
static void run_worker(const struct options *o, size_t i, pid_t parent, work_fn *work)
{
    char word[32], metrics[PATH_BYTES];
    struct options mine = *o;
    struct err e = {0};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)                     /* the parent ended before prctl */
        _exit(ERR_AGAIN);
    snprintf(word, sizeof word, "%.*s%zu", (int)(strlen(o->device) - strlen("all")), o->device, i);
    mine.device = word;
    if (o->metrics && *o->metrics && snprintf(metrics, sizeof metrics, "%s.%zu", o->metrics, i) > 0)
        mine.metrics = metrics;
    if (mine.progress == PROGRESS_AUTO)          /* workers share the terminal, so no line is redrawn */
        mine.progress = PROGRESS_PLAIN;
    int rc = work(&mine, &e);
    if (rc)
        fprintf(stderr, "%slonghand: %s: %s\n", log_time(), word, err_text(&e));
    fflush(NULL);
    _exit(rc ? err_exit_code(&e) : 0);
}

static void signal_workers(const pid_t *pid, size_t n, int number)
{
    for (size_t i = 0; i < n; i++)
        if (pid[i] > 0)
            kill(pid[i], number);
}

/* The worse of two exit codes: failed, bad input, stopped, done. */
static int worse(int a, int b)
{
    static const int order[] = { ERR_FAILED, ERR_INPUT, ERR_AGAIN };
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (a == order[i] || b == order[i])
            return order[i];
    return 0;
}

int work_all(const struct options *o, work_fn *work, struct err *e)
{
    struct gpus g;
    pid_t pid[GPUS_MAX];
    int worst = 0, status;
    bool forwarded = false;
    size_t left = 0, bad = 0;
    signal(SIGCHLD, SIG_DFL);                    /* a parent that ignores SIGCHLD cannot wait */
    if (count_gpus(o->device, &g, e))
        return -1;
    const pid_t parent = getpid();
    g.n = MIN(g.n, (size_t)GPUS_MAX);
    for (size_t i = 0; i < g.n; i++, left++) {
        pid[i] = fork();
        if (pid[i] == 0)
            run_worker(o, i, parent, work);
        if (pid[i] < 0) {
            err_set(e, ERR_FAILED, "--device %s: cannot start a process: %s", o->device, strerror(errno));
            signal_workers(pid, i, SIGTERM);
            while (wait(&status) > 0 || errno == EINTR)
                ;
            return -1;
        }
    }
    while (left) {
        if (stop_signal && !forwarded) {
            forwarded = true;
            signal_workers(pid, g.n, stop_signal);
        }
        /* A blocking wait would miss a signal that comes just before it. */
        const pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended == 0)
            nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
        for (size_t i = 0; ended > 0 && i < g.n; i++)
            if (pid[i] == ended) {
                const int code = WIFEXITED(status) ? WEXITSTATUS(status) : ERR_FAILED;
                if (WIFSIGNALED(status))
                    fprintf(stderr, "longhand: %.*s%zu: ended by signal %d; its job can be continued\n",
                            (int)(strlen(o->device) - 3), o->device, i, WTERMSIG(status));
                pid[i] = 0;
                bad += code != 0;
                worst = worse(worst, code == 0 || code == ERR_INPUT || code == ERR_AGAIN ? code : ERR_FAILED);
                left--;
            }
    }
    return worst == 0 ? 0
                      : err_set(e, worst, "%zu of %zu %s failed or stopped; see the messages above",
                                bad, g.n, plural(g.n, "worker", "workers"));
}
