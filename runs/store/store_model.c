/* The models of a store: what reading their texts needs.
 *
 * Owns the tables model and tokenizer. A row is written once, after the worker has checked the fingerprint of
 * the files that it came from, and never changes. Start at store_model_put and store_model. */
#include "runs/store/store_db.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "src/base/json.h"

enum { TOKENIZER_BYTES_MAX = 1 << 30, EOS_MAX = 1 << 16 };

int store_model_has(struct store *s, const char *fingerprint, struct err *e)
{
    return db_read(s, e, "SELECT 1 FROM model WHERE fingerprint = ?1", "t", fingerprint);
}

/* ---- writing ---- */

/* "[1,2]"; free(). NULL: out of memory. */
static char *eos_text(const int32_t *eos, size_t n)
{
    char *text = malloc(3 + 12 * n), *p = text;
    for (size_t i = 0; text && i < n; i++)
        p += sprintf(p, "%c%" PRId32, i ? ',' : '[', eos[i]);
    if (text)
        strcpy(p, n ? "]" : "[]");
    return text;
}

int store_model_put(struct store *s, const char *fingerprint, const struct model_record *m, struct err *e)
{
    uint8_t sha[SHA256_BYTES], *packed = NULL;
    size_t size = 0;
    int64_t id;
    sha256_of(sha, m->tokenizer, m->n_tokenizer);
    char *eos = eos_text(m->eos, m->n_eos);
    int rc = eos ? db_read(s, e, "SELECT id FROM tokenizer WHERE sha = ?1", "h>i", sha, &id)
                 : err_set(e, ERR_FAILED, "out of memory for a model");
    if (rc == 0)                         /* before the transaction: a large tokenizer takes a second */
        rc = zlib_pack(&packed, &size, m->tokenizer, m->n_tokenizer, false) == 0 ? 0 :
             err_set(e, ERR_FAILED, "out of memory for a tokenizer of %zu bytes", m->n_tokenizer);
    if (rc >= 0)
        rc = db_end(s, db_begin(s, e) ||
                       db_run(s, e, "INSERT INTO tokenizer (sha, bytes, data) SELECT ?1, ?2, ?3 WHERE "
                              "?3 NOT NULL ON CONFLICT (sha) DO NOTHING; "
                              "INSERT INTO model (fingerprint, tokenizer, vocab, eos, config, generation) "
                              "SELECT ?4, id, ?5, ?6, ?7, ?8 FROM tokenizer WHERE sha = ?1 "
                              "ON CONFLICT (fingerprint) DO NOTHING", "hzbtzttt", sha, m->n_tokenizer, packed,
                              size, fingerprint, m->vocab, eos, m->config, m->generation) ? -1 : 0, e);
    free(packed);
    free(eos);
    return rc;
}

int store_add_sha(struct store *s, const struct text_sha *v, size_t n, struct err *e)
{
    if (!n)
        return 0;
    int rc = db_begin(s, e);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = db_run(s, e, "UPDATE job SET text_sha = ?3 WHERE id = ?1 AND attempt = ?2 AND state = 'done' "
                    "AND text_sha IS NULL", "iih", v[i].job, v[i].attempt, v[i].sha);
    return db_end(s, rc, e);
}

/* ---- reading ---- */

static int damaged(const struct store *s, const char *fingerprint, const char *why, struct err *e)
{
    return err_set(e, ERR_FAILED, ERR_PATH "the stored model %.16s.. is damaged: %s",
                   s->shown, fingerprint, why);
}

static int read_eos(struct model_record *m, const char *text, struct err *e)
{
    struct json root, v;
    if (js_check(&root, "eos", text, strlen(text), e) || js_kind(&root) != JS_ARRAY ||
        js_count(&root) > EOS_MAX)
        return -1;
    m->eos = calloc(js_count(&root) + 1, sizeof *m->eos);
    if (!m->eos)
        return -1;
    for (struct js_walk w = js_walk(&root); js_next(&w, NULL, &v); m->n_eos++) {
        int64_t id;
        if (!js_i64(&v, &id) || id < 0 || id > INT32_MAX)
            return -1;
        m->eos[m->n_eos] = (int32_t)id;
    }
    return 0;
}

/* The tokenizer from columns bytes, data and sha of a row. */
static int read_tokenizer(struct store *s, struct model_record *m, const char *fingerprint, sqlite3_stmt *q,
                          int i, struct err *e)
{
    uint8_t sha[SHA256_BYTES];
    int64_t bytes = sqlite3_column_int64(q, i);
    if (bytes < 1 || bytes > TOKENIZER_BYTES_MAX)
        return damaged(s, fingerprint, "the tokenizer's size", e);
    uLong n = (uLong)bytes;
    m->tokenizer = malloc(n + 1);
    if (!m->tokenizer)
        return err_set(e, ERR_FAILED, "out of memory for a tokenizer of %lu bytes", n);
    int z = uncompress((Bytef *)m->tokenizer, &n, sqlite3_column_blob(q, i + 1),
                       (uLong)sqlite3_column_bytes(q, i + 1));
    if (z != Z_OK || n != (uLong)bytes)
        return damaged(s, fingerprint, "the tokenizer cannot be decompressed", e);
    m->tokenizer[n] = 0;
    m->n_tokenizer = n;
    sha256_of(sha, m->tokenizer, n);
    if (sqlite3_column_bytes(q, i + 2) != SHA256_BYTES ||
        memcmp(sha, sqlite3_column_blob(q, i + 2), SHA256_BYTES))
        return damaged(s, fingerprint, "the tokenizer differs from its SHA-256", e);
    return 0;
}

