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
