#!/bin/bash
# A client cannot hold up a server by its body: a chat template that takes its whole second, the largest body,
# the longest lists. tests/cli/edges_templates.py asks.
. tests/cli/lib.inc
L=$LONGHAND
trap 'kill -KILL $server 2>/dev/null; rm -rf "$TMP"' EXIT

# once this ended the program
echo '[{"role": "user", "content": "x"}]' >"$TMP/chat.json"
for text in '{{ ",".join([1]) }}' '{{ "-".join([none, 2.5]) }}'; do
    check join_of_other_values 2 'join: a text is needed, found a' tokenize -m "$MODEL" \
        --messages "$TMP/chat.json" --chat-template "$text"
done

"$L" serve -m "$MODEL" --port 0 --chat-template chatml >"$TMP/listens" 2>"$TMP/log" &
server=$!
for i in $(seq $((300 * slower))); do
    url=$(sed -n 's|/v1 (model .*||p' "$TMP/listens")
    [ -n "$url" ] && python3 tests/cli/edges_templates.py "$url" ready "$slower" >/dev/null 2>&1 && break
    kill -0 $server 2>/dev/null || break
    sleep 0.1
done
for part in slow_template own_templates lists; do
    python3 tests/cli/edges_templates.py "$url" $part "$slower" >"$TMP/asked" 2>&1
    result "serve_$part" $? "$(tail -3 "$TMP/asked")"
done
kill $server
wait $server
result the_server_ends_well $? "$(tail -3 "$TMP/log")"

# logit_bias of every token (test_edges_templates.c measures its work; LONG=1 takes a model of 262,144 tokens)
model=$MODEL sizes='288 1151'
gemma=~/.cache/longhand-tests/gemma-3-270m-Q4_K_M.gguf
if [ "$LONG" = 1 ] && [ -e "$gemma" ]; then model=$gemma sizes='65536 262143'; fi
for n in $sizes; do
    python3 -c "
import json
bias = {str(i): i % 7 / 4 for i in range($n)}
print(json.dumps({'prompt': 'The sea', 'max_tokens': 2, 'logit_bias': bias}))
" >"$TMP/bias$n.jsonl"
    "$L" submit -q -m "$model" --name "b$n" --batch "$TMP/bias$n.jsonl" >/dev/null 2>"$TMP/err"
    result "biases_of_${n}_tokens" $? "$(cat "$TMP/err")"
    "$L" show --json "@b$n" 2>/dev/null | python3 -c "
import json, sys
bias = json.load(sys.stdin)['parameters']['logit_bias']
sys.exit(bias != {str(i): i % 7 / 4 for i in range($n)})
"
    result "biases_of_${n}_tokens_are_stored" $? "show --json has other biases"
done
exit $failed
