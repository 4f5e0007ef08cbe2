#!/bin/bash
# --device auto on a machine with a GPU: it is the CPU until a check of the kernels has passed on this GPU.
# The emulated GPU stands for a GPU that passes, one whose kernels are wrong, and one with another driver.
. tests/cli/lib.inc
M=build/data/models/llama3-old-bf16
# the program of a machine without a GPU prints nothing
export LONGHAND_EMULATED_AUTO=1 XDG_CACHE_HOME=$TMP/cache
"$LONGHAND" run -m $M -p It -n 2 -s 1 --ignore-eos >"$TMP/cpu" 2>"$TMP/err"
! grep -q -e --device "$TMP/err" && [ ! -e "$XDG_CACHE_HOME" ]
result edges_device_without_a_gpu_says_nothing $? "$(cat "$TMP/err"; ls "$XDG_CACHE_HOME" 2>&1)"

LONGHAND=$LONGHAND_TEST L=$LONGHAND_TEST
G="-m $M -p It -n 2 -s 1 --ignore-eos"
text="the check of the GPU's kernels"
# takes NAME DEVICE REASON [ARGUMENTS]: a run whose line has the reason, and whose text has the device's
# arithmetic.
takes()
{
    local name=$1 device=$2 reason=$3 numerics; shift 3
    "$L" run $G "$@" >"$TMP/out" 2>"$TMP/err"; local r=$?
    numerics=$("$L" show "$(sed -n 's/^job: //p' "$TMP/err")" | awk '$1 == "numerics" { print $2 }')
    case $device in "the CPU") local id='^cpu-' ;; *) local id='^emulated-2$' ;; esac
    [ $r = 0 ] && [ "$(grep -c -e '^--device' "$TMP/err")" = 1 ] && echo "$numerics" | grep -q "$id" &&
        grep -qE -e "^--device [a-z]+ is $device: $reason" "$TMP/err"
    result $name $? "exit $r, $numerics: $(cat "$TMP/err")"
}
records() { ls "$XDG_CACHE_HOME/longhand" 2>/dev/null | wc -l; }
file="$XDG_CACHE_HOME/longhand/gpu-[0-9a-f]{16}"

takes edges_device_that_passes_is_taken "emulated GPU" "$text passed \\($file\\)"
[ "$(records)" = 1 ] && grep -q 'driver 1, emulated-2, longhand' "$XDG_CACHE_HOME"/longhand/* &&
    [ "$(tail -1 "$XDG_CACHE_HOME"/longhand/*)" = passed ]
result edges_device_keeps_the_result $? "$(cat "$XDG_CACHE_HOME"/longhand/*)"
export LONGHAND_EMULATED_WRONG=embed:24
takes edges_device_is_checked_once "emulated GPU" "$text passed"

# Another driver: checked again, and now it is wrong.
export LONGHAND_EMULATED_DRIVER=2
takes edges_device_with_wrong_logits_is_not_taken "the CPU" \
    "$text failed: row 0 has other logits than on the CPU"
same edges_device_and_the_text_is_the_cpus "$TMP/cpu" "$TMP/out"
[ "$(records)" = 2 ]; result edges_device_has_a_result_for_each_driver $? "$(records)"
unset LONGHAND_EMULATED_WRONG
takes edges_device_that_failed_is_not_tried_again "the CPU" \
    "$text failed: row 0 has other .* \\($file; without this file it is checked again\\)"
takes edges_device_that_failed_is_taken_by_name "emulated GPU" "$text failed: row 0" --device emulated
"$L" run $G -q >/dev/null 2>"$TMP/err"
[ ! -s "$TMP/err" ]; result edges_device_quiet_is_quiet $? "$(cat "$TMP/err")"
"$L" run $G --progress json >/dev/null 2>"$TMP/err"
python3 -c 'import json, sys
lines = [json.loads(s) for s in open(sys.argv[1])]
lines = [(x["device"], x["because"][:10]) for x in lines if x["phase"] == "device"]
assert lines == [("the CPU", "the check ")], lines
' "$TMP/err"
result edges_device_as_json $? "$(cat "$TMP/err")"

# Rows that depend on the other rows of a pass; sampling. Checked at each run, where nothing can be kept.
export LONGHAND_EMULATED_DRIVER=3
touch "$TMP/file"
LONGHAND_EMULATED_WRONG=product_few:20 XDG_CACHE_HOME=$TMP/file takes \
    edges_device_with_unequal_rows_is_not_taken "the CPU" \
    "$text failed: row [0-9]+ has other logits alone \\($TMP/file/longhand/gpu-.*: Not a directory\\)"
LONGHAND_EMULATED_WRONG=attend_64_few:24 XDG_CACHE_HOME=$TMP/file takes \
    edges_device_is_checked_again_without_a_file "the CPU" \
    "$text failed: row [0-9]+ has other logits in a tree"

# A check that ends the program is a check that failed. Another program checks again.
(LONGHAND_EMULATED_STOP=2000 "$L" run $G >/dev/null 2>&1 & echo $! >"$TMP/pid"; wait)  2>/dev/null &
for i in $(seq $((500 * slower))); do
    grep -qs '^State:.T' /proc/"$(cat "$TMP/pid" 2>/dev/null)"/status && break; sleep 0.02
done
kill -9 "$(cat "$TMP/pid")"; wait
takes edges_device_that_ends_the_program_is_not_taken "the CPU" "$text failed: the program ended in it"
cp "$LONGHAND_TEST" "$TMP/program"
L=$TMP/program LONGHAND_EMULATED_WRONG=embed:24 takes edges_device_is_checked_by_another_program "the CPU" \
    "$text failed: row 0"

# A text keeps its device; the other reasons for the CPU; other verbs.
export LONGHAND_EMULATED_DRIVER=1
id=$("$L" submit $G -n 3000 -q 2>/dev/null)
held 60 close "$L" run --resume $id --device cpu -q >/dev/null 2>&1
"$L" run --resume $id >/dev/null 2>"$TMP/err"; r=$?
[ $r = 0 ] && grep -q -e '^--device auto is the CPU: the text began there$' "$TMP/err"
result edges_device_a_text_stays_where_it_began $? "exit $r: $(cat "$TMP/err")"
takes edges_device_has_no_int8 "the CPU" ".*--kv-dtype int8 is not supported" --kv-dtype int8
LONGHAND_EMULATED_MEMORY=100000 takes edges_device_without_room "the CPU" "emulated GPU has 0 MiB free"
head -c 200 build/data/models/short.txt >"$TMP/text"
"$L" score -m $M "$TMP/text" >/dev/null 2>"$TMP/err"
grep -qE -e "^--device auto is emulated GPU: $text passed" "$TMP/err"
result edges_device_of_score $? "$(cat "$TMP/err")"
# a worker whose GPU has failed leaves the jobs that began on it
id=$("$L" submit $G -n 3000 -q 2>/dev/null)
held 60 close "$L" run --resume $id --device emulated -q >/dev/null 2>&1
"$L" resume $id -q
LONGHAND_EMULATED_DRIVER=2 "$L" work 2>"$TMP/err"; r=$?
"$L" list $id | grep -q ' queued ' && grep -q 'device cpu (' "$TMP/err"
result edges_device_that_failed_claims_nothing $? "exit $r: $(cat "$TMP/err"; "$L" list $id)"
"$L" work --max-time 1 2>"$TMP/err"; r=$?
[ $r = 75 ] && grep -q 'device auto (emulated-2)' "$TMP/err"
result edges_device_that_passed_claims_them $? "exit $r: $(cat "$TMP/err"; "$L" list $id)"
exit $failed
