#!/bin/bash
# A chat: the model's own template gives the prompt, and the model answers and ends its answer itself.
. tests/real/lib.inc
cat >"$TMP/turns.json" <<'J'
[{"role": "user", "content": "My name is Ada, and I live in Paris."},
 {"role": "assistant", "content": "Nice to meet you, Ada!"},
 {"role": "user", "content": "Which country is the city in that I live in? Answer in one sentence."}]
J
cat >"$TMP/prompt" <<'T'
<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
<|im_start|>user
My name is Ada, and I live in Paris.<|im_end|>
<|im_start|>assistant
Nice to meet you, Ada!<|im_end|>
<|im_start|>user
Which country is the city in that I live in? Answer in one sentence.<|im_end|>
<|im_start|>assistant
T
"$L" tokenize -m "$MODEL" --messages "$TMP/turns.json" --render >"$TMP/render"
same real_chat_is_rendered_by_the_models_template "$TMP/prompt" "$TMP/render"
"$L" tokenize -m "$MODEL" --messages "$TMP/turns.json" >"$TMP/ids"
[ "$(head -3 "$TMP/ids" | tr '\n' ' ')" = "1 9690 198 " ]
result real_chat_marks_are_single_tokens $? "$(head -3 "$TMP/ids" | tr '\n' ' ')"

answers() # NAME PATTERN ARGS..: the answer matches the pattern, and ends before its limit
{
    local name=$1 pattern=$2
    shift 2
    "$L" run -m "$MODEL" "$@" --temperature 0 -n 60 -q --json-stats "$TMP/stats" >"$TMP/answer"
    grep -qE "$pattern" "$TMP/answer" &&
        python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["finish_reason"] != "stop")' \
            "$TMP/stats"
    result "$name" $? "$(cat "$TMP/answer"; grep -o '"finish_reason[^,]*' "$TMP/stats")"
}
answers real_chat_answers_a_question 'Paris' --chat \
    -p "What is the capital of France? Answer in one sentence."
answers real_chat_remembers_its_turns 'France' --messages "$TMP/turns.json"
exit $failed
