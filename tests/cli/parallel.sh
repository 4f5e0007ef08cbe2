#!/bin/bash
# work --parallel: texts at any number of jobs, on every twin; memory limits; metrics; bad input. LONG=1: all
# numbers of jobs on all twins.
. tests/cli/lib.inc
L=$LONGHAND
check parallel_zero 2 '--parallel 0: auto and 1 to 64 are allowed' work --parallel 0
check parallel_too_many 2 '--parallel 65: auto and 1 to 64' work --parallel 65
check parallel_is_a_number 2 '--parallel many: auto and 1 to 64' work --parallel many
check parallel_has_no_sign 2 '--parallel .3: auto and 1 to 64' work --parallel +3
check max_memory_is_not_0 2 "--max-memory: '0' is not a number of bytes, like 500M, from 1" \
    work --max-memory 0
check max_memory_is_a_size 2 "--max-memory: 'much' is not a number of bytes" work --max-memory much

# 16 jobs of different lengths, prompts, seeds, temperatures, filters and drafters.
submit_all() # TOKENS DRAFTERS MODEL: the longest text, and the drafters of one fixed setting
{
    local i settings fixed="--kv-budget 256"
    settings=("--drafter none" "--temperature 0" "--temperature 0.8 --top-p 0.9 --min-p 0.02"
        "--drafter ngram,suffix" "--drafter $2 --tree 2,1 --draft-passes 1 $fixed" "--penalty 1.2 --top-k 40"
        "--drafter partial --draft-passes 2 --tree 1,1 $fixed" "--drafter none --eta 0.001")
    for i in $(seq 0 15); do
        "$L" submit -m "$3" -p "${prompts[$((i % 4))]}" -s $i --ignore-eos -q --threads 2 \
            -n $(($1 / 4 + i * 7 % 16 * $1 / 20)) ${settings[$((i % 8))]} >/dev/null || return 1
    done
}
prompts=("Once upon a time" "A letter" "$(head -c 300 "$(echo "$MODEL"/openings/* | cut -d' ' -f1)")" x)
ids() { "$L" export --all --format ids; }
# The statistics of the jobs whose tree, passes and budget are fixed.
fixed() # ARGS...: of report
{
    "$L" report --json "$@" | python3 -c 'import json, sys
jobs = json.load(sys.stdin)
for j in jobs if isinstance(jobs, list) else [jobs]:
    if j["parameters"]["drafting"].get("tree"):
        print([j[k] for k in ("seed", "rounds", "drafted", "verified_rows", "accepted", "draft_passes",
                              "accepted_per_depth", "acceptance_histogram", "sources")])'
}
at_n() # NAME N ARGS...: runs the queue with N jobs at once; texts and statistics must equal those of N = 1
{
    local name=$1 n=$2
    shift 2
    cp "$TMP/queue.db" "$LONGHAND_DB"
    "$L" work --parallel $n --progress none -q "$@" 2>"$TMP/err" ||
        { fail $name "$(head -c 300 "$TMP/err")"; return; }
    ids >"$TMP/ids"; fixed --all >"$TMP/fixed"
    if [ ! -s "$TMP/$want.ids" ]; then cp "$TMP/ids" "$TMP/$want.ids"; cp "$TMP/fixed" "$TMP/$want.fixed"; fi
    same $name "$TMP/$want.ids" "$TMP/ids"
    same ${name}_statistics "$TMP/$want.fixed" "$TMP/fixed"
}
isas=$(for isa in generic avx2 avx512; do
    LONGHAND_ISA=$isa "$L" run -q -m $MODEL -p x -n 1 --db "$TMP/isa.db" >/dev/null 2>&1 && echo $isa
done)
best=$(echo "$isas" | tail -1)
submit_all 70 heads,partial $MODEL; cp "$LONGHAND_DB" "$TMP/queue.db"
want=cpu numbers="1 3 16"; [ -z "${LONG:-}" ] || numbers="1 2 3 8 16"
for n in $numbers; do LONGHAND_ISA=$best at_n texts_of_${n}_jobs_$best $n; done
# the slower twins, with shorter texts
if [ -z "${LONG:-}" ]; then
    rm -f "$LONGHAND_DB"; submit_all 20 heads,partial $MODEL; cp "$LONGHAND_DB" "$TMP/queue.db"
    want=short numbers=8
    LONGHAND_ISA=$best at_n short_texts_$best 1
fi
for isa in $(echo "$isas" | grep -v "$best"); do
    for n in $numbers; do LONGHAND_ISA=$isa at_n texts_of_${n}_jobs_$isa $n; done
done
if [ -e "$LONGHAND_TEST" ]; then
    L=$LONGHAND_TEST want=emulated
    rm -f "$LONGHAND_DB"; submit_all 24 partial build/data/models/llama2-bf16
    cp "$LONGHAND_DB" "$TMP/queue.db"
    numbers="1 8"; [ -z "${LONG:-}" ] || numbers="1 2 3 8 16"
    for n in $numbers; do at_n texts_of_${n}_jobs_emulated $n --device emulated; done
    L=$LONGHAND
else
    skip texts_on_the_emulated_gpu "this build has none"
fi

# A text inherits nothing from earlier texts of the worker: its statistics are those of a worker of its own.
text_of() # DRAFTER SEED PROMPT
{
    "$L" submit -m $MODEL -p "$3" -n 60 -s $2 --drafter $1 --tree 2,1 --ngram-k 4 --kv-budget 64 \
        --draft-weights model --ignore-eos -q >/dev/null
}
rm -f "$LONGHAND_DB"*; : >"$TMP/own"
some="longspec suffix,ngram,partial,heads"; [ -z "${LONG:-}" ] || some+=" suffix ngram partial spire gumiho"
for drafter in $some; do text_of $drafter 1 "${prompts[2]}"; text_of $drafter 2 "${prompts[0]}"; done
cp "$LONGHAND_DB" "$TMP/pairs.db"
for drafter in $some; do
    rm -f "$LONGHAND_DB"*; text_of $drafter 2 "${prompts[0]}"
    "$L" work -q && fixed --all >>"$TMP/own"
done
for n in 1 16; do
    rm -f "$LONGHAND_DB"*; cp "$TMP/pairs.db" "$LONGHAND_DB"
    "$L" work -q --parallel $n && fixed --all | grep '^.2' >"$TMP/second"
    same a_text_of_${n}_at_once_inherits_nothing "$TMP/own" "$TMP/second"
done
rm -f "$LONGHAND_DB"*

# More jobs than fit: they wait, and all are done. A limit that no job fits is one line.
rm -f "$LONGHAND_DB"
for i in 1 2 3 4 5; do
    "$L" submit -m $MODEL -p x -n 500 -s $i --drafter none --ignore-eos -q >/dev/null
done
cp "$LONGHAND_DB" "$TMP/queue.db"
check no_job_fits 2 'for want of memory, .* 1.0 MiB are available .--max-memory.' work -q --max-memory 1M
needs=$(sed -n 's/.*this needs \([0-9]*\)\..*/\1/p' "$TMP/err")
together() # METRICS: the most jobs that were in one round
{
    sed -n 's/^longhand_rounds_total{jobs="\([0-9]*\)"}.*/\1/p' "$1" | sort -n | tail -1
}
"$L" work -q --max-memory $((needs + 4))M --metrics "$TMP/m.prom" 2>"$TMP/err" &&
    [ "$(together "$TMP/m.prom")" -ge 1 ] && [ "$(together "$TMP/m.prom")" -le 4 ] &&
    [ "$("$L" list --state done --json | grep -c '"state": "done"')" = 5 ]
result jobs_wait_for_memory $? "$(together "$TMP/m.prom") jobs at once; $(cat "$TMP/err")"
cp "$TMP/queue.db" "$LONGHAND_DB"
"$L" work -q --parallel 8 --metrics "$TMP/m.prom" && [ "$(together "$TMP/m.prom")" = 5 ]
result all_run_at_once_without_a_limit $? "$(together "$TMP/m.prom") jobs at once"
"$L" show 3 >"$TMP/show"
grep -qE '^speed +[1-9].*, 100 % of its passes with other jobs, [1-9].* tokens/s all together' "$TMP/show"
result show_tells_of_company $? "$(grep speed "$TMP/show")"
"$L" show 3 --json | python3 -c 'import json, sys
j = json.load(sys.stdin)
assert j["share_alone"] == 0 and j["worker_tokens_per_second"] > 0 < j["mean_tokens_per_second"], j'
result show_tells_programs_of_company $?
ids >"$TMP/all.ids"
(cp "$TMP/queue.db" "$LONGHAND_DB"; ulimit -v $(((needs + 56) * 1024)); exec "$L" work -q) 2>"$TMP/err"; r=$?
ids >"$TMP/ids"
if [ $slower -gt 1 ]; then
    skip ulimit_limits_the_jobs "a sanitizer needs the address space"
else
    [ $r = 0 ] && cmp -s "$TMP/all.ids" "$TMP/ids"
    result ulimit_limits_the_jobs $? "exit $r: $(cat "$TMP/err")"
fi
# A job that waits for memory does not hold up a job of a higher priority.
rm -f "$LONGHAND_DB"*
long_one() { "$L" submit -m $MODEL -p x --drafter none --ignore-eos -q "$@" >/dev/null; }
long_one -n 60000
"$L" work -q --max-memory 1M 2>"$TMP/err"; all=$(sed -n 's/.*this needs \([0-9]*\)\..*/\1/p' "$TMP/err")
rm -f "$LONGHAND_DB"*; long_one -n 3000; long_one -n 60000
"$L" work -q --max-memory $((all + 2))M --max-jobs 2 & pid=$!
for i in $(seq 200); do "$L" show 1 --json | grep -q '"tokens": [1-9]' && break; sleep 0.02; done
long_one -n 20 --priority 5; wait $pid
"$L" list --json --state done | python3 -c 'import json, sys
end = {j["job"]: j["ended"] for j in json.load(sys.stdin)["jobs"]}
assert set(end) == {1, 3} and end[3] < end[1], end' 2>"$TMP/err"
result a_higher_priority_passes_a_job_without_memory $? "$(tail -1 "$TMP/err")"
# A job that no limit of this worker allows is named once, and later jobs pass it at once.
rm -f "$LONGHAND_DB"*; long_one -n 800; long_one -n 60000; long_one -n 20
"$L" work --max-memory $((all - 2))M 2>"$TMP/err"
"$L" list --json --all | python3 -c 'import json, sys
end = {j["job"]: (j["state"], j["ended"]) for j in json.load(sys.stdin)["jobs"]}
assert end[1][0] == end[3][0] == "done" and end[3][1] < end[1][1] and end[2][0] == "queued", end
named = [s for s in open(sys.argv[1]) if "job 2" in s]
assert len(named) == 1 and "this needs" in named[0] and "--max-memory allows more" in named[0], named' \
    "$TMP/err" 2>"$TMP/why"
result a_job_that_never_fits_holds_up_no_job $? "$(tail -1 "$TMP/why")"

# With auto a job of a higher priority takes the next free place, also if jobs wait that have joined for a
# trial of more places. The trial may succeed or fail here.
if [ -n "${LONG:-}" ]; then
    rm -f "$LONGHAND_DB"*; long_one -n 1500; for i in $(seq 15); do long_one -n 12000; done
    "$L" work -q & pid=$!
    for i in $(seq 3000); do
        [ "$("$L" list --json | grep -c '"tokens": [1-9]')" -gt 4 ] && break; sleep 0.02
    done
    sleep 1; long_one -n 20 --priority 5
    for i in $(seq 3000); do "$L" show 17 --json | grep -q '"state": "done"' && break; sleep 0.02; done
    "$L" list --json | python3 -c 'import json, sys
n = {j["job"]: j["tokens"] for j in json.load(sys.stdin)["jobs"]}
assert n[17] == 20 and n[2] < 2500, n' 2>"$TMP/err"
    result a_higher_priority_passes_jobs_of_a_trial $? "$(tail -1 "$TMP/err")"
    kill $pid; wait $pid
    # So does one that joined for the trial itself: with 6 jobs the trial waits for two more.
    rm -f "$LONGHAND_DB"*; long_one -n 2000; for i in 2 3 4 5 6; do long_one -n 12000; done
    "$L" work -q & pid=$!
    for i in $(seq 3000); do
        [ "$("$L" list --json | grep -c '"tokens": [1-9]')" -gt 5 ] && break; sleep 0.02
    done
    long_one -n 1000 --priority 5; long_one -n 1000 --priority 5
    for i in $(seq 3000); do "$L" show 7 --json | grep -q '"state": "done"' && break; sleep 0.02; done
    "$L" list --json | python3 -c 'import json, sys
n = {j["job"]: j["tokens"] for j in json.load(sys.stdin)["jobs"]}
assert n[7] == 1000 and n[2] < 4500, n' 2>"$TMP/err"
    result a_higher_priority_of_a_trial_comes_first $? "$(tail -1 "$TMP/err")"
    kill $pid; wait $pid
fi

# A control group of a hierarchy of files: version 2, and version 1.
mkdir -p "$TMP/cgroup/memory"
limit=$(((needs + 8) * 1048576))       # the files say that nothing is in use
for f in memory.max memory/memory.limit_in_bytes; do echo $limit >"$TMP/cgroup/$f"; done
for f in memory.current memory/memory.usage_in_bytes; do echo 0 >"$TMP/cgroup/$f"; done
for f in memory.stat memory/memory.stat; do echo "inactive_file 0" >"$TMP/cgroup/$f"; done
in_group() { unshare -m bash -c 'mount --bind "$0" /sys/fs/cgroup && exec "$@"' "$TMP/cgroup" "$@"; }
if in_group true 2>/dev/null; then
    cp "$TMP/queue.db" "$LONGHAND_DB"
    in_group "$L" work -q --metrics "$TMP/m.prom" 2>"$TMP/err" && [ "$(together "$TMP/m.prom")" -le 4 ]
    result a_control_group_limits_the_jobs $? "$(together "$TMP/m.prom") jobs at once; $(cat "$TMP/err")"
    ids >"$TMP/ids"; same a_control_group_changes_no_text "$TMP/all.ids" "$TMP/ids"
else
    skip a_control_group_limits_the_jobs "no mount namespace"
fi

# A job that drafts joins beside one that does not: the model in 8 bits is made between their rounds. It
# counts among what --max-memory limits.
rm -f "$LONGHAND_DB"
for i in "1500 --drafter none" "600 --drafter partial"; do
    "$L" submit -m $MODEL -p x --ignore-eos -q -n $i >/dev/null
done
cp "$LONGHAND_DB" "$TMP/queue8.db"
"$L" work --progress json 2>"$TMP/err" && grep -q '"phase": "making the model in 8 bits"' "$TMP/err"
result the_model_in_8_bits_is_made_beside_running_jobs $? "$(grep -o '"message.*' "$TMP/err")"
cp "$TMP/queue8.db" "$LONGHAND_DB"
"$L" work --max-memory $((needs + 12))M 2>"$TMP/err" && grep -q "no room .* the model in 8 bits" "$TMP/err"
result the_model_in_8_bits_counts_as_memory $? "$(tail -3 "$TMP/err")"

# The metrics: a whole file in Prometheus' format that agrees with the store.
check metrics_in_a_folder_that_is_missing 2 '--metrics.*: cannot write: No such file' work --metrics \
    "$TMP/none/m.prom"
check metrics_in_a_device 2 "--metrics '/dev/null': the name of a file is needed" work --metrics /dev/null
cp "$TMP/queue.db" "$LONGHAND_DB"
"$L" work -q --metrics "$TMP/m.prom" --parallel 2 && "$L" report --all --json >"$TMP/report"
python3 - "$TMP/m.prom" "$TMP/report" <<'PY' 2>"$TMP/err"
import json, re, sys
kind, value, helped = {}, {}, set()
for line in open(sys.argv[1]):
    if m := re.fullmatch(r"# HELP (\S+) \S.*\n", line):
        helped.add(m[1])
    elif m := re.fullmatch(r"# TYPE (\S+) (gauge|counter)\n", line):
        assert m[1] not in kind
        kind[m[1]] = m[2]
    else:
        m = re.fullmatch(r'([a-z_:]+)(\{[a-z_]+="[^"]*"(?:,[a-z_]+="[^"]*")*\})? (\S+)\n', line)
        assert m and m[1] in kind and m[1] in helped, line
        assert (kind[m[1]] == "counter") == m[1].endswith("_total"), line
        value.setdefault(m[1], {})[m[2] or ""] = float(m[3])
jobs = json.load(open(sys.argv[2]))
one = lambda name: sum(value[name].values())
assert one("vllm:generation_tokens_total") == sum(j["tokens"] for j in jobs) == 2500, value
assert one("vllm:prompt_tokens_total") == sum(j["prefill_tokens"] for j in jobs)
assert one("vllm:request_success_total") == 5 and value["longhand_jobs"]['{state="done"}'] == 5
assert sum(v * int(re.search(r"\d+", k)[0]) for k, v in value["longhand_rounds_total"].items()) == \
    sum(j["rounds"] for j in jobs)
assert abs(one("longhand_decode_seconds_total") - sum(j["seconds"] for j in jobs)) < 0.01
assert 0 < one("longhand_longest_wait_seconds") < 60
assert one("vllm:num_requests_running") == one("vllm:num_requests_waiting") == 0
PY
result metrics_agree_with_the_store $? "$(tail -3 "$TMP/err")"
[ ! -e "$TMP/m.prom.tmp" ]; result metrics_leave_no_temporary_file $? ""
# A job of one round waits for no other round, however long the prompt of the next job takes.
rm -f "$LONGHAND_DB"*; long_one -n 1 --samples 3
"$L" work -q --metrics "$TMP/m.prom" --parallel 1
grep -q '^longhand_longest_wait_seconds 0$' "$TMP/m.prom"
result a_job_that_has_ended_does_not_wait $? "$(grep wait_seconds "$TMP/m.prom")"
exit $failed
