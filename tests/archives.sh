#!/bin/bash
# tests/data/*.tar.gz: each archive is what tests/make/pack.sh writes, and bad.tar.gz what its makers write.
. tests/cli/lib.inc
for a in tests/data/*.tar.gz; do
    name=$(basename "$a" .tar.gz)
    mkdir -p "$TMP/$name"
    tar xzf "$a" -C "$TMP/$name"
    # Only the compressed bytes depend on the version of gzip.
    touch "$TMP/$name"/*
    umask 027
    tests/make/pack.sh "$TMP/$name" "$TMP/again.tar.gz" "$(case $name in models-*) echo '*' ;; esac)"
    umask 022
    gzip -dc "$a" >"$TMP/kept"
    gzip -dc "$TMP/again.tar.gz" >"$TMP/again"
    same "pack_sh_writes_$name" "$TMP/kept" "$TMP/again"
done
tests/make/bad.sh "$TMP/made.tar.gz"
gzip -dc "$TMP/made.tar.gz" >"$TMP/made"
gzip -dc tests/data/bad.tar.gz >"$TMP/kept"
same "bad_inputs_are_those_of_the_makers" "$TMP/made" "$TMP/kept"
exit $failed
