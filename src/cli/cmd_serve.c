/* longhand serve: answers OpenAI's API. The server is in runs/serve. */
#include "runs/serve/server.h"
#include "src/base/stopping.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"
#include "src/model/device_choice.h"

int cmd_serve(const struct options *o, struct err *e)
{
    struct store *s = NULL;
    static struct worker w;
    struct options quiet = *o;           /* no line for every request, unless the command line wants it */
    quiet.progress = options_given(o, "progress") ? o->progress : PROGRESS_NONE;
    size_t parallel;
    if (device_choice_is_all(o->device))
        return err_set(e, ERR_INPUT, "serve: --device %s: one GPU is allowed", o->device);
    stop_signals_catch();
    stop_notice_open(o->progress == PROGRESS_JSON, o->quiet);
    worker_from_options(&w, &quiet);
    int rc = parallel_from_options(o, &parallel, e) || store_from_options(&s, o, STORE_CREATE, e) ||
             serve(o, &w, s, parallel, e) ? -1 : 0;
    store_close(s);
    stop_notice_close();
    return rc;
}
