#!/bin/bash
# The demonstration: the program writes books, is killed in the middle of the first text and continues, every
# token is derived again and compared, and a report shows how it went. Everything is in build/demo.
#
#   MODEL=demo                  the model of this repository continues two openings (the default)
#   MODEL=smollm2               three chapters of the book of examples/ by SmolLM2 135M Instruct, which
#                               scripts/real-models.sh fetches
#   TOKENS=N SEED=S DEMO=DIR    choose others; N: the most tokens of a text
#   KILL_AT=N                   kill the program once N tokens of the first text can be read (checkpoints are
#                               0.8 s apart, so a fast machine needs long texts)
cd "$(dirname "$0")/.." || exit 1
model=${MODEL:-demo} seed=${SEED:-1} at=${DEMO:-build/demo}
case $model in
demo)
    path=models/demo tokens=${TOKENS:-6000} openings=models/demo/openings texts=(portrait malay)
    what="Two books continue the openings of real books" ;;
smollm2)
    path=$(scripts/real-models.sh) || { echo "$path" >&2; exit 1; }
    path=${path%%$'\n'*} tokens=${TOKENS:-1500} texts=(ch1 ch2 ch3)
    what="Three chapters continue each other" ;;
*) echo "make demo: MODEL is '$model': allowed are demo and smollm2" >&2; exit 2 ;;
esac
kill_at=${KILL_AT:-$((tokens / 4))}
longhand=${LONGHAND:-./longhand}
remove_old() { rm -f "$at"/longhand.db* "$at"/*.txt "$at"/book.jsonl "$at"/report.html; }
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
heading "$what, up to $tokens tokens each: jobs of the store $LONGHAND_DB."
export LC_ALL=C.UTF-8
if [ "$model" = demo ]; then
    for name in "${texts[@]}"; do
        show $longhand submit --model "$path" --prompt-file "$openings/$name.txt" --tokens "$tokens" \
            --seed "$seed" --ignore-eos
    done
else
    python3 examples/outline.py $((tokens / 5)) "$tokens" | head -n 3 >"$at/book.jsonl"
    show $longhand submit --batch "$at/book.jsonl" --model "$path" --preset story --seed "$seed"
fi

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
for i in "${!texts[@]}"; do
    show $longhand verify $((i + 1))
done
for i in "${!texts[@]}"; do
    show $longhand text $((i + 1)) -o "$at/${texts[i]}.txt"
done
if [ "$model" = demo ]; then
    heading "The first book, from its opening into the new text:"
    printf '\n... %s' "$(tail -c 200 "$openings/${texts[0]}.txt")"
    printf '%s%s%s ...\n' "$bold" "$(head -c 600 "$at/${texts[0]}.txt")" "$plain"
else
    heading "The chapters:"
    for name in "${texts[@]}"; do
        printf '\n%s\n' "$(cat "$at/$name.txt")"
    done
fi
show $longhand report --all
show $longhand report --all --html -o "$at/report.html"
heading "The report, with plots: file://$(readlink -f "$at/report.html")"
texts=("${texts[@]/#/$at/}") texts=("${texts[@]/%/.txt}")
echo "The texts: ${texts[*]} ($(cat "${texts[@]}" | wc -w) words)."
[ "$model" != demo ] || echo "The demonstration model is small: it writes sentences, not stories."
