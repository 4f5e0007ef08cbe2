#!/bin/bash
# A worker with --watch, and a model or heads that change under it: each job uses the files that exist when
# the worker claims it.
. tests/cli/lib.inc
L="$LONGHAND" D=$TMP/m
wait_for() { for i in $(seq $((1000 * slower))); do eval "$1" && return 0; sleep 0.02; done; return 1; }
state_of() { "$L" list "$1" | awk 'NR == 3 { print $2 }'; }
ended() { wait_for "case \$(state_of $1) in done|failed) true;; *) false;; esac"; }
theta() { sed "s/1000000.0/$1.0/" $MODEL/config.json >"$D/c" && mv "$D/c" "$D/config.json"; }
mkdir "$D"; cp $MODEL/*.json $MODEL/*.safetensors "$D"
G="-m $D -p Once -n 60 -s 5 --ignore-eos" LONG="-m $D -p Once -n 3000 -s 5"
plain() { "$L" run $G -q --drafter none --db "$TMP/plain.db" >"$1"; }
plain "$TMP/old"; theta 500000; plain "$TMP/new"; differ models_differ "$TMP/old" "$TMP/new"; theta 1000000

"$L" work --watch --threads 1 2>"$TMP/log" & pid=$!
trap 'kill -9 $pid 2>/dev/null; rm -rf "$TMP"' EXIT
id=$("$L" submit $G); ended $id; "$L" text $id >"$TMP/t"; same first_model "$TMP/old" "$TMP/t"
theta 500000; id=$("$L" submit $G); ended $id; "$L" text $id >"$TMP/t"
same config_of_another_model "$TMP/new" "$TMP/t"
"$L" verify $id -q >/dev/null 2>"$TMP/err"; result and_verify_agrees $? "$(cat "$TMP/err")"
cp -r "$D" "$TMP/m2"; mv "$D" "$TMP/was"; mv "$TMP/m2" "$D"; theta 1000000
id=$("$L" submit $G); ended $id; "$L" text $id >"$TMP/t"; same folder_of_another_model "$TMP/old" "$TMP/t"

# A job that was refused for a model's config runs after the config is mended. The next job does not use the
# config that was read for the refused job.
long=$("$L" submit $LONG --ignore-eos); "$L" pause $long -q
theta 500000; sed -i 's/131072/1000/' "$D/config.json"; "$L" resume $long -q
ended $long; "$L" show $long | grep -q 'beyond this model.s context of 1000'
result a_short_context_is_refused $? "$("$L" show $long | tail -3)"
theta 500000; id=$("$L" submit $G); ended $id; "$L" text $id >"$TMP/t"
same the_next_job_has_the_present_model "$TMP/new" "$TMP/t"
theta 1000000; "$L" resume $long -q; ended $long; [ "$(state_of $long)" = done ]
result the_refused_job_is_then_written $? "$("$L" list $long | tail -1)"

# Damaged heads: with auto no text fails because of them, and the job records it. New heads are used.
theta 1000000; head -c 1000 $MODEL/heads.safetensors >"$D/h"; mv "$D/h" "$D/heads.safetensors"
id=$("$L" submit $G); ended $id; "$L" text $id >"$TMP/t"; same damaged_heads_fail_no_text "$TMP/old" "$TMP/t"
"$L" show $id | grep -q 'drafting without heads: .*header length'
result and_the_job_records_it $? "$("$L" show $id | tail -4)"
check named_heads_are_refused 2 'header length' submit $G --drafter heads
cp $MODEL/heads.safetensors "$D/h"; mv "$D/h" "$D/heads.safetensors"
id=$("$L" submit $G --drafter heads --tree 1,1); ended $id; "$L" text $id >"$TMP/t"
same mended_heads_draft "$TMP/old" "$TMP/t"
"$L" report $id --json | grep -q '"heads": *{'
result and_the_report_has_them $? "$("$L" report $id --json | head -c 300)"
kill -TERM $pid; wait $pid; [ $? = 0 ]; result the_worker_ends $? "$(tail -3 "$TMP/log")"
exit $failed
