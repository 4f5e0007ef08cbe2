#!/bin/bash
# Upkeep of a store: doctor, du, compact, backup.
. tests/cli/lib.inc
L="$LONGHAND" D=$TMP/m
mkdir "$D"; cp $MODEL/*.json $MODEL/*.safetensors "$D"
make() { "$L" run -q -m "$D" -p "Once upon a time" --threads 1 --ignore-eos "$@" >/dev/null 2>>"$TMP/log"; }
make -n 3000 -s 1; make -n 50 -s 2; make -n 3000 -s 3
"$L" text 2 >"$TMP/two"

# ---- doctor ----
check doctor_finds_nothing 0 '' doctor
grep -q 'nothing is wrong; 3 finished texts' "$TMP/out"; result doctor_says_so $? "$(cat "$TMP/out")"
mkdir "$LONGHAND_DB.snapshots"; echo x >"$LONGHAND_DB.snapshots/7-1-64.kv"
cp "$LONGHAND_DB" "$TMP/before"
check doctor_finds_an_orphan 1 '1 finding$' doctor
grep -q '7-1-64.kv: a snapshot that no job needs' "$TMP/out"
result doctor_names_the_orphan $? "$(cat "$TMP/out")"
[ -e "$LONGHAND_DB.snapshots/7-1-64.kv" ] && cmp -s "$LONGHAND_DB" "$TMP/before"
result doctor_changes_nothing $? "the store or the orphan changed"
check doctor_prints_json 1 '1 finding$' doctor --json
findings() { python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
assert d["store"] == sys.argv[2] and d["finished_texts"] == 3, d
for f in d["findings"]: print(f["repaired"], f["message"])' "$TMP/out" "$LONGHAND_DB"; }
findings | grep -q '^False .*7-1-64.kv: a snapshot that no job needs$'
result findings_are_an_array $? "$(cat "$TMP/out")"
cp -r "$LONGHAND_DB.snapshots" "$TMP/snapshots"
check doctor_repairs_in_json 0 '' doctor --repair --json
findings | grep -q '^True .*7-1-64.kv'; result a_repair_is_a_finding_that_is_repaired $? "$(cat "$TMP/out")"
rm -rf "$LONGHAND_DB.snapshots"; cp -r "$TMP/snapshots" "$LONGHAND_DB.snapshots"
check doctor_repairs_an_orphan 0 '' doctor --repair
[ ! -e "$LONGHAND_DB.snapshots/7-1-64.kv" ]; result the_orphan_is_gone $? "it is there"
"$L" submit -q -m "$D" -p x -n 5 -s 1 >/dev/null; mv "$D" "$TMP/gone"
check doctor_finds_a_missing_model 1 '1 finding$' doctor
grep -q '1 job waits for a model that cannot be read (the first is job 4)' "$TMP/out"
result doctor_names_the_model $? "$(cat "$TMP/out")"
"$L" remove -q 4; mv "$TMP/gone" "$D"

# A store of an older longhand has no tokenizers; --repair keeps them, and never a changed one.
sql "DELETE FROM model; DELETE FROM tokenizer" >/dev/null
check doctor_finds_jobs_without_tokenizer 1 '1 finding$' doctor
grep -q '3 jobs are without the tokenizer of their model (the first is job 1)' "$TMP/out"
result doctor_says_which_jobs $? "$(cat "$TMP/out")"
cp "$D/tokenizer.json" "$TMP/t"; echo ' ' >>"$D/tokenizer.json"
check doctor_takes_no_changed_tokenizer 1 '1 finding$' doctor --repair
grep -q 'holds another model now' "$TMP/out"; result doctor_says_why $? "$(cat "$TMP/out")"
[ "$(sql 'SELECT count(*) FROM tokenizer')" = 0 ]; result nothing_was_adopted $? "a tokenizer was kept"
cp "$TMP/t" "$D/tokenizer.json"
# Such a text is read with the tokenizer of the folder, which is said once.
said='^job [12]: the store does not have the tokenizer that wrote its text, .* in .*/m reads it, unchecked;'
"$L" text 2 >"$TMP/now" 2>"$TMP/err"; same an_old_text_is_readable "$TMP/two" "$TMP/now"
[ "$(wc -l <"$TMP/err")" = 1 ] && grep -q "$said" "$TMP/err"
result text_says_it_is_unchecked $? "$(cat "$TMP/err")"
"$L" export --all --format jsonl -o "$TMP/x" 2>"$TMP/err"
[ "$(grep -c "$said" "$TMP/err")" = 1 ]; result export_says_it_once $? "$(cat "$TMP/err")"
check doctor_keeps_the_tokenizer 0 '' doctor --repair
"$L" text 2 >"$TMP/now" 2>&1; same a_stored_tokenizer_says_nothing "$TMP/two" "$TMP/now"
mv "$D" "$TMP/gone"; "$L" text 2 >"$TMP/now"; same the_text_is_readable_now "$TMP/two" "$TMP/now"

