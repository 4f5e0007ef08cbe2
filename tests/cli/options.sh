#!/bin/bash
# Bad command lines exit with 2 and one line that names what is wrong, where, the value, and what is allowed.
# Then the help.
. tests/cli/lib.inc
R="run --model $MODEL --prompt x --tokens 5"
check unknown_verb_is_named_with_the_nearest 2 "unknown verb 'rum': did you mean 'run'" rum
check unknown_option_is_named_with_the_nearest 2 "'--tokns': did you mean '--tokens'" run --tokns 5
check unknown_option_without_a_near_one 2 "unknown option '--zzzzzz'" run --zzzzzz
check option_of_another_verb 2 "'--window' is an option of score" run --window 5
check option_before_the_verb 2 "'-m' where a verb must stand, as in longhand run -m" -m x run
check an_option_of_llama_cpp_has_a_hint 2 "no option '-ngl': --device cuda" $R -ngl 99
check mirostat_has_a_hint 2 "no option '--mirostat': longhand's samplers are --top-n-sigma" $R --mirostat 2
check an_option_of_vllm_has_a_hint 2 "no option '--max-num-seqs': --parallel N" $R --max_num_seqs=8
check a_seed_of_minus_one_is_drawn 0 '^seed: [0-9]+$' $R --seed -1
check no_cnv_changes_nothing 0 "'-no-cnv' changes nothing: without --chat a text continues" $R -no-cnv
check tokens_of_minus_one_have_a_hint 2 \
    "^longhand: -n: '-1' is llama.cpp's word for no limit; without -n a text goes to its own end" \
    run -m $MODEL -p x -n -1
check another_option_of_llama_cpp 2 "no option '--ctx-size': the context is as long as" $R --ctx-size=4096
check missing_value 2 "--tokens needs a value" run --tokens
check flag_with_a_value 2 "--quiet takes no value" run --quiet=1
check two_words_too_many 2 "one word too many" inspect --model $MODEL here
check missing_word 2 "a word is missing" score --model $MODEL
check unknown_verb_is_named 2 "unknown verb 'paint'" paint
check a_model_to_draft_that_is_not_there 2 "model:x: cannot open" $R --drafter ngram,model:x
check unknown_drafter 2 "'magic' is not one of auto, none, heads" $R --drafter magic
check unknown_drafter_in_a_list 2 "'' is not one of auto, none, heads" $R --drafter ngram,
check unknown_preset_lists_presets 2 "'paper' is not one of tokenswift, magicdec, medusa, table11-" $R \
    --preset paper
check tree_of_words 2 "'x' is not a whole number" $R --tree 1,x
check tree_too_wide 2 "more than 1023 candidates at depth 4" $R --tree 9,9,9,9
check tree_with_a_hole 2 "is not a list of whole numbers" $R --tree 1,,3
check budget_below_sinks 2 "must be 1 to 9, below --kv-budget 10" $R --kv-budget 10
check verifier_without_a_tree 2 "needs a fixed --tree" $R --verifier paper
check verifier_without_a_drafter 2 "nothing to verify" $R --verifier paper --drafter none
check cuda_that_is_not_here 2 \
    "^longhand: --device cuda:63: .*(no CUDA|driver|no GPU|no cuda:63).*auto and cpu are available" $R \
    --device cuda:63
check all_gpus_are_for_work 2 "--device cuda:all: several GPUs are for .longhand work." $R --device cuda:all
check all_gpus_that_are_not_here 2 \
    "--device cuda:all: .*(no CUDA|driver|no GPU).*auto and cpu are available" work --device cuda:all
check unknown_device 2 "--device: 'tpu' is not one of auto, cpu, cuda, cuda:N, cuda:all" $R --device tpu
check device_of_no_number 2 "--device: 'cuda:x' is not one of" work --device cuda:x
check worker_without_its_gpu 2 "--device cuda:63: .*auto and cpu are available" work --device cuda:63
T="train heads --model $MODEL --data $MODEL/openings/portrait.txt --out $TMP/h"
check training_without_its_gpu 2 "^longhand: --device cuda:63: .*auto and cpu are available" $T --device \
    cuda:63
