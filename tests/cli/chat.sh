#!/bin/bash
# --chat: the prompt goes through the model's chat template, with one BOS; any template runs.
. tests/cli/lib.inc
D=$TMP/model; mkdir "$D"
for f in config.json generation_config.json model.safetensors tokenizer.json tokenizer_config.json; do
    ln -s "$(realpath "$MODEL")/$f" "$D/$f"
done
R="run --model $D --tokens 20 --seed 7 -q --format ids"
N=$'\n'
same_ids() { if [ -s "$TMP/$2" ]; then same "$1" "$TMP/$2" "$TMP/$3"; else fail "$1" "no ids"; fi; }
head3() { echo "<|start_header_id|>$1<|end_header_id|>$N$N"; }

user="$(head3 user)$N${N}Tell me of the sea.<|eot_id|>"
answer="<|start_header_id|>assistant<|end_header_id|>$N$N"
"$LONGHAND" $R --chat --chat-template llama3 -p "Tell me of the sea." >"$TMP/chat"
"$LONGHAND" $R -p "$user$answer" >"$TMP/plain"
same_ids chat_is_the_template_written_out_with_one_bos plain chat
"$LONGHAND" $R --chat --chat-template llama3 --system "Be brief." -p "Tell me of the sea." >"$TMP/chat"
"$LONGHAND" $R -p "$(head3 system)$N${N}Be brief.<|eot_id|>$user$answer" >"$TMP/plain"
same_ids the_system_message_comes_first plain chat
printf 'Tell me of the sea.' |
    "$LONGHAND" $R --chat --chat-template llama3 --system "Be brief." -f - >"$TMP/stdin"
same_ids the_message_from_standard_input plain stdin

check no_template_is_refused_with_the_list 2 'no chat template.*--chat-template NAME.*chatml.*zephyr' \
    $R --chat -p x
cat >"$D/chat_template.jinja" <<'T'
{%- for m in messages %}
    {{- '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
T
"$LONGHAND" $R --chat -p "Tell me of the sea." >"$TMP/own"
"$LONGHAND" $R --chat --chat-template chatml -p "Tell me of the sea." >"$TMP/named"
same_ids the_models_own_template_is_recognised named own
differ another_template_is_another_prompt "$TMP/chat" "$TMP/own"
"$LONGHAND" $R --chat -p "Tell me of the sea." >"$TMP/out" 2>"$TMP/err"
"$LONGHAND" run --model $D --tokens 2 --seed 7 --chat -p x >"$TMP/out" 2>"$TMP/err"
grep -q '^chat template: chatml$' "$TMP/err"; result the_template_is_named $? "$(cat "$TMP/err")"
echo "{#- changed -#}" >>"$D/chat_template.jinja"
"$LONGHAND" $R --chat -p "Tell me of the sea." >"$TMP/changed"
same_ids a_changed_template_is_run named changed
echo "{{ raise_exception('No chats today') }}" >>"$D/chat_template.jinja"
check a_template_says_no 2 'chat_template.jinja, line 8: No chats today' $R --chat -p x
echo "{% endif %}" >>"$D/chat_template.jinja"
check a_fault_of_a_template_is_one_line 2 "chat_template.jinja, line 9: .*'endif'" $R --chat -p x
check an_unknown_name_is_refused 2 "'chatMl'.*allowed are chatml" $R --chat --chat-template chatMl -p x

for o in "--system x" "--chat-template chatml" "--thinking off" "--chat-date x"; do
    check "${o// /_}_needs_chat" 2 "needs --chat" $R $o -p x
done
"$LONGHAND" $R --chat --chat-template qwen3 -p "Tell me of the sea." >"$TMP/on"
"$LONGHAND" $R --chat --chat-template qwen3 --thinking off -p "Tell me of the sea." >"$TMP/off"
"$LONGHAND" $R --chat --chat-template chatml -p "Tell me of the sea." >"$TMP/plain"
same_ids qwen3_thinks_by_default plain on; differ thinking_off_is_another_prompt "$TMP/on" "$TMP/off"
check a_template_without_thoughts_has_no_switch 2 "template chatml has no such switch" \
    $R --chat --chat-template chatml --thinking off -p x
"$LONGHAND" $R --chat --chat-template llama3.1 -p "Tell me of the sea." >"$TMP/today"
date() { "$LONGHAND" $R --chat --chat-template llama3.1 --chat-date "$1" -p "Tell me of the sea."; }
date "26 Jul 2024" >"$TMP/given"; date "1 Jan 2030" >"$TMP/other"
same_ids the_date_is_fixed today given; differ another_date_is_another_prompt "$TMP/today" "$TMP/other"
check a_template_without_a_date_takes_none 2 "template llama2 names no day" \
    $R --chat --chat-template llama2 --chat-date x -p x
check a_system_message_is_utf8 2 "--system.*UTF-8" $R --chat --chat-template llama3 --system $'\xff' -p x
exit $failed
