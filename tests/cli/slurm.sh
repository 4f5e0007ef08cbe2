#!/bin/bash
# scripts/longhand.sbatch: an array over one batch file that stops before the time limit and is queued again.
# First the script alone, with a scontrol that only records its arguments; then, with LONG=1, under slurmctld
# and slurmd on this machine.
. tests/cli/lib.inc
LONGHAND=$(readlink -f "$LONGHAND")
model=$(readlink -f "$MODEL")
line() # ID PROMPT
{
    echo "{\"custom_id\": \"$1\", \"method\": \"POST\", \"url\": \"/v1/completions\"," \
        "\"body\": {\"prompt\": \"$2\"}}"
}
for i in 0 1 2 3; do line "r$i" "Day $i of the voyage began with rain."; done >"$TMP/book.jsonl"
G=(--model "$model" --ignore-eos --seed 5 --drafter none)
T=(--tokens 2500)
LONGHAND_DB=$TMP/whole.db "$LONGHAND" run --batch "$TMP/book.jsonl" -o "$TMP/whole.jsonl" "${G[@]}" \
    "${T[@]}" -q </dev/null 2>"$TMP/err"; result the_batch_in_one_piece $? "$(tail -1 "$TMP/err")"

texts() # FILES: custom_id and text, in order
{
    python3 -c 'import json,sys
for r in sorted((json.loads(l) for f in sys.argv[1:] for l in open(f)), key=lambda r: r["custom_id"]):
    print(r["custom_id"], json.dumps(r["response"]["body"]["choices"][0]["text"]))' "$@"
}
texts "$TMP/whole.jsonl" >"$TMP/want"
[ "$(awk 'length > 1000' "$TMP/want" | wc -l)" = 4 ]
result there_are_four_texts_to_compare_with $? "$(cut -c1-80 "$TMP/want")"

# ---- the script alone ----
mkdir "$TMP/bin" "$TMP/alone"
printf '#!/bin/sh\necho "$@" >>"%s/asked"\n' "$TMP" >"$TMP/bin/scontrol"; chmod +x "$TMP/bin/scontrol"
element() # I [ARGS]: starts element I of 2 as Slurm does
{
    local i=$1
    shift
    exec env PATH="$TMP/bin:$PATH" LONGHAND="$LONGHAND" LONGHAND_DIR="$TMP/alone" \
        SLURM_SUBMIT_DIR="$TMP" SLURM_ARRAY_JOB_ID=77 SLURM_ARRAY_TASK_ID="$i" SLURM_ARRAY_TASK_COUNT=2 \
        SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=2 SLURM_CPUS_PER_TASK=1 "$@" \
        bash -c 'exec bash scripts/longhand.sbatch ${before:-} "$@"' _ "$TMP/book.jsonl" "${G[@]}" "${T[@]}"
}
element 1 >"$TMP/log" 2>&1 & script=$!
for _ in $(seq $((200 * slower))); do [ \
    "$(LONGHAND_DB=$TMP/alone/book-1-of-2.db "$LONGHAND" text 1 --format ids 2>/dev/null | wc -l)" -gt 0 ] \
    && break; sleep 0.05; done
kill -USR1 "$script"; wait "$script"; rc=$?
[ $rc = 75 ] && [ "$(cat "$TMP/asked")" = 'requeue 77_1' ]
result a_signal_before_the_limit_stores_and_requeues $? \
    "exit $rc, asked '$(cat "$TMP/asked" 2>&1)': $(tail -3 "$TMP/log")"
rm -f "$TMP/asked"
(element 1) >>"$TMP/log" 2>&1; rc=$?
[ $rc = 0 ] && [ ! -e "$TMP/asked" ] && [ "$(wc -l <"$TMP/alone/book-1-of-2.out.jsonl")" = 2 ]
result the_next_start_finishes $? "exit $rc: $(tail -3 "$TMP/log")"
(LONGHAND_DB=$TMP/alone/book-1-of-2.db; sql "UPDATE job SET state = 'failed', fingerprint = 'x' WHERE id = 1"
    sql "UPDATE job SET state = 'failed' WHERE id = 2") >/dev/null
