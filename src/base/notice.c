/* Notices on standard error, as lines or as JSON. */
#include "src/base/notice.h"

#include <stdarg.h>
#include <stdio.h>

#include "src/base/progress.h"

void notice(bool json, const struct row *members, const char *format, ...)
{
    va_list args;
    if (json) {
        struct json_writer w = jw_begin(stderr, JW_LINE, 0);
        sheet_members(&w, members);
        jw_end(&w);
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
