#!/bin/bash
# longhand verify: plain passes reproduce a stored text with every sampling step; another seed is detected.
. tests/cli/lib.inc
L="$LONGHAND"
"$L" submit -m $MODEL -p Hello -n 150 -s 3 >/dev/null
"$L" submit -m $MODEL -p Hello -n 150 -s 3 --penalty 1.2 --presence-penalty 0.5 --frequency-penalty 0.1 \
    --dry-multiplier 0.4 --temperature 0.8 --top-p 0.9 --compute f32 >/dev/null
"$L" work -q; "$L" extend 1 --tokens +30 --append " And then"; "$L" fork 1 --at 60 >/dev/null; "$L" work -q
for j in 1 2 3; do check "verify_job_$j" 0 '' verify $j -q; done
"$L" verify 2 --sample 20 --json >"$TMP/out" 2>/dev/null
grep -q '"identical": true, "tokens": 150, "checked": 20, "first_difference": null' "$TMP/out"
result verify_a_sample $? "$(cat "$TMP/out")"
python3 -c 'import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
c.execute("UPDATE job SET seed = 4 WHERE id = 2")
c.commit()' "$LONGHAND_DB"
check another_seed_is_detected 1 'job 2: token [0-9]+ is [0-9]+ in the store, the model says' verify 2 -q
check verify_of_no_job 2 'there is no job 9' verify 9
"$L" submit -m $MODEL -p Hello -n 20 --tree 1,2 --drafter ngram --verifier paper >/dev/null; "$L" work -q
check verify_of_the_published_rule 2 'made with --verifier paper' verify 4
exit $failed