(element 1) >"$TMP/log1" 2>&1; rc=$?
[ $rc = 1 ] && grep -q 'shard 1/2: 1 job has failed' "$TMP/log1"
result failed_jobs_are_tried_again_and_decide_the_status $? "exit $rc: $(tail -3 "$TMP/log1")"
(LONGHAND_DB=$TMP/alone/book-1-of-2.db
    sql "UPDATE job SET fingerprint = (SELECT fingerprint FROM job WHERE id = 2)") >/dev/null
(element 1) >"$TMP/log1" 2>&1; result no_failed_job_is_left $? "$(tail -3 "$TMP/log1")"
(element 2) >>"$TMP/log" 2>&1; result the_other_element $? "$(tail -3 "$TMP/log")"
texts "$TMP"/alone/*.out.jsonl >"$TMP/got"; same the_shares_together_are_the_batch "$TMP/want" "$TMP/got"
(element 9 SLURM_ARRAY_TASK_COUNT=9 SLURM_ARRAY_TASK_MAX=9) >"$TMP/log" 2>&1; rc=$?
[ $rc = 0 ] && [ -f "$TMP/alone/book-9-of-9.out.jsonl" ]
result an_element_without_lines_is_done $? "exit $rc: $(tail -3 "$TMP/log")"
LONGHAND_DB= "$LONGHAND" export @book --format openai-batch --db "$TMP/alone/book-2-of-2.db" --db \
    "$TMP/alone/book-1-of-2.db" --db "$TMP/alone/book-9-of-9.db" >"$TMP/got"
[ "$(grep -o '"custom_id": "[^"]*"' "$TMP/got" | tr -d '\n')" = \
    '"custom_id": "r0""custom_id": "r1""custom_id": "r2""custom_id": "r3"' ]
    result the_stores_are_one_batch $? "$(cut -c1-60 "$TMP/got")"

# Arrays that are not 1-N: element ID of an array from MIN to MAX of COUNT elements.
array() # ID MIN MAX COUNT [--shards N]
{
    local v=(SLURM_ARRAY_TASK_ID="$1" SLURM_ARRAY_TASK_MIN="$2" SLURM_ARRAY_TASK_MAX="$3"
        SLURM_ARRAY_TASK_COUNT="$4")
    shift 4
    (element 1 "${v[@]}" before="$*") >"$TMP/log" 2>&1
}
array 3 3 4 2
[ $? = 2 ] && grep -q 'shards N is needed' "$TMP/log"
result an_array_with_gaps_needs_the_number_of_shards $? "$(cat "$TMP/log")"
array 9 9 9 1 --shards 8
[ $? = 2 ] && grep -q 'only 8 shards' "$TMP/log"
result an_element_after_the_last_shard_is_refused $? "$(cat "$TMP/log")"
array 1 1 1 1 --shards 1x
[ $? = 2 ] && grep -q 'shards 1x: a number' "$TMP/log"
result a_wrong_number_of_shards_is_refused $? "$(cat "$TMP/log")"
mv "$TMP/alone" "$TMP/array"; mkdir "$TMP/alone"; T=(--tokens 20)
array 3 3 7 2 --shards 4; r3=$?; array 0 0 0 1 --shards 4; r0=$?; array 0 0 1 2; r01=$?
have() { LONGHAND_DB=$TMP/alone/$1.db "$LONGHAND" list --json --columns custom_id | grep -o '"r[0-9]"' |
    tr -d '\n"'; }
got="$r3 $r0 $r01 $(have book-3-of-4) $(have book-4-of-4) $(have book-2-of-2)"
[ "$got" = '0 0 0 r2 r3 r1r3' ]; result any_array_takes_its_shards $? "$got: $(tail -3 "$TMP/log")"

# ---- under Slurm ----
need=
for p in munged slurmctld slurmd sbatch squeue scontrol; do command -v $p >/dev/null || need=$p; done
if [ -n "$need" ]; then skip slurm_requeues_until_all_is_done "no $need here"; exit $failed; fi
if [ "$(id -u)" != 0 ]; then skip slurm_requeues_until_all_is_done "slurmd needs root"; exit $failed; fi
if [ -z "${LONG:-}" ]; then skip slurm_requeues_until_all_is_done "takes minutes; LONG=1 runs it"
exit $failed; fi
S=$TMP/slurm host=$(hostname -s)
mkdir -p "$S/state" "$S/spool"; chmod 755 "$TMP" "$S"
# In any case end the jobs first, then the daemons, then the processes that Slurm started. All of them have
# this folder in their environment or on their command line.
daemons=
clean()
{
    trap '' INT TERM
    [ -z "$daemons" ] || timeout 5 scancel --full --signal=KILL -u root 2>/dev/null
    for p in $daemons; do kill "$p"; done 2>/dev/null
    for _ in 1 2 3 4 5 6; do
        for p in /proc/[0-9]*; do [ "${p#/proc/}" = $$ ] || ! grep -qsF "$S" "$p/environ" "$p/cmdline" ||
            kill -KILL "${p#/proc/}"; done 2>/dev/null
        sleep 0.5
    done
    wait
    rm -rf "$TMP"
}
trap clean EXIT
trap 'exit 1' INT TERM

# A text for each element, too long to be finished between Slurm's start and its signal: the text that one
# minute of processor time writes. Both texts are written at the same time, as Slurm runs them. The jobs under
# Slurm then ask for the length of the shorter text and must write the same texts.
for i in 1 2; do line "long$i" "Night $i of the voyage began with rain."; done >"$TMP/voyage.jsonl"
written=()
for i in 1 2; do
    export LONGHAND_DB=$S/calm-$i.db
    "$LONGHAND" submit --batch "$TMP/voyage.jsonl" --shard $i/2 "${G[@]}" --tokens 100000 -q >/dev/null ||
        exit
    "$LONGHAND" work --threads 1 -q </dev/null & written[$i]=$!
done
for i in 1 2; do
    while spent=$(awk '{ print int($14 + $15) }' "/proc/${written[$i]}/stat" 2>/dev/null) &&
        [ -n "$spent" ] && [ "$spent" -lt $((60 * $(getconf CLK_TCK))) ]; do sleep 0.2; done
done
kill -TERM "${written[@]}" 2>/dev/null; wait "${written[@]}"
ids() { LONGHAND_DB=$1 "$LONGHAND" text 1 --format ids; }
for i in 1 2; do ids "$S/calm-$i.db" >"$S/calm-$i"; done
tokens=$(wc -l "$S/calm-1" "$S/calm-2" | sort -n | awk 'NR == 1 { print $1 }')
echo "    a minute of a processor wrote $tokens tokens"
[ "$tokens" -gt 1000 ]; result the_undisturbed_texts $? "$(wc -l "$S"/calm-?)"
[ "$tokens" -gt 1000 ] || exit 1

head -c 128 /dev/urandom >"$S/munge.key"; chmod 400 "$S/munge.key"
export SLURM_CONF=$S/slurm.conf
cat >"$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=$((20000 + $$ % 10000))
SlurmdPort=$((30000 + $$ % 10000))
AuthType=auth/munge
AuthInfo=socket=$S/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=2,builtin_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
StateSaveLocation=$S/state
SlurmdSpoolDir=$S/spool
SlurmctldPidFile=$S/slurmctld.pid
SlurmdPidFile=$S/slurmd.pid
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
ready() { for _ in $(seq 150); do eval "$1" && return; sleep 0.2; done 2>/dev/null; }
munged --force --foreground --key-file="$S/munge.key" --socket="$S/munge.socket" --pid-file="$S/munge.pid" \
    --log-file="$S/munge.log" --seed-file="$S/munge.seed" >"$S/munge.out" 2>&1 & daemons=$!
ready '[ -S "$S/munge.socket" ]'
slurmctld -D -f "$SLURM_CONF" >"$S/slurmctld.log" 2>&1 & daemons="$! $daemons"
ready 'scontrol ping | grep -q UP'
slurmd -D -f "$SLURM_CONF" >"$S/slurmd.log" 2>&1 & daemons="$! $daemons"
ready '[ "$(sinfo -h -o %T)" = idle ]'

# Slurm checks time limits twice a minute and sends the signal up to half a minute early: here 15 to 45 s
# after the start, with more than a minute left. An element that has stopped twice gets a limit that it does
# not reach, so that a slow machine needs no more starts than a fast one.
export LONGHAND LONGHAND_DIR=$S
start=$SECONDS
id=$(sbatch --parsable --array=1-2 --cpus-per-task=1 --time=2 --signal=B:USR1@75 -o "$S/log-%a" \
    scripts/longhand.sbatch "$TMP/voyage.jsonl" "${G[@]}" --tokens "$tokens" 2>"$TMP/err")
[ -n "$id" ]; result sbatch_takes_the_script $? "$(cat "$TMP/err")"
[ -n "$id" ] || exit 1
left() { cat "$S/log-$1" 2>/dev/null | grep -c 'queued again'; }
more=()
while [ $((SECONDS - start)) -lt 1800 ]; do
    waiting=$(squeue -h -j "$id" 2>"$TMP/err") && [ -z "$waiting" ] && break
    grep -q 'Invalid job id' "$TMP/err" && break
    for i in 1 2; do [ -n "${more[$i]:-}" ] || [ "$(left $i)" -lt 2 ] ||
        ! scontrol update JobId="${id}_$i" TimeLimit=600 2>/dev/null || more[$i]=1; done
    sleep 1
done
echo "    left with 75: $(left 1) and $(left 2) times, all done after $((SECONDS - start)) s"
[ "$(left 1)" -ge 1 ] && [ "$(left 2)" -ge 1 ] &&
    [ "$(cat "$S"/log-? | grep -c 'done, exit status 0')" = 2 ]
    result slurm_requeues_until_all_is_done $? "$(tail -n 5 "$S"/log-? "$S/slurmctld.log")"
! grep -qiE 'time limit' "$S"/log-? "$S/slurmd.log"
result nobody_was_killed_at_the_limit $? "$(grep -iE 'time limit' "$S"/log-? "$S/slurmd.log" | head -3)"
for i in 1 2; do
    export LONGHAND_DB=$S/voyage-$i-of-2.db
    [ "$("$LONGHAND" list | grep -c ' done ')" = 1 ]
    result "the_store_of_element_$i" $? "$("$LONGHAND" list 2>&1; ls "$S")"
    # Each start left the long text further on, and before its end; the next start continued it.
    at=$("$LONGHAND" show 1 | sed -n 's/.*  released: at token \([0-9]*\).*/\1/p')
    echo "    the long text of element $i was left at tokens $(echo $at) of $tokens"
    echo "$at" |
        awk -v end="$tokens" -v left="$(left $i)" \
        '!($1 > last && $1 < end) { bad = 1 } { last = $1 } END { exit bad || NR < 1 || NR > left }'
        result "each_start_of_element_${i}_got_on" $? "$("$LONGHAND" show 1)"
    "$LONGHAND" show 1 --json | python3 -c '
import json, sys
j, left = json.load(sys.stdin), len(sys.argv[2:])
found = (j["state"], j["resumes"], j["tokens"])
assert left >= 1 and found == ("done", left, int(sys.argv[1])), found' "$tokens" $at 2>"$TMP/err"
    result "a_text_of_element_${i}_was_gone_on_with" $? "$(tail -1 "$TMP/err")"
    head -n "$tokens" "$S/calm-$i" >"$TMP/want"; ids "$LONGHAND_DB" >"$TMP/got"
    [ "$(wc -l <"$TMP/got")" = "$tokens" ] &&
        [ "$(grep -c "\"custom_id\": \"long$i\"" "$S/voyage-$i-of-2.out.jsonl")" = 1 ]
        result "the_text_of_element_${i}_is_there" $? "$(wc -l <"$TMP/got"); $(ls "$S")"
    same "the_text_of_element_${i}_is_the_undisturbed_one" "$TMP/want" "$TMP/got"
done
exit $failed
