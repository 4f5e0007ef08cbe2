/* longhand: writes book-length text with a language model. main parses the command line and runs one verb;
 * see src/request/options.c for the options and src/cli/verbs.h for the verbs. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "src/base/output.h"
#include "src/bench/bench.h"
#include "src/cli/verbs.h"
#include "src/request/output_check.h"

#ifndef LONGHAND_COMMIT
#define LONGHAND_COMMIT "not known"      /* the Makefile knows it */
#endif

static int run_verb(const struct options *o, struct err *e)
{
    if (o->help) {
        options_help(stdout, o->verb->bit == VERB_HELP ? NULL : o->verb, o->all);
        return stdout_finish(e);
    }
    if (output_check_all(o, e))
        return -1;
    switch (o->verb->bit) {
    case VERB_RUN:      return cmd_run(o, e);
    case VERB_SCORE:    return cmd_score(o, e);
    case VERB_TOKENIZE: return cmd_tokenize(o, e);
    case VERB_INSPECT:  return cmd_inspect(o, e);
    case VERB_DISTINCT: return cmd_distinct(o, e);
    case VERB_TRAIN:    return cmd_train(o, e);
    case VERB_BENCH:    return cmd_bench(o, e);
    case VERB_SUBMIT:   return cmd_submit(o, e);
    case VERB_WORK:     return cmd_work(o, e);
    case VERB_SERVE:    return cmd_serve(o, e);
    case VERB_LIST:     return cmd_list(o, e);
    case VERB_SHOW:     return cmd_show(o, e);
    case VERB_TEXT:     return cmd_text(o, e);
    case VERB_TAIL:     return cmd_tail(o, e);
    case VERB_PAUSE: case VERB_RESUME: case VERB_CANCEL: case VERB_REMOVE: return cmd_change(o, e);
    case VERB_PRIORITY: return cmd_priority(o, e);
    case VERB_EXTEND:
    case VERB_FORK:     return cmd_edit(o, e);
    case VERB_REDO:     return cmd_redo(o, e);
    case VERB_VERIFY:   return cmd_verify(o, e);
    case VERB_REPORT:   return cmd_report(o, e);
    case VERB_EXPORT:   return cmd_export(o, e);
    case VERB_CONVERT:  return cmd_convert(o, e);
    case VERB_DOCTOR:   return cmd_doctor(o, e);
    case VERB_COMPACT:  return cmd_compact(o, e);
    case VERB_DU:       return cmd_du(o, e);
    case VERB_BACKUP:   return cmd_backup(o, e);
    case VERB_PLAN:     return cmd_plan(o, e);
    case VERB_VERSION:  return cmd_version(o, LONGHAND_COMMIT, e);
    default:            return cmd_help(o, e);
    }
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