check training_is_not_for_all_gpus 2 "--device cuda:all: several GPUs are for .longhand work." $T --device \
    cuda:all
check training_on_an_unknown_device 2 "--device: 'tpu' is not one of auto, cpu, cuda, cuda:N, cuda:all" $T \
    --device tpu
check bad_choice_lists_choices 2 "'html' is not one of text\|ids" $R --format html
check tokens_zero 2 "'0' is not a whole number from 1 to" run --tokens 0
check tokens_with_a_tail 2 "'12x' is not a whole number" run -n 12x
check tokens_negative 2 "'-5' is not a whole number" run -n -5
check tokens_empty 2 "'' is not a whole number" run -n ''
check tokens_huge 2 "is not a whole number from 1 to" run -n 99999999999999999999
check seed_of_65_bits 2 "'18446744073709551616' is not a whole number" $R --seed 18446744073709551616
check temperature_negative 2 "'-1' is not a number from 0 to" $R --temperature -1
check temperature_nan 2 "'nan' is not a number" $R --temp nan
check temperature_hex 2 "'0x1' is not a number" $R --temp 0x1
check top_p_above_one 2 "'1.5' is not a number from 0 to 1" $R --top_p 1.5
check top_p_of_zero_has_one_range 2 "^longhand: --top-p: '0' is not a number from 0 to 1, without 0$" $R \
    --top-p 0
check min_keep_zero 2 "--min-keep: '0' is not" $R --min-keep 0
check logit_bias_id_beyond_the_vocabulary 2 "logit-bias: token id: '99999999'" $R --logit-bias 99999999:1
check logit_bias_nonsense 2 "neither ID:BIAS nor a JSON object" $R --logit-bias nonsense
check logit_bias_bad_json 2 "not a JSON object" $R --logit-bias '{"1": '
check logit_bias_too_large 2 "101" $R --logit-bias 5:101
check stop_empty 2 "--stop: a string of 0 bytes" $R --stop ''
check prompt_missing 2 "--prompt TEXT or --prompt-file FILE is missing" run --model $MODEL --tokens 5
check prompt_twice 2 "only one of them" $R --prompt-file x
check model_missing_says_how_to_get_one 2 "run: --model is missing: the path of .* GGUF file, or a name in a \
cache, .*; --model models/demo is a small one .*LONGHAND_MODEL" run --prompt x --tokens 5
LONGHAND_MODEL=/nonexistent check model_of_the_environment_not_there 2 \
    "^longhand: LONGHAND_MODEL: /nonexistent: No such file" run --prompt x --tokens 5
LONGHAND_MODEL=/nonexistent check model_option_wins_over_the_environment 0 '' run -m $MODEL -p x -n 5 -q
program=$(realpath "$LONGHAND")
(cd models && "$program" inspect -m demo) >"$TMP/out" 2>&1
result a_model_in_this_folder_needs_no_slash $? "$(head -3 "$TMP/out")"
LONGHAND_MODEL=$MODEL check model_of_the_environment 0 '' tokenize README.md
LONGHAND_MODEL=$MODEL check model_of_the_environment_runs 0 '' run -p x -n 5 -q
LONGHAND_MODEL=$MODEL check work_has_no_model_of_the_environment 0 '' work -q
check model_not_there 2 "/nonexistent: No such file" run --prompt x --tokens 5 --model /nonexistent
check model_not_in_a_cache 2 "'no/such' is not a file or directory here, and .*longhand downloads nothing" \
    run --prompt x --tokens 5 --model no/such
check prompt_file_not_there 2 "/nonexistent: cannot open" run --model $MODEL --tokens 5 --prompt-file \
    /nonexistent
check prompt_file_is_a_folder 2 "cannot read: Is a directory" run --model $MODEL --tokens 5 --prompt-file \
    tests
printf 'ab\xc3\xa9\xffcd' >"$TMP/bad.txt"
check prompt_file_invalid_utf8 2 "invalid UTF-8 at offset 4" run --model $MODEL --tokens 5 --prompt-file \
    "$TMP/bad.txt"