# Nor does it have checksums of its texts; --repair adds those that a stored tokenizer gives.
sha="SELECT group_concat(hex(text_sha)) FROM job"; sql "$sha" >"$TMP/sha"
sql "UPDATE job SET text_sha = NULL WHERE id > 1" >/dev/null
check doctor_counts_texts_without_a_sha 1 '1 finding$' doctor
grep -q 'without a SHA-256 to check them by: 2 (the first is job 2); longhand doctor --repair adds it' \
    "$TMP/out"
result doctor_names_the_first_without $? "$(cat "$TMP/out")"
check doctor_adds_the_sha 0 '' doctor --repair
sql "$sha" >"$TMP/now"; same the_sha_is_that_of_the_worker "$TMP/sha" "$TMP/now"
sql "CREATE TABLE t AS SELECT * FROM model; DELETE FROM model;
    UPDATE job SET text_sha = NULL WHERE id = 3" >/dev/null
check doctor_reads_no_text_unchecked 1 '4 findings$' doctor --repair
grep -q 'check them by: 1 (the first is job 3); the store does not have their tokenizer' "$TMP/out"
result doctor_says_why_a_sha_is_missing $? "$(cat "$TMP/out")"
sql "INSERT INTO model SELECT * FROM t; DROP TABLE t" >/dev/null; "$L" doctor --repair >/dev/null

# A store of version 2 is read as it is; the first verb that writes brings it up to date and says so.
cp "$LONGHAND_DB" "$TMP/old.db"; own=$LONGHAND_DB; export LONGHAND_DB=$TMP/old.db
sql "ALTER TABLE job DROP COLUMN text_sha; ALTER TABLE job DROP COLUMN made;
    ALTER TABLE job DROP COLUMN seconds; ALTER TABLE job DROP COLUMN opening; DROP TABLE model;
    DROP TABLE tokenizer; DROP TABLE part; DROP TABLE store;
    DROP TABLE logprob; DROP TABLE speed; DROP TABLE retake; DROP TABLE request;
    ALTER TABLE job DROP COLUMN settled; DROP TABLE chapter; DROP INDEX job_queue; DROP INDEX job_model;
    ALTER TABLE input DROP COLUMN chat; ALTER TABLE job DROP COLUMN chain; ALTER TABLE job DROP COLUMN depth;
    CREATE INDEX job_queue ON job (state, priority DESC, id);
    CREATE INDEX job_model ON job (state, priority, model, id); PRAGMA user_version=2" >/dev/null
mv "$TMP/gone" "$D"; cp "$TMP/old.db" "$TMP/before"
check list_reads_an_old_store 0 '' list
grep -qE '^ *3 +done +3000/3000 +[0-9.]+ .* Once upon a time$' "$TMP/out"
result an_old_store_has_speeds_and_prompts $? "$(cat "$TMP/out")"
"$L" text 2 >"$TMP/now" 2>/dev/null; same an_old_store_has_its_texts "$TMP/two" "$TMP/now"
for verb in 'verify 2' 'report 1' 'show 1' 'du' 'export 2 --format jsonl' 'tail 2'; do
    "$L" $verb >"$TMP/now" 2>"$TMP/err"; r=$?
    [ $r = 0 ] && [ -s "$TMP/now" ]; result "${verb%% *}_reads_an_old_store" $? "exit $r: $(cat "$TMP/err")"
