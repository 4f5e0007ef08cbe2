"""Run a command on a terminal of its own and write what it shows to standard output.

    terminal.py COMMAND...  < STEPS

Each line of STEPS is "WAIT<tab>SEND": when WAIT has appeared in what came since the step before (20 s at most), SEND is typed;
\\t, \\r and \\x03 are understood in both. The command's exit status is passed on."""
import os
import pty
import select
import sys
import time

steps = [line.rstrip("\n").encode().decode("unicode_escape").encode("latin1").split(b"\t", 1) for line in sys.stdin]
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
seen = b""
deadline = time.monotonic() + 20
while True:
    ready, _, _ = select.select([fd], [], [], 0.2)
    if ready:
        try:
            data = os.read(fd, 65536)
        except OSError:                 # the other end is closed
            data = b""
        if not data:
            break
        seen += data
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    if steps and steps[0][0] in seen:
        os.write(fd, steps.pop(0)[1])
        seen, deadline = b"", time.monotonic() + 20
    if steps and time.monotonic() > deadline:
        sys.exit("waited in vain for %r" % steps[0][0])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
