/* Notices on standard error: for people one line, with --progress json one object.
 *
 *     notice(json, (struct notice_member[]){ NOTICE_TEXT("phase", "begins"), NOTICE_INT("job", id),
 *                                            NOTICE_END },
 *            "job %" PRId64 " begins", id);
 *
 * A line begins with log_time(). The members have the order of the list. The caller clears progress first. */
#pragma once
#include "src/base/base.h"

struct notice_member {
    const char *key;
    enum { NOTICE_IS_END, NOTICE_IS_TEXT, NOTICE_IS_INT, NOTICE_IS_UINT, NOTICE_IS_WIDE, NOTICE_IS_REAL,
           NOTICE_IS_RAW, NOTICE_IS_LEFT_OUT } kind;
    const char *text; int64_t i; uint64_t u; double x;                       /* the value, by kind */
};
#define NOTICE_END            { .kind = NOTICE_IS_END }
#define NOTICE_TEXT(key, v)   { key, NOTICE_IS_TEXT, .text = (v) }        /* NULL: null */
#define NOTICE_INT(key, v)    { key, NOTICE_IS_INT, .i = (v) }
#define NOTICE_UINT(key, v)   { key, NOTICE_IS_UINT, .u = (v) }
#define NOTICE_WIDE(key, v)   { key, NOTICE_IS_WIDE, .u = (v) }        /* jw_wide */
#define NOTICE_REAL(key, v)   { key, NOTICE_IS_REAL, .x = (v) }        /* with 3 digits after the point */
#define NOTICE_WIDE_IF(c, key, v) { key, (c) ? NOTICE_IS_WIDE : NOTICE_IS_LEFT_OUT, .u = (v) }
/* A text, or what is a JSON value already. */
#define NOTICE_TEXT_OR_RAW(is_text, key, v) { key, (is_text) ? NOTICE_IS_TEXT : NOTICE_IS_RAW, .text = (v) }

/* Prints the members, or the line, without its newline. format NULL: no line. */
void notice(bool json, const struct notice_member *m, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
