/* Sampling from logits on a device. The host's tables (penalty counts, DRY, bans) become the device's
 * struct device_picks; a launch samples many rows. Start at device_sampler_set_tree, then add_choice and
 * launch. */
#include "src/sample/device_sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "src/sample/sample_impl.h"

enum {
    ROWS = 64,                           /* choices of one launch */
    CHANGES = 2 * SAMPLE_PATH_MAX,       /* count entries that a path changes at most */
    ADVANCE = 64,                        /* after more new tokens than this the whole counts are uploaded */
};

struct device_sampler {
    struct sampler *sampler;
    struct device *dev;
    size_t vocab, bytes, device_bytes;
    float *row;                          /* [vocab] a copy of a row that the host ranks; host_memory only */
    /* without host_memory */
    size_t rows;                         /* choices of a launch */
    struct device_chain chain;
    uint32_t *counts;                    /* the device's [2][vocab], or NULL: penalties are off */
    bool counted;                        /* counts holds the sampler's counts */
    struct device_pick *choice;        /* [rows] */
    struct device_count *count;          /* [rows * CHANGES] */
    struct device_candidate *best;       /* [rows * RANK_MAX] */
    /* [edits]: three lists (fixed_edits), which begin at list[0..2] and end at list[3]; then the penalties of
     * DRY */
    struct device_edit *edit;
    size_t edits, list[4];
    struct device_picks next;          /* the next launch */
    bool extends;                        /* DRY's index holds the text */
    int32_t *token;                      /* [rows of a tree], -1: no candidate is left */
};

/* The order of sampling.h. */
static const enum device_step steps[] = { DEVICE_BIAS, DEVICE_PENALTIES, DEVICE_DRY, DEVICE_TEMPERATURE,
                                          DEVICE_TOP_K, DEVICE_TOP_P, DEVICE_MIN_P, DEVICE_ETA };

/* ---- memory ---- */

static size_t launch_rows(size_t rows)
{
    return rows == 1 ? 1 : MIN(MAX(rows, (size_t)DEVICE_SAMPLER_RANKS), (size_t)ROWS);
}

/* Room for the three lists of fixed_edits, and DRY's penalties of at least one row, which may be the whole
 * vocabulary. */
static size_t edits_max(const struct sampling *p, size_t vocab)
{
    return 3 * p->n_bias + 2 * p->n_eos + p->n_stop + (p->dry_multiplier != 0 ? vocab : 0);
}
/* Settings that need the most memory. */
static const struct sampling largest = { .dry_multiplier = 1, .penalty = 2, .penalty_window = 1 };

static bool has_counts(const struct sampling *p)
{
    return sampling_has_penalty(p) || sampling_has_text_penalty(p);
}

/* Assigns the host's buffers addresses in mem. With mem NULL it only counts their bytes. */
static size_t layout(struct device_sampler *c, char *mem, size_t tree_rows)
{
    const struct { void *slot; size_t bytes;
    } b[] = {
        { &c->row, c->dev->host_memory ? c->vocab * sizeof *c->row : 0 },
        { &c->choice, c->rows * sizeof *c->choice },
        { &c->count, c->rows * CHANGES * sizeof *c->count },
        { &c->best, c->rows * RANK_MAX * sizeof *c->best },
        { &c->edit, c->edits * sizeof *c->edit },
        { &c->token, c->dev->host_memory ? 0 : tree_rows * sizeof *c->token },
    };
    size_t used = (sizeof *c + 63) / 64 * 64;
    for (size_t i = 0; i < sizeof b / sizeof *b; i++) {
        char *p = mem ? mem + used : NULL;
        if (mem)
            memcpy(b[i].slot, &p, sizeof p);
        used += (b[i].bytes + 63) / 64 * 64;
    }
    return used;
}

static struct device_sampler sizes(const struct model *m, const struct sampling *p, size_t rows)
{
    struct device_sampler c = { .dev = m->dev, .vocab = m->config.vocab };
    if (m->dev->host_memory)
        return c;
    c.rows = launch_rows(rows);
    c.edits = edits_max(p, c.vocab);
    return c;
}

