/* What the threads of a server share: news of commits, and connections to the store. */
#include "runs/serve/server.h"
#include "runs/work/snapshot_files.h"

#include <stdio.h>
#include <stdlib.h>

static const double FORGET_SECONDS = 24 * 3600;   /* after the end of a request with a key */

/* ---- news ---- */

void server_tell(void *ctx, int64_t job)
{
    struct server *sv = ctx;
    pthread_mutex_lock(&sv->news.lock);
    sv->news.of[job % NEWS]++;
    pthread_cond_broadcast(&sv->news.cond);
    pthread_mutex_unlock(&sv->news.lock);
}

static uint64_t count(const struct server *sv, const int64_t *ids, size_t n)
{
    uint64_t all = 0;
    for (size_t i = 0; i < n; i++)
        all += sv->news.of[ids[i] % NEWS];
    return all;
}

uint64_t news_count(struct server *sv, const int64_t *ids, size_t n)
{
    pthread_mutex_lock(&sv->news.lock);
    const uint64_t all = count(sv, ids, n);
    pthread_mutex_unlock(&sv->news.lock);
    return all;
}

void news_wait(struct server *sv, const int64_t *ids, size_t n, uint64_t seen, double seconds)
{
    const double due = clock_seconds() + seconds;
    pthread_mutex_lock(&sv->news.lock);
    while (count(sv, ids, n) == seen && sv->phase != SERVE_STOPPING &&
           !cond_wait_until(&sv->news.cond, &sv->news.lock, due))
        ;
    pthread_mutex_unlock(&sv->news.lock);
}

/* ---- the store ---- */

int server_jobs(struct server *sv, const int64_t *ids, size_t n, struct job_list *jobs, struct err *e)
{
    pthread_mutex_lock(&sv->reading);
    const int rc = store_jobs(sv->reader, ids, n, jobs, e);
    pthread_mutex_unlock(&sv->reading);
    return rc;
}

int server_connect(struct server *sv, struct store **s, struct err *e)
{
    pthread_mutex_lock(&sv->reading);
    const int rc = store_reopen(s, sv->reader, e);
    pthread_mutex_unlock(&sv->reading);
    return rc;
}

int server_select(struct store *s, const struct selection *sel, size_t most, struct job_list *jobs,
                  struct err *e)
{
    int64_t *ids = NULL;
    size_t n = 0;
    *jobs = (struct job_list){0};
    int rc = store_select(s, sel, &ids, &n, e);
    const size_t skip = sel->n ? 0 : n - MIN(n, most);
    rc = rc || store_jobs(s, ids + skip, MIN(n, most), jobs, e) ? -1 : 0;
    free(ids);
    return rc;
}

struct selection server_book(struct selection_term *term, const char *name)
{
    *term = (struct selection_term){ .word = term->name };
    snprintf(term->name, sizeof term->name, "%s", name);
    return (struct selection){ .v = term, .n = 1 };
}

void server_cancel(struct server *sv, const int64_t *ids, size_t n)
{
    struct err ignored;
    pthread_mutex_lock(&sv->writing);
    store_requests_end(sv->writer, ids, n, sv->o->forget, &ignored);
    snapshot_files_delete_unused(sv->writer);
    pthread_mutex_unlock(&sv->writing);
    bell_ring(&sv->bell);
}

void server_forget(struct server *sv)
{
    struct err ignored;
    size_t removed;
    pthread_mutex_lock(&sv->writing);
    if (store_requests_forget(sv->writer, FORGET_SECONDS, &removed, &ignored) == 0 && removed)
        snapshot_files_delete_unused(sv->writer);
    pthread_mutex_unlock(&sv->writing);
}
