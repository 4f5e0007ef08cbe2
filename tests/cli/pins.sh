#!/bin/bash
# What a user has from an older longhand stays: stored parameters, fingerprints, texts of the published
# verifier, stores with snapshots, the reports of such a store in every format, and the help.
#
# tests/pins/ holds the expected bytes. UPDATE=1 writes them anew; read the difference in git before it is
# committed. Only tests/pins/help and, with a figure that is new, tests/pins/report.* are meant to change.
#     UPDATE=1 bash tests/cli/pins.sh help        renews the help alone; likewise any other part below
# tests/make/pins_store.sh made the store, with the program of commit 5655568.
. tests/cli/lib.inc
PINS=tests/pins L=$LONGHAND
export TZ=UTC
part() { case " ${only:-$1} " in *" $1 "*) ;; *) false ;; esac }
only="$*"
pin() # NAME FILE: FILE equals the pin NAME, with the folder of this test taken out
{
    sed -i -E "s|$PWD|PWD|g; s|$TMP|TMP|g; s/(Written by longhand, )[0-9: -]+/\1DATE/" "$2"
    if [ "${UPDATE:-}" = 1 ]; then cp "$2" "$PINS/$1"; fi
    cmp -s "$2" "$PINS/$1"
    result "pinned_$1" $? "UPDATE=1 bash tests/cli/pins.sh PART renews it:
$(diff -a "$PINS/$1" "$2" | cut -c 1-300 | head -8)"
}
# query SQL: every row, its columns joined by tabs
query()
{
    python3 -c 'import sqlite3, sys
for row in sqlite3.connect(sys.argv[1], timeout=60).execute(sys.argv[2]):
    print(*row, sep="\t")' "$LONGHAND_DB" "$1"
}

# ---- parameters: the lines "$ .." are command lines; after each come the parameters of its jobs ----
if part parameters; then
    LONGHAND_DB=$TMP/parameters.db
    before=0
    grep '^\$' $PINS/parameters | while read -r _ words; do
        echo "\$ $words"
        "$L" $words -q >/dev/null 2>"$TMP/err" || head -1 "$TMP/err"
        query "SELECT parameters FROM input WHERE job > $before"
        before=$(query "SELECT coalesce(max(id), 0) FROM job")
    done >"$TMP/parameters"
    pin parameters "$TMP/parameters"
fi

# ---- a job that lacks a member is refused with one line ----
# Four members came later than the others. A job without kv_dtype is of a time when caches were bf16, a job
# without weights of a time when they were as they are; tokenizer and draft_weights change no text.
if part lacks; then
    LONGHAND_DB=$TMP/lacks.db
    "$L" run -m $MODEL -p "The king" -n 12 -s 1 --drafter ngram --tree 2 -q >"$TMP/text"
    "$L" run -m $MODEL -p "The king" -n 12 -s 1 --drafter ngram --tree 2 --kv-dtype bf16 -q >"$TMP/bf16"
    query "SELECT parameters FROM input WHERE job = 1" >"$TMP/whole"
    names=$(python3 -c 'import json, sys
p = json.load(open(sys.argv[1]))
print(*p, *("drafting." + k for k in p["drafting"]))' "$TMP/whole")
    [ "$(wc -w <<<"$names")" -gt 40 ]; result a_job_has_all_members $? "$names"
    for name in $names; do
        "$L" submit -m $MODEL -p "The king" -n 12 -s 1 --drafter ngram --tree 2 -q >/dev/null
        job=$(python3 -c 'import json, sqlite3, sys
p = json.load(open(sys.argv[2])); at = p; *path, last = sys.argv[3].split(".")
for k in path: at = at[k]
del at[last]
c = sqlite3.connect(sys.argv[1])
(job,), = c.execute("SELECT max(id) FROM job")
c.execute("UPDATE input SET parameters = ? WHERE job = ?", (json.dumps(p), job))
c.commit()
print(job)' "$LONGHAND_DB" "$TMP/whole" $name)
        case $name in
        kv_dtype | tokenizer | drafting.draft_weights)
            "$L" run --resume $job -q >"$TMP/a" 2>&1
            if [ $name = kv_dtype ]; then text=$TMP/bf16; else text=$TMP/text; fi
            same "a_job_without_${name}_has_the_text_of_its_time" "$text" "$TMP/a" ;;
        *) check "a_job_without_${name}_is_refused" 2 "parameters: \"${name#drafting.}\" is missing" \
            run --resume $job -q ;;
        esac
    done
    "$L" work -q 2>/dev/null
    n=$(query "SELECT count(*), sum(tokens) FROM job WHERE error GLOB 'parameters: \"*\" is missing'")
    [ "$n" = "$(($(wc -w <<<"$names") - 3))"$'\t0' ]; result a_worker_refuses_them $? "$n"
