#!/bin/bash
# serve under load with ThreadSanitizer (tests/cli/edges_tsan.py): no two threads race. The server is built
# here, into build/NAME-races. Its large kernels are those of the tested build, without the sanitizer: with it
# they take three of four minutes to compile, and they only compute. LONG=1: two minutes for each server.
. tests/cli/lib.inc
build=$(dirname "$LONGHAND")
if [ $slower = 10 ] && grep -qa __tsan_init "$LONGHAND"; then races=$LONGHAND
elif [ $slower = 10 ]; then skip edges_tsan "the build has another sanitizer"; exit 0
else
    races=$build-races/longhand
    mkdir -p "$build-races/kernels"
    # newer than their sources, so that make takes them as they are
    for kernel in avx2 avx512 generic; do
        [ ! -e "$build/kernels/$kernel.c.o" ] || cp -u "$build/kernels/$kernel.c.o" "$build-races/kernels/"
    done
    make -j2 CUDA=0 BUILD="$build-races" SAN=thread "$races" >"$TMP/make" 2>&1
    result a_server_with_thread_sanitizer_is_built $? "$(tail -3 "$TMP/make")"
    [ $failed = 0 ] || exit 1
fi
export TSAN_OPTIONS=log_path=$TMP/found
# load WORDS..: a server with these options, under load, and what it found
load()
{
    "$races" serve -m "$MODEL" --port 0 --db "$TMP/$1.db" --chat-template chatml "${@:2}" >"$TMP/listens" \
        2>"$TMP/log" &
    server=$!
    for i in $(seq 600); do
        url=$(sed -n 's|/v1 (model .*||p' "$TMP/listens")
        [ -n "$url" ] && break
        sleep 0.1
    done
    python3 tests/cli/edges_tsan.py "$url" "$([ -n "${LONG:-}" ] && echo 120 || echo 6)" >"$TMP/asked" 2>&1
    result "$1_answers_under_load" $? "$(tail -9 "$TMP/asked")"
    tail -1 "$TMP/asked"
    kill -TERM $server; wait $server; r=$?
    { [ $r = 0 ] || [ $r = 75 ]; } && ! ls "$TMP"/found* >/dev/null 2>&1
    result "$1_has_no_races" $? "exit $r: $(tail -2 "$TMP/log"; cat "$TMP"/found* 2>/dev/null | head -60)"
    rm -f "$TMP"/found*
}
load auto
load heads --drafter heads --max-connections 6 --forget
exit $failed
