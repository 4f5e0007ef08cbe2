/* main: exit codes and messages of calls that fail. The program's main is compiled in under another name,
 * and one verb is replaced by a verb that fails without a message. */
#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>

int program_main(int argc, char **argv);
#define main program_main
#define cmd_version verb_that_fails
#include "src/cli/main.c"
#undef main
#include "tests/test.h"

int verb_that_fails(const struct options *o, const char *commit, struct err *e)
{
    (void)o, (void)commit, (void)e;
    return -1;
}

enum { CRASHED = -1 };
static char message[4096];               /* standard error of the last call */

/* Runs the program in a child that first calls `prepare`; returns its exit code, or CRASHED. */
static int run_program(char **argv, bool (*prepare)(void))
{
    int out[2], status, argc = 0;
    size_t n = 0;
    ssize_t got;
    while (argv[argc])
        argc++;
    if (pipe(out))
        abort();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(out[1], STDERR_FILENO);
        _exit(prepare && !prepare() ? 99 : program_main(argc, argv));
    }
    close(out[1]);
    while ((got = read(out[0], message + n, sizeof message - 1 - n)) > 0)
        n += (size_t)got;
    message[n] = 0;
    close(out[0]);
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : CRASHED;
}

static void a_failure_without_a_message_is_an_exit_code(void)
{
    char *argv[] = { "longhand", "version", NULL };
    CHECK(run_program(argv, NULL) == ERR_FAILED);
    CHECK(strncmp(message, "longhand: ", 10) == 0 && strlen(message) > 15, "\"%s\"", message);
}

static char folder[] = "/tmp/longhand-main-XXXXXX";

/* The working folder becomes one whose absolute path is longer than PATH_MAX, with a file jobs.db. */
static bool enter_deep_folder(void)
{
    char name[201];
    memset(name, 'd', 200);
    name[200] = 0;
    if (chdir(folder))
        return false;
    for (int depth = 0; depth < 25; depth++)
        if ((mkdir(name, 0700) && errno != EEXIST) || chdir(name))
            return false;
    int fd = open("jobs.db", O_WRONLY | O_CREAT, 0600);
    return fd >= 0 && close(fd) == 0;
}

static void a_relative_store_in_a_very_deep_folder_is_an_error(void)
{
    char remove[64];
    char *list[] = { "longhand", "list", "--db", "jobs.db", NULL };
    char *work[] = { "longhand", "work", "--db", "jobs.db", NULL };
    if (!mkdtemp(folder))
        abort();
    CHECK(run_program(list, enter_deep_folder) == ERR_INPUT, "%s", message);
    CHECK(strstr(message, "jobs.db") && strstr(message, "absolute path"), "\"%s\"", message);
    CHECK(run_program(work, enter_deep_folder) == ERR_INPUT, "%s", message);
    snprintf(remove, sizeof remove, "rm -rf '%s'", folder);
    CHECK(system(remove) == 0);
}

int main(void)
{
    RUN(a_failure_without_a_message_is_an_exit_code);
    RUN(a_relative_store_in_a_very_deep_folder_is_an_error);
    return test_end();
}