fi

# ---- texts of the published verifier, which depend on the order of candidates ----
if part paper; then
    for p in tokenswift magicdec medusa table11-llama3.1-8b table11-yarn-llama2-7b-128k table11-qwen2.5-1.5b \
        table11-qwen2.5-7b table11-qwen2.5-14b; do
        for seed in 1 2; do
            echo "$p, seed $seed"
            "$L" run -m $MODEL -p "The king sat in his hall, and the king said:" -n 80 -s $seed --preset $p \
                --verifier paper --ignore-eos -q 2>&1
            echo
        done
    done >"$TMP/paper"
    pin paper "$TMP/paper"
fi

# ---- fingerprints: of the models that jobs name, and of the models that files of drafters name ----
if part fingerprints; then
    LONGHAND_DB=$TMP/fingerprints.db
    last() { query "SELECT fingerprint, numerics FROM job ORDER BY id DESC LIMIT 1"; }
    {
        for m in $MODEL build/data/models/*/config.json tests/data/gguf/*.gguf; do
            m=${m%/config.json}
            "$L" run -m "$m" -p a -n 1 -s 1 --generation-config none --drafter none -q >/dev/null 2>"$TMP/err"
            echo "$m $(last) $(cat "$TMP/err")"
        done
        for how in "--weights q8_0" "--weights q4_0" "--compute f32" "--kv-dtype bf16"; do
            "$L" run -m $MODEL -p a -n 1 -s 1 --drafter none -q $how >/dev/null
            echo "$MODEL $how $(last)"
        done
        "$L" convert -m $MODEL --weights q8_0 -o "$TMP/q8.gguf" -q
        while read -r k m; do
            m=${m/TMP/$TMP}
            echo "$k of $m: $("$L" train $k -m "$m" --data models/demo/openings/portrait.txt --window 64 \
                --steps 1 --out "$TMP/d.safetensors" -q 2>&1
                head -c 20000 "$TMP/d.safetensors" | grep -aoE '"__metadata__" *: *\{[^}]*\}'
                rm -f "$TMP"/d.safetensors*)"
        done <<DRAFTERS
heads models/demo
heads TMP/q8.gguf
heads build/data/models/qwen2-tied-bf16
longspec build/data/models/qwen2-tied-bf16
gumiho build/data/models/qwen2-tied-bf16
spire build/data/models/llama3-old-bf16
DRAFTERS
    } >"$TMP/fingerprints"
    pin fingerprints "$TMP/fingerprints"
fi

# ---- families: each model as a directory and as the file that convert writes ----
# After the name: the fingerprint, the digests of the scores of a text and of the file, the fingerprint that
# heads have, and the configuration that the store keeps of the file.
if part families; then
    LONGHAND_DB=$TMP/families.db
    digest() { sha256sum | head -c 16; }
    one() # MODEL NAME
    {
        "$L" run -m "$1" -p a -n 1 -s 1 --generation-config none --drafter none -q >/dev/null
        "$L" train heads -m "$1" --data build/data/models/short.txt --window 64 --steps 1 \
            --out "$TMP/d.safetensors" -q >/dev/null 2>"$TMP/err"
        echo "$2 $(query "SELECT fingerprint FROM job ORDER BY id DESC LIMIT 1")" \
            "$("$L" score -m "$1" build/data/models/short.txt --json --per-token -q | digest)" \
            "$(if [ -f "$1" ]; then digest <"$1"; fi)" \
            "$(head -c 9999 "$TMP/d.safetensors" 2>/dev/null | grep -aoE '"model":"[^"]*"' || cat "$TMP/err")"
        if [ -f "$1" ]; then
            query "SELECT config FROM model WHERE fingerprint = (SELECT max(fingerprint) FROM job WHERE id =
                (SELECT max(id) FROM job))"
        fi
        rm -f "$TMP"/d.safetensors*
    }
    {
        for m in $MODEL build/data/models/*/config.json; do
            m=${m%/config.json}
            one "$m" "$m"
            "$L" convert -m "$m" --weights bf16 -o "$TMP/f.gguf" --force -q &&
                one "$TMP/f.gguf" "$m as a file"
        done
        for m in tests/data/gguf/*.gguf; do one "$m" "$m"; done
    } >"$TMP/families" 2>&1
    pin families "$TMP/families"
fi

# ---- a store of an older version: its reports, and its texts, continued from its snapshots ----
tar -C "$TMP" -xzf $PINS/store.tar.gz || fail the_store_is_unpacked "tar failed"
LONGHAND_DB=$TMP/store.db
"$L" doctor --repair >"$TMP/out" 2>&1
show() { echo "## $*"; "$L" "$@" 2>&1; echo; }          # COMMAND..: its line and its output
if part reports; then
    columns=job,state,tokens,rate,finish,model,name,prompt,custom_id,error,priority,seed
    {
        show list --columns $columns; show list @sweep --sort rate --reverse --columns job,rate,name
        show list 1-3 17 19 20 24 --json --columns $columns
    } >"$TMP/list"; pin list "$TMP/list"
    for j in 1 2 3 6 7 10 18 20 21 24; do show show $j; done >"$TMP/show"
    show show 2 6 7 16 20 21 --json >>"$TMP/show"; pin show "$TMP/show"
    {
        show report 1-24; show report 1 2 3 6; show report @sweep
        for j in 1 2 3 5 7 10 18 20 21 23; do show report $j; done
    } >"$TMP/report.text"; pin report.text "$TMP/report.text"
    { show report 1 2 5 --json; show report 3 --json --rounds; show report 10 --json; } >"$TMP/report.json"
    pin report.json "$TMP/report.json"
    {
        show report 1-24 --csv; show report 3 --csv --rounds; show report 1-24 --csv --windows
        show report @sweep --csv --windows --by temperature,drafter
    } >"$TMP/report.csv"; pin report.csv "$TMP/report.csv"
    {
        show report @sweep --by temperature,drafter; show report @sweep --by temperature,drafter --json
        show report @sweep --by temperature --csv; show report 1-24 --by model,drafter --csv
        show report @sweep --by temperature,drafter --html; show report @book --by metadata.book
    } >"$TMP/report.by"; pin report.by "$TMP/report.by"
    { show report 2 --html; show report 3 --html; show report 1-3 5 --html; } >"$TMP/report.html"
    pin report.html "$TMP/report.html"
    {
        show export 2 7 10 17 --format csv --fields job,name,custom_id,state,tokens_per_second,speedup,prompt
        show export 2 7 10 17 --format jsonl; show export @book --format openai-batch
    } >"$TMP/export"; pin export "$TMP/export"
fi

# Figures of runs that happen now. Where the tree is fixed, all but the times is a function of the text.
if part now; then
    LONGHAND_DB=$TMP/now.db
    T="-m $MODEL -p The_king_sat -n 80 -s 3 --ignore-eos --tree 2,2,1 --drafter heads,ngram"
    "$L" run $T -q --json-stats "$TMP/json-stats" >/dev/null
    # without times
    times='([a-z_]*_)?seconds|[a-z]*_per_second|draft|verify|checkpoint|controller|other|predicted|measured'
    sed -i -E "s/\"($times)\": [0-9.]+/\"\\1\": T/g" "$TMP/json-stats"
    pin json-stats "$TMP/json-stats"
    "$L" submit $T -q >/dev/null; "$L" work -q --metrics "$TMP/prometheus"
    sed -i -E '/^[a-z_]*(seconds|bytes)[a-z_]* /s/ [^ ]*$/ T/' "$TMP/prometheus"
    pin prometheus "$TMP/prometheus"
fi
if part help; then "$L" help --all >"$TMP/help" 2>&1; pin help "$TMP/help"; fi

if part snapshots; then
    LONGHAND_DB=$TMP/store.db
    python3 -c 'import os, sqlite3, sys
c = sqlite3.connect(sys.argv[1])
c.execute("UPDATE job SET model = ? || model", (os.getcwd(),))
c.commit()' "$LONGHAND_DB"
    for j in 21 22 23; do
        "$L" run --resume $j -q --format ids >"$TMP/ids" 2>"$TMP/err"
        result "job_${j}_of_an_older_version_resumes" $? "$(cat "$TMP/err")"
        rows=$(query "SELECT sum(value) FROM metric WHERE job = $j AND name = 'restored_tokens'")
        [ "${rows%.*}" -ge 64 ]
        result "job_${j}_reads_its_snapshot" $? "$rows tokens: $("$L" show $j | tail -4)"
        echo "$j:" $(cat "$TMP/ids") >>"$TMP/resumed"
        check "job_${j}_is_the_models_own_text" 0 '' verify $j -q --sample 60
    done
    pin resumed "$TMP/resumed"
fi
exit $failed
