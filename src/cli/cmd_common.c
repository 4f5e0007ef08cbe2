#include "src/cli/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/text/chat.h"
#include "src/model/config_tensors.h"
#include "src/model/fingerprint.h"
#include "src/base/stopping.h"
#include "src/model/device_choice.h"

/* ---- where models are ---- */

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The hub cache of Hugging Face's own tools. */
static void cache_dir(char *out, size_t size)
{
    const char *hub = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME"), *xdg = getenv("XDG_CACHE_HOME"),
               *user = getenv("HOME");
    if (hub && *hub)
        snprintf(out, size, "%s", hub);
    else if (home && *home)
        snprintf(out, size, "%s/hub", home);
    else if (xdg && *xdg)
        snprintf(out, size, "%s/huggingface/hub", xdg);
    else
        snprintf(out, size, "%s/.cache/huggingface/hub", user ? user : "");
}

/* org/name -> CACHE/models--org--name/snapshots/HASH, the hash as refs/main has it. */
static int cached_model(char dir[PATH_BYTES], const char *name, const char *what, struct err *e)
{
    char cache[PATH_BYTES / 2], ref[PATH_BYTES], *hash;
    const char *slash = strchr(name, '/');
    size_t n;
    cache_dir(cache, sizeof cache);
    snprintf(ref, sizeof ref, "%s/models--%.*s--%.200s/refs/main", cache, (int)MIN(slash - name, 200), name,
             slash + 1);
    if (access(ref, F_OK))
        return err_set(e, ERR_INPUT, "%s: '%s' is no directory here, and not in the Hugging Face cache %s",
                       what, name, cache);
    if (file_read(&hash, &n, ref, 256, e))
        return -1;
    hash[strcspn(hash, " \r\n\t")] = 0;
    bool ok = *hash && strspn(hash, "0123456789abcdef") == strlen(hash);
    int len = snprintf(dir, PATH_BYTES, "%s/models--%.*s--%.200s/snapshots/%s", cache,
                       (int)MIN(slash - name, 200), name, slash + 1, hash);
    free(hash);
    if (!ok)
        return err_set(e, ERR_INPUT, "%s: not the hash of a snapshot", ref);
    if (len >= PATH_BYTES || !is_dir(dir))
        return err_set(e, ERR_INPUT, "%s: names the snapshot %s, which is no directory", ref, dir);
    return 0;
}

int model_dir_of(char dir[PATH_BYTES], const char *m, const char *what, struct err *e)
{
    size_t n = strlen(m);
    if (n >= PATH_BYTES)
        return err_set(e, ERR_INPUT, "%s: a path of %zu bytes, at most %d are allowed", what, n,
                       PATH_BYTES - 1);
    if (is_dir(m)) {
        memcpy(dir, m, n + 1);
        while (n > 1 && dir[n - 1] == '/')
            dir[--n] = 0;
        return 0;
    }
    const char *slash = strchr(m, '/');
    if (slash && slash != m && slash[1] && !strchr(slash + 1, '/') && m[0] != '.')
        return cached_model(dir, m, what, e);
    if (n > 5 && strcmp(m + n - 5, ".gguf") == 0)
        return err_set(e, ERR_INPUT, "%s: %s: .gguf files are not in this version of longhand", what, m);
    return err_set(e, ERR_INPUT, "%s: %s: %s", what, m,
                   access(m, F_OK) ? strerror(errno) : "not a directory");
}

int model_dir(char dir[PATH_BYTES], const struct options *o, struct err *e)
{
    if (!o->model || !*o->model)
        return err_set(e, ERR_INPUT, "%s: --model DIR is missing", o->verb->name);
    return model_dir_of(dir, o->model, "--model", e);
}

/* ---- the engine ---- */

enum dtype compute_of(const struct options *o) { return o->compute == COMPUTE_F32 ? DT_F32 : DT_BF16; }

enum dtype kv_of(int kv_dtype)
{
    return kv_dtype == KV_DTYPE_INT16 ? DT_I16 : kv_dtype == KV_DTYPE_BF16 ? DT_BF16 : DT_OTHER;
}

int engine_open(struct engine *g, const struct options *o, struct err *e)
{
    char dir[PATH_BYTES];
    if (model_dir(dir, o, e))
        return -1;
    return engine_open_spec(g, &(struct engine_spec){ dir, compute_of(o), o->context_scaling, o->threads,
        o->device, NULL, kv_of(o->kv_dtype) }, e);
}

static struct model sizes_only(const struct engine *g)
{
    return (struct model){ .config = g->config, .compute = g->compute, .dev = g->dev, .ops = g->ops,
                           .pool = g->pool, .head_dim = g->dev->head_dim(g->dev, g->config.head_dim) };
}