size_t device_sampler_bytes(const struct model *m, size_t rows)
{
    struct device_sampler c = sizes(m, &largest, rows);
    return sampler_bytes(c.vocab) + layout(&c, NULL, rows);
}

static size_t work_bytes(const struct device_sampler *c)
{
    return c->dev->host_memory ? 0
                               : c->dev->sample_bytes(c->dev, c->rows, c->edits, c->rows * CHANGES, c->vocab);
}

size_t device_sampler_device_bytes(const struct model *m, size_t rows)
{
    const struct device_sampler c = sizes(m, &largest, rows);
    return work_bytes(&c) + (c.rows ? 2 * c.vocab * sizeof *c.counts : 0);
}

/* Adds an edit to the n of a list, or replaces that of the same id. */
static size_t put_edit(struct device_edit *list, size_t n, int32_t id, double bias)
{
    size_t j = 0;
    while (j < n && list[j].id != (uint32_t)id)
        j++;
    list[j] = (struct device_edit){ (uint32_t)id, bias };
    return MAX(n, j + 1);
}

/* Writes three lists: the biases alone, with bans of the EOS ids, and with bans of all ids that end a text.
 * No id occurs twice in a list. */
static void fixed_edits(struct device_sampler *c, const struct sampling *p)
{
    const size_t bans[] = { 0, p->n_eos, p->n_eos + p->n_stop };
    for (size_t k = 0; k < 3; k++) {
        struct device_edit *list = c->edit + c->list[k];
        size_t n = p->n_bias;
        for (size_t i = 0; i < n; i++)
            list[i] = (struct device_edit){ (uint32_t)p->bias[i].id, (float)p->bias[i].bias };
        for (size_t i = 0; i < bans[k]; i++)
            n = put_edit(list, n, p->eos[i], (double)-INFINITY);
        c->list[k + 1] = c->list[k] + n;
    }
}

static void chain_of(struct device_chain *d, const struct sampling *p, const uint32_t *counts)
{
    *d = (struct device_chain){
        .temperature = p->temperature, .top_k = p->top_k > 0 ? (size_t)p->top_k : 0,
        .min_keep = p->min_keep, .top_p = p->top_p, .min_p = p->min_p, .eta = p->eta,
        .penalty = p->penalty, .presence = p->presence, .frequency = p->frequency,
        .seed = p->seed, .sample = p->sample, .counts = counts, .n_order = DEVICE_STEPS,
    };
    static_assert(sizeof steps / sizeof *steps == DEVICE_STEPS, "every step of a device");
    memcpy(d->order, steps, sizeof steps);
}

static int check_steps(const struct sampling *p, struct err *e)
{
    for (const struct chain_step *step = chain_steps; step->name; step++)
        if (step->on(p) && !step->on_gpu)
            return err_set(e, ERR_INPUT, "--%s: only a CPU has this filter; --device cpu", step->name);
    if (p->thought_budget >= 0)
        return err_set(e, ERR_INPUT, "--thinking-budget: only a CPU has it; --device cpu");
    return 0;
}

int device_sampler_open(struct device_sampler **out, const struct model *m, const struct sampling *p,
                        size_t rows, struct err *e)
{
    struct device_sampler c = sizes(m, p, rows);
    struct device *dev = m->dev;
    *out = NULL;
    if (!dev->host_memory && check_steps(p, e))
        return -1;
    if (sampler_open(&c.sampler, p, c.vocab, m->ops, m->pool, e))
        return -1;
    c.bytes = layout(&c, NULL, rows);
    c.device_bytes = work_bytes(&c);
    char *mem = mem_alloc(c.bytes);
    if (mem)
        layout(&c, mem, rows);
    if (mem && !dev->host_memory) {
        fixed_edits(&c, p);
        c.counts = has_counts(p) ? dev->alloc(dev, 2 * c.vocab * sizeof *c.counts) : NULL;
        c.next.work = dev->alloc(dev, c.device_bytes);
        chain_of(&c.chain, p, c.counts);
    }
    struct device_sampler *here = (struct device_sampler *)(void *)mem;
    const bool whole = mem && (dev->host_memory || (c.next.work && (c.counts || !has_counts(p))));
    if (mem)
        *here = c;
    if (!whole) {
        if (mem)
            device_sampler_close(here);
        else
            sampler_close(c.sampler);
        return err_set(e, ERR_FAILED, "%s: out of memory for sampling (%zu bytes)", dev->name,
                       c.bytes + c.device_bytes);
    }
    *out = here;
    return 0;
}

