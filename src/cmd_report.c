/* longhand report: how texts were made, and how they read. */
#include <stdio.h>
#include <stdlib.h>

#include "src/cmd.h"
#include "src/report.h"

static int find_jobs(struct store *s, const struct options *o, int64_t **ids, size_t *n, struct err *e)
{
    struct selection sel;
    int rc = selection_parse(&sel, o->arg, o->n_args, o->state, o->all, e);
    if (rc == 0)
        rc = store_select(s, &sel, ids, n, e);
    selection_free(&sel);
    return rc;
}

static int open_store(struct store **s, const struct options *o, struct err *e)
{
    char path[PATH_BYTES];
    const char *env = getenv("LONGHAND_DB"), *db = o->db.n ? o->db.v[o->db.n - 1] : env && *env ? env : NULL;
    const struct store_options so = { .mode = STORE_READ };
    return (!db && store_default_path(path, sizeof path, e)) || store_open(s, db ? db : path, &so, e) ? -1 : 0;
}

/* All of it in memory first: an output file is whole or not there. */
static int write_out(const struct reports *l, const struct options *o, struct err *e)
{
    char *text = NULL;
    size_t n;
    struct sink out;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return err_set(e, ERR_FAILED, "out of memory for the report");
    int rc = (o->json ? report_json : o->csv ? report_csv : o->html ? report_html : report_table)(f, l, e);
    if ((ferror(f) | fclose(f)) && rc == 0)
        rc = err_set(e, ERR_FAILED, "out of memory for the report");
    if (rc == 0 && (rc = sink_open(&out, o->output, e)) == 0 && (sink_write(&out, text, n, e) || sink_finish(&out, e))) {
        sink_abandon(&out);
        rc = -1;
    }
    free(text);
    return rc;
}

int cmd_report(const struct options *o, struct err *e)
{
    struct store *s = NULL;
    struct reports l = {0};
    int64_t *ids = NULL;
    size_t n = 0;
    if (o->json + o->csv + o->html > 1)
        return err_set(e, ERR_INPUT, "--json, --csv and --html: only one of them is allowed");
    int rc = open_store(&s, o, e);
    if (rc == 0 && (rc = find_jobs(s, o, &ids, &n, e)) == 0)
        rc = reports_open(&l, s, ids, n, &(struct report_options){ .rounds = o->rounds, .by = o->by }, e);
    if (rc == 0)
        rc = write_out(&l, o, e);
    reports_close(&l);
    free(ids);
    store_close(s);
    return rc;
}