done
check doctor_reads_an_old_store 1 'findings?$' doctor
check backup_of_an_old_store 0 MB backup "$TMP/old_copy.db"
check backup_of_an_old_store_over_it 2 'older longhand does not know its backups' backup "$TMP/old_copy.db"
cmp -s "$TMP/old.db" "$TMP/before"; result reading_changes_no_old_store $? "it changed"
check a_writing_verb_says_that_it_migrates 0 \
    'old.db: brought up to date, from version 2 of the tables to [0-9]+; an older' compact
check a_later_verb_writes 0 'MB, before' compact
! grep -q 'brought up to date' "$TMP/err"; result it_says_so_once $? "$(cat "$TMP/err")"
"$L" list | grep -q '^ *3 *done'; result the_new_store_is_readable $? ""
export LONGHAND_DB=$own; mv "$D" "$TMP/gone"

# damage
cp "$LONGHAND_DB" "$TMP/good"
sql "UPDATE chunk SET crc = crc + 1 WHERE job = 1 AND start = 512" >/dev/null
sql "UPDATE job SET text_sha = zeroblob(32) WHERE id = 2" >/dev/null
check doctor_finds_damage 1 '3 findings$' doctor
grep -q 'job 1.*chunk\|chunk.*job 1' "$TMP/out" && grep -q 'job 2: the text that was read differs' "$TMP/out"
result doctor_names_the_damage $? "$(cat "$TMP/out")"
cp "$TMP/good" "$LONGHAND_DB"

# ---- folders ----
check submit_makes_no_folder_for_db 2 'no/such/x.db: there is no folder of this name' \
    submit --db "$TMP/no/such/x.db" -m "$MODEL" -p x -n 5
[ ! -e "$TMP/no" ]; result no_folder_was_made $? "$(ls -R "$TMP/no")"

# ---- du ----
check du 0 '' du --json
python3 - "$TMP/out" "$(stat -c %s "$LONGHAND_DB")" <<'P'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["bytes"] == int(sys.argv[2]), d["bytes"]
assert [j["job"] for j in d["jobs"]][2] == 2
text = sum(j["text_bytes"] for j in d["jobs"])
all = d["model_bytes"] + sum(j[k] for j in d["jobs"] for k in j if k.endswith("bytes"))
assert 0.2 * d["bytes"] < all < d["bytes"], all
P
result du_counts_bytes_by_job $? "$(cat "$TMP/out")"
check du_of_a_job 0 '' du 2; [ "$(wc -l <"$TMP/out")" = 3 ]; result du_selects $? "$(cat "$TMP/out")"

# ---- compact ----
"$L" remove -q 1 3; before=$(stat -c %s "$LONGHAND_DB")
check compact 0 'MB, before' compact
after=$(stat -c %s "$LONGHAND_DB"); [ "$after" -lt "$before" ]
result compact_shrinks $? "$before, then $after"
[ "$(sql 'PRAGMA freelist_count')" = 0 ]; result no_page_is_unused $? "$(sql 'PRAGMA freelist_count')"
"$L" text 2 >"$TMP/now"; same the_text_is_the_same_after_compact "$TMP/two" "$TMP/now"
ls "$TMP" | grep -qE 'longhand.db-|etilqs'; [ $? = 1 ]; result no_file_is_left $? "$(ls "$TMP")"

