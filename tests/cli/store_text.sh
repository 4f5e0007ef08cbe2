#!/bin/bash
# The store holds the text: every verb that reads a text works without the model's folder, and whatever was
# done to its files.
. tests/cli/lib.inc
L="$LONGHAND" D=$TMP/m
mkdir "$D"; cp $MODEL/*.json $MODEL/*.safetensors "$D"
make() { "$L" run -q -m "$D" -p "Once upon a time" --threads 1 "$@" 2>>"$TMP/log"; }
make -n 300 -s 1 --ignore-eos >"$TMP/t1"
make -n 200 -s 2 --temp 1.5 --stop the >"$TMP/t2"
make -n 200 -s 3 --chat --chat-template chatml >"$TMP/t3"
for id in 1 2 3; do
    "$L" tail --from 0 $id >"$TMP/tail$id"; same tail_prints_the_text_$id "$TMP/t$id" "$TMP/tail$id"
done
"$L" export --all --format jsonl -o "$TMP/x" 2>/dev/null
"$L" report --all --json >"$TMP/r"

read_all()                           # NAME: every reading verb prints what it printed with the folder
{
    for id in 1 2 3; do "$L" text $id >"$TMP/now"; same text_$1_$id "$TMP/t$id" "$TMP/now"; done
    "$L" tail 2 --from 0 >"$TMP/now"; same tail_$1 "$TMP/t2" "$TMP/now"
    "$L" export --all --format jsonl -o "$TMP/x2" 2>/dev/null; same export_$1 "$TMP/x" "$TMP/x2"
    "$L" report --all --json >"$TMP/r2"; same report_$1 "$TMP/r" "$TMP/r2"
}
# The two most frequent words of the first text change places in tokenizer.json.
"$L" text 1 --format ids >"$TMP/ids"
python3 - "$D/tokenizer.json" "$TMP/ids" <<'P'
import collections, json, sys
t = json.load(open(sys.argv[1]))
v = t["model"]["vocab"]
word = {i: w for w, i in v.items() if len(w) > 2}
count = collections.Counter(int(i) for i in open(sys.argv[2]))
a, b = [word[i] for i, _ in count.most_common() if i in word][:2]
v[a], v[b] = v[b], v[a]
json.dump(t, open(sys.argv[1], "w"))
P
read_all with_a_changed_tokenizer
mv "$D" "$TMP/gone"
read_all without_the_folder
"$L" extend 1 --tokens +20 2>"$TMP/err"; result extend_needs_no_folder $? "$(cat "$TMP/err")"
"$L" fork 2 --at 10 --append "in a house" 2>"$TMP/err" >/dev/null
result fork_needs_no_folder $? "$(cat "$TMP/err")"

# The store has a tokenizer once, whatever the number of jobs.
[ "$(sql 'SELECT count(*) FROM tokenizer')" = 1 ]
result one_tokenizer $? "$(sql 'SELECT count(*) FROM tokenizer') tokenizers"

# A finished text is checked when it is read.
sql "UPDATE job SET text_sha = zeroblob(32) WHERE id = 3"
check text_checks_the_sha 1 'job 3: the text that was read differs' text 3
check tail_checks_the_sha 1 'job 3: the text that was read differs' tail 3
check export_checks_the_sha 1 'job 3: the text that was read differs' export 3 --format text -o "$TMP/x3"
exit $failed
