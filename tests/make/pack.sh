#!/bin/sh
# pack.sh FOLDER ARCHIVE.tar.gz [PATTERN]: write the files of the folder into the archive, or those of its
# entries that fit the pattern. The same files give the same bytes: sorted names, no times, no owners, one
# mode. The Makefile unpacks tests/data/NAME.tar.gz into build/data/NAME, and models-FAMILY.tar.gz into
# build/data/models.
[ -d "$1" ] && [ -n "$2" ] || { echo "usage: pack.sh FOLDER ARCHIVE.tar.gz [PATTERN]" >&2; exit 2; }
set -e
what=.
[ -z "$3" ] || what=$(cd "$1" && ls -d ./$3)
tar -c --format=ustar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --exclude='./.*' -C "$1" $what >"$2.tar"
gzip -9n <"$2.tar" >"$2"
rm "$2.tar"
