/* Answers whose bytes come while they are sent. libmicrohttpd asks for them in the thread of the connection,
 * which may wait. */
#pragma once
#include "runs/serve/http.h"

struct flow {
    const struct call *c;                /* while bytes are asked for */
    const int64_t *ids; size_t n;        /* the jobs whose news may bring more */
    /* Write what can be sent now. 1: there will be more; 0: that is all; -1: the answer is cut off. */
    int (*more)(void *ctx, FILE *f); void *ctx;
    const char *silence;                 /* sent when nothing was for a while; NULL: nothing is */
    bool over;                           /* set by flow_read: all is written */
    char *out; size_t n_out, at;         /* what is written, and how much of it was handed over */
    double sent;                         /* when the last bytes were handed over */
};

/* For MHD_create_response_from_callback; ctx: a struct flow. */
ssize_t flow_read(void *ctx, uint64_t position, char *to, size_t max);