void device_sampler_close(struct device_sampler *c)
{
    if (!c)
        return;
    sampler_close(c->sampler);
    if (!c->dev->host_memory) {
        c->dev->free(c->dev, c->next.work, c->device_bytes);
        c->dev->free(c->dev, c->counts, 2 * c->vocab * sizeof *c->counts);
    }
    mem_free(c, c->bytes);
}

struct sampler *device_sampler_host(const struct device_sampler *c) { return c->sampler; }

/* ---- on the device ---- */

/* Makes the sampler's tables, and the counts on the device, those of the text of h. */
static void follow_text(struct device_sampler *c, const struct history *h)
{
    const struct history text = { h->tokens, h->n, h->n_prompt, .known = h->known };
    struct token_counts *t = &c->sampler->counts;
    c->extends = (c->counts || c->sampler->dry.on) && history_digest_extend(&c->sampler->seen, &text);
    if (!c->counts)
        return;
    if (c->extends && c->counted && text.n - t->n <= ADVANCE) {
        struct device_count list[2 * ADVANCE];
        const size_t n = token_counts_delta(t, &text, t->n, text.n, list);
        token_counts_follow(t, &text, true);
        if (n)
            c->dev->count(c->dev, c->counts, c->vocab, list, n);
        return;
    }
    token_counts_follow(t, &text, c->extends);
    c->dev->upload(c->dev, c->counts, t->last.count, c->vocab * sizeof *c->counts);
    c->dev->upload(c->dev, c->counts + c->vocab, t->text.count, c->vocab * sizeof *c->counts);
    c->counted = true;
}

static void start_launch(struct device_sampler *c)
{
    c->next = (struct device_picks){ .pick = c->choice, .edit = c->edit,
                                       .n_edit = c->list[3], .count = c->count,
                                       .work = c->next.work };
}

/* Adds a choice to the next launch: one token from logits `row` after h, with the coins of candidate row
 * `coins`. follow_text has seen the text of h. false if the launch has no room for it. */
static bool add_choice(struct device_sampler *c, size_t row, const struct history *h, uint32_t coins)
{
    struct sampler *s = c->sampler;
    struct device_picks *d = &c->next;
    if (d->n == c->rows)
        return false;
    dry_enter(&s->dry, h, c->extends);
    c->extends = true;
    const bool fits = s->dry.found.n <= c->edits - d->n_edit;
    const size_t bans = sampler_banned_ends(&s->p, h), list = !bans ? 0 : bans == s->p.n_eos ? 1 : 2;
    if (fits) {
        struct device_pick *x = &c->choice[d->n++];
        *x = (struct device_pick){
            .position = sampler_position(h, coins), .row = (uint32_t)row,
            .edit = (uint32_t)c->list[list], .n_edit = (uint32_t)(c->list[list + 1] - c->list[list]),
            .dry = (uint32_t)d->n_edit, .n_dry = (uint32_t)s->dry.found.n, .count = (uint32_t)d->n_count,
        };
        for (size_t i = 0; i < s->dry.found.n; i++) {
            const int32_t id = s->dry.found.ids[i];
            c->edit[d->n_edit++] = (struct device_edit){ (uint32_t)id, -dry_penalty(&s->dry, id) };
        }
        if (c->counts) {
            assert(h->n_path <= SAMPLE_PATH_MAX);
            x->n_count =
                (uint32_t)token_counts_delta(&s->counts, h, h->n, h->n + h->n_path, c->count + d->n_count);
            d->n_count += x->n_count;
        }
    }
    dry_leave(&s->dry);
    return fits;
}

