/* Living and dead processes, and the lease on processes that cannot be observed. */
#include "runs/store/owner.h"
#include "tests/test.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct owner self(void)
{
    struct owner o;
    owner_self(&o);
    CHECK(o.boot[0] && o.start, "%s", o.boot);
    return o;
}

/* Start a child that sleeps until it is killed. *o is its own owner_self. */
static pid_t child(struct owner *o, const char *name)
{
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_NAME, name);
        owner_self(o);
        if (write(fd[1], o, sizeof *o) != sizeof *o)
            _exit(1);
        for (;;)
            pause();
    }
    CHECK(read(fd[0], o, sizeof *o) == sizeof *o);
    close(fd[0]);
    close(fd[1]);
    return pid;
}

static void a_process_lives_until_it_is_killed(void)
{
    struct owner me = self(), o;
    CHECK(owner_liveness(&me, &me, true) == OWNER_ALIVE);
    pid_t pid = child(&o, "a) R 1 (b");          /* a name that looks like several fields */
    CHECK(o.pid == pid);
    CHECK(owner_liveness(&o, &me, true) == OWNER_ALIVE);
    kill(pid, SIGSTOP);
    CHECK(owner_liveness(&o, &me, true) == OWNER_ALIVE);
    kill(pid, SIGKILL);
    siginfo_t info;
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
    CHECK(owner_liveness(&o, &me, true) == OWNER_DEAD, "a zombie");
    waitpid(pid, NULL, 0);
    CHECK(owner_liveness(&o, &me, true) == OWNER_DEAD, "gone");
}

static void a_reused_pid_is_another_process(void)
{
    struct owner me = self(), o = me;
    o.start--;
    CHECK(owner_liveness(&o, &me, true) == OWNER_DEAD);
    o = me;
    o.pid = 0;
    CHECK(owner_liveness(&o, &me, true) == OWNER_DEAD);
    o.pid = INT64_MAX;
    CHECK(owner_liveness(&o, &me, true) == OWNER_DEAD);
}

static void another_boot_is_dead_only_with_a_local_store(void)
{
    struct owner me = self(), o = me;
    o.boot[0] = o.boot[0] == 'x' ? 'y' : 'x';
    CHECK(owner_liveness(&o, &me, true) == OWNER_DEAD);
    CHECK(owner_liveness(&o, &me, false) == OWNER_UNSEEN);
    o = me;
    strcpy(o.spaces, "pid:[1]");
    CHECK(owner_liveness(&o, &me, true) == OWNER_UNSEEN);
}

/* Some containers hide the boot_id; then processes of two machines may have the same other names. */
static void without_a_boot_only_the_beat_is_seen(void)
{
    struct owner me = self(), o = me, gone = me;
    o.boot[0] = gone.boot[0] = 0;
    gone.pid = INT32_MAX;
    CHECK(owner_liveness(&o, &me, true) == OWNER_UNSEEN && owner_liveness(&me, &o, true) == OWNER_UNSEEN);
    CHECK(owner_liveness(&o, &o, true) == OWNER_UNSEEN && owner_liveness(&gone, &o, true) == OWNER_UNSEEN);
    pid_t pid = child(&o, "stopped");
    siginfo_t info;
    kill(pid, SIGSTOP);
    waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT);
    CHECK(owner_is_stopped(&o, &me));
    o.boot[0] = me.boot[0] = 0;
    CHECK(!owner_is_stopped(&o, &me));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void a_process_of_another_pid_namespace_is_not_judged(void)
{
    struct owner me = self(), o;
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWPID))
            _exit(2);
        pid_t inner = fork();
        if (inner == 0) {
            owner_self(&o);
            _exit(write(fd[1], &o, sizeof o) != sizeof o);
        }
        int status;
        waitpid(inner, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    int status;
    waitpid(pid, &status, 0);
    close(fd[1]);
    bool made = WIFEXITED(status) && WEXITSTATUS(status) == 0 && read(fd[0], &o, sizeof o) == sizeof o;
    close(fd[0]);
    if (!made)
        SKIP("a pid namespace may not be made here, or /proc does not show it");
    CHECK(strcmp(o.spaces, me.spaces) != 0, "%s", o.spaces);
    CHECK(owner_liveness(&o, &me, true) == OWNER_UNSEEN);
}

static void the_lease_runs_while_a_beat_stands_still(void)
{
    struct watch w = {0};
    CHECK(watch_beat(&w, 1, 10, 100, 60) == 0);
    CHECK(watch_beat(&w, 2, 10, 100, 60) == 0);
    CHECK(watch_beat(&w, 1, 10, 110, 60) == 10);
    CHECK(watch_beat(&w, 1, 10, 120, 60) == 20);
    CHECK(watch_beat(&w, 1, 11, 121, 60) == 0, "a beat starts it again");
    CHECK(watch_beat(&w, 1, 10, 131, 60) == 0, "also one that goes back");
    CHECK(watch_beat(&w, 2, 10, 5000, 60) == 15, "a long gap of the observer counts a quarter of the lease");
    CHECK(watch_beat(&w, 2, 10, 4000, 60) == 15, "a clock that goes back counts nothing");
    for (int i = 3; i < 100; i++)
        CHECK(watch_beat(&w, i, i, 1, 60) == 0);
    CHECK(watch_beat(&w, 50, 50, 3, 60) == 2);
    watch_free(&w);
}

int main(void)
{
    RUN(a_process_lives_until_it_is_killed);
    RUN(a_reused_pid_is_another_process);
    RUN(another_boot_is_dead_only_with_a_local_store);
    RUN(without_a_boot_only_the_beat_is_seen);
    RUN(a_process_of_another_pid_namespace_is_not_judged);
    RUN(the_lease_runs_while_a_beat_stands_still);
    return test_end();
}
