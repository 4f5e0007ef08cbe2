#!/bin/bash
# scripts/longhand.sbatch: an array over one batch file, out before the time limit, requeued. First as Slurm would call it, with a scontrol that
# only takes notes; then, with LONG=1, under slurmctld and slurmd on this machine.
. tests/cli/lib.inc
LONGHAND=$(readlink -f "$LONGHAND")
model=$(readlink -f "$MODEL")
for i in 0 1 2 3; do echo "{\"custom_id\": \"r$i\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"Day $i of the voyage began with rain.\"}}"; done >"$TMP/book.jsonl"
tokens=2500
G=(--model "$model" --ignore-eos --seed 5 --drafter none)
if [ -n "${LONG:-}" ]; then                      # so many that an element takes longer than Slurm waits with its signal, on any machine
    start=$(date +%s%N)
    "$LONGHAND" run --prompt x --tokens 1000 --threads 1 "${G[@]}" -q >/dev/null </dev/null
    tokens=$((1000 * 25 * 1000000000 / ($(date +%s%N) - start)))
    tokens=$((tokens < 2000 ? 2000 : tokens > 20000 ? 20000 : tokens))
fi
G+=(--tokens "$tokens")
LONGHAND_DB=$TMP/whole.db "$LONGHAND" run --batch "$TMP/book.jsonl" -o "$TMP/whole.jsonl" "${G[@]}" -q </dev/null 2>"$TMP/err"; result the_batch_in_one_piece $? "$(tail -1 "$TMP/err")"

texts() # FILES: custom_id and text, in order
{
    python3 -c 'import json,sys
for r in sorted((json.loads(l) for f in sys.argv[1:] for l in open(f)), key=lambda r: r["custom_id"]): print(r["custom_id"], json.dumps(r["response"]["body"]["choices"][0]["text"]))' "$@"
}
texts "$TMP/whole.jsonl" >"$TMP/want"
[ "$(awk 'length > 1000' "$TMP/want" | wc -l)" = 4 ]; result there_are_four_texts_to_compare_with $? "$(cut -c1-80 "$TMP/want")"

