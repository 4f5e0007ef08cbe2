/* HTTP: the port, who may ask, bodies, and answers. libmicrohttpd calls a function of http.c for every
 * request; that one checks Host, Origin and key, finds the route, takes the body, and calls the route. */
#pragma once
#include <microhttpd.h>

#include "runs/serve/server.h"
#include "src/base/json_write.h"

/* Read the key and bind to the port: what is refused before the model is opened. */
int  http_open(struct server *sv, struct err *e);
/* Answer requests, and print the address on standard output. */
int  http_start(struct server *sv, struct err *e);
/* End all connections. Repeated calls do nothing. */
void http_stop(struct server *sv);

enum { HTTP_IDLE_SECONDS = 60 };         /* then a connection without traffic is closed */

/* One request of a client. */
struct call {
    struct server *sv;
    struct MHD_Connection *c;
    const struct route *route;
    char id[80];                         /* what stands for the * of the route's path */
    char *body; size_t n_body, room;     /* a NUL follows */
    bool too_large, no_memory;
    void *state;                         /* of the route */
};

/* answer: MHD_NO ends the connection without an answer. */
struct route {
    const char *method, *path;           /* a * stands for one component of the path */
    enum MHD_Result (*answer)(struct call *c);
    bool open;                           /* needs no key */
    /* takes the body in place of call.body, which has at most --max-body bytes; frees its state */
    void (*take)(struct call *c, const char *bytes, size_t n);
    void (*drop)(struct call *c);
};
extern const struct route routes[];      /* routes.c; ends with a row without a method */

/* The body as a JSON object, which borrows it. */
int  call_object(const struct call *c, struct json *body, struct err *e);
/* The client has closed the connection. */
bool call_is_gone(const struct call *c);

/* Answers. A JSON text is written to r.w and sent with reply_send. */
struct reply { struct json_writer w; char *text; size_t n; };
int  reply_open(struct reply *r);        /* -1: out of memory */
enum MHD_Result reply_send(struct call *c, struct reply *r, unsigned status);
/* The same for a text of another type. */
enum MHD_Result reply_send_as(struct call *c, struct reply *r, unsigned status, const char *type);
/* Drop the JSON text, and answer with the failure. */
enum MHD_Result reply_drop(struct call *c, struct reply *r, const struct err *e);
/* The client shall get this path. */
enum MHD_Result answer_see(struct call *c, const char *path);
/* OpenAI's error object. */
enum MHD_Result answer_error(struct call *c, unsigned status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The words of a failure for a client: without the path of the store, which stderr gets. */
void err_for_client(const struct server *sv, const struct err *e, char *out, size_t size);
/* answer_error for a failure: 400 for a mistake of the client, 503 for a store that stays busy, else 500. */
enum MHD_Result answer_err(struct call *c, const struct err *e);
/* Queue a response, which is taken over. */
enum MHD_Result answer(struct call *c, unsigned status, struct MHD_Response *r, const char *type);
/* Writes an error object. status: of HTTP. */
void put_error(struct json_writer *w, unsigned status, const char *message);
