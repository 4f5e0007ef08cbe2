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

check no_template_is_refused_with_the_list 2 'no chat template.*--chat-template names.*chatml.*zephyr' \
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
same_ids the_models_own_template_is_run named own
differ another_template_is_another_prompt "$TMP/chat" "$TMP/own"
"$LONGHAND" $R --chat -p "Tell me of the sea." >"$TMP/out" 2>"$TMP/err"
"$LONGHAND" run --model $D --tokens 2 --seed 7 --chat -p x >"$TMP/out" 2>"$TMP/err"
grep -q "^chat template: the model's own$" "$TMP/err"; result the_template_is_named $? "$(cat "$TMP/err")"
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
# --thinking, --chat-date and --chat-template-kwargs are variables of the template.
T='{{ messages[0].content }}|{{ enable_thinking }}|{{ thinking }}|{{ reasoning_effort }}|{{ date_string }}|'
T+="{{ strftime_now('%Y-%m-%d') }}|{{ mood }}"
echo '[{"role": "user", "content": "Hi"}]' >"$TMP/m.json"
(printf '\357\273\277'; cat "$TMP/m.json") >"$TMP/bom.json"
Z="tokenize --model $D --render --chat-template zephyr --messages"
"$LONGHAND" $Z "$TMP/bom.json" >"$TMP/a" 2>"$TMP/err"; "$LONGHAND" $Z "$TMP/m.json" >"$TMP/b" 2>"$TMP/err"
same messages_with_a_byte_order_mark "$TMP/a" "$TMP/b"
render() { "$LONGHAND" tokenize --model $D --messages "$TMP/m.json" --render --chat-template "$T" "$@"; }
says() # NAME TEXT ARGUMENTS..
{
    local name=$1 want=$2
    shift 2
    [ "$(render "$@" 2>"$TMP/err")" = "$want" ]; result "$name" $? "$(render "$@" 2>&1)"
}
says nothing_is_set "Hi|||||$(command date +%Y-%m-%d)|" ; says thinking_off 'Hi|False|False|||2024-07-26|' \
    --thinking off --chat-date 2024-07-26 --chat-template "${T/'{{ date_string }}'/}"
says an_effort 'Hi|||high|1 Jan 2030|2030-01-01|' --thinking high --chat-date '1 Jan 2030'
says a_day_of_digits 'Hi|True|True||01 Jan 2030|2030-01-01|' --thinking on --chat-date 2030-01-01
says kwargs "Hi|no||||2030-01-01|[1]" --chat-date 2030-01-01 --chat-template-kwargs \
    '{"enable_thinking": "no", "date_string": "", "mood": [1]}'
check kwargs_are_an_object 2 'chat-template-kwargs: .*found .1., allowed is an object' $R --chat \
    --chat-template-kwargs '[1]' -p x
check kwargs_have_no_messages 2 'messages is no variable of this object' $R --chat --chat-template-kwargs \
    '{"messages": []}' -p x
check a_day_that_is_none 2 "chat-date: '26 Julember' is no day, allowed" $R --chat \
    --chat-date '26 Julember' -p x
check a_variable_that_the_template_lacks 0 '^chat template chatml never names enable_thinking, mood$' run \
    --model $D --tokens 2 --chat --chat-template chatml --thinking off \
    --chat-template-kwargs '{"mood": 1}' -p x
check marks_that_are_no_tokens 0 \
    'chat template chatml writes marks that are no tokens of this model: <|im_start|>' \
    run --model $D --tokens 2 --chat --chat-template chatml -p x
echo "$T" >"$TMP/t.jinja"
"$LONGHAND" $R --chat --chat-template "$T" -p Hi >"$TMP/text"
"$LONGHAND" $R --chat --chat-template "$TMP/t.jinja" -p Hi >"$TMP/file"
same_ids a_template_is_a_text_or_a_file text file
check a_name_of_an_older_version 2 "'qwen3': this version has it no more, allowed are chatml" $R --chat \
    --chat-template qwen3 -p x
"$LONGHAND" tokenize --model $D --messages "$TMP/m.json" --chat-template zephyr --chat-date 2024-01-01 \
    2>"$TMP/err" >"$TMP/ids"
"$LONGHAND" tokenize --model $D --messages "$TMP/m.json" --chat-template zephyr --render >"$TMP/t" 2>/dev/null
"$LONGHAND" tokenize --model $D "$TMP/t" | tail -n +2 >"$TMP/plain"
same_ids tokenize_prints_the_ids_of_a_chat plain ids
check render_needs_messages 2 '--render needs --messages' tokenize --model $D --render "$TMP/m.json"
check messages_and_a_file 2 '--messages and ' tokenize --model $D --messages "$TMP/m.json" "$TMP/m.json"
check chat_options_need_messages 2 '--thinking needs --messages' tokenize --model $D \
    --thinking on "$TMP/m.json"
check a_system_message_is_utf8 2 "--system.*UTF-8" $R --chat --chat-template llama3 --system $'\xff' -p x
exit $failed
