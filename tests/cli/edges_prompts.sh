#!/bin/bash
# What reports of batches say: the prompt that the model read, the bytes of tokens, the text of a batch while
# it grows, what is wrong in a line or a row.
. tests/cli/lib.inc
L=$LONGHAND
line() { printf '%s\n' "$@"; }

# ---- the prompt of an export ----
line '{"custom_id": "a", "prompt": "The sea", "max_tokens": 30}' \
    '{"custom_id": "b", "after": "a", "carry": 9, "append": "\n\nII.\n", "prompt": "The land."}' \
    '{"custom_id": "c", "after": "b", "max_tokens": 20}' \
    '{"custom_id": "d", "after": "a", "carry": 0, "prompt": "Alone", "max_tokens": 5}' >"$TMP/book.jsonl"
line '{"custom_id": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}' >"$TMP/talk.jsonl"
"$L" submit --batch "$TMP/book.jsonl" -m $MODEL -s 1 -q --ignore-eos >"$TMP/id"
"$L" submit --batch "$TMP/talk.jsonl" -m $MODEL -s 1 -q --ignore-eos --chat-template chatml >"$TMP/id"
"$L" export @book --format csv --partial --fields prompt,carried 2>"$TMP/err" | grep -q '^The land.,'
result a_chapter_that_waits $? "$(cat "$TMP/err")"
"$L" work -q
for f in "jsonl" "csv --fields custom_id,prompt,own,carried,appended,text" "csv"; do
    "$L" export @book @talk --format $f >"$TMP/out" 2>"$TMP/err"
    name=prompts_in_$(echo "$f" | head -c 12 | tr -c 'a-z\n' _)
    python3 - "$L" "$TMP/out" "${f%% *}" <<'P' 2>"$TMP/err"
import csv, json, subprocess, sys
f = open(sys.argv[2], newline="")
v = list(csv.DictReader(f)) if sys.argv[3] == "csv" else [json.loads(x) for x in f]
none = "" if sys.argv[3] == "csv" else None
for x in v:                                      # an apostrophe is before what a spreadsheet would compute
    x.update({k: s[1:] for k, s in x.items() if none == "" and s.startswith("'")})
    if x["custom_id"] != "m":
        text = [sys.argv[1], "text", "@book/" + x["custom_id"], "--with-prompt"]
        read = subprocess.run(text, capture_output=True).stdout.decode()
        assert read == x["prompt"] + x["text"], (read, x)
a, b, c, d, m = (next(x for x in v if x["custom_id"] == n) for n in "abcdm")
assert a["prompt"] == "The sea" and (a["own"], a["carried"], a["appended"]) == (none,) * 3, a
assert b["own"] == "The land." and b["prompt"] == b["own"] + b["carried"], b
assert a["text"].endswith(b["carried"]), (a, b)
assert b["carried"] and b["appended"] == "\n\nII.\n" and b["text"].startswith(b["appended"]), b
assert c["own"] == "" and c["carried"] == c["prompt"] == b["prompt"] + b["text"], c
assert (d["own"], d["carried"], d["prompt"]) == ("Alone", "", "Alone"), d
assert (m["prompt"], m["own"], m["carried"]) == ("Hi", none, none), m
P
    result "$name" $? "$(tail -1 "$TMP/err")"
done

# ---- the text of a batch, as it grows ----
"$L" text @book >"$TMP/want"; "$L" tail @book --from 0 >"$TMP/a"
same tail_from_the_first "$TMP/want" "$TMP/a"
"$L" tail -f @book >"$TMP/a"; tail -c "$(wc -c <"$TMP/a")" "$TMP/want" >"$TMP/b"
same tail_of_a_batch "$TMP/b" "$TMP/a"
"$L" text @book --format ids >"$TMP/ids"; "$L" tail @book --format ids >"$TMP/a"
tail -n 100 "$TMP/ids" >"$TMP/b"; same tail_of_a_batch_in_ids "$TMP/b" "$TMP/a"
"$L" submit --batch "$TMP/book.jsonl" -m $MODEL -s 1 -q --ignore-eos --name grows >"$TMP/id"
timeout 30 "$L" tail -f @grows >"$TMP/grown" 2>"$TMP/err" & follower=$!
"$L" work -q --parallel 2; wait $follower; result tail_ends_with_the_batch $? "$(cat "$TMP/err")"
"$L" text @grows >"$TMP/want"; same tail_follows_a_batch "$TMP/want" "$TMP/grown"
check tail_of_nothing 2 'no job is selected by "@none"' tail -f @none

