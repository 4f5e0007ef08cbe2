/* A server of OpenAI's API whose requests are jobs in the store.
 *
 * serve() opens the store, the port and the model, and then works on the queue as `work --watch` does, until
 * a signal comes. Threads of libmicrohttpd answer the requests, one thread for each connection. A request
 * becomes jobs (completions.h), whose texts are read from the store, so an answer never has a token that a
 * crash could take back.
 *
 * Threads. The calling thread is the worker. The others share two connections to the store, each with a lock
 * (server.h), and, without one, the front: the model without weights, which turns bodies into jobs. A thread
 * that waits for a text sleeps until a commit has changed the job, and looks once a second for its client.
 */
#pragma once
#include "runs/work/worker.h"
#include "src/request/options.h"

/* Serves until a signal comes; then 0, or ERR_AGAIN if jobs are left. w: zero, with the settings of the
 * command line, not open. parallel: as in struct schedule_options. ERR_INPUT before the model is opened for
 * an address that needs a key, and for a bad key file. */
int serve(const struct options *o, struct worker *w, struct store *s, size_t parallel, struct err *e);
