#!/bin/bash
# Drafting with little memory: heads are part of the plan, and drafts do without the 8-bit copy of the model.
. tests/cli/lib.inc
P=$TMP/prompt
sentence="The king sat in his hall, and the lords sat beside him; and the king said:"
sentence+=" who will go with me to the sea?"
for i in 1 2 3 4 5 6; do echo "$sentence"; done >"$P"
G="run -m $MODEL -f $P -s 5 -q --temperature 0.6"
limited() # run the program with $mib MiB of address space
{
    (
        ulimit -s 384                # a product with AVX2 keeps 128 KiB of wide inputs on the stack
        ulimit -v $((mib * 1024))
        GLIBC_TUNABLES=glibc.malloc.arena_max=1 "$LONGHAND" "$@" 2>"$TMP/err"
    )
}
if [ $slower != 1 ]; then skip heads_are_planned "sanitizers need more address space"
else mib=48; limited $G -n 90000 --drafter heads
[ $? = 2 ] && grep -q 'this needs .* MiB of memory (weights .*, heads 0\.[5-9].*ulimit -v' "$TMP/err"
result heads_are_planned $? "$(tail -c 300 "$TMP/err")"; fi
# Less memory every time, until the job does not fit. Before that point drafts do without the 8-bit copy of
# the model, and a notice says so. No job fails for that reason, not even after a job that had room for the
# copy.
"$LONGHAND" $G -n 20000 --stop "and" --drafter none >"$TMP/want"
L="${G/ -q/} -n 20000 --stop and --threads 1 --drafter partial"
# three WEIGHTS: work on a long and a short job with these draft weights, and a job that drafts with the
# weights of the model. The store with the three jobs is made once and copied.
for w in model int8; do
    for a in "--draft-weights $w" "--draft-weights $w -n 20" "--draft-weights model"; do
        "$LONGHAND" submit ${L#run} $a -q --db "$TMP/$w.db" >/dev/null
    done
done
three()
{
    rm -rf "$TMP/three.db"*; export LONGHAND_DB=$TMP/three.db
    cp "$TMP/$1.db" "$LONGHAND_DB"
    limited work --threads 1 >/dev/null &&
        [ "$("$LONGHAND" list --json | grep -o '"state": "done"' | wc -l)" = 3 ]
}
told=; first=; bad=; threes=0
[ -n "${LONG:-}" ] && step=6 || step=12
for mib in $(seq 212 -$step 60); do
    limited $L --draft-weights model >"$TMP/t" || { ended=$?; break; }
    first=${first:-$mib}
    limited $L >"$TMP/t" && cmp -s "$TMP/want" "$TMP/t" || bad+=" $mib:$(tail -c 200 "$TMP/err")"
    grep -q 'no room to spare for the model in 8 bits' "$TMP/err" && told+=" $mib"
    three model || continue                 # too little for three jobs even without the copy
    three int8 && threes=$((threes + 1)) || bad+=" three at $mib:$(tail -c 300 "$TMP/err")"
done
export LONGHAND_DB=$TMP/longhand.db
if [ -z "$first" ] && [ "$ended" -lt 128 ]
then skip without_room_for_8_bits_drafts_ask_the_model "$(head -c 200 "$TMP/err")"
else [ -n "$told" ] && [[ "$told" != *" $first"* ]] && [ -z "$bad" ] && [ $threes -gt 2 ]
result without_room_for_8_bits_drafts_ask_the_model $? \
    "from $first to $mib MiB, told at$told, three jobs $threes times, failed at$bad"; fi

# In the foreground a long text gets its first token before the model in 8 bits is made.
# A short text does without.
G="run --model $MODEL -p word --seed 3 --ignore-eos --progress json"
phases()
{
    "$LONGHAND" $G "$@" 2>&1 >"$TMP/t" | grep -oE '"phase": "(writing|making the model in 8 bits)"' | uniq
}
[ "$(phases -n 24 | tail -1)" = '"phase": "writing"' ]; result a_short_text_needs_no_model_in_8_bits $?
[ "$(phases -n 400 | head -2 | tr -d '\n')" = '"phase": "writing""phase": "making the model in 8 bits"' ]
result a_long_text_has_it_after_its_first_token $?
"$LONGHAND" $G -n 400 --drafter none >"$TMP/none" 2>/dev/null
same and_its_text_is_the_same "$TMP/none" "$TMP/t"
exit $failed
