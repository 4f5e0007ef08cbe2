#!/bin/bash
# longhand run --dry-*: off by default; every flag changes the text; breakers of one token and of several; bad
# values.
. tests/cli/lib.inc
head -c 300 models/demo/openings/portrait.txt >"$TMP/prompt"
G="run --model $MODEL --prompt-file $TMP/prompt --tokens 60 --temperature 0 -q"
write() { local to=$1; shift; "$LONGHAND" $G "$@" >"$TMP/$to" || fail "run_$to" "exit $?"; }
D='--dry-multiplier 0.8'
write plain
write dry $D
differ dry_changes_a_text_that_repeats_itself "$TMP/plain" "$TMP/dry"
write a --dry-base 3 --dry-sequence-breaker x
same dry_without_a_multiplier_is_off "$TMP/plain" "$TMP/a"
write a $D --dry-penalty-last-n 0;                       same dry_over_no_tokens_is_off "$TMP/plain" "$TMP/a"
write a $D --dry-penalty-last-n 100000
same dry_over_more_than_all_is_all "$TMP/dry" "$TMP/a"
write a $D --dry-base 1.75 --dry-allowed-length 2 --dry-penalty-last-n -1 --dry-sequence-breaker '\n' \
    --dry-sequence-breaker : --dry-sequence-breaker '"' --dry-sequence-breaker '*'
same dry_defaults_are_those_of_llama_cpp "$TMP/dry" "$TMP/a"
write a --dry-multiplier 5;                              differ dry_multiplier_counts "$TMP/dry" "$TMP/a"
write a $D --dry-base 3;                                 differ dry_base_counts "$TMP/dry" "$TMP/a"
write a $D --dry-allowed-length 5;                       differ dry_allowed_length_counts "$TMP/dry" "$TMP/a"
write a $D --dry-penalty-last-n 20;                      differ dry_penalty_last_n_counts "$TMP/dry" "$TMP/a"
write none $D --dry-sequence-breaker none
write a $D --dry-sequence-breaker .
differ dry_breaker_of_one_token_counts "$TMP/none" "$TMP/a"
write a $D --dry-sequence-breaker 'The room'
differ dry_breaker_over_two_tokens_counts "$TMP/none" "$TMP/a"
write a $D --dry-sequence-breaker 'is nothing of that'
same dry_breaker_that_never_occurs_does_nothing "$TMP/none" "$TMP/a"
write a $D --dry-sequence-breaker $'\n'; write b $D --dry-sequence-breaker '\n'
same dry_breaker_understands_escapes "$TMP/a" "$TMP/b"
write a $D -t 1; write b $D -t 2
same dry_text_is_the_same_with_2_threads "$TMP/a" "$TMP/b"

# Speculation changes nothing. The text is long enough to repeat itself, and paths are part of repetitions.
for s in "--temperature 0" "--temperature 1 --seed 5"; do
    L="run --model $MODEL --prompt-file $TMP/prompt --tokens 300 --ignore-eos -q --format ids"
    L="$L --dry-multiplier 0.3 --dry-base 1.2 $s"
    "$LONGHAND" $L --drafter none >"$TMP/plain300"
    for d in auto ngram suffix,partial "ngram,suffix,partial --tree 3,3,3"; do
        "$LONGHAND" $L --drafter $d >"$TMP/a"
        same "dry_text_is_the_same_with_drafter_${d// /_}_${s// /_}" "$TMP/plain300" "$TMP/a"
    done
done

R="run --model $MODEL --prompt x --tokens 5 --dry-multiplier 1"
check dry_multiplier_negative 2 "--dry-multiplier: '-1' is not a number from 0 to 1000" \
    run --model $MODEL --prompt x --tokens 5 --dry-multiplier -1
check dry_base_below_one 2 "--dry-base: '0.9' is not a number from 1 to 100" $R --dry-base 0.9
check dry_allowed_length_zero 2 "--dry-allowed-length: '0' is not a whole number from 1 to" \
    $R --dry-allowed-length 0
check dry_penalty_last_n_below 2 "--dry-penalty-last-n: '-2' is not" $R --dry-penalty-last-n -2
check dry_breaker_empty 2 "--dry-sequence-breaker: a text of 0 bytes; none means no breakers" \
    $R --dry-sequence-breaker ''
check dry_breaker_long 2 "a text of 41 bytes, at most 40" \
    $R --dry-sequence-breaker 12345678901234567890123456789012345678901
check dry_breaker_invalid_utf8 2 "--dry-sequence-breaker: invalid UTF-8 at offset 1" \
    $R --dry-sequence-breaker $'a\x80'
check dry_memory_is_named 2 "needs .*DRY [0-9.]+" $R --tokens 900000000 --allow-beyond-context
exit $failed
