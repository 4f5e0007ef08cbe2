/* Notices on standard error: for people one line, with --progress json one object.
 *
 *     notice(json, (struct row[]){ NOTICE_TEXT("phase", "begins"), NOTICE_INT("job", id), NOTICE_END },
 *            "job %" PRId64 " begins", id);
 *
 * A line begins with log_time(). The members have the order of the rows. The caller clears progress first. */
#pragma once
#include "src/base/sheet.h"

#define NOTICE_END            { 0 }
#define NOTICE_TEXT(key, v)   { key, NULL, V_TEXT(v) }                    /* NULL: null */
#define NOTICE_INT(key, v)    { key, NULL, V_INT(v) }
#define NOTICE_UINT(key, v)   { key, NULL, V_UINT(v) }
#define NOTICE_REAL(key, v)   { key, NULL, V_FIXED(v, 3) }

/* Prints the members, or the line, without its newline. format NULL: no line. */
void notice(bool json, const struct row *members, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
