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
(cd "$TMP" && find model text other -type f -exec sha256sum {} + | sort) >"$TMP/after"
same nothing_was_touched "$TMP/before" "$TMP/after"
check devices_may_be_shared 0 '' $R -s 1 -o /dev/null --json-stats /dev/null
check several_may_have_the_prompts_name 0 '' run -m $MODEL -f "$TMP/other" -n 3 --samples 2 -o "$TMP/other" \
    -q -s 1
check heads_may_be_made_again 0 '' $T -q --out "$TMP/model/heads.safetensors"
exit $failed
