"""Run a command on a terminal of its own and write its output to standard output.

    terminal.py COMMAND...  < STEPS

Each line of STEPS is "WAIT<tab>SEND". When WAIT has appeared in the output since the step before (within
20 s), SEND is typed. Both may contain \\t, \\r and \\x03. The exit status is that of the command."""
import os
import pty
import select
import sys
import time



def unescape(line):
    return line.rstrip("\n").encode().decode("unicode_escape").encode("latin1")


steps = [unescape(line).split(b"\t", 1) for line in sys.stdin]
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
        except OSError:                 # the command closed the terminal
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
        sys.exit("%r did not appear" % steps[0][0])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
