#!/usr/bin/env python3
"""held.py BYTES END COMMAND...: run COMMAND until it has written about BYTES bytes, then end it.

Standard output of COMMAND is a pipe with room for BYTES bytes. Nobody reads the pipe, so COMMAND waits in a
write when it is full, on a fast machine and on a busy one. END says what happens then:

    close   the pipe is closed, and COMMAND sees that its reader is gone
    TEST    once the shell command TEST succeeds, COMMAND is killed with SIGKILL

A write of COMMAND must have less than 100 bytes. The exit status is that of COMMAND, 137 when it was killed,
and 99 when that took longer than 200 seconds.
"""
import array, fcntl, os, subprocess, sys, termios, time

room, end, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
reader, writer = os.pipe()
size = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)     # a page: larger where pages are larger
os.write(writer, b"-" * (size - room))
limit = time.monotonic() + 200
child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=writer)
os.close(writer)


def full():
    n = array.array("i", [0])
    fcntl.ioctl(reader, termios.FIONREAD, n)
    return n[0] > size - 100


def waits():
    if time.monotonic() > limit:
        child.kill()
        sys.exit(99)
    return child.poll() is None


while waits() and not full():
    time.sleep(0.005)
if end == "close":
    os.close(reader)
else:
    while waits() and subprocess.call(["bash", "-c", end], stderr=subprocess.DEVNULL):
        time.sleep(0.02)
    child.kill()
status = child.wait()
sys.exit(status if status >= 0 else 128 - status)
