#!/bin/bash
# Containers and stores of several users: --shared-group, --max-store, and the command of
# scripts/longhand-job.yaml under a random user id, without HOME, on a root that is read-only.
. tests/cli/lib.inc
L=$(realpath "$LONGHAND") model=$(realpath "$MODEL")
G=(--model "$model" --ignore-eos --seed 5 --drafter none)

# ---- --shared-group: the mode of a new store follows umask ----
mode() { stat -c %a "$@" | tr '\n' ' '; }
modes=
for mask in 007 027 077; do
    modes+=$(umask $mask
        LONGHAND_DB=$TMP/$mask.db "$L" submit "${G[@]}" -p Once --tokens 5 -q --shared-group >/dev/null
        mode "$TMP/$mask.db")
done
modes+=$(umask 007; LONGHAND_DB=$TMP/own.db "$L" submit "${G[@]}" -p Once --tokens 5 -q >/dev/null
    mode "$TMP/own.db")
[ "$modes" = '660 640 600 600 ' ]; result a_shared_store_follows_umask $? "$modes"
# A worker with another umask keeps its snapshots open to the group of the store.
export LONGHAND_DB=$TMP/007.db
"$L" submit "${G[@]}" -p Twice --tokens 90000 -q >/dev/null
(umask 077; exec "$L" work --kv-snapshot on -q) & pid=$!
for i in $(seq $((200 * slower))); do [ "$("$L" text 2 --format ids 2>/dev/null | wc -l)" -gt 200 ] && break
    sleep 0.05; done
kill -TERM $pid; wait $pid
[ "$(mode "$TMP/007.db.snapshots" "$TMP"/007.db.snapshots/*)" = '770 660 ' ]
result snapshots_follow_the_store $? "$(ls -la "$TMP/007.db.snapshots")"

# ---- --max-store ----
check a_full_store_takes_no_job 1 'texts and snapshots have [0-9.]+ MB, --max-store is .* no new job begins' \
    submit "${G[@]}" -p Once --tokens 5 --max-store 8K
check nor_a_fork 1 'no new job begins' fork 1 --at 1 --max-store 8K
check nor_a_longer_text 1 'no new job begins' extend 1 --tokens +5 --max-store 8K
check a_store_with_room_takes_a_job 0 '' submit "${G[@]}" -p Once --tokens 7 --max-store 1G -q
"$L" pause 2 -q
check work_leaves_new_jobs_of_a_full_store 1 '1 job stays queued: .*no new job begins' work --max-store 8K
[ "$("$L" list 3 --json | grep -c '"state": "queued"')" = 1 ]
result the_new_job_stays_queued $? "$("$L" list)"
LONGHAND_DB=$TMP/own.db
"$L" submit "${G[@]}" -p Once --tokens 1500 -q >/dev/null
sql "UPDATE job SET state = 'paused' WHERE id = 1" >/dev/null
"$L" work --max-time 0.01 -q 2>/dev/null; "$L" work --max-time 1 -q 2>/dev/null
[ "$("$L" text 2 --format ids 2>/dev/null | wc -l)" -gt 0 ] && "$L" work --max-store 8K -q 2>"$TMP/err" &&
    [ "$("$L" text 2 --format ids | wc -l)" = 1500 ]
result a_job_that_has_begun_goes_on $? "$(cat "$TMP/err"; "$L" list)"
LONGHAND_DB=$TMP/007.db
"$L" work --watch --max-store 8K 2>"$TMP/log" & pid=$!
for i in $(seq 100); do grep -q 'no new job' "$TMP/log" && break; sleep 0.05; done
sleep 0.7; kill -TERM $pid; wait $pid
[ "$(grep -c 'no new job begins' "$TMP/log")" = 1 ]
result a_waiting_worker_says_it_once $? "$(cat "$TMP/log")"

