/* longhand report: how texts were made, and how they read. */
#include <stdio.h>
#include <stdlib.h>

#include "src/cmd_store.h"
#include "src/report.h"

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
    struct job_list jobs = {0};
    int64_t *ids = NULL;
    if (o->json + o->csv + o->html > 1)
        return err_set(e, ERR_INPUT, "--json, --csv and --html: only one of them is allowed");
    int rc = store_from_options(&s, o, STORE_READ, e);
    if (rc == 0 && (rc = jobs_from_options(s, o, false, &ids, &jobs, e)) == 0) {
        for (size_t i = 0; i < jobs.n; i++)      /* one may have been removed since it was selected */
            ids[i] = jobs.v[i].id;
        rc = reports_open(&l, s, ids, jobs.n, &(struct report_options){ .rounds = o->rounds, .by = o->by }, e);
    }
    if (rc == 0)
        rc = write_out(&l, o, e);
    reports_close(&l);
    job_list_free(&jobs);
    free(ids);
    store_close(s);
    return rc;
}
