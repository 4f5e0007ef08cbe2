/* Words for who has told the process to stop and sees it still there: what it waits for, on standard error, as soon as that takes longer than a moment.
 *
 *     stopping_open(json, silent)       behind stop_signals_catch
 *     stopping_for("this round")        what the work thread is about to do and does not break off; NULL: it may wait for the database
 *     stopping_close()
 *
 * A thread of its own says it, for the one that works may be deep in a pass, a commit or a wait for another process. Before a signal it sleeps; without
 * memory for it nothing is said. */
#pragma once
#include <stdatomic.h>
#include "src/base/base.h"

/* SIGINT, SIGTERM, SIGHUP and SIGUSR1 set this to their number. A second signal ends the process: the same
 * signal at once, another signal when it comes more than one second later. */
extern atomic_int stop_signal;
void stop_signals_catch(void);
const char *stop_signal_name(void);

/* json: one object {"phase": "stopping", "waiting_for": ..} instead of a line; silent: nothing. */
void stopping_open(bool json, bool silent);
void stopping_close(void);               /* also where it was not opened */
/* `what` is static. On any thread. */
void stopping_for(const char *what);
/* A signal has come: safe in its handler. */
void stopping_told(void);
