#!/bin/bash
# The filters top-n-sigma, typical and XTC: each changes the text, drafting does not, a job that was extended
# goes on with it, and a batch line has it under the names of other programs.
. tests/cli/lib.inc
R="run -m $MODEL -n 80 -s 3 -q -p The_king"
"$LONGHAND" $R >"$TMP/without"
for set in "--top-n-sigma 0.8" "--typical 0.6" "--xtc-probability 1 --xtc-threshold 0.05"; do
    name=$(echo "${set%% *}" | tr -d -)
    "$LONGHAND" $R $set >"$TMP/drafted"
    "$LONGHAND" $R $set --drafter none >"$TMP/plain"
    differ ${name}_changes_the_text "$TMP/without" "$TMP/drafted"
    same ${name}_is_exact_under_drafting "$TMP/plain" "$TMP/drafted"
    "$LONGHAND" submit -m $MODEL -n 40 -s 3 -p The_king $set --name "$name" >/dev/null
    "$LONGHAND" work -q; "$LONGHAND" extend "@$name" --tokens +40 --run -q >/dev/null
    "$LONGHAND" text "@$name" >"$TMP/extended"
    same ${name}_goes_on "$TMP/plain" "$TMP/extended"
    "$LONGHAND" verify "@$name" >"$TMP/out" 2>&1; result ${name}_is_verified $? "$(head -c 300 "$TMP/out")"
done
"$LONGHAND" $R --top-n-sigma 1e-9 >"$TMP/narrow"; "$LONGHAND" $R --temperature 0 >"$TMP/greedy"
same a_sigma_that_leaves_one_token_is_greedy "$TMP/greedy" "$TMP/narrow"
"$LONGHAND" $R --xtc-probability 0.5 --temperature 0 >"$TMP/cold"
same xtc_does_nothing_at_temperature_0 "$TMP/greedy" "$TMP/cold"
"$LONGHAND" $R --typical-p 0.6 --top-nsigma 2 --xtc-probability 0.3 >"$TMP/flags"
printf '%s' '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "The_king", ' \
    '"seed": 3, "typical_p": 0.6, "top_n_sigma": 2, "xtc_probability": 0.3}}' >"$TMP/line"
"$LONGHAND" run -m $MODEL -n 80 -q --batch "$TMP/line" -o "$TMP/answer" --name line
"$LONGHAND" text @line >"$TMP/of_line"; same a_batch_line_has_them "$TMP/flags" "$TMP/of_line"
"$LONGHAND" show @line >"$TMP/show"; grep -q '"typical": 0.6,' "$TMP/show" && ! grep -q xtc_thr "$TMP/show"
result a_job_stores_what_was_set $? "$(grep parameters "$TMP/show")"
check a_share_of_0_is_refused 2 'typical.*0' $R --typical 0
check a_threshold_of_0_is_refused 2 'xtc-threshold.*0' $R --xtc-threshold 0
exit $failed
