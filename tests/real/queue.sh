#!/bin/bash
# A queue of 8 texts in one pass: its worker is killed twice, another one goes on, and the texts equal those
# of an undisturbed queue. verify derives them again.
. tests/real/lib.inc
tokens=${LONG:+1000}
tokens=${tokens:-150}
while read -r opening; do
    printf '{"prompt": "%s"}\n' "$opening"
done >"$TMP/book.jsonl" <<'T'
The old lighthouse keeper had not spoken to anyone for a year when
It was raining on the morning that the circus came to town, and
Nobody in the village knew who had built the bridge, but
My grandmother kept a small green box under her bed.
The ship's cook opened the last barrel and found
Every winter the wolves came down to the river, until
On the day of the exam Tom woke up and noticed that
There was once a clockmaker who could not tell the time.
T
queue() # submits the queue to the store of LONGHAND_DB
{
    "$L" submit --batch "$TMP/book.jsonl" -m "$MODEL" -n "$tokens" -s 5 --temperature 0.8 --min-p 0.05 \
        --ignore-eos -q >/dev/null
}
written() { "$L" list --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["tokens"])'; }

LONGHAND_DB=$TMP/whole.db
queue
"$L" work -q --parallel 8
"$L" export @book --format ids -o "$TMP/whole"

LONGHAND_DB=$TMP/killed.db
queue
kills=0
for at in 1 $((tokens * 3)); do
    "$L" work -q --parallel 8 & pid=$!
    while kill -0 $pid 2>/dev/null && [ "$(written)" -lt "$at" ]; do sleep 0.2; done
    kill -9 $pid 2>/dev/null && kills=$((kills + 1))
    wait $pid 2>/dev/null
done
before=$(written)
[ $kills = 2 ] && [ "$before" -gt 0 ] && [ "$before" -lt $((8 * tokens)) ]
result real_queue_is_killed_in_the_middle $? "$kills kills, $before tokens"
"$L" work -q --parallel 8
"$L" export @book --format ids -o "$TMP/resumed"
[ "$(written)" = $((8 * tokens)) ]; result real_queue_is_written_to_its_end $? "$(written) tokens"
same real_queue_resumed_equals_the_undisturbed_one "$TMP/whole" "$TMP/resumed"
for job in 1 5 ${LONG:+2 3 4 6 7 8}; do
    check "real_verify_$job" 0 '' verify $job -q
done
exit $failed
