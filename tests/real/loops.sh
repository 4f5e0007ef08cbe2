#!/bin/bash
# Texts that fall into loops and are taken back (--on-loop retake): drafting and kills change no byte of them.
# LONG=1: 40 texts of 4,000 tokens with --preset story, but no penalty, at temperatures 0 and 0.7. TEXTS,
# TOKENS and KILLS give other numbers.
. tests/real/lib.inc
texts=1 tokens=185 kills=2 temperatures=0 rules=1 drafters= settings='--min-p 0'
[ -z "$LONG" ] ||
    texts=40 tokens=4000 kills=20 temperatures='0 0.7' rules='1 8' drafters='partial ngram suffix' \
        settings='--preset story --penalty 1'
texts=${TEXTS:-$texts} tokens=${TOKENS:-$tokens} kills=${KILLS:-$kills}
python3 - "$texts" >"$TMP/all.jsonl" <<'P'
import json, sys
who = ["The keeper", "My grandmother", "A doctor", "The last pilot", "Captain Marsh", "The old teacher",
       "A thief", "Our cook"]
what = ["had never told anyone about the door.", "counted the stairs, and there was one more.",
        "found the letter eleven years too late.", "was the first to see that the lake had moved.",
        "had one rule, and broke it on the first day."]
for i in range(int(sys.argv[1])):
    print(json.dumps({"custom_id": f"t{i}", "prompt": f"{who[i % 8]} {what[i // 8 % 5]}"}))
P
head -n 4 "$TMP/all.jsonl" >"$TMP/four.jsonl"
queue() # NAME all|four TEMPERATURE DRAFTER [RULE]
{
    "$L" submit --batch "$TMP/$2.jsonl" -m "$MODEL" -n "$tokens" --name "$1" --temperature "$3" \
        --drafter "$4" --on-loop "${5:-retake}" -s 1 $settings --ignore-eos -q >/dev/null
}
equal() # NAME OTHER: texts of two queues
{
    for q; do "$L" export "@$q" --format ids -o "$TMP/$q.ids"; done
    same "real_${1}_equals_$2" "$TMP/$1.ids" "$TMP/$2.ids"
}
figures() # NAME
{
    "$L" report "@$1" --json | python3 -c '
import json, statistics, sys
jobs, name, wanted = json.load(sys.stdin), sys.argv[1], int(sys.argv[2])
jobs = jobs if isinstance(jobs, list) else [jobs]
cut = [sum(x["length"] - x["at"] for x in j["retake_list"]) for j in jobs]
made = [c + j["tokens"] for c, j in zip(cut, jobs)]
print("     %s: %d of %d texts have %d tokens; cut tokens: median share %.3f, of all %.3f" % (
    name, sum(j["tokens"] == wanted for j in jobs), len(jobs), wanted,
    statistics.median(c / m for c, m in zip(cut, made)), sum(cut) / sum(made)))
sys.exit(not sum(cut))' "$1" "$tokens"
}

for t in $temperatures; do
    queue "plain_$t" all "$t" none
    queue "auto_$t" all "$t" auto
    for n in $rules; do
        queue "plain_$t.$n" four "$t" none retake:$n
        queue "auto_$t.$n" four "$t" auto retake:$n
    done
    for d in ${drafters:+none} $drafters; do queue "${d}_$t" four "$t" "$d"; done
    "$L" work -q
    figures "plain_$t"; result "real_texts_that_loop_are_cut_$t" $? "no text has a retake"
    equal "auto_$t" "plain_$t"
    for n in $rules; do equal "auto_$t.$n" "plain_$t.$n"; done
    for d in $drafters; do equal "${d}_$t" "none_$t"; done
    wrong=0
    for i in $(seq 0 $((texts - 1))); do
        "$L" verify "@auto_$t/t$i" -q >/dev/null 2>&1 || wrong=$((wrong + 1))
    done
    [ $wrong = 0 ]; result "real_verify_derives_retakes_$t" $? "$wrong of $texts differ"
done

# killed again and again
queue killed all 0 auto
written() { "$L" list @killed --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["tokens"])'; }
killed=0
for k in $(seq "$kills"); do
    "$L" work -q --max-attempts 0 & worker=$!
    while kill -0 $worker 2>/dev/null && [ "$(written)" -lt $((texts * tokens * k / (kills + 9))) ]; do
        sleep 0.02
    done
    [ -z "${LONG:-}" ] || sleep 0.$((RANDOM % 9))
    kill -9 $worker 2>/dev/null && killed=$((killed + 1))
    wait $worker 2>/dev/null
done
"$L" work -q --max-attempts 0
[ $killed -ge $(((kills + 1) / 2)) ]; result real_retakes_are_killed $? "$killed kills"
equal killed plain_0
check real_doctor_finds_no_fault 0 '' doctor
exit $failed
