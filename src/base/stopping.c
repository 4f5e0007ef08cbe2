#include "src/base/stopping.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 20, MOMENT_MS = 200 };

static const char DATABASE[] = "the database";
static sem_t told;
static pthread_t thread;
static bool opened, as_json;
static atomic_bool listens, closing;
static _Atomic(const char *) waits_for = DATABASE;

static void say(const char *what)
{
    if (as_json)
        fprintf(stderr, "{\"phase\": \"stopping\", \"waiting_for\": \"%s\"}\n", what);
    else                                         /* a terminal's line has a ^C, and maybe text or progress */
        fprintf(
            stderr,
            "%sstopping: waiting for %s; a second Ctrl-C leaves at once, and the job can still be resumed\n",
            isatty(STDERR_FILENO) ? "\n" : "", what);
    fflush(stderr);
}

static void *watch(void *ctx)
{
    const char *said = NULL;
    (void)ctx;
    while (sem_wait(&told))
        ;
    for (int ms = 0; !atomic_load(&closing); ms += LOOK_MS) {
        const char *what = atomic_load(&waits_for);
        if (ms >= MOMENT_MS && what != said)
            say(said = what);
        nanosleep(&(struct timespec){ .tv_nsec = LOOK_MS * 1000000 }, NULL);
    }
    return NULL;
}

void stopping_open(bool json, bool silent)
{
    sigset_t all, before;
    as_json = json;
    if (silent || opened || sem_init(&told, 0, 0))
        return;
    sigfillset(&all);                            /* signals are for the thread that can stop the work */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    opened = pthread_create(&thread, NULL, watch, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    atomic_store(&listens, opened);
}

void stopping_close(void)
{
    if (!opened)
        return;
    atomic_store(&closing, true);
    sem_post(&told);
    pthread_join(thread, NULL);
    opened = false;                              /* the semaphore stays: a handler may be about to post it */
}

void stopping_for(const char *what) { atomic_store(&waits_for, what ? what : DATABASE); }

void stopping_told(void)
{
    if (atomic_load(&listens))
        sem_post(&told);
}

/* ---- signals ---- */

enum { PAIR_MS = 1000 };
atomic_int stop_signal;             /* not sig_atomic_t: the threads of the store look at it too */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LONG_LOCK_FREE == 2,
               "a signal handler may only touch atomics without a lock");

/* Whoever stops a service or a job may send a pair at once (TERM and HUP, INT and TERM): that is one word. What comes a second later is another
 * one, whichever signal it is; its own disposition is the default by then (SA_RESETHAND), and it ends the process as soon as this returns. */
static void on_signal(int number)
{
    static atomic_long first;                    /* milliseconds; 0: none has come */
    struct timespec t;
    long before = 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const long now = (long)t.tv_sec * 1000 + t.tv_nsec / 1000000 + 1;
    if (!atomic_compare_exchange_strong(&first, &before, now) && now - before > PAIR_MS) {
        raise(number);
        return;
    }
    stop_signal = number;
    stopping_told();
}

void stop_signals_catch(void)
{
    const int caught[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction a = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND }, old;
        /* nohup and the like: what was ignored at the start stays ignored */
        if (sigaction(caught[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN)
            continue;
        sigaction(caught[i], &a, NULL);
    }
}

const char *stop_signal_name(void)
{
    return stop_signal == SIGINT    ? "SIGINT"
           : stop_signal == SIGTERM ? "SIGTERM"
           : stop_signal == SIGHUP  ? "SIGHUP"
                                    : "SIGUSR1";
}