int engine_open_spec(struct engine *g, const struct engine_spec *s, struct err *e)
{
    const char *why = "";
    *g = (struct engine){ .compute = s->compute, .kv = s->kv };
    snprintf(g->dir, sizeof g->dir, "%s", s->dir);
    snprintf(g->scaling, sizeof g->scaling, "%s", s->scaling ? s->scaling : "");
    char *path = realpath(g->dir, NULL);
    if (!path || strlen(path) >= sizeof g->path) {
        free(path);
        return err_set(e, ERR_INPUT, "--model: %s: %s", g->dir,
                       path ? "its absolute path is too long" : strerror(errno));
    }
    snprintf(g->path, sizeof g->path, "%s", path);
    free(path);
    g->stamp = model_stamp(g->dir);
    if (config_read(&g->config, g->dir, e) || (s->scaling && config_scale_context(&g->config, s->scaling, e)))
        return -1;
    g->ops = ops_for_cpu(&why);
    if (!g->ops)
        return err_set(e, ERR_INPUT, "LONGHAND_ISA '%s': %s", getenv("LONGHAND_ISA"), why);
    if (tensors_open(&g->tensors, g->dir, e) || config_check_tensors(&g->config, &g->tensors, e) ||
        tokenizer_open(&g->tokenizer, g->dir, g->config.vocab, e))
        goto fail;
    size_t n_threads = s->threads ? s->threads : pool_default_threads();
    g->pool = pool_open(n_threads);
    if (!g->pool) {
        err_set(e, ERR_FAILED, "--threads: cannot start %zu threads", n_threads);
        goto fail;
    }
    const struct device_choice_model wanted = { &g->config, &g->tensors, g->compute, g->kv, g->ops, g->pool };
    if (device_choice_open(&g->dev, s->device, s->numerics, &wanted, e))
        goto fail;
    g->model = sizes_only(g);
    if (model_plan_bytes(&g->config, &g->tensors, g->compute, g->dev, &g->weight_bytes, e))
        goto fail;
    return 0;
fail:
    engine_close(g);
    return -1;
}

void engine_plan(struct memory_plan *plan, const struct engine *g, size_t n_max, size_t rows, size_t want)
{
    const struct config *c = &g->config;
    size_t logits;
    if (!mul_size(want, c->vocab, &logits) || !mul_size(logits, sizeof(float), &logits))
        logits = SIZE_MAX;
    memory_plan_add_on(plan, g->dev, "weights", g->weight_bytes);
    memory_plan_add_on(
        plan, g->dev, "KV cache",
        kv_bytes(g->dev->kv_type, c->n_layers, c->n_kv_heads, g->model.head_dim, n_max, want > 1 ? want : 0));
    memory_plan_add_on(plan, g->dev, "workspace", workspace_bytes(&g->model, rows, n_max));
    memory_plan_add_on(plan, g->dev, "logits", logits);
    if (g->dev->graph_bytes)
        memory_plan_add_on(plan, g->dev, "recorded passes", g->dev->graph_bytes);
    memory_plan_add(plan, "tokenizer", g->tokenizer ? tokenizer_bytes(g->tokenizer) : 0);
}

static bool loading(void *ctx, size_t done, size_t total)
{
    struct progress *p = ctx;
    p->of = total;
    progress_at(p, done);
    return !stop_signal;
}

int engine_load(struct engine *g, struct progress *p, struct err *e)
{
    tensors_close(&g->tensors);
    g->tensors = (struct tensors){0};
    progress_phase(p, "loading", "bytes", g->weight_bytes);
    if (model_open(&g->model, g->dir, &g->config, g->compute, g->dev, g->ops, g->pool, loading, p, e) == 0)
        return 0;
    g->model = sizes_only(g);            /* the next job is sized by it, and reads it again */
    return e->code == ERR_AGAIN
               ? err_set(e, ERR_FAILED, "stopped by %s before %s was read", stop_signal_name(), g->dir)
               : -1;
}

int engine_int8(struct engine *g, struct progress *p, struct err *e)
{
    if (g->int8.mem)
        return 0;
    progress_phase(p, "making the model in 8 bits", "bytes", 0);
    return model_quantize(&g->int8, &g->model, loading, p, e);
}

void engine_close(struct engine *g)
{
    model_close(&g->int8);
    if (g->model.mem)                /* otherwise only what sizes are computed from */
        model_close(&g->model);
    heads_close(&g->heads);
    tensors_close(&g->tensors);
    if (g->dev)
        g->dev->close(g->dev);
    if (g->pool)
        pool_close(g->pool);
    tokenizer_close(g->tokenizer);
    *g = (struct engine){0};
}