check prompt_invalid_utf8 2 "--prompt: invalid UTF-8 at offset 1" run --model $MODEL --tokens 5 --prompt \
    $'a\x80'
beyond="2 prompt tokens \+ --tokens 131071 are beyond this model's context of 131072"
check beyond_the_context 2 "$beyond.*--context-scaling.*--allow-beyond-context" \
    run --model $MODEL --prompt x --tokens 131071
check memory_names_numbers 2 "needs [0-9.]+ MiB .*KV cache [0-9.]+.*are available" run --model $MODEL \
    --prompt x --tokens 900000000 --allow-beyond-context
check samples_need_files 2 "more than one text needs -o" $R --samples 2
check output_folder_not_there 2 "cannot write" $R -o /nonexistent/out.txt
LONGHAND_ISA=z80 check unknown_twin 2 "z80" $R
check window_of_one 2 "--window: '1' is not" score --model $MODEL x --window 1
check gguf_that_does_not_exist 2 "No such file" run --prompt x --tokens 5 --model x.gguf

check help_works 0 '' help
grep -q -- '--prompt-file' "$TMP/out" && ! grep -q -- '--presence-penalty' "$TMP/out"
result main_help_shows_what_a_writer_needs $? "help"
check help_all_works 0 '' help --all
grep -q -- '--presence-penalty' "$TMP/out" && ! grep -qE -- '--(repeat-penalty|n-predict)' "$TMP/out"
result help_all_shows_the_rest_but_no_aliases $? "help --all"
"$LONGHAND" help run >"$TMP/a"; "$LONGHAND" run --help >"$TMP/b"
same help_verb_equals_verb_help "$TMP/a" "$TMP/b"
check help_of_an_unknown_verb 2 "unknown verb 'xx'" help xx
check version_works 0 '' --version
grep -q '^numerics: cpu-[0-9]' "$TMP/out" && grep -q '^chosen: ' "$TMP/out" &&
    grep -qE '^cuda: (not built|sm_80 sm_89 sm_90a( sm_100 sm_120)? compute_80)$' "$TMP/out"
result version_names_numerics_and_twin $? "$(cat "$TMP/out")"
# The help of a verb has what the verb uses, and what the README writes.
"$LONGHAND" help run >"$TMP/t"
! grep -qE '(^|[ (])(submit|inspect|fork|extend|train|bench|report|convert|score|work): ' "$TMP/t" &&
    [ "$(grep -A2 -- '--seed S' "$TMP/t" | tr -s ' \n' '  ' |
        grep -c 'Default: drawn at random and printed\. ')" = 1 ]
result help_of_run_is_about_run $? "$(grep -E '[a-z]: ' "$TMP/t")"
"$LONGHAND" help inspect | grep -A3 -- '--tokens N' | grep -q 'inspect: the length' &&
    "$LONGHAND" help train | grep -A2 -- '--seed S' | grep -q 'Default: 42\.$'
result help_of_a_verb_is_about_the_verb $? "$("$LONGHAND" help train | grep -A2 -- '--seed S')"
grep -oE '(^    \./|`)longhand [a-z]+ [^`]*' README.md | while read -r _ verb words; do
    "$LONGHAND" help "$verb" >"$TMP/help" 2>&1 || echo "no verb $verb"
    for w in $words; do
        case $w in --*|-?) grep -qE -- "^  (-., )*$w( |\$|,)" "$TMP/help" || echo "longhand $verb $w" ;; esac
    done
done >"$TMP/missing"
[ ! -s "$TMP/missing" ] && [ "$(grep -cE '^    \./longhand' README.md)" -ge 2 ]
result help_has_the_spellings_of_the_readme $? "$(cat "$TMP/missing")"
"$LONGHAND" help export | grep -q 'text: the texts, one after'
result help_of_export_says_what_format_text_is $?
for verb in train run; do "$LONGHAND" help $verb | tr -s '\n ' ' ' >"$TMP/$verb"; done
grep -q 'train: auto is the CPU' "$TMP/train" && ! grep -q 'train:' "$TMP/run" &&
    grep -q 'same text. Default: 42\.' "$TMP/train"
result help_of_a_verb_has_the_clauses_of_the_verb $?
exit $failed