int store_model(struct store *s, const char *fingerprint, struct model_record *m, struct err *e)
{
    *m = (struct model_record){0};
    sqlite3_stmt *q = db_query(s, e,
                               "SELECT m.vocab, m.eos, m.config, m.generation, t.bytes, t.data, t.sha "
                               "FROM model m JOIN tokenizer t ON t.id = m.tokenizer WHERE m.fingerprint = ?1",
                               "t", fingerprint);
    int rc = db_step(s, q, e);
    if (rc != 1)
        return rc;
    const char *eos = (const char *)sqlite3_column_text(q, 1);
    struct err ignored;
    bool failed = false;
    m->vocab = (size_t)sqlite3_column_int64(q, 0);
    if (sqlite3_column_int64(q, 0) < 1 || !eos || read_eos(m, eos, &ignored))
        rc = damaged(s, fingerprint, "its vocabulary or EOS ids", e);
    if (rc == 1 && read_tokenizer(s, m, fingerprint, q, 4, e))
        rc = -1;
    m->config = column_copy(q, 2, &failed);
    m->generation = column_copy(q, 3, &failed);
    if (rc == 1 && (failed || !m->config))
        rc = err_set(e, ERR_FAILED, "out of memory for a model");
    db_reset(q);
    if (rc < 0)
        model_record_free(m);
    return rc;
}

void model_record_free(struct model_record *m)
{
    free(m->tokenizer);
    free(m->eos);
    free(m->config);
    free(m->generation);
    *m = (struct model_record){0};
}

/* ---- moving and changing ---- */

/* Refuse the model `now` for the tokens of a job that the model `before` made, if its tokenizer or its
 * end-of-text ids would turn them into another text. */
static int check_readable(struct store *s, int64_t job, const char *before, const char *now, struct err *e)
{
    int rc = db_read(s, e, "SELECT 1 FROM model b WHERE b.fingerprint = ?2 AND NOT EXISTS (SELECT 1 FROM "
                     "model a WHERE a.fingerprint = ?1 AND a.tokenizer = b.tokenizer AND a.vocab = b.vocab "
                     "AND a.eos = b.eos)", "tt", before, now);
    if (rc != 1)
        return rc;
    return err_set(e, ERR_INPUT,
                   "job %" PRId64 " was begun with the model %.150s, and the model here, %.150s, has another "
                   "tokenizer or other end-of-text ids: the text so far would change",
                   job, before, now);
}

int model_adopt(struct store *s, int64_t job, size_t tokens, const char *before, const char *now, bool record,
                struct err *e)
{
    if (tokens && check_readable(s, job, before, now, e))
        return -1;
    /* the first change also says which model made the tokens before it */
    return record && ((tokens && db_run(s, e,
                           "INSERT INTO part (job, start, fingerprint) SELECT ?1, 0, ?2 WHERE NOT EXISTS "
                           "(SELECT 1 FROM part WHERE job = ?1 AND fingerprint NOT NULL)" MERGE_PARTS "; "
                           "INSERT INTO part (job, start, fingerprint) VALUES (?1, ?3, ?4)" MERGE_PARTS,
                           "itzt", job, before, tokens, now)) ||
                      event_add(s, e, job, ATTEMPT_NOW, "accepted change", CHANGE_FORMAT, "model", now,
                                before, tokens)) ? -1 : 0;
}

int model_move(struct store *s, int64_t job, const struct model_place *m, struct err *e)
{
    char before[200];
    size_t tokens;
    const int rc = db_read(s, e, "SELECT fingerprint, tokens FROM job WHERE id = ?1", "i>tz", job, before,
                           sizeof before, &tokens);
    if (rc != 1)
        return rc;
    const bool differs = before[0] && strcmp(before, m->fingerprint);
    if (differs && !m->accept)
        return err_set(e, ERR_INPUT,
                       "--model %s: the model of job %" PRId64 " has the fingerprint %.150s, and this one "
                       "has %.150s; --accept-numerics-change goes on all the same",
                       m->path, job, before, m->fingerprint);
    if (differs && model_adopt(s, job, tokens, before, m->fingerprint, true, e))
        return -1;
    return db_run(s, e, "UPDATE job SET model = ?2, fingerprint = CASE WHEN ?4 THEN ?3 ELSE fingerprint END "
                  "WHERE id = ?1", "ittd", job, m->path, m->fingerprint, m->accept);
}

int store_model_move(struct store *s, const int64_t *ids, size_t n, const struct model_place *m,
                     struct err *e)
{
    int rc = db_begin(s, e);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = model_move(s, ids[i], m, e);
    return db_end(s, rc, e);
}
