/* longhand report: how texts were made, and how well they read. Start at cmd_report. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runs/report/report.h"
#include "src/base/memory_file.h"
#include "src/base/output.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"

static int write_report(const struct reports *l, const struct options *o, struct err *e)
{
    struct whole out;
    if (!whole_begin(&out, e))
        return -1;
    const int rc = (o->json ? report_json : o->csv ? report_csv : o->html ? report_html
                                                                           : report_table)(out.f, l, e);
    return whole_end(&out, rc, o->output, o->force ? EARLIER_ANY : EARLIER_KIND, e);
}

/* All uses of --by as one list "A,B"; free(*by). *by is NULL without the option. A word may be an alias of an
 * option: temp. */
static int join_by(char **by, const struct options *o, struct err *e)
{
    size_t size;
    char word[64];
    *by = NULL;
    FILE *f = o->by.n ? memory_file(by, &size) : NULL;
    for (size_t i = 0; f && i < o->by.n; i++)
        for (const char *p = o->by.v[i];; p++) {
            const size_t n = strcspn(p, ",");
            snprintf(word, sizeof word, "%.*s", (int)MIN(n, sizeof word - 1), p);
            const char *name = option_of_alias(word);
            fprintf(f, "%s%.*s", i || p > o->by.v[i] ? "," : "", name ? (int)strlen(name) : (int)n,
                    name ? name : p);
            p += n;
            if (!*p)
                break;
        }
    return o->by.n && (!f || stream_end(f)) ? err_set(e, ERR_FAILED, "out of memory for the report") : 0;
}

static int check_options(const struct options *o, struct err *e)
{
    if (o->json + o->csv + o->html > 1)
        return err_set(e, ERR_INPUT, "--json, --csv and --html: only one of them is allowed");
    if (o->windows && !o->csv)
        return err_set(e, ERR_INPUT,
                       "--windows needs --csv; --json and --html always have the windows of a job");
    if (o->windows && o->rounds)
        return err_set(e, ERR_INPUT, "--windows and --rounds: only one of them is allowed");
    return 0;
}

int cmd_report(const struct options *o, struct err *e)
{
    struct store_parts p = {0};
    struct reports l = {0};
    char *by;
    if (check_options(o, e) || join_by(&by, o, e))
        return -1;
    int rc = parts_from_options(&p, o, false, e);
    struct report_from *from = rc ? NULL : calloc(p.n, sizeof *from);
    if (rc == 0 && !from)
        rc = err_set(e, ERR_FAILED, "out of memory for the report");
    for (size_t i = 0; rc == 0 && i < p.n; i++)
        from[i] = (struct report_from){ p.v[i].store, p.v[i].ids, p.v[i].jobs.n };
    if (rc == 0)
        rc = reports_open(&l, from, p.n, &(struct report_options){ o->rounds, o->windows, by }, e);
    size_t rounds = 0;
    for (size_t i = 0; i < l.n; i++)
        rounds += l.v[i].rounds.n;
    if (rc == 0 && o->rounds && !rounds)
        fprintf(stderr, "no rounds are stored; run or work with --rounds keeps them\n");
    if (rc == 0)
        rc = write_report(&l, o, e);
    reports_close(&l);
    free(from);
    free(by);
    parts_close(&p);
    return rc;
}
