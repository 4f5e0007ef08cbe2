#!/bin/bash
# Texts without --tokens: they go to their own end, at most to the end of the context, or as far as
# memory holds. The job has the number, and standard error says which.
# Then the notice of a chat model without settings.
. tests/cli/lib.inc
L=$LONGHAND M=build/data/models/llama2-bf16
wanted() { sql "SELECT wanted FROM job WHERE id = $1"; }
check own_end 0 \
    "^without --tokens the text goes to its own end, at most 8186 tokens, the end of the context$" \
    run -m $M -p Once -s 1
grep -qE '^end of text \(token [0-9]+\) after 36 tokens, ' "$TMP/err"
result an_end_that_was_asked_for_has_no_advice $? "$(cat "$TMP/err")"
[ "$(wanted 1)" = 8186 ]; result the_job_has_the_number $? "$(wanted 1)"
cp "$TMP/out" "$TMP/a"; "$L" run -m $M -p Once -s 1 -n 8186 -q >"$TMP/b"
same text_is_that_of_the_number "$TMP/a" "$TMP/b"
check end_of_the_context 0 "^8186 tokens, " run -m $M -p Once -s 1 --ignore-eos --format ids
[ "$(wc -l <"$TMP/out")" = 8186 ]; result context_is_full $? "$(wc -l <"$TMP/out")"
check scaled_context 0 "at most 16378 tokens, the end of the context" submit -m $M -p Once -s 1 \
    --context-scaling yarn:2
python3 -c 'print("once upon a time " * 4000)' >"$TMP/long"
check prompt_beyond_the_context 2 "prompt tokens \+ --tokens 1 are beyond this model's context of 8192" \
    run -m $M -f "$TMP/long"
check and_beyond_it_when_allowed 2 "are beyond this model's context" run -m $M -f "$TMP/long" \
    --allow-beyond-context

# A limit of memory: 131,072 tokens of the small model need 460 MiB.
if [ $slower = 1 ]; then
    (ulimit -v 400000 && "$L" submit -m $MODEL -p Once -t 1 >"$TMP/out" 2>"$TMP/err")
    n=$(sed -nE 's/.*at most ([0-9]+) tokens, as far as memory holds \(the context has 131072\)$/\1/p' \
        "$TMP/err")
    [ "${n:-0}" -gt 10000 ] && [ "$n" -lt 131000 ] && [ "$(wanted "$(cat "$TMP/out")")" = "$n" ]
    result as_far_as_memory_holds $? "$(cat "$TMP/err")"
    printf '{"prompt": "a"}\n{"prompt": "b", "max_tokens": 7}\n' >"$TMP/two.jsonl"
    (ulimit -v 400000 && "$L" submit -m $MODEL --batch "$TMP/two.jsonl" -t 1 >"$TMP/out" 2>"$TMP/err")
    grep -q 'two.jsonl: 1 line has no max_tokens: its text goes to its own end, .* as far as memory holds$' \
        "$TMP/err" && [ "$(sql "SELECT max(wanted) FROM job WHERE custom_id = '1'")" -lt 131000 ]
    result lines_as_far_as_memory_holds $? "$(cat "$TMP/err")"
    # the same file again, with more memory
    check again_with_more_memory 0 "@two: 0 new jobs, 2 exist already" submit -m $MODEL \
        --batch "$TMP/two.jsonl"
else
    skip as_far_as_memory_holds "sanitizers take the address space"
fi

# Batches and grids.
printf '{"prompt": "a"}\n{"prompt": "bcd"}\n{"prompt": "c", "max_tokens": 3}\n' >"$TMP/b.jsonl"
check lines_without_a_length 0 \
    "b.jsonl: 2 lines have no max_tokens: their texts go to their own end, at most to the end of the cont" \
    submit -m $M --batch "$TMP/b.jsonl"
[ "$(sql "SELECT group_concat(wanted) FROM (SELECT wanted FROM job WHERE custom_id IN ('1', '2', '3') AND
    model LIKE '%llama2%' ORDER BY id)")" = "$((8192 - $("$L" tokenize -m $M <(printf a) | wc -l))),$((8192 -
    $("$L" tokenize -m $M <(printf bcd) | wc -l))),3" ]
result lines_have_their_numbers $? "$("$L" list @b)"
check the_same_batch_again 0 "@b: 0 new jobs, 3 exist already" submit -m $M --batch "$TMP/b.jsonl"
check grid_without_a_length 0 "at most 8186 tokens" submit -m $M -p Once --grid temperature=0.5,1 --name g
check the_same_grid_again 0 "4 jobs \(0 new\)|2 jobs \(0 new\)" submit -m $M -p Once \
    --grid temperature=0.5,1 --name g -s "$(printf %u "$(sql "SELECT min(seed) FROM job WHERE custom_id
    LIKE 'temp%'")")"

# A chat model in a GGUF file without sampling settings.
"$L" convert -m $MODEL --weights bf16 -o "$TMP/chat.gguf" -q
check settings_of_the_file_are_enough 0 '' submit -m "$TMP/chat.gguf" -p a -n 5 -s 1
mkdir "$TMP/chat"; ln -s "$PWD"/$MODEL/{config,tokenizer}.json "$PWD"/$MODEL/model.safetensors "$TMP/chat"
echo '{% for m in messages %}{{ m.content }}{% endfor %}' >"$TMP/chat/chat_template.jinja"
"$L" convert -m "$TMP/chat" --weights bf16 -o "$TMP/bare.gguf" -q
bare=(-m "$TMP/bare.gguf" -p a -n 5 -s 1)
check a_bare_chat_model_gets_a_notice 0 \
    "bare.gguf names no sampling settings, so temperature 1 without filters, .*--min-p 0.05 helps$" \
    submit "${bare[@]}"
check a_filter_is_enough 0 '' submit "${bare[@]}" --min-p 0.05
check a_temperature_is_enough 0 '' submit "${bare[@]}" --temperature 1
check neutral_settings_were_asked_for 0 '' submit "${bare[@]}" --generation-config none
check a_directory_has_its_own_way 0 '' submit -m "$TMP/chat" -p a -n 5 -s 1
"$L" submit -m "$TMP/bare.gguf" --batch "$TMP/b.jsonl" --name bare >/dev/null 2>"$TMP/err"
[ "$(grep -c 'names no sampling settings' "$TMP/err")" = 1 ]
result a_batch_says_it_once $? "$(cat "$TMP/err")"
exit $failed
