#!/bin/bash
# --preset story: what it sets, what goes before it, and the presets beside it.
. tests/cli/lib.inc
L=$LONGHAND
# of JOB NAME: a parameter of a job (drafting.NAME: of its drafting)
of() { python3 -c 'import json, sqlite3, sys
p = json.loads(sqlite3.connect(sys.argv[1]).execute("SELECT parameters FROM input WHERE job = ?",
                                                    sys.argv[2:3]).fetchone()[0])
print(*(p[n] if n in p else p["drafting"][n] for n in sys.argv[3:]))' "$LONGHAND_DB" "$@"; }
# sets NAME WANT FIRST ARGS..: parameters and the first line on standard error of submit with ARGS
sets()
{
    local name=$1 want=$2 first=$3 got id
    shift 3
    id=$("$L" submit -p x -n 9 -s 1 "$@" 2>"$TMP/err")
    got=$(of "$id" temperature min_p dry_multiplier on_loop drafter)
    [ "$got" = "$want" ] && { head -1 "$TMP/err" | grep -qxF -- "$first"; }
    result "$name" $? "$got; $(cat "$TMP/err")"
}
# the model's own temperature is 1; bare has none, greedy none to sample with
for m in bare greedy; do
    mkdir "$TMP/$m" && ln -s "$PWD/$MODEL"/* "$TMP/$m" && rm "$TMP/$m/generation_config.json"
done
echo '{"do_sample": false, "min_p": 0.2}' >"$TMP/greedy/generation_config.json"
all='penalty 1.1, penalty-window 256, min-p 0.05, dry-multiplier 0.8, on-loop retake'
sets story "1 0.05 0.8 retake auto" "--preset story: $all" -m $MODEL --preset story
sets no_temperature "0.8 0.05 0.8 retake auto" "--preset story: $all, temperature 0.8" \
    -m "$TMP/bare" --preset story
sets over_the_models_own "0 0.05 0.8 retake auto" "--preset story: $all" -m "$TMP/greedy" --preset story
"$L" run -m "$TMP/greedy" -p x -n 9 -s 1 --preset story >"$TMP/out" 2>"$TMP/err"
grep -q 'own settings.*: do_sample false, so temperature 0$' "$TMP/err"
result what_it_sets_is_not_the_models $? "$(cat "$TMP/err")"
sets without_the_models_own "0.8 0.05 0.8 retake auto" "--preset story: $all, temperature 0.8" \
    -m $MODEL --preset story --generation-config none
sets options_go_before "0.5 0.1 0.8 warn auto" "--preset story: penalty-window 256, dry-multiplier 0.8" \
    -m "$TMP/bare" --preset story --temperature 0.5 --min-p 0.1 --on-loop warn --penalty 1.2
sets beside_another "1 0.05 0.8 retake heads" "--preset story: $all" -m $MODEL --preset medusa,story
[ "$(of "$("$L" submit -m $MODEL -p x -n 9 --preset story,tokenswift -q)" drafter kv_fixed tree)" = \
    "heads,partial,ngram True [1, 3, 3, 3]" ]
result in_any_order $? "$("$L" show "$(sql 'SELECT max(id) FROM job')")"
[ "$(of "$("$L" submit -m $MODEL -p x -n 9 --preset story -q)" kv_fixed tree)" = "False []" ]
result story_drafts_nothing $? "$("$L" show "$(sql 'SELECT max(id) FROM job')")"
check one_preset_that_drafts 2 "'medusa,magicdec': only story may stand beside another" \
    submit -m $MODEL -p x -n 9 --preset medusa,magicdec
check an_unknown_preset 2 "'tale' is not one of tokenswift, .*, story" \
    submit -m $MODEL -p x -n 9 --preset story,tale

# fields of a body go before it
{ echo '{"prompt": "x", "custom_id": "a"}'; echo '{"prompt": "x", "custom_id": "b", "min_p": 0.3,
    "on_loop": "stop", "temperature": 2}' | tr -d '\n'; echo; } >"$TMP/b.jsonl"
"$L" submit --batch "$TMP/b.jsonl" -m "$TMP/bare" -n 9 -s 1 --preset story >/dev/null 2>"$TMP/err"
head -1 "$TMP/err" | grep -qxF -- "--preset story: $all, temperature 0.8 if the model has none"
result first_line_of_a_batch $? "$(cat "$TMP/err")"
id() { sql "SELECT id FROM job WHERE custom_id = '$1'"; }
[ "$(of "$(id a)" temperature min_p on_loop)" = "0.8 0.05 retake" ]
result a_line_without_fields $? "$("$L" show @b/a)"
[ "$(of "$(id b)" temperature min_p dry_multiplier on_loop)" = "2 0.3 0.8 stop" ]
result fields_go_before $? "$("$L" show @b/b)"

# its text is that of its options
"$L" run -m $MODEL -p "The king" -n 300 -s 1 --preset story -q >"$TMP/a"
"$L" run -m $MODEL -p "The king" -n 300 -s 1 --penalty 1.1 --penalty-window 256 --min-p 0.05 \
    --dry-multiplier 0.8 --on-loop retake -q >"$TMP/b"
same the_text_of_its_options "$TMP/a" "$TMP/b"
exit $failed
