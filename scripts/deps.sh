#!/bin/sh
# What longhand is built with, and how to get it on Debian and Ubuntu. As root or with passwordless sudo it installs what is
# missing; otherwise it prints the one command to run and fails. --quiet: no word when nothing is missing.
packages=
need() { # test command, package
    sh -c "$1" >/dev/null 2>&1 || packages="$packages $2"
}
cc=$(command -v cc || command -v gcc || command -v clang)
need 'command -v cc || command -v gcc || command -v clang' gcc
need 'command -v make' make
need "echo '#include <stdio.h>' | ${cc:-false} -E -" libc6-dev
need "echo '#include <jansson.h>' | ${cc:-false} -E -" libjansson-dev
need "echo '#include <uthash.h>' | ${cc:-false} -E -" uthash-dev
need "echo '#include <sqlite3.h>' | ${cc:-false} -E -" libsqlite3-dev
need "echo '#include <zlib.h>' | ${cc:-false} -E -" zlib1g-dev

if [ -z "$packages" ]; then
    [ "$1" = --quiet ] || echo "nothing is missing"
    exit 0
fi
install="apt-get install -y --no-install-recommends$packages"
if ! command -v apt-get >/dev/null; then
    echo "missing:$packages (names of the Debian packages). Install them with this system's package manager." >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    root="sudo -n"
else
    echo "missing:$packages. Run: sudo $install" >&2
    exit 1
fi
echo "installing:$packages" >&2
$root apt-get update -qq >&2 || echo "apt-get update failed; trying with the lists that are there" >&2
DEBIAN_FRONTEND=noninteractive $root $install >&2
