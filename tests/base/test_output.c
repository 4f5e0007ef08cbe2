/* Files that appear whole: their permissions, what stays of a file that was not finished, and files that
 * replace no other. When plain lines of progress appear. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/output.h"
#include "src/base/progress.h"
#include "tests/test.h"

/* Stands in front of the C library's function. Nothing may set the process's mask even for a moment: a
 * file that another thread creates then would be open to everybody. */
static int mask_calls;
mode_t umask(mode_t mask)
{
    mask_calls++;
    return (mode_t)syscall(SYS_umask, mask);
}

/* File systems without RENAME_NOREPLACE, and without hard links. */
static bool no_renameat2, no_link;
int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    if (no_renameat2) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, a, from, b, to, flags);
}
int link(const char *from, const char *to)
{
    if (no_link) {
        errno = EPERM;
        return -1;
    }
    return (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static char folder[] = "/tmp/longhand-output-XXXXXX";

static mode_t mode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : st.st_mode & 07777;
}

/* Writes `text` to `path` through a sink. */
static void write_sink(const char *path, const char *text)
{
    struct sink s;
    struct err e;
    CHECK(sink_open(&s, path, &e) == 0 && sink_write(&s, text, strlen(text), &e) == 0 &&
              sink_finish(&s, &e) == 0,
          "%s", e.msg);
}

static void files_get_the_permissions_of_the_mask(void)
{
    char a[64], b[64];
    struct err e;
    snprintf(a, sizeof a, "%s/a", folder);
    snprintf(b, sizeof b, "%s/b", folder);
    const mode_t masks[] = { 022, 077, 002 };
    const mode_t before = umask(0);
    for (size_t i = 0; i < 3; i++) {
        umask(masks[i]);
        mask_calls = 0;
        write_sink(a, "text");
        CHECK(file_write(b, &(struct slice){ "text", 4 }, 1, &e) == 0, "%s", e.msg);
        CHECK(mask_calls == 0, "the mask was set %d times", mask_calls);
        CHECK(mode_of(a) == (0666 & ~masks[i]) && mode_of(b) == (0666 & ~masks[i]), "%o and %o under %o",
              mode_of(a), mode_of(b), masks[i]);
        unlink(a);
        unlink(b);
    }
    umask(before);
}

static void a_replaced_file_keeps_its_permissions(void)
{
    char path[64];
    snprintf(path, sizeof path, "%s/c", folder);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0 && close(fd) == 0 && chmod(path, 0640) == 0);
    write_sink(path, "new");
    CHECK(mode_of(path) == 0640, "%o", mode_of(path));
    unlink(path);
}

static void an_unfinished_output_stays_under_its_temporary_name(void)
{
    char path[64];
    struct sink s;
    struct err e;
    snprintf(path, sizeof path, "%s/d", folder);
    CHECK(sink_open(&s, path, &e) == 0, "%s", e.msg);
    sink_abandon(&s);
    CHECK(rmdir(folder) == 0, "an empty output left a file");
    CHECK(mkdir(folder, 0700) == 0);
    CHECK(sink_open(&s, path, &e) == 0 && sink_write(&s, "begun", 5, &e) == 0, "%s", e.msg);
    sink_abandon(&s);
    CHECK(mode_of(path) == 0 && mode_of(s.temporary) != 0, "%s", s.temporary);
    unlink(s.temporary);
}

/* ---- plain lines of progress ---- */

/* What a phase prints on standard error when it has lasted for `ms`. */
static size_t printed_after(const char *unit, int ms, char *text, size_t size)
{
    struct progress p;
    FILE *f = tmpfile();
    const int kept = dup(STDERR_FILENO);
    if (!f || kept < 0)
        abort();
    fflush(stderr);
    dup2(fileno(f), STDERR_FILENO);
    progress_open(&p, PROGRESS_PLAIN, false);
    progress_phase(&p, "loading", unit, 4000000);
    progress_at(&p, 1000000);
    usleep((useconds_t)ms * 1000);
    progress_at(&p, 2000000);
    progress_at(&p, 3000000);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(f);
    const size_t n = fread(text, 1, size - 1, f);
    text[n] = 0;
    fclose(f);
    return n;
}

static void loading_shows_a_plain_line_after_half_a_second(void)
{
    char text[1000];
    CHECK(printed_after("bytes", 600, text, sizeof text) && strstr(text, "loading 2 of 4 MB"), "%s", text);
    CHECK(strchr(text, '\n') == strrchr(text, '\n'), "one line, the next one 10 s later: %s", text);
    CHECK(!printed_after("tokens", 600, text, sizeof text), "%s", text);
    CHECK(!printed_after("bytes", 1, text, sizeof text), "%s", text);
}

static void read_text(const char *path, char out[16])
{
    FILE *f = fopen(path, "r");
    out[0] = 0;
    if (f) {
        out[fread(out, 1, 15, f)] = 0;
        fclose(f);
    }
}

/* The file that another process makes between opening and finishing stays. */
static void a_new_file_replaces_no_other(void)
{
    char path[64], text[16];
    struct err e;
    snprintf(path, sizeof path, "%s/e", folder);
    for (int way = 0; way < 3; way++)            /* renameat2, hard links, neither */
        for (int there = 0; there < 2; there++) {
            struct sink s;
            no_renameat2 = way > 0;
            no_link = way > 1;
            CHECK(sink_open_new(&s, path, &e) == 0 && sink_write(&s, "mine", 4, &e) == 0, "%s", e.msg);
            if (there)
                write_sink(path, "theirs");
            const int rc = sink_finish(&s, &e);
            read_text(path, text);
            CHECK(strcmp(text, there ? "theirs" : "mine") == 0, "way %d: \"%s\"", way, text);
            if (there)
                CHECK(rc == -1 && e.code == ERR_INPUT && strstr(e.msg, "no file is overwritten"),
                      "way %d", way);
            else
                CHECK(rc == 0, "way %d: %s", way, e.msg);
            unlink(path);
            CHECK(rmdir(folder) == 0 && mkdir(folder, 0700) == 0, "way %d: a temporary file stays", way);
        }
    no_renameat2 = no_link = false;
}

int main(void)
{
    if (!mkdtemp(folder))
        abort();
    RUN(files_get_the_permissions_of_the_mask);
    RUN(a_replaced_file_keeps_its_permissions);
    RUN(an_unfinished_output_stays_under_its_temporary_name);
    RUN(loading_shows_a_plain_line_after_half_a_second);
    RUN(a_new_file_replaces_no_other);
    rmdir(folder);
    return test_end();
}