# ---- backup ----
check backup 0 'MB' backup "$TMP/copy.db"
LONGHAND_DB=$TMP/copy.db "$L" text 2 >"$TMP/now"; same the_copy_has_the_text "$TMP/two" "$TMP/now"
check backup_to_the_store_itself 2 'this is the store itself' backup "$LONGHAND_DB"
check backup_into_nowhere 1 'cannot write' backup "$TMP/no/such/copy.db"
# A backup replaces an earlier backup of the same store and nothing else, unless --force says so.
cp "$TMP/copy.db" "$TMP/first"; check backup_over_an_earlier_backup 0 'MB' backup "$TMP/copy.db"
LONGHAND_DB=$TMP/other.db "$L" submit -q -m "$TMP/gone" -p x -n 5 -s 1 >/dev/null
LONGHAND_DB=$TMP/other.db "$L" backup -q "$TMP/other_copy.db"
echo 'a chapter' >"$TMP/notes.txt"; : >"$TMP/empty"; cp "$LONGHAND_DB" "$TMP/plain_copy.db"
cp "$TMP/copy.db" "$TMP/used.db"; LONGHAND_DB=$TMP/used.db "$L" remove -q 2
for f in other.db other_copy.db notes.txt empty plain_copy.db used.db; do
    cp "$TMP/$f" "$TMP/before"
    check "backup_refuses_$f" 2 "$f (exists|has the id).*--force replaces any file" backup "$TMP/$f"
    cmp -s "$TMP/$f" "$TMP/before"; result "backup_leaves_$f" $? "$f changed"
done
check backup_replaces_no_folder 2 'not a regular file' backup --force "$TMP"
check backup_by_force 0 'MB' backup --force "$TMP/other.db"
LONGHAND_DB=$TMP/other.db "$L" text 2 >"$TMP/now"; same the_forced_copy_has_the_text "$TMP/two" "$TMP/now"
: >"$TMP/copy.db-journal"; check backup_over_a_store_in_use 2 'copy.db-journal exists' backup "$TMP/copy.db"
rm "$TMP/copy.db-journal"

# beside a worker that writes: each copy is whole and has at least what could be read before
mv "$TMP/gone" "$D"
id=$("$L" submit -q -m "$D" -p "Once upon a time" -n 20000 -s 9 --ignore-eos --drafter none)
"$L" work -q --threads 1 2>"$TMP/log" & pid=$!
tokens() { LONGHAND_DB=$1 "$L" text $id --format ids | wc -l; }
bad= last=0
for i in $(seq 100); do [ "$(tokens "$LONGHAND_DB")" -gt 0 ] && break; sleep 0.1; done
for i in 1 2 3 4 5; do
    seen=$(tokens "$LONGHAND_DB"); "$L" backup -q "$TMP/copy.db" || bad="$bad backup $i"
    n=$(tokens "$TMP/copy.db"); [ "$n" -ge "$seen" ] || bad="$bad $n tokens of $seen"
    LONGHAND_DB=$TMP/copy.db "$L" doctor >"$TMP/now" || bad="$bad $(cat "$TMP/now")"
    [ "$n" -gt 0 ] && [ "$n" -lt 20000 ] && last=$n
done
kill $pid; wait $pid
[ -z "$bad" ] && [ $last -gt 0 ]; result backups_beside_a_worker $? "$bad; the last has $last tokens"

# ---- remove --older-than ----
age() { sql "UPDATE job SET ended = $2 WHERE id = $1" >/dev/null; }
for i in 5 6 7 8; do make -n 4 -s $i; done
now=$(date +%s); first=$(sql 'SELECT max(id) - 3 FROM job')
age $first $((now - 31 * 86400)); age $((first + 1)) $((now - 29 * 86400))
age $((first + 2)) $((now - 90000))
old() { "$L" remove --older-than "$@" 2>&1; }
waiting=$("$L" submit -q -m "$D" -p x -n 5 -s 1)
sql "UPDATE job SET created = 1 WHERE id = $waiting" >/dev/null
[ "$(old 30d)" = '1 job removed' ] && [ "$(sql "SELECT count(*) FROM job WHERE id = $first")" = 0 ]
result remove_older_than_30d $? "$(sql "SELECT count(*) FROM job WHERE id = $first")"
[ "$(old 26h $((first + 2))-$((first + 3)))" = '0 jobs removed' ]
result older_than_counts_of_the_selected_jobs $? ""
[ "$(old 24h)" = '2 jobs removed' ]; result remove_older_than_24h $? "$("$L" list)"
"$L" show "$waiting" >/dev/null; result a_job_that_has_not_ended_is_never_old $? ""
check an_age_without_a_unit 2 "older-than: '30' is not a number and s, m, h or d" remove --older-than 30
check an_age_of_nothing 2 "older-than: 'd' is not a number" remove --all --older-than d
"$L" remove -q "$waiting"

