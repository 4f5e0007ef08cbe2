#!/bin/sh
# pack.sh FOLDER ARCHIVE.tar.gz: write the files of the folder into the archive. The same files give the same
# bytes: sorted names, no times, no owners, one mode. The Makefile unpacks tests/data/NAME.tar.gz into
# build/data/NAME.
[ -d "$1" ] && [ -n "$2" ] || { echo "usage: pack.sh FOLDER ARCHIVE.tar.gz" >&2; exit 2; }
set -e
tar -c --format=ustar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --exclude=./.unpacked -C "$1" . >"$2.tar"
gzip -9n <"$2.tar" >"$2"
rm "$2.tar"
