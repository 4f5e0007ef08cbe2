#!/bin/bash
# A device that fails at its n-th call (during weights, prompt, rounds or drafts): the text so far stays, the
# exit code is 1, and a resume gives the same bytes. A device with too little memory is rejected with the
# numbers before work begins.
. tests/cli/lib.inc
M=build/data/models/llama3-old-bf16
check product_has_no_emulated_device 2 "'emulated' is not one of auto, cpu, cuda, cuda:N, cuda:all" run \
    -m $M -p a -n 1 --device emulated
! nm "$LONGHAND" 2>&1 | grep -qiE 'emulat|oracle|no symbols'
result product_has_no_test_code $? "$(nm "$LONGHAND" 2>&1 | grep -iE 'emulat|oracle|no symbols' | head -3)"
LONGHAND=$LONGHAND_TEST L=$LONGHAND_TEST
head -c 60 build/data/models/short.txt >"$TMP/prompt"
N=12
G="-m $M -f $TMP/prompt -n $N -s 7 --ignore-eos --device emulated"
G="$G --drafter partial,ngram,suffix --tree 2,1 --draft-passes 1 --kv-sinks 2 --kv-budget 12"
"$L" run $G -q --format ids >"$TMP/plain" 2>"$TMP/err"; r=$?
[ $r = 0 ] && [ "$(wc -l <"$TMP/plain")" = $N ]
result device_errors_has_its_text $? "exit $r: $(cat "$TMP/err")"

# The failing call moves through loading, prompt and rounds in steps of a factor of 1.2 (LONG: 1.1), until a
# text completes.
step=12; [ -z "${LONG:-}" ] || step=11
n=1 runs=0 bad= kernels= through=0 some=0
while [ $runs -lt 80 ]; do
    LONGHAND_DB=$TMP/db$runs LONGHAND_EMULATED_FAIL=$n "$L" run $G -q --format ids >"$TMP/a" 2>"$TMP/err"
    r=$?
    if [ $r = 0 ]; then through=1; break; fi
    have=$(wc -l <"$TMP/a")
    head -$have "$TMP/plain" | cmp -s - "$TMP/a" || bad="$bad text($n)"
    [ $r = 1 ] && [ "$(wc -l <"$TMP/err")" = 1 ] &&
        grep "emulated GPU: [a-z_0-9]*: LONGHAND_EMULATED_FAIL, call $n" "$TMP/err" |
            grep -q 'run --resume 1 --format ids continues' &&
        ! grep -q "emulated GPU.*emulated GPU" "$TMP/err" ||
        bad="$bad exit($n: $r, $(head -c 300 "$TMP/err"))"
    LONGHAND_DB=$TMP/db$runs "$L" show 1 | grep -q '^job 1: paused' || bad="$bad state($n)"
    [ $have = 0 ] || some=$((some + 1))
    kernels="$kernels $(sed -n 's/.*emulated GPU: \([a-z_0-9]*\): LONGHAND.*/\1/p' "$TMP/err")"
    LONGHAND_DB=$TMP/db$runs "$L" run --resume 1 --device emulated -q --format ids >"$TMP/b" 2>"$TMP/err" ||
        bad="$bad resume($n: $(head -c 300 "$TMP/err"))"
    cmp -s "$TMP/plain" "$TMP/b" || bad="$bad bytes($n)"
    rm -f "$TMP/db$runs"*
    runs=$((runs + 1)); n=$((n * step / 10 + 1))
done
[ -z "$bad" ] && [ $through = 1 ] && [ $runs -ge 10 ] && [ $some -ge 2 ]
result device_errors_lose_nothing $? "$runs runs, $some with text, through $through:$bad"
[ "$(echo $kernels | tr ' ' '\n' | sort -u | wc -l)" -ge 4 ]
result device_errors_are_of_several_kinds $? "$kernels"

# work: the job is queued again and the worker ends; later jobs do not change.
"$L" run $G -s 8 -q --format ids >"$TMP/plain8"
a=$("$L" submit $G); b=$("$L" submit $G -s 8); c=$("$L" submit $G -s 9)
for when in after_a_text while_loading; do      # n calls suffice for one text, not for two
    if [ $when = while_loading ]; then fail=3; else fail=$n; fi
    LONGHAND_EMULATED_FAIL=$fail "$L" work -q --parallel 1 --device emulated 2>"$TMP/err"; r=$?
    [ $r = 1 ] && [ "$(wc -l <"$TMP/err")" = 1 ] &&
        grep -q "longhand: job $b: .*LONGHAND_EMULATED_FAIL, call $fail.*it is queued again" "$TMP/err"
    result device_errors_end_the_worker_$when $? "exit $r: $(cat "$TMP/err")"
    [ "$(echo $("$L" list $a $b $c | awk 'NR > 2 { print $2 }'))" = 'done queued queued' ] &&
        ! "$L" show $c | grep -q claimed
    result device_errors_fail_no_job_$when $? "$("$L" list $a $b $c)"
done
"$L" work -q --device emulated 2>"$TMP/err"; result device_errors_and_work_continues $? "$(cat "$TMP/err")"
"$L" text $a --format ids >"$TMP/a"; same device_errors_and_the_text_before_stays "$TMP/plain" "$TMP/a"
"$L" text $b --format ids >"$TMP/a"; same device_errors_and_a_continued_text "$TMP/plain8" "$TMP/a"

# Too little memory.
items='weights [0-9.]+, workspace [0-9.]+, logits [0-9.]+, recorded passes 256'
LONGHAND_EMULATED_MEMORY=100000 check device_memory_for_the_text 2 \
    "this needs [0-9.]+ MiB of memory on emulated GPU \\($items.*0\\.1 MiB are free there" run $G
jobs=$("$L" list --all | awk 'NR > 2' | wc -l)
LONGHAND_EMULATED_MEMORY=100000 "$L" run $G -q >"$TMP/out" 2>/dev/null
[ "$("$L" list --all | awk 'NR > 2' | wc -l)" = "$jobs" ] && [ ! -s "$TMP/out" ]
result device_memory_refuses_before_there_is_a_job $? "$("$L" list --all)"
exit $failed
