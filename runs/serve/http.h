/* HTTP: the port, who may ask, bodies, and answers. libmicrohttpd calls a function of http.c for every
 * request; that one checks Host, Origin and key, finds the route, takes the body, and calls the route. */
#pragma once
#include <microhttpd.h>

#include "runs/serve/server.h"
#include "src/base/sheet.h"

/* Read the key and bind to the port: what is refused before the model is opened. */
int  http_open(struct server *sv, struct err *e);
/* Answer requests, and print the address on standard output. */
int  http_start(struct server *sv, struct err *e);
/* End all connections, once. */
void http_stop(struct server *sv);

enum { HTTP_IDLE_SECONDS = 60 };         /* then a connection without traffic is closed, after its header */

/* One request of a client, and its answer: a JSON text, unless there is a response. */
struct call {
    struct server *sv;
    struct MHD_Connection *c;
    const struct route *route;
    char id[80];                         /* what stands for the * of the route's path */
    char allow[40];                      /* the methods of the path */
    char *body; size_t n_body, room;     /* a NUL follows */
    struct err why;                      /* what is wrong with the body, whose rest is dropped; 0: nothing */
    bool close;                          /* the connection ends with the answer */
    void *state;                         /* of the route */
    struct json_writer w;                /* for the route to write the answer to */
    char *text; size_t n_text;           /* what was written to it */
    struct MHD_Response *response; const char *type;
    unsigned status;                     /* of HTTP; 0: 200, or that of the error's code */
};

/* answer: 0; -1, and e says why; CALL_CUT: the connection ends without an answer. */
enum { CALL_CUT = 1 };
typedef int answer_fn(struct call *c, struct err *e);
struct job;
typedef int put_job_fn(struct call *c, struct store *s, const struct job *job, struct err *e);
struct route {
    const char *method, *path;           /* a * stands for one component of the path */
    answer_fn *answer;
    bool open;                           /* needs no key */
    /* takes the body in place of call.body, which has at most --max-body bytes; frees its state */
    void (*take)(struct call *c, const char *bytes, size_t n);
    void (*drop)(struct call *c);
    int (*change)(struct store *s, const int64_t *ids, size_t n, size_t *changed, struct err *e);
    put_job_fn *put;                     /* s: a connection of its own */
    /* answers a failure with a page, under /v1/ if the request has ?page; NULL: with OpenAI's error object */
    void (*failed)(struct call *c, const char *message);
};
extern const struct route routes[];      /* routes.c; ends with a row without a method */

/* ?NAME= of the request; NULL: it is not there. */
const char *call_argument(const struct call *c, const char *name);
/* The body as a JSON object, which borrows it. */
int  call_object(const struct call *c, struct json *body, struct err *e);
/* The client has closed the connection. */
bool call_is_gone(const struct call *c);

#define HTML_TYPE "text/html; charset=utf-8"

/* Answers of routes. A failure with this status; -1. Without call_fail a failure is 400 for a mistake of the
 * client (ERR_INPUT), 503 for a store that stays busy, else 500. */
int  call_fail(struct call *c, struct err *e, unsigned status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The response is taken over; NULL, for want of memory, cuts the connection. */
int  call_respond(struct call *c, struct MHD_Response *r, const char *type);
/* What was written to w as a response. */
struct MHD_Response *call_text(struct call *c);
/* The client shall get this path. */
int  call_see(struct call *c, const char *path);
/* {"id": ID of the path, "object": .., "deleted": true} */
int  call_deleted(struct call *c, const char *object);
/* The words of a failure for a client: without paths, which stderr gets. */
void err_for_client(const struct err *e, char *out, size_t size);
/* Writes an error object. status: of HTTP. */
void put_error(struct json_writer *w, unsigned status, const char *message);