/* ---- input ---- */

int text_read(char **data, size_t *n, const char *path, struct err *e)
{
    bool std = strcmp(path, "-") == 0;
    const char *name = std ? "standard input" : path;
    size_t size = 0, room = 0;
    char *p = NULL;
    int fd = std ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, ERR_INPUT, "%s: cannot open: %s", name, strerror(errno));
    for (;;) {
        if (room - size < 2) {
            room = room ? room * 2 : 1 << 16;
            char *q = size > TEXT_BYTES_MAX ? NULL : realloc(p, room);
            if (!q) {
                if (size > TEXT_BYTES_MAX)
                    err_set(e, ERR_INPUT, "%s: more than %d bytes", name, TEXT_BYTES_MAX);
                else
                    err_set(e, ERR_FAILED, "%s: out of memory (%zu bytes)", name, room);
                goto fail;
            }
            p = q;
        }
        ssize_t r = read(fd, p + size, room - size - 1);
        if (r < 0 && errno == EINTR && !stop_signal)
            continue;
        if (r < 0) {
            err_set(e, stop_signal ? ERR_FAILED : ERR_INPUT, "%s: cannot read: %s", name,
                    stop_signal ? stop_signal_name() : strerror(errno));
            goto fail;
        }
        if (r == 0)
            break;
        size += (size_t)r;
    }
    if (!std)
        close(fd);
    p[size] = 0;
    *data = p;
    *n = size;
    return 0;
fail:
    if (!std)
        close(fd);
    free(p);
    return -1;
}

static int check_chat_options(const struct options *o, struct err *e)
{
    static const char *const names[] = { "system", "chat-template", "thinking", "chat-date" };
    for (size_t i = 0; i < sizeof names / sizeof *names && !o->chat; i++)
        if (options_given(o, names[i]))
            return err_set(e, ERR_INPUT, "--%s: it goes with --chat", names[i]);
    return o->system ? text_check_utf8("--system", o->system, strlen(o->system), e) : 0;
}

int prompt_encode(int32_t **ids, size_t *n_ids, const char **template, const struct options *o,
                  const char *dir, const struct tokenizer *t, const char *text, size_t n, struct err *e)
{
    struct chat c;
    *template = NULL;
    if (check_chat_options(o, e))
        return -1;
    if (!o->chat)
        return tokenizer_encode(t, ids, n_ids, text, n, true, e);
    if (chat_open(&c, dir, o->chat_template, e))
        return -1;
    const struct chat_options how = { .add_generation_prompt = true,
                                      .no_thinking = o->thinking == THINKING_OFF, .date = o->chat_date };
    const struct chat_message m[] = { { "system", o->system ? o->system : "", o->system ? strlen(o->system)
                                        : 0 }, { "user", text, n } };
    int rc = how.no_thinking && !chat_has_thinking(&c)
                 ? err_set(e, ERR_INPUT, "--thinking off: chat template %s has no such switch", chat_name(&c))
             : how.date && !chat_has_date(&c)
                 ? err_set(e, ERR_INPUT, "--chat-date: chat template %s names no day", chat_name(&c))
                 : chat_encode(&c, t, o->system ? m : m + 1, o->system ? 2 : 1, &how, ids, n_ids, e);
    *template = chat_name(&c);
    chat_close(&c);
    return rc;
}

int text_check_utf8(const char *what, const char *s, size_t n, struct err *e)
{
    size_t ok = utf8_valid_prefix(s, n);
    if (ok < n)
        return err_set(e, ERR_INPUT, "%s: invalid UTF-8 at offset %zu (byte 0x%02x)", what, ok,
                       (unsigned char)s[ok]);
    return 0;
}

int text_read_utf8(char **data, size_t *n, const char *path, struct err *e)
{
    if (text_read(data, n, path, e))
        return -1;
    if (text_check_utf8(strcmp(path, "-") ? path : "standard input", *data, *n, e)) {
        free(*data);
        return -1;
    }
    return 0;
}

/* ---- output ---- */