/* Runs the launch, which writes c->best [n][k], and starts an empty one. Returns n. */
static size_t launch(struct device_sampler *c, const float *logits, size_t k)
{
    const size_t n = c->next.n;
    if (n && c->dev->sample(c->dev, c->best, k, logits, c->vocab, &c->chain, &c->next))
        for (size_t i = 0; i < n * k; i++)
            c->best[i].id = -1;                  /* the caller checks the device's error */
    start_launch(c);
    return n;
}

/* Runs the launch and stores its tokens from node `first` on. */
static void launch_nodes(struct device_sampler *c, const float *logits, size_t first)
{
    const size_t n = launch(c, logits, 1);
    for (size_t i = 0; i < n; i++)
        c->token[first + i] = c->best[i].id;
}

static int32_t token_or_lowest(struct device_sampler *c, int32_t id, const struct history *h)
{
    return id < 0 ? sampler_lowest_allowed(c->sampler, h) : id;
}

/* ---- for every device ---- */

void device_sampler_set_tree(struct device_sampler *c, const float *logits, const struct history *text,
                             size_t n, const int32_t *parent, const int32_t *token)
{
    size_t first = 0;
    if (c->dev->host_memory)
        return;                                  /* the host's sampler samples the visited rows on demand */
    follow_text(c, text);
    start_launch(c);
    for (size_t i = 0; i < n; i++) {
        int32_t path[SAMPLE_PATH_MAX];
        struct history h = *text;
        for (int32_t at = (int32_t)i; parent[at] >= 0; at = parent[at]) {
            assert(h.n_path < SAMPLE_PATH_MAX);
            path[SAMPLE_PATH_MAX - ++h.n_path] = token[at];
        }
        h.path = path + SAMPLE_PATH_MAX - h.n_path;
        if (!add_choice(c, i, &h, 0)) {
            launch_nodes(c, logits, first);
            first = i;
            add_choice(c, i, &h, 0);
        }
    }
    launch_nodes(c, logits, first);
}

int32_t device_sampler_token(struct device_sampler *c, float *logits, size_t i, const struct history *h)
{
    if (c->dev->host_memory)
        return sampler_sample(c->sampler, logits + i * c->vocab, h);
    return token_or_lowest(c, c->token[i], h);
}

int32_t device_sampler_token_row(struct device_sampler *c, const float *logits, size_t i,
                                 const struct history *h, uint32_t row)
{
    if (c->dev->host_memory) {
        memcpy(c->row, logits + i * c->vocab, c->vocab * sizeof *c->row);
        return sampler_sample_row(c->sampler, c->row, h, row);
    }
    follow_text(c, h);
    start_launch(c);
    add_choice(c, i, h, row);
    launch(c, logits, 1);
    return token_or_lowest(c, c->best[0].id, h);
}

void device_sampler_rank(struct device_sampler *c, const float *logits, const struct history *h, size_t n,
                         size_t k, struct candidate *best, size_t *found)
{
    assert(n <= DEVICE_SAMPLER_RANKS);
    if (c->dev->host_memory) {
        for (size_t i = 0; i < n; i++) {
            memcpy(c->row, logits, c->vocab * sizeof *c->row);
            found[i] = sampler_rank(c->sampler, c->row, &h[i], k, best + i * k);
        }
        return;
    }
    follow_text(c, h);
    start_launch(c);
    for (size_t i = 0, done = 0; done < n;) {
        if (i < n && add_choice(c, 0, &h[i], 0)) {
            i++;
            continue;
        }
        const size_t some = launch(c, logits, k);
        for (size_t j = 0; j < some; j++, done++) {
            size_t m = 0;
            for (; m < k && c->best[j * k + m].id >= 0; m++)
                best[done * k + m] = (struct candidate){ c->best[j * k + m].id, c->best[j * k + m].score };
            found[done] = m;
        }
    }
}
