#!/bin/bash
# The demonstration: two books continue from their openings, the program is killed in the middle of the
# first one and continues, every token is derived again and compared, and a report shows how it went.
# Everything is in build/demo.
#
#   MODEL=demo                  two books of the model of this repository (the default)
#   MODEL=smollm2               two stories of SmolLM2 135M Instruct, which scripts/real-models.sh fetches
#   TOKENS=N SEED=S DEMO=DIR    choose others
#   KILL_AT=N                   kill the program once N tokens of the first book can be read (checkpoints are
#                               0.8 s apart, so a fast machine needs long books)
cd "$(dirname "$0")/.." || exit 1
model=${MODEL:-demo} seed=${SEED:-1} at=${DEMO:-build/demo}
case $model in
demo)
    path=models/demo tokens=${TOKENS:-6000} names=(portrait malay)
    what="books continue the openings of real books"
    options=(--ignore-eos) openings=models/demo/openings opening=txt ;;
smollm2)
    path=$(scripts/real-models.sh) || { echo "$path" >&2; exit 1; }
    path=${path%%$'\n'*} tokens=${TOKENS:-600} names=(lighthouse garden)
    what="stories answer a user's request"
    options=(--chat --temperature 0.8 --min-p 0.05 --dry-multiplier 0.8) openings=$at opening=request
    request[0]="Write a long story about the keeper of a lighthouse, who finds a letter in a bottle."
    request[1]="Write a long story about two sisters, who plant a garden near an old railway station." ;;
*) echo "make demo: MODEL is '$model': allowed are demo and smollm2" >&2; exit 2 ;;
esac
kill_at=${KILL_AT:-$((tokens / 4))}
longhand=${LONGHAND:-./longhand}
remove_old() { rm -f "$at"/longhand.db* "$at"/*.txt "$at"/*.request "$at"/report.html; }
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
heading "Two $what, up to $tokens tokens each: jobs of the store $LONGHAND_DB."
export LC_ALL=C.UTF-8
for i in 0 1; do
    [ "$model" = demo ] || echo "${request[i]}" >"$at/${names[i]}.request"
    show $longhand submit --model "$path" --prompt-file "$openings/${names[i]}.$opening" --tokens "$tokens" \
        --seed "$seed" "${options[@]}"
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

show $longhand text 1 -o "$at/${names[0]}.txt"
show $longhand text 2 -o "$at/${names[1]}.txt"
if [ "$model" = demo ]; then
    heading "The first book, from its opening into the new text:"
    printf '\n... %s' "$(tail -c 200 "$openings/${names[0]}.txt")"
else
    heading "The first story: ${request[0]}"
    printf '\n'
fi
printf '%s%s%s ...\n' "$bold" "$(head -c 600 "$at/${names[0]}.txt")" "$plain"
show $longhand report 1 2
show $longhand report 1 2 --html -o "$at/report.html"
heading "The report, with plots: file://$(readlink -f "$at/report.html")"
words=$(cat "$at/${names[0]}.txt" "$at/${names[1]}.txt" | wc -w)
echo "The texts: $at/${names[0]}.txt and $at/${names[1]}.txt ($words words)."
[ "$model" != demo ] || echo "The demonstration model is small: it writes sentences, not stories."
