/* Writes results: to standard output, or to a file that appears under its name only when it is complete. */
#pragma once
#include "src/base/base.h"

/* What a file must be that sink_finish replaces, unless it is empty. TEXT: the output begins with the file.
 * LINES: each line of the file is a line of the output, in this order; of a text that was not done or had
 * failed, SINK_HEAD bytes count. KIND: the first lines begin with the same word. */
enum sink_earlier { EARLIER_ANY, EARLIER_TEXT, EARLIER_LINES, EARLIER_KIND };
enum { SINK_HEAD = 48 };

struct sink {
    int fd;
    char path[PATH_BYTES], temporary[PATH_BYTES];
    bool is_new;                     /* sink_finish replaces no file */
    enum sink_earlier earlier;       /* the caller sets it after sink_open */
};

/* Whether an output of this name replaces a file that is not empty. */
bool sink_replaces(const char *path);

/* Opens the output that --output names; NULL and "-" mean standard output. A regular file is written under
 * a temporary name and renamed by sink_finish; a device or a pipe is written directly. */
int  sink_open(struct sink *s, const char *path, struct err *e);
/* Opens a file that must not be there when sink_finish gives it its name: sink_finish then fails with
 * ERR_INPUT; the file that is there stays, and nothing of the new one. */
int  sink_open_new(struct sink *s, const char *path, struct err *e);
int  sink_write(struct sink *s, const void *p, size_t n, struct err *e);
/* ERR_INPUT if the file at the path is not the `earlier` form of what was written. */
int  sink_check(const struct sink *s, struct err *e);
/* Checks, syncs the file and renames it. */
int  sink_finish(struct sink *s, struct err *e);
/* Gives up. The bytes that were written stay under the temporary name; an empty file is removed. */
void sink_abandon(struct sink *s);

/* Gives up what can be written again: nothing stays. After sink_finish it does nothing. */
void sink_discard(struct sink *s);

/* A text that is written to memory first, so that the output that --output names is whole or absent.
 * whole_end writes it if rc is 0, frees it in any case, and returns rc or -1. */
struct whole { FILE *f; char *text; size_t n; };
FILE *whole_begin(struct whole *w, struct err *e);
int  whole_end(struct whole *w, int rc, const char *path, enum sink_earlier earlier,
               struct err *e);

/* Flushes standard output and checks that every byte arrived. A closed pipe is ERR_AGAIN here and in
 * sink_write, and e->system is EPIPE. */
int  stdout_finish(struct err *e);

/* Copies s as one line for a terminal: bytes that are not printable UTF-8 become \xNN, and a text that is
 * too long for `size` ends in "...". */
void terminal_text(char *out, size_t size, const char *s);
/* Cuts s to `wide` columns of a terminal; returns its columns. */
size_t terminal_cut(char *s, size_t wide);

/* 75 -> "1:15", 4000 -> "1:06:40" */
void duration_text(char out[32], double seconds);
