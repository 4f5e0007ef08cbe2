/* A server of OpenAI's API whose requests are jobs in the store.
 *
 * serve() opens the store, the port and the model, and then works on the queue as `work --watch` does, until
 * a signal comes. Threads of libmicrohttpd answer the requests, one thread for each connection. A request
 * becomes jobs (completions.c), whose texts are read from the store, so an answer never has a token that a
 * crash could take back.
 *
 * Threads. The calling thread is the worker. The others share two connections to the store, each with a lock,
 * and, without one, the front: the model without weights, which turns bodies into jobs. A thread that waits
 * for a text sleeps until a commit has changed the job, and looks once a second for its client. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "runs/store/selection.h"
#include "runs/work/read_text.h"
#include "runs/work/thread.h"
#include "runs/work/worker.h"
#include "src/request/batch.h"

struct MHD_Daemon;
struct route;

/* Serves until a signal comes; then 0, or ERR_AGAIN if jobs are left. w: zero, with the settings of the
 * command line, not open. parallel: as in struct schedule_options. ERR_INPUT before the model is opened for
 * an address that needs a key, and for a bad key file. */
int serve(const struct options *o, struct worker *w, struct store *s, size_t parallel, struct err *e);

/* ---- what the threads share ---- */

enum phase { SERVE_LOADING, SERVE_READY, SERVE_STOPPING };
/* Requests have the highest priority, before every batch. */
enum { NEWS = 256, READERS = 8, STORE_NAME_BYTES = 9, SERVE_PRIORITY = 1000000 };

/* Commits change jobs: one count for the jobs of each remainder. */
struct news { pthread_mutex_t lock; pthread_cond_t cond; uint64_t of[NEWS]; };
/* A tokenizer that threads read texts with. */
struct shared_reader { struct text_reader reader; size_t users; };

struct server {
    const struct options *o;             /* of the command line */
    struct options request;              /* of a request without fields */
    struct worker *worker;
    char model[256];                     /* the name that clients know */
    char store_name[STORE_NAME_BYTES];   /* a part of ids */
    atomic_int phase;                    /* enum phase */
    atomic_size_t busy;                  /* requests that wait for texts */
    atomic_size_t bodies;                /* bytes of memory for the bodies of all requests */
    struct bell bell;
    struct news news;
    char *metrics;                       /* under news.lock: the figures of the worker; NULL: none yet */
    pthread_mutex_t reading; struct store *reader; struct shared_reader texts[READERS];
    pthread_mutex_t writing; struct store *writer;
    /* requests that wait for `writing`, whose holder stores all of them in one transaction (completions.c) */
    pthread_mutex_t joining; struct submission *first, **last;
    struct batch front;                  /* threads share it */
    struct thread checker; bool check_wanted;            /* batches.c */
    /* http.c. seats: of the connections that wait for a request, the oldest first; n_seats: of all */
    pthread_mutex_t seating; TAILQ_HEAD(, seat) seats; size_t n_seats;
    const struct route *routes;
    struct MHD_Daemon *daemon;
    int listener;
    bool has_key; uint8_t key[SHA256_BYTES];     /* SHA-256 of the key */
    char address[64];                    /* as in a URL */
    size_t port;
};

/* The rows of n jobs, in this order; without those that were removed. job_list_free. */
int  server_jobs(struct server *sv, const int64_t *ids, size_t n, struct job_list *jobs, struct err *e);
/* A connection of the caller's own, for what may take long; store_close. */
int  server_connect(struct server *sv, struct store **s, struct err *e);
/* `most` jobs of a selection in the order of their numbers: of a book the first ones, else the newest. */
int  server_select(struct store *s, const struct selection *sel, size_t most, struct job_list *jobs,
                   struct err *e);
/* The selection of the jobs of this name. It needs *term. */
struct selection server_book(struct selection_term *term, const char *name);
/* Cancel requests that nobody waits for any more, and with --forget remove them. */
void server_cancel(struct server *sv, const int64_t *ids, size_t n);
/* --forget: remove the requests that nobody will ask for any more. */
void server_forget(struct server *sv);
/* News: a commit has changed this job. For struct worker. */
void server_tell(void *server, int64_t job);
/* How often commits have changed these jobs, or others with the same remainder. */
uint64_t news_count(struct server *sv, const int64_t *ids, size_t n);
/* Wait until that number is another one, for at most so many seconds. */
void news_wait(struct server *sv, const int64_t *ids, size_t n, uint64_t seen, double seconds);
