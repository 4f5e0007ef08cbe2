/* longhand: writes book-length text with a language model. main parses the command line and runs one verb;
 * see src/request/options.c for the options and src/cli/verbs.h for the verbs. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "src/base/output.h"
#include "src/lab/bench.h"
#include "src/cli/verbs.h"
#include "src/model/device_choice.h"
#include "src/request/output_check.h"

#ifndef LONGHAND_COMMIT
#define LONGHAND_COMMIT "not known"      /* the Makefile knows it */
#endif

static int version(const struct options *o, struct err *e) { return cmd_version(o, LONGHAND_COMMIT, e); }

/* Every other verb is help. */
static const struct { uint64_t verbs; verb_fn *run; } runs[] = {
    { VERB_RUN, cmd_run }, { VERB_SCORE, cmd_score }, { VERB_TOKENIZE, cmd_tokenize },
    { VERB_INSPECT, cmd_inspect }, { VERB_DISTINCT, cmd_distinct }, { VERB_TRAIN, cmd_train },
    { VERB_BENCH, cmd_bench }, { VERB_SUBMIT, cmd_submit }, { VERB_WORK, cmd_work },
    { VERB_SERVE, cmd_serve }, { VERB_LIST, cmd_list }, { VERB_SHOW, cmd_show }, { VERB_TEXT, cmd_text },
    { VERB_TAIL, cmd_tail }, { VERB_PAUSE | VERB_RESUME | VERB_CANCEL | VERB_REMOVE, cmd_change },
    { VERB_PRIORITY, cmd_priority }, { VERB_EXTEND | VERB_FORK, cmd_edit }, { VERB_REDO, cmd_redo },
    { VERB_VERIFY, cmd_verify }, { VERB_REPORT, cmd_report }, { VERB_EXPORT, cmd_export },
    { VERB_CONVERT, cmd_convert }, { VERB_DOCTOR, cmd_doctor }, { VERB_COMPACT, cmd_compact },
    { VERB_DU, cmd_du }, { VERB_BACKUP, cmd_backup }, { VERB_PLAN, cmd_plan }, { VERB_VERSION, version },
};

static int run_verb(const struct options *o, struct err *e)
{
    if (o->help) {
        options_help(stdout, o->verb->bit == VERB_HELP ? NULL : o->verb, o->all);
        return stdout_finish(e);
    }
    if (output_check_all(o, e))
        return -1;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        if (o->verb->bit & runs[i].verbs)
            return runs[i].run(o, e);
    return cmd_help(o, e);
}

/* Opens /dev/null in place of a closed standard stream, in the wrong direction. Otherwise the next file
 * that is opened would get the stream's number and its output. */
static void reserve_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    static char line[BUFSIZ];
    struct options o;
    struct err e = {0};
    reserve_standard_streams();
    setvbuf(stderr, line, _IOLBF, sizeof line);      /* one write for each line: a log may be shared */
    signal(SIGPIPE, SIG_IGN);        /* write() reports a closed pipe as an error, */
    signal(SIGXFSZ, SIG_IGN);        /* and a file beyond ulimit -f, too */
    int r = options_parse(&o, argc, argv, &e);
    if (r == 0) {
        device_choice_tells(!o.quiet, o.progress == PROGRESS_JSON);
        r = run_verb(&o, &e);
        /* The reader has had enough. Only a text that was being written has work left. */
        if (r && e.code == ERR_AGAIN && e.system == EPIPE && o.verb->bit != VERB_RUN && !o.run_now)
            r = 0;
        options_free(&o);
    }
    if (r)
        fprintf(stderr, "%slonghand: %s\n", log_time(), err_text(&e));
    return r ? err_exit_code(&e) : 0;
}
