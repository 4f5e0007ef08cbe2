#!/bin/bash
# The files that a command writes must be writable, distinct, and not inputs. A mistake fails before the work.
. tests/cli/lib.inc
cp -r $MODEL "$TMP/model"; head -c 3000 README.md >"$TMP/text"; cp "$TMP/text" "$TMP/other"
ln -s model/config.json "$TMP/link"; mkdir "$TMP/dir"
(cd "$TMP" && find model text other -type f -exec sha256sum {} + | sort) >"$TMP/before"
R="run -m $TMP/model -p x -n 3 -q" T="train heads -m $TMP/model --steps 1 --window 128 --data $TMP/text"
for f in config.json generation_config.json tokenizer.json model.safetensors heads.safetensors; do
    [ -e "$TMP/model/$f" ] || continue
    check "output_is_the_models_$f" 2 "^longhand: --output: .*$f is a file of the model" $R -o "$TMP/model/$f"
done
check output_is_a_link_to_the_models_file 2 'link is a file of the model' $R -o "$TMP/link"
check statistics_are_the_models_file 2 '^longhand: --json-stats: .* is a file of the model' $R --json-stats \
    "$TMP/model/model.safetensors"
check heads_are_not_written_over_the_model 2 '^longhand: --out: .* is a file of the model' $T --out \
    "$TMP/model/model.safetensors"
check output_is_the_prompt 2 '^longhand: --output: .*text is the file of --prompt-file' run -m $MODEL -f \
    "$TMP/text" -n 3 -o "$TMP/dir/../text"
check output_is_the_heads_file 2 'is the file of --drafter' $R --drafter \
    "partial,heads:$TMP/model/heads.safetensors" -o "$TMP/model/heads.safetensors"
check heads_are_not_written_over_their_text 2 '^longhand: --out: .*text is the file of --data' $T --out \
    "$TMP/text"
check curves_are_not_written_over_a_text 2 '^longhand: --curves: .*other is the file of --valid' $T --valid \
    "$TMP/other" --out "$TMP/h" --curves "$TMP/other"
check two_outputs_of_one_name 2 '^longhand: --output: .*/same is the file of --json-stats' $R -o "$TMP/same" \
    --json-stats "$TMP/dir/../same"
check curves_are_the_second_heads 2 'h-independent.safetensors is the file of --curves' $T --kind both --out \
    "$TMP/h.safetensors" --curves "$TMP/h-independent.safetensors"
cp "$TMP/other" "$TMP/several.1"
check one_of_several_is_the_prompt 2 'several.1 is the file of --prompt-file' run -m $MODEL -f \
    "$TMP/several.1" -n 3 --samples 2 -o "$TMP/several"
check statistics_of_one_of_several_are 2 '^longhand: --json-stats: .*several.1 is the file of --prompt-file' \
    run -m $MODEL -f "$TMP/several.1" -n 3 --samples 2 -o "$TMP/t" --json-stats "$TMP/several"
check heads_in_a_folder_are_read_too 2 'is the file of --drafter' $R --drafter "heads:$TMP/model" -o \
    "$TMP/model/heads.safetensors"
id=$("$LONGHAND" submit -m "$TMP/model" -p x -n 3)
check output_is_a_file_of_the_jobs_model 2 'config.json is a file of the model' run --resume "$id" -o \
    "$TMP/model/config.json"
check statistics_need_a_name 2 "^longhand: --json-stats: '-' is not the name of a file" $R --json-stats -
check statistics_need_a_folder 2 '^longhand: --json-stats: .*cannot write: No such file' $R --json-stats \
    "$TMP/nowhere/x"
