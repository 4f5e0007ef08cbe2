#!/bin/bash
# Caches of 8 and 4 bits: drafters, kills with snapshots, forks and company change nothing, verify agrees, and
# llama.cpp's words stand for them.
. tests/cli/lib.inc
L="$LONGHAND"
P=$TMP/prompt; head -c 300 models/demo/openings/portrait.txt >"$P"
G="-m $MODEL -f $P --ignore-eos -s 8 -n 300"
for kv in int8 int4; do
    K="--kv-dtype $kv"
    "$L" run $G $K --drafter none -q >"$TMP/$kv"
    for d in auto heads partial,ngram,suffix longspec gumiho spire "model:$MODEL"; do
        D=; [ $d = partial,ngram,suffix ] && D="--kv-budget 128 --kv-policy mean"
        [ $d = heads ] && D="--tree 2,2,1"
        "$L" run $G $K --drafter "$d" $D -q >"$TMP/a"; same "${kv}_drafted_by_$d" "$TMP/$kv" "$TMP/a"
    done
    held 500 close "$L" run $G $K --progress none --kv-snapshot on 2>"$TMP/err"
    id=$(sed -n 's/^job: //p' "$TMP/err")
    [ -n "$(ls "$LONGHAND_DB.snapshots")" ]; result ${kv}_has_a_snapshot $? "$(cat "$TMP/err")"
    "$L" resume $id -q; "$L" work -q
    "$L" text $id >"$TMP/a"; same ${kv}_killed "$TMP/$kv" "$TMP/a"
    [ "$("$L" show $id | grep -c "^numerics  *cpu-1-$kv\$")" = 1 ] &&
        "$L" show $id | grep -q 'from a snapshot'
    result ${kv}_has_its_numerics $? "$("$L" show $id | grep -v parameters)"
    check ${kv}_verified 0 '' verify -q $id
    fork=$("$L" fork $id --at 150 --seed 5 --tokens 200 2>/dev/null)
    same=$("$L" fork $id --at 150 --seed 8 2>/dev/null)
    "$L" work -q --parallel 4; "$L" text $same >"$TMP/a"; same ${kv}_forked "$TMP/$kv" "$TMP/a"
    check ${kv}_fork_verified 0 '' verify -q $fork
    "$L" run $G $K --samples 4 --parallel 4 -o "$TMP/s" -q --force
    same ${kv}_in_company "$TMP/$kv" "$TMP/s.0"
    "$L" inspect -m $MODEL $K | grep -q "KV cache .*($kv)"; result inspect_knows_$kv $? ""
done
differ int4_is_not_int8 "$TMP/int8" "$TMP/int4"
"$L" run $G -ctk q8_0 -ctv q8_0 >"$TMP/a" 2>"$TMP/err"; same ctk_is_kv_dtype "$TMP/int8" "$TMP/a"
grep -q -- '--cache-type-k q8_0 is --kv-dtype int8' "$TMP/err"; result ctk_has_a_notice $? "$(cat "$TMP/err")"
"$L" run $G --cache-type-v q4_0 -q >"$TMP/a"; same ctv_alone "$TMP/int4" "$TMP/a"
check ctk_has_a_list 2 "'q5_1' is not one of f16, bf16, q8_0, q4_0" run $G -ctk q5_1
check ctk_and_ctv_are_equal 2 "'q8_0' and --cache-type-v 'q4_0' differ" run $G -ctk q8_0 -ctv q4_0
check f16_and_bf16_are_one 0 '--cache-type-k f16 is --kv-dtype bf16' run $G -ctk f16 -ctv bf16
check ctk_or_kv_dtype 2 'mean the same; one of them' run $G -ctk q8_0 --kv-dtype int8
check f32_refuses 2 "--kv-dtype int8: under --compute f32 the cache is f32" run $G --compute f32 \
    --kv-dtype int8
LONGHAND=$LONGHAND_TEST check a_gpu_refuses 2 '--kv-dtype int4 is not supported on this device' run $G \
    --device emulated --kv-dtype int4
(ulimit -v 400000; "$L" run $G -n 120000 -t 1 -q >"$TMP/out" 2>"$TMP/err")
grep -q 'fewer --tokens need less, and a text with --kv-dtype int8 fits' "$TMP/err"
result memory_names_the_form_that_fits $? "$(cat "$TMP/err")"
exit $failed