/* A regular file is written aside and renamed; what is no regular file (a device, a pipe) is written as it is. */
bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int sink_open(struct sink *s, const char *path, struct err *e)
{
    struct stat st;
    *s = (struct sink){ .fd = STDOUT_FILENO };
    int open_fd;
    if (!path || strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0)
        return 0;
    if (!*path)
        return err_set(e, ERR_INPUT,
                       "--output: '' is not the name of a file; FILE, or - for standard output, is allowed");
    char *real = realpath(path, NULL);           /* a link keeps pointing where it points */
    int n = snprintf(s->path, PATH_BYTES, "%s", real ? real : path);
    free(real);
    if (n >= PATH_BYTES - 16)
        return err_set(e, ERR_INPUT, "--output: a path of %d bytes is too long", n);
    const bool there = stat(s->path, &st) == 0;
    bool device = (strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0) ||
                  strncmp(path, "/proc/", 6) == 0;
    /* The shell's names for what is open already are not resolved to the file behind them, to be replaced. */
    if (sscanf(path, "/dev/fd/%d", &open_fd) == 1) {
        s->fd = fcntl(open_fd, F_DUPFD_CLOEXEC, 3);
        s->path[0] = 0;
    } else if (device || (there && !S_ISREG(st.st_mode))) {
        s->fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        s->path[0] = 0;
    } else {
        mode_t mask = umask(0);
        umask(mask);
        snprintf(s->temporary, PATH_BYTES, "%.*s.part-XXXXXX", PATH_BYTES - 16, s->path);
        s->fd = mkostemp(s->temporary, O_CLOEXEC);
        if (s->fd >= 0)
            fchmod(s->fd, there ? st.st_mode & 0777 : 0666 & ~mask);     /* a file that others may not read stays so */
    }
    if (s->fd < 0)
        return err_set(e, ERR_INPUT, "--output: %s: cannot write: %s", path, strerror(errno));
    return 0;
}

/* A closed pipe is an interruption: who read has had enough. */
static int cannot_write(const char *name, int why, struct err *e)
{
    return why == EPIPE ? err_set(e, ERR_AGAIN, "%s was closed", name)
                        : err_set(e, ERR_FAILED, "%s: cannot write: %s", name, strerror(why));
}

int sink_write(struct sink *s, const void *data, size_t n, struct err *e)
{
    const char *p = data;
    while (n) {
        ssize_t w = write(s->fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return cannot_write(s->temporary[0] ? s->temporary : "standard output", errno, e);
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

int sink_finish(struct sink *s, struct err *e)
{
    if (!s->temporary[0])
        return json_whole(e);
    if (json_whole(e))
        return -1;
    if (fsync(s->fd) || rename(s->temporary, s->path))
        return err_set(e, ERR_FAILED, "%s: cannot write: %s; the text is in %s", s->path, strerror(errno),
                       s->temporary);
    close(s->fd);
    s->temporary[0] = 0;
    s->fd = STDOUT_FILENO;
    if (name_sync(s->path))
        return err_set(e, ERR_FAILED, "%s: its folder cannot be written to the disk: %s", s->path,
                       strerror(errno));
    return 0;
}

void sink_abandon(struct sink *s)
{
    struct stat st;
    if (!s->temporary[0])
        return;
    if (fstat(s->fd, &st) == 0 && st.st_size == 0) {
        unlink(s->temporary);
        s->temporary[0] = 0;
    }
    close(s->fd);
    s->fd = STDOUT_FILENO;
}

void put_json(FILE *f, const char *s, size_t n)
{
    size_t valid = utf8_valid_prefix(s, n);
    putc_unlocked('"', f);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (i == valid) {
            fprintf(f, "\\\\x%02x", c);
            valid = i + 1 + utf8_valid_prefix(s + i + 1, n - i - 1);
        } else if (c == '"' || c == '\\')
            putc_unlocked('\\', f), putc_unlocked(c, f);
        else if (c == '\n')
            fputs_unlocked("\\n", f);
        else if (c == '\t')
            fputs_unlocked("\\t", f);
        else if (c == '\r')
            fputs_unlocked("\\r", f);
        else if (c < 0x20 || c == 0x7f)
            fprintf(f, "\\u%04x", c);
        else
            putc_unlocked(c, f);
    }
    putc_unlocked('"', f);
}

int stdout_finish(struct err *e)
{
    struct pollfd p = { .fd = STDOUT_FILENO };
    errno = 0;
    if (fflush(stdout) || ferror(stdout)) {      /* of an earlier failure only the pipe itself still tells */
        int why = errno ? errno : poll(&p, 1, 0) == 1 && p.revents & POLLERR ? EPIPE : EIO;
        return cannot_write("standard output", why, e);
    }
    return json_whole(e);
}

static atomic_bool json_short;

static void *json_memory(size_t n)
{
    void *p = malloc(n);
    if (!p)
        atomic_store(&json_short, true);
    return p;
}

void json_watch(void) { json_set_alloc_funcs(json_memory, free); }

int json_whole(struct err *e)
{
    return atomic_load(&json_short) ? err_set(e, ERR_FAILED, "out of memory for JSON") : 0;
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
