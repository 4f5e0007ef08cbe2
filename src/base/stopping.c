/* Stop signals and the notice about them. The handler stores the signal's number and posts a semaphore;
 * the notice thread waits for the semaphore, then prints the current task whenever it lasts. Start at
 * on_signal and notice_thread. */
#include "src/base/stopping.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "src/base/notice.h"
#include "src/base/progress.h"

/* ---- the notice ---- */

enum { POLL_MS = 20, DELAY_MS = 200 };   /* a stop that takes less than DELAY_MS needs no notice */

static const char DATABASE[] = "the database";
static sem_t signalled;
static pthread_t thread;
static bool opened, as_json;
static atomic_bool listening, closing;
static _Atomic(const char *) current_task = DATABASE;

static void print_notice(const char *task)
{
    if (!as_json && isatty(STDERR_FILENO))
        fputc('\n', stderr);                     /* the line already holds ^C, and maybe text or progress */
    notice(as_json,
           (struct row[]){ NOTICE_TEXT("phase", "stopping"), NOTICE_TEXT("waiting_for", task), NOTICE_END },
           "stopping: waiting for %s; a second Ctrl-C leaves at once, and the job can still be resumed",
           task);
    fflush(stderr);
}

static void *notice_thread(void *unused)
{
    const char *printed = NULL;
    (void)unused;
    while (sem_wait(&signalled))
        ;
    for (int ms = 0; !atomic_load(&closing); ms += POLL_MS) {
        const char *task = atomic_load(&current_task);
        if (ms >= DELAY_MS && task != printed)
            print_notice(printed = task);
        nanosleep(&(struct timespec){ .tv_nsec = POLL_MS * 1000000 }, NULL);
    }
    return NULL;
}

void stop_notice_open(bool json, bool silent)
{
    sigset_t all, before;
    as_json = json;
    if (silent || opened || sem_init(&signalled, 0, 0))
        return;
    sigfillset(&all);                    /* only the thread that can stop the work receives signals */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    opened = pthread_create(&thread, NULL, notice_thread, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    atomic_store(&listening, opened);
}

void stop_notice_close(void)
{
    if (!opened)
        return;
    atomic_store(&closing, true);
    sem_post(&signalled);
    pthread_join(thread, NULL);
    opened = false;                      /* the semaphore stays: a handler may be about to post it */
}

void stop_notice_for(const char *task) { atomic_store(&current_task, task ? task : DATABASE); }

/* ---- signals ---- */

enum { PAIR_MS = 1000 };
atomic_int stop_signal;                  /* not sig_atomic_t: the store's threads read it, too */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LONG_LOCK_FREE == 2,
               "a signal handler may only touch atomics without a lock");

/* A service manager may send a pair of signals at once (TERM and HUP, INT and TERM): a pair counts as one
 * signal. A signal that comes a second later ends the process, whichever it is. SA_RESETHAND has restored
 * the default action by then, so raising the signal again kills the process as soon as this function
 * returns. */
static void on_signal(int number)
{
    static atomic_long first;            /* milliseconds; 0: no signal so far */
    struct timespec t;
    long before = 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const long now = (long)t.tv_sec * 1000 + t.tv_nsec / 1000000 + 1;
    if (!atomic_compare_exchange_strong(&first, &before, now) && now - before > PAIR_MS) {
        raise(number);
        return;
    }
    stop_signal = number;
    if (atomic_load(&listening))
        sem_post(&signalled);
}

void stop_signals_catch(void)
{
    const int caught[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction a = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND }, old;
        /* A signal that the parent ignores, as nohup does, stays ignored. */
        if (sigaction(caught[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN)
            continue;
        sigaction(caught[i], &a, NULL);
    }
}

bool not_stopped(void *ctx, size_t done, size_t of)
{
    (void)ctx, (void)done, (void)of;
    return !stop_signal;
}

const char *stop_signal_name(void)
{
    return stop_signal == SIGINT    ? "SIGINT"
           : stop_signal == SIGTERM ? "SIGTERM"
           : stop_signal == SIGHUP  ? "SIGHUP"
                                    : "SIGUSR1";
}