# ---- the script alone ----
mkdir "$TMP/bin" "$TMP/alone"
printf '#!/bin/sh\necho "$@" >>"%s/asked"\n' "$TMP" >"$TMP/bin/scontrol"; chmod +x "$TMP/bin/scontrol"
element() # I [ARGS]: as Slurm starts element I of 2
{
    local i=$1
    shift
    exec env PATH="$TMP/bin:$PATH" LONGHAND="$LONGHAND" LONGHAND_DIR="$TMP/alone" SLURM_SUBMIT_DIR="$TMP" SLURM_ARRAY_JOB_ID=77 SLURM_ARRAY_TASK_ID="$i" SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_MIN=1 \
        SLURM_ARRAY_TASK_MAX=2 SLURM_CPUS_PER_TASK=1 "$@" bash scripts/longhand.sbatch "$TMP/book.jsonl" "${G[@]}"
}
element 1 >"$TMP/log" 2>&1 & script=$!
for _ in $(seq $((200 * slower))); do [ "$(LONGHAND_DB=$TMP/alone/book-1-of-2.db "$LONGHAND" text 1 --format ids 2>/dev/null | wc -l)" -gt 0 ] && break; sleep 0.05; done
kill -USR1 "$script"; wait "$script"; rc=$?
[ $rc = 75 ] && [ "$(cat "$TMP/asked")" = 'requeue 77_1' ]; result a_signal_before_the_limit_stores_and_requeues $? "exit $rc, asked '$(cat "$TMP/asked" 2>&1)': $(tail -3 "$TMP/log")"
rm -f "$TMP/asked"
(element 1) >>"$TMP/log" 2>&1; rc=$?
[ $rc = 0 ] && [ ! -e "$TMP/asked" ] && [ "$(wc -l <"$TMP/alone/book-1-of-2.out.jsonl")" = 2 ]; result the_next_start_finishes $? "exit $rc: $(tail -3 "$TMP/log")"
(element 2) >>"$TMP/log" 2>&1; result the_other_element $? "$(tail -3 "$TMP/log")"
texts "$TMP"/alone/*.out.jsonl >"$TMP/got"; same the_shares_together_are_the_batch "$TMP/want" "$TMP/got"
(element 9 SLURM_ARRAY_TASK_COUNT=9 SLURM_ARRAY_TASK_MAX=9) >"$TMP/log" 2>&1; rc=$?; [ $rc = 0 ] && [ -f "$TMP/alone/book-9-of-9.out.jsonl" ]; result an_element_without_lines_is_done $? "exit $rc: $(tail -3 "$TMP/log")"
LONGHAND_DB= "$LONGHAND" export @book --format openai-batch --db "$TMP/alone/book-2-of-2.db" --db "$TMP/alone/book-1-of-2.db" --db "$TMP/alone/book-9-of-9.db" >"$TMP/got"
[ "$(grep -o '"custom_id": "[^"]*"' "$TMP/got" | tr -d '\n')" = '"custom_id": "r0""custom_id": "r1""custom_id": "r2""custom_id": "r3"' ]; result the_stores_are_one_batch $? "$(cut -c1-60 "$TMP/got")"
(element 3 SLURM_ARRAY_TASK_MIN=3 SLURM_ARRAY_TASK_MAX=4) >"$TMP/log" 2>&1; [ $? = 2 ] && grep -q 'must be 1-N' "$TMP/log"; result an_array_with_gaps_is_refused $? "$(cat "$TMP/log")"

# ---- under Slurm ----
need=
for p in munged slurmctld slurmd sbatch squeue scontrol; do command -v $p >/dev/null || need=$p; done
if [ -n "$need" ]; then skip slurm_requeues_until_all_is_done "no $need here"; exit $failed; fi
if [ "$(id -u)" != 0 ]; then skip slurm_requeues_until_all_is_done "slurmd needs root"; exit $failed; fi
if [ -z "${LONG:-}" ]; then skip slurm_requeues_until_all_is_done "takes minutes; LONG=1 runs it"; exit $failed; fi
S=$TMP/slurm host=$(hostname -s)
mkdir -p "$S/state" "$S/spool"; chmod 755 "$TMP" "$S"
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
munged --force --foreground --key-file="$S/munge.key" --socket="$S/munge.socket" --pid-file="$S/munge.pid" --log-file="$S/munge.log" --seed-file="$S/munge.seed" >"$S/munge.out" 2>&1 & daemons=$!
sleep 1
slurmctld -D -f "$SLURM_CONF" >"$S/slurmctld.log" 2>&1 & daemons="$! $daemons"
sleep 1
slurmd -D -f "$SLURM_CONF" >"$S/slurmd.log" 2>&1 & daemons="$! $daemons"
trap 'scancel -u root 2>/dev/null; sleep 1; for d in $daemons; do kill $d; done; wait; rm -rf "$TMP"' EXIT
for _ in $(seq 100); do [ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && break; sleep 0.2; done
# a minute is the least that Slurm knows; its signal may come a minute early
export LONGHAND LONGHAND_DIR=$S
id=$(sbatch --parsable --array=1-2 --cpus-per-task=1 --time=1 --signal=B:USR1@55 -o "$S/log-%a" scripts/longhand.sbatch "$TMP/book.jsonl" "${G[@]}" 2>"$TMP/err")
[ -n "$id" ]; result sbatch_takes_the_script $? "$(cat "$TMP/err")"
for _ in $(seq 600); do [ -z "$(squeue -h -j "$id" 2>/dev/null)" ] && break; sleep 1; done
leaves=$(cat "$S"/log-? | grep -c 'back into the queue') restarts=$(grep -ohE 'start [0-9]+ ends here' "$S"/log-? | sort -u | wc -l)
[ "$leaves" -ge 2 ] && [ "$(cat "$S"/log-? | grep -c 'done, exit status 0')" = 2 ]; result slurm_requeues_until_all_is_done $? "$(tail -n 5 "$S"/log-? "$S/slurmctld.log")"
echo "    2 elements of an array: left with 75 $leaves times, $restarts starts of one"
! grep -qiE 'time limit' "$S"/log-? "$S/slurmd.log"; result nobody_was_killed_at_the_limit $? "$(grep -iE 'time limit' "$S"/log-? "$S/slurmd.log" | head -3)"
grep -qi requeue "$S/slurmctld.log"; result slurm_was_asked_to_requeue $? "$(tail -n 5 "$S/slurmctld.log")"
[ "$(LONGHAND_DB=$S/book-1-of-2.db "$LONGHAND" list | grep -c ' done ')$(LONGHAND_DB=$S/book-2-of-2.db "$LONGHAND" list | grep -c ' done ')" = 22 ]; result a_store_for_each_element $? "$(ls "$S")"
texts "$S"/*.out.jsonl >"$TMP/got"; same texts_are_those_of_one_undisturbed_batch "$TMP/want" "$TMP/got"
exit $failed