# ---- the systemd unit ----
if command -v systemd-analyze >/dev/null; then
    mkdir -p "$TMP/root/usr/local/bin"
    sed "s|/usr/local/bin/longhand|$(realpath "$L")|; s/^User=.*/User=nobody/; s/^Group=.*/Group=nogroup/" \
        scripts/longhand.service >"$TMP/longhand.service"
    SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no "$TMP/longhand.service" >"$TMP/unit" 2>&1
    [ $? = 0 ] && ! grep -q 'longhand.service' "$TMP/unit"
    result the_unit_is_valid $? "$(cat "$TMP/unit")"
    if exposed=$(systemd-analyze security --offline=true --no-pager "$TMP/longhand.service" 2>&1); then
        exposed=$(sed -n 's/.*Overall exposure level .*: \([0-9.]*\) .*/\1/p' <<<"$exposed")
        awk -v x="${exposed:-10}" 'BEGIN { exit !(x < 4) }'
        result the_unit_is_exposed_below_4 $? "$exposed"
    else skip the_unit_is_exposed_below_4 "$(head -1 <<<"$exposed")"; fi
else skip the_unit_is_valid "no systemd-analyze here"; fi
missing=
for line in User= ProtectSystem= MemoryMax= Restart=; do
    grep -q "^$line" scripts/longhand.service || missing="$missing $line"
done
[ -z "$missing" ]; result the_unit_has_its_lines $? "no$missing"
# its command line, with a stop as systemd makes it
read -r -a unit < <(sed -n 's/^ExecStart=[^ ]* //p' scripts/longhand.service)
LONGHAND_DB=$TMP/unit.db "$L" "${unit[@]}" 2>"$TMP/unit" & pid=$!
for i in $(seq 100); do [ -s "$TMP/unit.db" ] && break; sleep 0.1; done
kill -TERM $pid; wait $pid; r=$?
[ -s "$TMP/unit.db" ] && { [ $r = 0 ] || grep -q "^SuccessExitStatus=.*$r" scripts/longhand.service; }
result the_unit_starts_and_stops_the_worker $? "exit $r: $(cat "$TMP/unit")"

# ---- a full disk ----
cat >"$TMP/full.sh" <<'X'
mount -t tmpfs -o size=2m none "$1" && cp "$2" "$1/t.db" || exit 99
export LONGHAND_DB=$1/t.db
dd if=/dev/zero of="$1/fill" bs=4k status=none 2>/dev/null
"$LONGHAND" remove 1 2>"$1.remove" && exit 2
"$LONGHAND" compact 2>"$1.compact" && exit 3
"$LONGHAND" doctor >"$1.doctor" 2>/dev/null && exit 4
truncate -s -300k "$1/fill"; "$LONGHAND" remove 1 2>>"$1.remove" || exit 5
rm "$1/fill"; "$LONGHAND" compact 2>>"$1.compact" && "$LONGHAND" text 2 >"$1.text" || exit 6
X
mkdir "$TMP/disk"
LONGHAND=$(realpath "$LONGHAND") unshare -rm bash "$TMP/full.sh" "$TMP/disk" "$TMP/good" 2>/dev/null; r=$?
if [ $r = 99 ] || [ $r = 1 ]; then skip remove_on_a_full_disk_says_how "unshare cannot mount here"
else grep -q 'nothing was removed. Removing these jobs takes about .* MB of free space' "$TMP/disk.remove" &&
    grep -q 'compact needs .* MB of free space' "$TMP/disk.compact" &&
    grep -q 'only 0 MB are free' "$TMP/disk.doctor" && [ $r = 0 ] && cmp -s "$TMP/disk.text" "$TMP/two"
result remove_on_a_full_disk_says_how $? "exit $r: $(cat "$TMP"/disk.*)"; fi
exit $failed