# ---- the bytes of tokens ----
for m in $MODEL build/data/models/llama2-bf16; do
    line '{"custom_id": "c", "prompt": "x", "logprobs": 3}' \
        '{"custom_id": "m", "messages": [{"role": "user", "content": "Hi"}], "logprobs": true}' \
        >"$TMP/l.jsonl"
    "$L" run --batch "$TMP/l.jsonl" --name "l-${m##*/}" -m $m -n 150 -s 1 --temperature 9 --ignore-eos \
        --generation-config none --chat-template chatml -o "$TMP/answers" --force -q 2>"$TMP/err"
    "$L" export "@l-${m##*/}" --format jsonl >"$TMP/lines"
    python3 - "$TMP" "$L" "$m" <<'P' 2>"$TMP/err"
import json, subprocess, sys
tmp, program, model = sys.argv[1:]
text = lambda b: bytes(b).decode(errors="replace")
pieces = 0
for l in open(tmp + "/lines"):
    x = json.loads(l)
    for t in x["logprobs"]:
        for u in [t, *t["top_logprobs"]]:
            whole = text(u["bytes"])
            pieces += whole != bytes(u["bytes"]).decode(errors="ignore")
            assert u["bytes"] and ("\ufffd" in whole or whole == u["token"]), u
for l in open(tmp + "/answers"):
    x = json.loads(l)["response"]["body"]["choices"][0]["logprobs"]
    if "content" in x:
        assert all(u["bytes"] for t in x["content"] for u in [t, *t["top_logprobs"]]), x
    else:
        assert len(x["bytes"]) == len(x["tokens"]) and all(x["bytes"]), x
        assert all("\ufffd" in text(b) or text(b) == t for b, t in zip(x["bytes"], x["tokens"])), x
assert pieces, "no piece of a character"
P
    result "bytes_of_tokens_of_${m##*/}" $? "$(tail -1 "$TMP/err")"
done

# ---- lines and rows ----
bad() { printf '%b' "$3" >"$TMP/bad.$2"; check "$1" 2 "$4" submit --batch "$TMP/bad.$2" -m $MODEL -n 3; }
bad a_misspelled_prompt jsonl '{"custom_id": "b2", "promt": "x"}\n' 'line 1: .*field "promt" is unknown'
bad misspelled_messages jsonl '{"mesages": []}\n' 'line 1: .*field "mesages" is unknown'
bad a_misspelled_body jsonl '{"custom_id": "b", "method": "POST", "url": "/v1/completions", "bdy": {}}\n' \
    'line 1: .*field "bdy" is unknown'
bad no_body jsonl '{"custom_id": "b2"}\n' 'line 1: body is missing'
bad rows_are_one_unit csv 'custom_id,prompt\na,x\nb,y\na,z\n' \
    'row 4: custom_id: "a" is also in row 2; each row needs'
bad a_row_after_itself csv 'custom_id,prompt,after\na,x,a\n' 'row 2: after: "a" is this row itself'
printf 'prompt,user\nx,me\n' >"$TMP/good.csv"
check notices_name_rows 0 'good.csv: 1 row has no max_tokens' submit --batch "$TMP/good.csv" -m $MODEL
! grep -q ' line' "$TMP/err"; result and_no_lines $? "$(cat "$TMP/err")"
exit $failed