check heads_need_a_file 2 '^longhand: --out: .*cannot write: Is a directory' $T --out "$TMP/dir"
# Databases and their journals are never replaced, whoever they belong to, other files only with --force.
cp -r "$TMP/model" "$TMP/model2"; cp "$LONGHAND_DB" "$TMP/store2.db"; : >"$TMP/store2.db-journal"
cp "$TMP/model/model.safetensors" "$TMP/loose.safetensors"; printf 'GGUF....' >"$TMP/loose.gguf"
echo '[{"role": "user", "content": "x"}]' >"$TMP/messages"
(cd "$TMP" && sha256sum store2.db* loose* messages model2/* 2>"$TMP/null") >"$TMP/before2"
kept() { local name=$1 pattern=$2; shift 2; check "$name" 2 "$pattern; any other file is allowed" "$@"; }
kept output_is_another_store 'store2.db is a database' $R -o "$TMP/store2.db"
kept output_is_a_journal 'store2.db-journal is the journal of a database' $R -o "$TMP/store2.db-journal"
kept output_is_a_journal_to_come 'store2.db-wal is the journal of a database' $R -o "$TMP/store2.db-wal"
kept output_is_the_journal_of_its_store 'new.db-journal is the journal of the database' $R \
    --db "$TMP/new.db" -o "$TMP/new.db-journal"
kept report_is_a_store 'store2.db is a database' report "$id" -o "$TMP/store2.db"
kept export_is_weights 'loose.safetensors is not an earlier form of this output' export "$id" --partial \
    --format jsonl -o "$TMP/loose.safetensors"
kept text_is_a_model 'loose.gguf is not an earlier form of this output' text "$id" -o "$TMP/loose.gguf"
kept output_is_a_small_model 'model.safetensors is a file that is there already' $R \
    --drafter "model:$TMP/model2" -o "$TMP/model2/model.safetensors"
kept metrics_are_a_store '--metrics: .*store2.db is a database' work --metrics "$TMP/store2.db"
kept output_is_the_messages 'is the file of --messages' run -m $MODEL --messages "$TMP/messages" -n 3 \
    --chat-template chatml -o "$TMP/messages"
kept output_is_the_appended_file 'is the file of --append-file' extend "$id" --tokens +3 --append-file \
    "$TMP/messages" --run -o "$TMP/messages"
kept heads_are_written_over_those_they_come_from 'is the file of --from' $T --from \
    "$TMP/model/heads.safetensors" --out "$TMP/model/heads.safetensors"
kept heads_are_not_written_over_weights 'loose.safetensors is a file that is there already' $T --out \
    "$TMP/loose.safetensors"
kept heads_are_not_written_over_another_model 'a file that is there already' $T --out \
    "$TMP/model2/model.safetensors"
C="convert -m $TMP/model --weights q8_0 -q"
kept convert_over_a_model 'loose.gguf is a file that is there already' $C -o "$TMP/loose.gguf"
kept convert_over_a_text 'text is a file that is there already' $C -o "$TMP/text"
kept force_replaces_no_store 'store2.db is a database' $C -o "$TMP/store2.db" --force
(cd "$TMP" && sha256sum store2.db* loose* messages model2/* 2>"$TMP/null") >"$TMP/after2"
same none_of_them_was_touched "$TMP/before2" "$TMP/after2"
check convert_replaces_with_force 0 '' $C -o "$TMP/loose.gguf" --force
check train_replaces_with_force 0 '' $T -q --out "$TMP/loose.safetensors" --force
(cd "$TMP" && find model text other -type f -exec sha256sum {} + | sort) >"$TMP/after"
same nothing_was_touched "$TMP/before" "$TMP/after"
check devices_may_be_shared 0 '' $R -s 1 -o /dev/null --json-stats /dev/null
check several_may_have_the_prompts_name 0 '' run -m $MODEL -f "$TMP/other" -n 3 --samples 2 -o "$TMP/other" \
    -q -s 1
check heads_are_not_replaced 2 'is a file that is there already; .*--force' $T -q \
    --out "$TMP/model/heads.safetensors"
check heads_may_be_made_again 0 '' $T -q --out "$TMP/model/heads.safetensors" --force
exit $failed