# ---- the Job of Kubernetes ----
mkdir -m 777 "$TMP/data"; chmod 755 "$TMP"
up=$TMP                              # another user passes through the folders of this run
while up=${up%/*}; [[ $up == /tmp/?* ]]; do chmod a+x "$up"; done
for i in 0 1 2 3; do echo "{\"custom_id\": \"r$i\", \"prompt\": \"Day $i of the voyage\"}"; done \
    >"$TMP/data/book.jsonl"
LONGHAND_DB=$TMP/whole.db "$L" run --batch "$TMP/data/book.jsonl" -o "$TMP/whole.jsonl" "${G[@]}" \
    --tokens 900 -q; result the_batch_in_one_piece $? "$(ls "$TMP")"
# the command of the file, with this machine's paths
awk '/^ *- \|$/ { on = 1; next } on && /^              / { print substr($0, 15); next } { on = 0 }' \
    scripts/longhand-job.yaml | sed "s|/data/|$TMP/data/|g; s|--model [^ ]* --tokens [0-9]*|--model $model \
--tokens 900 --ignore-eos --drafter none|; s|--seed 1|--seed 5|; s|exec longhand|exec $L|" >"$TMP/command"
[ "$(grep -c -- '--shard' "$TMP/command")" = 1 ]; result the_job_has_a_command $? "$(cat "$TMP/command")"
cat >"$TMP/pod" <<'X'
mount --make-rprivate / && mount --bind "$1" "$1" && mount -o remount,bind,ro / || exit 99
case $1 in /tmp/*) mount -o remount,bind,ro /tmp 2>/dev/null ;; esac
! touch /etc/longhand-test 2>/dev/null || exit 99
exec setpriv --reuid 54321 --regid 54321 --clear-groups --no-new-privs --bounding-set=-all \
    env -i PATH=/usr/bin:/bin SHARDS=2 JOB_COMPLETION_INDEX="$3" sh -c "$(cat "$2")"
X
pod() { exec unshare -m bash "$TMP/pod" "$TMP/data" "$TMP/command" "$1"; }
skip_pod() { skip the_job_runs_as_any_user_on_a_read_only_root "$1"; exit $failed; }
[ "$(id -u)" = 0 ] || skip_pod "needs root"
unshare -m true 2>"$TMP/err" || skip_pod "no unshare here: $(head -1 "$TMP/err")"
setpriv --reuid 54321 --regid 54321 --clear-groups "$L" inspect --model "$model" >/dev/null 2>"$TMP/err" ||
    skip_pod "another user cannot run it here: $(head -1 "$TMP/err")"
(pod 0) 2>"$TMP/log" & pid=$!
for i in $(seq $((200 * slower))); do
    [ "$("$L" text 1 --format ids --db "$TMP/data/book-0.db" 2>/dev/null | wc -l)" -gt 0 ] && break
    kill -0 $pid 2>/dev/null || break; sleep 0.05; done
kill -TERM $pid; wait $pid; r=$?
[ $r != 99 ] || skip_pod "no read-only root here"
[ $r = 75 ] && grep -A 1 'action: Ignore' scripts/longhand-job.yaml | grep -q 'onExitCodes.*values: \[75\]'
result sigterm_stores_the_texts_and_exits_with_75 $? \
    "$r: $(tail -3 "$TMP/log")"
(pod 0) 2>"$TMP/log"; r=$?; (pod 1) 2>>"$TMP/log"; r+=$?
[ "$r" = 00 ] && [ "$(stat -c %u "$TMP/data/book-1.db")" = 54321 ]
result the_job_runs_as_any_user_on_a_read_only_root $? "$r: $(tail -3 "$TMP/log")"
texts() # FILES: custom_id and text, in order
{
    python3 -c 'import json, sys
for r in sorted((json.loads(l) for f in sys.argv[1:] for l in open(f)), key=lambda r: r["custom_id"]):
    print(r["custom_id"], json.dumps(r["response"]["body"]["choices"][0]["text"]))' "$@"
}
texts "$TMP/whole.jsonl" >"$TMP/want"; texts "$TMP"/data/book-?.jsonl >"$TMP/got"
same the_pods_together_wrote_the_batch "$TMP/want" "$TMP/got"
exit $failed
