/* Stop signals, and the notice that tells the user what a stopping process still waits for.
 *
 *     stop_signals_catch()
 *     stop_notice_open(json, silent)
 *     stop_notice_for("this round")     before work that cannot be interrupted; NULL: the database
 *     if (stop_signal) ...              between pieces of work
 *     stop_notice_close()
 *
 * A thread of its own prints the notice because the working thread may be deep in a pass, a commit or a
 * wait for another process. The thread sleeps until a signal comes. Without memory for the thread no
 * notice is printed. */
#pragma once
#include <stdatomic.h>
#include "src/base/base.h"

/* SIGINT, SIGTERM, SIGHUP and SIGUSR1 set stop_signal to their number. A second signal ends the process:
 * the same signal at once, another signal if it comes more than one second later. */
extern atomic_int stop_signal;
void stop_signals_catch(void);
const char *stop_signal_name(void);
/* For work that asks after each piece whether it goes on; the arguments mean nothing. */
bool not_stopped(void *ctx, size_t done, size_t of);

/* json: the notice is one object {"phase": "stopping", "waiting_for": ..} instead of a line; silent: no
 * notice. */
void stop_notice_open(bool json, bool silent);
void stop_notice_close(void);            /* also where stop_notice_open was never called */
/* What the process waits for if a signal comes now. `task` is a static string. Any thread may call this. */
void stop_notice_for(const char *task);
