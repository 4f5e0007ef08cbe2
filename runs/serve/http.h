/* HTTP: the port, who may ask, bodies, and answers. libmicrohttpd calls a function of http.c for every
 * request; that one checks Host, Origin and key, finds the route, takes the body, and calls the route. At the
 * end: what the routes answer (routes.c). */
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
typedef int put_job_fn(struct call *c, struct store *s, const struct job *job, struct err *e);
typedef bool put_fn(struct call *c, const char *id);
struct route {
    const char *method, *path;           /* a * stands for one component of the path */
    answer_fn *answer;
    enum change_kind change;             /* of answer_change and answer_job_priority */
    put_job_fn *put;                     /* s: a connection of its own */
    /* answers a failure with a page, under /v1/ if the request has ?page; NULL: with OpenAI's error object */
    void (*failed)(struct call *c, const char *message);
    bool open;                           /* needs no key */
    /* takes the body in place of call.body, which has at most --max-body bytes; frees its state */
    void (*take)(struct call *c, const char *bytes, size_t n);
    void (*drop)(struct call *c);
    const char *what; put_fn *one;       /* of answer_one and answer_ids: `one` writes the object of an id */
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

/* ---- completions.c: POST /v1/completions and /v1/chat/completions. A request becomes jobs, and the answer
 * is read from the store, at once or as a stream of events. ---- */

answer_fn answer_request;
/* Ends a request, as struct route's drop: no job stays that nobody waits for, unless it has a key. */
void drop_waiting(struct call *c);

/* Queues the text of a body as `submit --name` does: a job that nobody waits for. */
int queue_body(struct server *sv, const char *text, size_t n, bool chat, const char *name, int64_t *id,
               struct err *e);
/* Writes tokens, and those of the prompt of a chat. */
void put_tokens(struct call *c, const int32_t *ids, size_t n);
int put_body_tokens(struct call *c, struct err *e);

/* ---- jobs.c: /v1/jobs, the verbs about jobs; /tokenize and /detokenize, as vLLM's ---- */

answer_fn answer_jobs;             /* list --json */
answer_fn answer_about;            /* what route.put writes about the job of the path */
put_job_fn put_job;                /* show --json */
put_job_fn put_report, put_report_page;          /* report --json, --html */
answer_fn answer_job_text;         /* text, and with ?follow=1 tail -f; ?from=TOKEN */
void drop_following(struct call *c);
answer_fn answer_change;           /* route.change of the job */
answer_fn answer_job_priority;     /* {"priority": P} */
/* extend, which answers with the job that has the text then, and fork, with the new job. The members of the
 * body are options of the verb, as {"tokens": 500, "stop": ["End"]}. */
answer_fn answer_edit;
answer_fn answer_tokenize, answer_detokenize;

/* ---- page.c: what a browser shows, the queue, a job, and a form that queues a text ---- */

answer_fn answer_page, answer_form;
put_job_fn put_job_page;
/* A page with the message, for struct route. */
void put_failed_page(struct call *c, const char *message);

/* ---- files.c: /v1/files, uploads for batches, and what batches wrote. Files lie in the folder STORE.files
 * (0700). A file is there, with its name and purpose in ID.json beside it, before its upload is answered. Ids
 * are made here, and a path is only made of an id that has the form of one. ---- */

answer_fn answer_upload, answer_content, answer_delete_file;
put_fn put_file;
put_fn put_wanted_file;            /* ?purpose */
/* Parts of an upload, for struct route. */
void take_upload(struct call *c, const char *bytes, size_t n);
void drop_upload(struct call *c);

/* ---- batches.c: /v1/batches. An uploaded file becomes jobs named after the batch, by the rules of `submit
 * --batch`. A thread checks the files, one after the other, without a lock. What the server knows of a batch
 * beside its jobs is in ID.json in the folder of the files, whose functions come first here. ---- */

enum { FILE_ID_BYTES = 32 };
#define FILE_PREFIX "file-"
#define BATCH_PREFIX "batch_"
#define PIECE_END ".part"
#define RESULTS_PREFIX "part-"
#define OUTPUT_END "-output"
#define ERRORS_END "-errors"

/* A new id. */
int  new_id(char id[FILE_ID_BYTES], const char *prefix);
/* Whether `id` is `prefix` and 16 hexadecimal digits, and then `end`. */
bool id_is(const char *id, const char *prefix, const char *end);
/* The path of a file of the folder: id, then `end`. The folder is made. */
int  file_path(char path[PATH_BYTES], const struct server *sv, const char *id, const char *end,
               struct err *e);
/* What ID.json says: an object. free(*text) if it was read. */
bool facts_read(const struct server *sv, const char *id, char **text, struct json *facts);
/* Writes it, durably. */
int  facts_write(const struct server *sv, const char *id, const struct row *rows, struct err *e);
/* The object that route.one writes of c->id, or that there is no such route.what. */
answer_fn answer_one;
/* A list, the newest first, by the arguments `limit` and `after`: of the batches or, of "file", of the
 * uploads and the results of batches. route.one: false if one is not wanted. */
answer_fn answer_ids;

enum { BATCH_LINES_MAX = 50000, BATCH_BYTES_MAX = 65536 };       /* bytes: of a request for a batch */

answer_fn answer_new_batch, answer_cancel_batch;
put_fn put_batch;
/* The thread that checks files; it begins with those that an earlier server left. */
int  batches_start(struct server *sv, struct err *e);
/* When the batch whose results this file has was made, in seconds since 1970; 0: there is none. ended: 0 also
 * for one that has not ended with such results. */
double batch_created(struct call *c, const char *file, bool ended);
/* Writes the results of a batch as `export` does: a descriptor of the file, or -1. */
int  batch_write_results(struct call *c, const char *file, struct err *e);

/* ---- texts.c: texts of jobs for a server, whole or as they grow; and answers whose bytes come while they
 * are sent ---- */

/* A text as it grows. {0} is closed. */
struct growing {
    struct shared_reader *reader;        /* NULL: the text has not begun */
    struct grown_text text;
    size_t from;                         /* the first token that is written */
    bool over;                           /* the job is done, and all of its text was written */
};
/* Write what has been added to the text since the last call, as far as no retake changes it: the answer, and
 * the thoughts before it (struct grown_part). *job: its row, read now. */
int  growing_more(struct server *sv, struct growing *g, const struct job *job, FILE *to, FILE *thought,
                  struct err *e);
/* The same as texts, each followed by a NUL; grown_answer_free, also after a failure. */
struct grown_answer { char *text, *thought; size_t n, n_thought; };
int  growing_text(struct server *sv, struct growing *g, const struct job *job, struct grown_answer *x,
                  struct err *e);
void grown_answer_free(struct grown_answer *x);
void growing_close(struct server *sv, struct growing *g);

/* An answer that grows: the first member of call.state. libmicrohttpd asks for its bytes in the thread of the
 * connection, which may wait. */
struct flow {
    struct call *c;
    const int64_t *ids; size_t n;        /* the jobs whose news may bring more */
    /* Write what can be sent now. 1: there will be more; 0: that is all; -1: the answer is cut off. */
    int (*more)(struct flow *x, FILE *f);
    const char *silence;                 /* sent when nothing was for a while; NULL: nothing is */
    bool over;                           /* all is written */
    char *out; size_t n_out, at;         /* what is written, and how much of it was handed over; free */
    double sent;                         /* when the last bytes were handed over */
};
int answer_flow(struct flow *x, const char *type);
