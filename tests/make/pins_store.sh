#!/bin/bash
# pins_store.sh PROGRAM: make tests/pins/store.tar.gz, a store of every kind of job that PROGRAM wrote, with
# snapshots of texts that stopped in the middle. tests/cli/pins.sh reads it.
#
# The file pins what an older program wrote, so it is made once. A new program must read the old file; make
# another file only for a case that the old one lacks. Paths and the name of the machine are taken out of
# the store.
set -e
L=$(realpath "$1"); TMP=$(mktemp -d); trap 'rm -rf "$TMP"' EXIT
export LONGHAND_DB=$TMP/store.db
M=models/demo H=build/data/models/qwen35-equal-f32
held() { python3 tests/cli/held.py "$@"; }
P="The king sat in his hall, and the lords sat beside him; and the king said:"
PP="$P who will go with me to the sea? And the lords said to him: we will go with thee, for thou art our"
PP+=" king, and the sea is wide."

# 1, 2: plain and drafted, of one length, so that the speedup is measured; the last window is short
"$L" run -m $M -q -p "$P" -n 1300 -s 1 --ignore-eos --drafter none >/dev/null
"$L" run -m $M -q -p "$P" -n 1300 -s 2 --ignore-eos --name 'tale; "of" kings' >/dev/null
# 3: a fixed tree, every round stored. 4: conversation. 5: a text that repeats itself
"$L" run -m $M -q -p "$P" -n 240 -s 3 --drafter heads,partial,ngram --tree 2,2,1 --rounds >/dev/null
"$L" run -m $M -q -p "Who is there?" --chat --chat-template chatml --system "Be brief." -n 60 -s 4 >/dev/null
"$L" run -m $M -q -p "la la la la la la la la" -n 700 -s 5 --temperature 0 --ignore-eos >/dev/null
# 6, 7: extend and fork
"$L" run -m $M -q -p "$P" -n 80 -s 6 --drafter none >/dev/null
"$L" extend 6 --tokens +40 --append $'\n\nChapter 2. ' >/dev/null
"$L" fork 6 --at 50 --seed 9 >/dev/null
"$L" work -q
# 8-15: a sweep, four texts in each pass
"$L" submit -m $M -p "Once upon a time" -n 90 -s 7 --grid temperature=0.6,0.9 --grid drafter=none,auto \
    --samples 2 --name sweep >/dev/null 2>&1
"$L" work -q --parallel 4
# 16, 17: a batch with metadata, one text stopped by a stop string
line() # CUSTOM_ID PROMPT SETTINGS METADATA
{
    echo "{\"custom_id\": \"$1\", \"method\": \"POST\", \"url\": \"/v1/completions\"," \
        "\"body\": {\"prompt\": \"$2\", \"max_tokens\": 50, $3}, \"metadata\": {$4}}"
}
{
    line ch1 "Chapter 1" '"min_p": 0.05, "seed": 3' '"book": 7, "author": "=Ann"'
    line ch2 "Chapter 2" '"stop": ["the"], "seed": 4' '"book": 8'
} >"$TMP/b.jsonl"
"$L" submit -m $M --batch "$TMP/b.jsonl" --name book >/dev/null
"$L" work -q --parallel 1
# 18: the published verifier. 19: cancelled. 20: failed, because a member of its parameters is not known
"$L" run -m $M -q -p "$P" -n 60 -s 8 --preset tokenswift --verifier paper >/dev/null
"$L" submit -m $M -p x -n 10 -s 1 >/dev/null; "$L" cancel 19 -q
"$L" submit -m $M -p x -n 10 -s 1 >/dev/null
python3 - "$LONGHAND_DB" <<'PY'
import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
c.execute("UPDATE input SET parameters = replace(parameters, '\"eta\"', '\"theta\"') WHERE job = 20")
c.commit()
PY
"$L" work -q 2>/dev/null || true
# 21-23: stopped after some bytes, with snapshots: auto with trained drafters, a partial cache, a hybrid
stopped() { held "$1" close "$L" run -s 11 --ignore-eos --kv-snapshot on --progress none "${@:2}" \
    2>/dev/null || true; }
stopped 420 -m $M -p "$PP" -n 300
stopped 420 -m $M -p "$PP" -n 300 --tree 1,3 --drafter partial,ngram,heads --kv-budget 128 \
    --kv-dtype bf16
stopped 900 -m $H -p "The ship went on and on and on" -n 600 --drafter mtp,ngram
# 24: queued
"$L" submit -m $M -p "to be written" -n 10 -s 1 --priority 3 >/dev/null

"$L" list
python3 - "$LONGHAND_DB" "$PWD" <<'PY'
import socket, sqlite3, sys
c = sqlite3.connect(sys.argv[1])
c.execute("PRAGMA wal_checkpoint(TRUNCATE)")
c.execute("DELETE FROM worker")
c.execute("UPDATE job SET worker = NULL, model = replace(model, ?, '')", (sys.argv[2],))
tables = {t for (t,) in c.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
for t, col in ("event", "text"), ("snapshot", "path"), ("input", "parameters"), ("job", "error"):
    c.execute(f"UPDATE {t} SET {col} = replace({col}, ?, '')", (sys.argv[2],))
c.execute("UPDATE event SET text = replace(text, ?, 'on host')", ("on " + socket.gethostname(),))
c.commit()
c.execute("PRAGMA journal_mode = DELETE")
c.execute("VACUUM")
for r in c.execute("SELECT job, start, tokens, path, bytes FROM snapshot"):
    print(r)
c.close()
PY
ls -l "$TMP"/store.db*
! strings "$TMP/store.db" "$TMP"/store.db.snapshots/* | grep -F -e "$PWD" -e "$TMP" -e "on $(hostname),"
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$TMP" -c store.db store.db.snapshots |
    gzip -9n >tests/pins/store.tar.gz
ls -l tests/pins
