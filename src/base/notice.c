/* Notices on standard error, as lines or as JSON. */
#include "src/base/notice.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/json_write.h"
#include "src/base/progress.h"

static void put_json(const struct notice_member *m)
{
    struct json_writer w = jw_begin(stderr, JW_LINE, 0);
    for (; m->kind != NOTICE_IS_END; m++)
        switch (m->kind) {
        case NOTICE_IS_TEXT: jw_text(&w, m->key, m->text); break;
        case NOTICE_IS_INT:  jw_int(&w, m->key, m->i); break;
        case NOTICE_IS_UINT: jw_uint(&w, m->key, m->u); break;
        case NOTICE_IS_WIDE: jw_wide(&w, m->key, m->u); break;
        case NOTICE_IS_REAL: jw_format(&w, m->key, "%.3f", m->x); break;
        case NOTICE_IS_RAW:  jw_raw(&w, m->key, m->text, strlen(m->text)); break;
        default: break;                          /* left out */
        }
    jw_end(&w);
}

void notice(bool json, const struct notice_member *m, const char *format, ...)
{
    va_list args;
    if (json) {
        put_json(m);
    } else if (format) {
        va_start(args, format);
        flockfile(stderr);                       /* lines of two threads do not mix */
        fputs(log_time(), stderr);
        vfprintf(stderr, format, args);
        fputc('\n', stderr);
        funlockfile(stderr);
        va_end(args);
    }
}
