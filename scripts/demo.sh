#!/bin/bash
# The demonstration: two books continue from their openings, the program is killed in the middle of the
# first one and continues, every token is derived again and compared, and a report shows how it went.
# Everything is in build/demo.
#
#   TOKENS=N SEED=S DEMO=DIR    choose others
#   KILL_AT=N                   kill the program once N tokens of the first book can be read (checkpoints are
#                               0.8 s apart, so a fast machine needs long books)
cd "$(dirname "$0")/.." || exit 1
tokens=${TOKENS:-6000} seed=${SEED:-1} at=${DEMO:-build/demo}
kill_at=${KILL_AT:-$((tokens / 4))}
longhand=${LONGHAND:-./longhand}
remove_old() { rm -f "$at"/longhand.db* "$at"/*.txt "$at"/report.html; }
openings=models/demo/openings
export LONGHAND_DB=$at/longhand.db
worker=
trap '[ -n "$worker" ] && kill -9 "$worker" 2>/dev/null; exit 130' INT TERM HUP
bold= plain=
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then bold=$'\e[1m' plain=$'\e[0m'; fi

heading() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }
show() # COMMAND...: prints the command, then runs it
{
    printf '\n%s$ %s%s\n' "$bold" "$*" "$plain"
    "$@" || { rc=$?; echo "make demo: exit status $rc" >&2; exit 1; }
}
start_worker() { printf '\n%s$ %s work%s\n' "$bold" "$longhand" "$plain"; $longhand work & worker=$!; }
tokens_stored() { $longhand text 1 --format ids 2>/dev/null | wc -l; }

remove_old
mkdir -p "$at" || exit 1
heading "Two books of $tokens tokens continue the openings of two real books: jobs of the store $LONGHAND_DB."
export LC_ALL=C.UTF-8
for book in portrait malay; do
    show $longhand submit --model models/demo --prompt-file $openings/$book.txt --tokens "$tokens" \
        --seed "$seed" --ignore-eos
done

start_worker
while kill -0 "$worker" 2>/dev/null && [ "$(tokens_stored)" -lt "$kill_at" ]; do sleep 0.02; done
{ kill -9 "$worker" && wait "$worker"; } 2>/dev/null
killed=$?
worker=
[ -t 2 ] && printf '\r\e[K' >&2
[ "$killed" = 137 ] || { echo "make demo: the worker ended by itself with status $killed" >&2; exit 1; }
heading "kill -9: the program is gone in the middle of its work. Its text is not:"
before=$(tokens_stored)
show $longhand list
show $longhand tail 1

printf '\n'
heading "The next worker continues at token $before:"
start_worker
wait "$worker" || { echo "make demo: longhand work failed" >&2; exit 1; }
worker=
heading "Is it the undisturbed text? The model derives every token again; the chain of checksums is checked:"
show $longhand verify 1
show $longhand verify 2

show $longhand text 1 -o "$at/portrait.txt"
show $longhand text 2 -o "$at/malay.txt"
heading "The first book, from its opening into the new text:"
printf '\n... %s%s%s%s ...\n' "$(tail -c 200 $openings/portrait.txt)" "$bold" \
    "$(head -c 600 "$at/portrait.txt")" "$plain"
show $longhand report 1 2
show $longhand report 1 2 --html -o "$at/report.html"
heading "The report, with plots: file://$(readlink -f "$at/report.html")"
words=$(cat "$at/portrait.txt" "$at/malay.txt" | wc -w)
echo "The books: $at/portrait.txt and $at/malay.txt ($words words)."
echo "The demonstration model is small: it writes sentences, not stories."
