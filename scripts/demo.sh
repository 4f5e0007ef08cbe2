#!/bin/bash
# What longhand is for, in front of you: two books go on from their openings, the program is killed in the middle of the first one and goes
# on, every token is derived again and compared, and a report says how it went. Everything is in build/demo. TOKENS=N SEED=S DEMO=DIR choose others;
# KILL_AT=N: tokens of the first book that can be read when the program is killed (checkpoints are 0.8 s apart, so a fast machine wants long books).
cd "$(dirname "$0")/.." || exit 1
tokens=${TOKENS:-6000} seed=${SEED:-1} at=${DEMO:-build/demo}
kill_at=${KILL_AT:-$((tokens / 4))}
longhand=${LONGHAND:-./longhand}
rm_old() { rm -f "$at"/longhand.db* "$at"/*.txt "$at"/report.html; }
openings=models/demo/openings
export LONGHAND_DB=$at/longhand.db
worker=
trap '[ -n "$worker" ] && kill -9 "$worker" 2>/dev/null; exit 130' INT TERM HUP
bold= plain=
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then bold=$'\e[1m' plain=$'\e[0m'; fi

say() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }
show() # COMMAND...: the line, then what it does
{
    printf '\n%s$ %s%s\n' "$bold" "$*" "$plain"
    "$@" || { rc=$?; echo "make demo: this failed with exit status $rc" >&2; exit 1; }
}
work() { printf '\n%s$ %s work%s\n' "$bold" "$longhand" "$plain"; $longhand work & worker=$!; }
made() { $longhand text 1 --format ids 2>/dev/null | wc -l; }

rm_old
mkdir -p "$at" || exit 1
say "Two books of $tokens tokens, to go on from the openings of two real ones. They are jobs of a store of this demonstration, $at/longhand.db."
export LC_ALL=C.UTF-8
show $longhand submit --model models/demo --prompt-file $openings/portrait.txt --tokens "$tokens" --seed "$seed" --ignore-eos
show $longhand submit --model models/demo --prompt-file $openings/malay.txt --tokens "$tokens" --seed "$seed" --ignore-eos

work
while kill -0 "$worker" 2>/dev/null && [ "$(made)" -lt "$kill_at" ]; do sleep 0.02; done
{ kill -9 "$worker" && wait "$worker"; } 2>/dev/null
killed=$?
worker=
[ -t 2 ] && printf '\r\e[K' >&2
[ "$killed" = 137 ] || { echo "make demo: the worker ended by itself, with status $killed" >&2; exit 1; }
say "kill -9: the program is gone in the middle of its work. What it wrote is not:"
before=$(made)
show $longhand list
show $longhand tail 1

printf '\n'
say "The next worker goes on where it was, at token $before:"
work
wait "$worker" || { echo "make demo: longhand work failed" >&2; exit 1; }
worker=
say "Is it the text that nothing had disturbed? Every token once more from the model alone, and the chain of checksums over all of them:"
show $longhand verify 1
show $longhand verify 2

show $longhand text 1 -o "$at/portrait.txt"
show $longhand text 2 -o "$at/malay.txt"
say "The first book, from its opening over to what was written:"
printf '\n... %s%s%s%s ...\n' "$(tail -c 200 $openings/portrait.txt)" "$bold" "$(head -c 600 "$at/portrait.txt")" "$plain"
show $longhand report 1 2
show $longhand report 1 2 --html -o "$at/report.html"
say "The report, with plots: file://$(readlink -f "$at/report.html")"
echo "The books: $at/portrait.txt and $at/malay.txt ($(cat "$at/portrait.txt" "$at/malay.txt" | wc -w) words). The demonstration model is small: it writes sentences, not stories."
