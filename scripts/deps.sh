#!/bin/sh
# Check that the compiler and the libraries of longhand are installed, and install missing ones on Debian and
# Ubuntu.
#
#   deps.sh [FOR..]            install what is missing, as root or with passwordless sudo; otherwise print the
#                              command
#   deps.sh --quiet [FOR..]    do the same, but print nothing if nothing is missing
#   deps.sh --check [FOR..]    print what is missing and the command that installs it, install nothing
#
# FOR names what is needed beside the program itself: "tests" for the commands that the tests call, "pip" for
# the installer of Python packages. The exit status is 0 if everything is installed in the end.
mode=
case $1 in --*) mode=$1; shift ;; esac
packages=
need() # COMMAND PACKAGE: PACKAGE is missing if COMMAND fails
{
    sh -c "$1" >/dev/null 2>&1 || packages="$packages $2"
}
cc=$(command -v cc || command -v gcc || command -v clang)
need 'command -v cc || command -v gcc || command -v clang' gcc
need 'command -v make' make
need "echo '#include <stdio.h>' | ${cc:-false} -E -" libc6-dev
need "echo '#include <uthash.h>' | ${cc:-false} -E -" uthash-dev
need "echo '#include <sqlite3.h>' | ${cc:-false} -E -" libsqlite3-dev
need "echo '#include <zlib.h>' | ${cc:-false} -E -" zlib1g-dev
need "echo '#include <microhttpd.h>' | ${cc:-false} -E -" libmicrohttpd-dev
for for in "$@"; do
    # python3-minimal lacks modules that the tests import.
    case $for in
    tests)
        need 'python3 -c "import json, sqlite3"' python3
        need 'patch --version' patch ;;
    pip) need 'python3 -m pip --version' python3-pip ;;
    esac
done

if [ -z "$packages" ]; then
    [ -n "$mode" ] || echo "nothing is missing"
    exit 0
fi
install="apt-get install -y --no-install-recommends$packages"
if ! command -v apt-get >/dev/null; then
    echo "missing:$packages (Debian's names). Install them with the package manager of this system." >&2
    exit 1
fi
if [ "$mode" = --check ]; then
    echo "missing:$packages. Run: make deps, or as root: $install" >&2
    exit 1
elif [ "$(id -u)" = 0 ]; then
    root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    root="sudo -n"
else
    echo "missing:$packages. Run: sudo $install" >&2
    exit 1
fi
echo "installing:$packages" >&2
$root apt-get update -qq >&2 ||
    echo "apt-get update failed; installing from the package lists of its last run" >&2
DEBIAN_FRONTEND=noninteractive $root $install >&2
