#!/bin/bash
# serve: an OpenAI-compatible server. Answers equal `run`, streams too; bad requests, other hosts and wrong
# keys are refused; a client that leaves cancels its job; SIGTERM stores the texts. tests/cli/serve.py asks.
. tests/cli/lib.inc
L=$LONGHAND
# start ARGS..: starts a server on a free port; $server is its process, $url its address.
start()
{
    : >"$TMP/listens"
    "$L" serve ${model--m "$MODEL"} --port "${port:-0}" "$@" >"$TMP/listens" 2>"$TMP/log" &
    server=$!
    for i in $(seq $((300 * slower))); do
        url=$(sed -n 's|/v1 (model .*||p' "$TMP/listens")
        [ -n "$url" ] && ask GET /health 2>/dev/null | grep -q '^200' && return 0
        kill -0 $server 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}
# ask METHOD PATH [HEADER]: prints the status and the body of the answer.
ask()
{
    python3 - "$url" "$@" <<'PY'
import http.client, sys, urllib.parse
u = urllib.parse.urlsplit(sys.argv[1])
c = http.client.HTTPConnection(u.hostname, u.port, timeout=60)
c.request(sys.argv[2], sys.argv[3], headers=dict([sys.argv[4].split(": ", 1)]) if len(sys.argv) > 4 else {})
r = c.getresponse()
print(r.status, r.read().decode())
PY
}
stop() { kill -"${1:-TERM}" $server 2>/dev/null; wait $server 2>/dev/null; }
trap 'stop KILL; rm -rf "$TMP"' EXIT
# asks PART: the tests of tests/cli/serve.py
asks()
{
    python3 tests/cli/serve.py "$url" "$1" "$L" "$MODEL" >"$TMP/asked" 2>&1; r=$?
    cat "$TMP/asked"
    ! grep -q '^FAIL' "$TMP/asked" || failed=1
    result "serve_$1" $r "$(tail -3 "$TMP/asked")"
}

# what is refused before the model is opened
check serve_needs_a_model 2 '^longhand: serve: --model is missing' serve
check other_hosts_need_a_key 2 \
    '^longhand: --host 0.0.0.0: .*--api-key-file' serve -m /none --host 0.0.0.0
echo secret-key >"$TMP/key"; chmod 644 "$TMP/key"
check a_key_that_others_may_read 2 \
    'has mode 0644, and 0600 is needed' serve -m /none --api-key-file "$TMP/key"
chmod 600 "$TMP/key"; : >"$TMP/empty"; chmod 600 "$TMP/empty"
check an_empty_key 2 'one line of printable ASCII' serve -m /none --api-key-file "$TMP/empty"
check a_missing_key 2 'api-key-file: .*/nokey' serve -m /none --api-key-file "$TMP/nokey"
check a_host_that_is_none 2 \
    '^longhand: --host no.such.host.invalid: ' serve -m /none --host no.such.host.invalid
check no_port 2 'port' serve -m /none --port 70000

start --max-body 64K --max-upload 200K --allow-host books.example --cors http://pages.example \
    --chat-template chatml
result a_server_starts $? "$(cat "$TMP/log")"
asks texts,chat,thoughts,refusals,leave,fails,fuzz,many,jobs,pages,batches
# The openai package in a virtual environment of this test.
if python3 -m venv "$TMP/venv" 2>/dev/null && "$TMP/venv/bin/pip" install -q openai >"$TMP/pip" 2>&1; then
    "$TMP/venv/bin/python" tests/cli/serve.py "$url" package "$L" "$MODEL" >"$TMP/asked" 2>&1; r=$?
    cat "$TMP/asked"
    ! grep -q '^FAIL' "$TMP/asked" || failed=1
    result serve_package $r "$(tail -3 "$TMP/asked")"
    # the program llm, if pip can fetch it
    if "$TMP/venv/bin/pip" install -q llm >"$TMP/pip" 2>&1; then
        export LLM_USER_PATH=$TMP/llm
        mkdir -p "$LLM_USER_PATH"
        printf -- '- model_id: here\n  model_name: demo\n  api_base: %s/v1\n' "$url" \
            >"$LLM_USER_PATH/extra-openai-models.yaml"
        "$L" run -q --chat --chat-template chatml -m "$MODEL" -p 'The sea' -n 40 -s 6 --db "$TMP/run.db" \
            >"$TMP/want" && echo >>"$TMP/want"
        for how in '' --no-stream; do
            "$TMP/venv/bin/llm" -m here --key none $how -o max_tokens 40 -o seed 6 'The sea' >"$TMP/got" 2>&1
            same "llm_gets_the_text_of_run${how//-/_}" "$TMP/got" "$TMP/want"
        done
    else skip serve_llm "pip cannot install llm here"; fi
else skip serve_package "pip cannot install openai here"; fi
# The pages in a browser. UPDATE=1 keeps the picture.
if [ -z "${LONG:-}" ]; then skip serve_pages "a long form: LONG=1"
elif browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome); then
    python3 tests/cli/serve_page.py "$url" "$L" "$MODEL" "$browser" "$TMP/page.png" >"$TMP/asked" 2>&1; r=$?
    cat "$TMP/asked"
    ! grep -q '^FAIL' "$TMP/asked" || failed=1
    result serve_pages $r "$(tail -3 "$TMP/asked")"
    [ "${UPDATE:-}" != 1 ] || cp "$TMP/page.png" docs/serve.png
else skip serve_pages "no chromium is installed"; fi
"$L" cancel -q --all 2>/dev/null
check a_port_in_use 2 "port ${url##*:}: Address already in use" serve -m "$MODEL" --port "${url##*:}"
kill -TERM $server; wait $server; r=$?
[ $r = 0 ] && grep -q 'stopped by SIGTERM; no job is waiting$' "$TMP/log"
result sigterm_ends_an_idle_server $? "exit $r: $(tail -2 "$TMP/log")"

"$L" backup "$TMP/copy.db" 2>"$TMP/err"; grep -q 'longhand.db.files are not in it' "$TMP/err"
result backup_says_what_is_not_in_it $? "$(cat "$TMP/err")"
# pieces of uploads of a server that was killed
touch "$LONGHAND_DB.files/file-0123456789abcdef.part"
touch -d '1 hour ago' "$LONGHAND_DB.files/file-0123456789abcde1.part" \
    "$LONGHAND_DB.files/part-0123456789abcde1"

# with a key: every route but /health needs it, and no log has it
start --api-key-file "$TMP/key" --host 0.0.0.0
result a_server_with_a_key_starts $? "$(cat "$TMP/log")"
[ "$(ls "$LONGHAND_DB.files" | grep part)" = file-0123456789abcdef.part ]
result old_pieces_of_uploads_are_deleted $? "$(ls "$LONGHAND_DB.files")"
ask GET /v1/models >"$TMP/a"; grep -q '^401 .*the key is missing or wrong' "$TMP/a"
result no_key_is_401 $? "$(cat "$TMP/a")"
ask GET /v1/models "Authorization: Bearer secret-kez" | grep -q '^401'; result a_wrong_key_is_401 $? ""
ask GET /v1/models "Authorization: Bearer secret-key" | grep -q '^200'; result a_bearer_key $? ""
ask GET /v1/models "Authorization: Basic $(printf 'me:secret-key' | base64)" | grep -q '^200'
result a_basic_key $? ""
ask GET /v1/none | grep -q '^401'; result an_unknown_route_needs_the_key $? ""
! grep -rq 'secret-ke' "$TMP/log" "$TMP/listens" "$LONGHAND_DB"; result no_log_has_the_key $? ""
stop

export LONGHAND_DB=$TMP/memory.db; start --parallel 1 --max-memory 150M; asks memory; stop
export LONGHAND_DB=$TMP/rows.db; start; asks rows; stop
export LONGHAND_DB=$TMP/longhand.db
start --parallel 1 --max-connections 1; asks first; asks crowd; stop
export LONGHAND_MODEL=$MODEL; model='' start; SERVER=$server asks named,stops
wait $server; r=$?; unset LONGHAND_MODEL
[ $r = 75 ] && grep -q '^longhand: stopped by SIGTERM; 1 job is left, longhand serve continues it' "$TMP/log"
result sigterm_leaves_jobs_to_the_next_server $? "exit $r: $(tail -2 "$TMP/log")"
"$L" cancel -q --all

export LONGHAND_DB=$TMP/forget.db
: >"$LONGHAND_DB.files"                         # batches wait for their folder; requests are forgotten
start --forget; ask GET /v1/batches >"$TMP/a"
grep -q '^500.*"Not a directory"' "$TMP/a" && grep -q "$LONGHAND_DB.files.*: Not a directory" "$TMP/log"
result a_failure_names_no_path_of_the_store_to_clients $? "$(cat "$TMP/a" "$TMP/log")"
SERVER=$server asks forget; stop KILL; start --forget
left() { "$L" list --requests --json | python3 -c 'import json, sys
print(*[j["state"] for j in json.load(sys.stdin)["jobs"]])'; }
for i in $(seq $((100 * slower))); do [ "$(left)" = "running running" ] && break; sleep 0.1; done
[ "$(left)" = "running running" ]; result forget_removes_the_requests_of_a_dead_server $? "$(left)"
"$L" cancel -q --all; stop
export LONGHAND_DB=$TMP/kills.db; asks kills

[ -z "${LONG:-}" ] || { export LONGHAND_DB=$TMP/speed.db; start; SERVER=$server asks speed; stop; }
export LONGHAND_DB=$TMP/longhand.db

# keys of requests; a request without a key of a server that was killed is cancelled, one with a key goes on
start; asks keys
text=$("$L" run -q -m "$MODEL" -p Once -n 6000 -s 4 --ignore-eos --db "$TMP/run.db" | sha256sum)
cat >"$TMP/one.py" <<'PY'
import hashlib, http.client, json, sys, urllib.parse
u = urllib.parse.urlsplit(sys.argv[1])
c = http.client.HTTPConnection(u.hostname, u.port, timeout=300)
body = {"prompt": "Once", "max_tokens": 6000, "seed": 4, "ignore_eos": True}
key = {"Idempotency-Key": sys.argv[2]} if sys.argv[2] else {}
c.request("POST", "/v1/completions", json.dumps(body), key)
try:
    a = json.loads(c.getresponse().read())
    print(hashlib.sha256(a["choices"][0]["text"].encode()).hexdigest() + "  -")
except (OSError, http.client.HTTPException):
    print("lost")
PY
begun() { "$L" list --requests --json --columns job,state,tokens | python3 -c 'import json, sys
sys.exit(sum(j["state"] == "running" and j["tokens"] > 100 for j in json.load(sys.stdin)["jobs"]) < 2)'; }
python3 "$TMP/one.py" "$url" again >"$TMP/a" & one=$!
python3 "$TMP/one.py" "$url" "" >"$TMP/b" & two=$!
for i in $(seq $((200 * slower))); do begun && break; sleep 0.05; done
begun; result two_requests_are_written $? "$("$L" list)"
stop KILL; wait $one $two
[ "$(cat "$TMP/a" "$TMP/b")" = "lost
lost" ]; result a_killed_server_answers_nothing $? "$(cat "$TMP/a" "$TMP/b")"
port=${url##*:}; start; result a_server_starts_on_the_same_port $? "$(cat "$TMP/log")"; port=
python3 "$TMP/one.py" "$url" again >"$TMP/a"
[ "$(cat "$TMP/a")" = "$text" ]
result a_repeated_request_gets_the_whole_text_after_a_kill $? "$(cat "$TMP/a")"
# a batch that was accepted just before the kill is written by the next server
cat >"$TMP/batch.py" <<'PY'
import sys
sys.argv = ["serve.py", sys.argv[1], "", "", ""]
exec(open("tests/cli/serve.py").read().rsplit("\nfor part in", 1)[0])
line = {"custom_id": "a", "prompt": "Once", "max_tokens": 30, "seed": 4, "ignore_eos": True}
print(batch(upload(json.dumps(line).encode())[1]["id"])[1]["id"])
PY
id=$(python3 "$TMP/batch.py" "$url"); stop KILL; start
for i in $(seq $((100 * slower))); do
    ask GET "/v1/batches/$id" | grep -q '"status":"completed"' && break
    sleep 0.1
done
[ -n "$id" ] && [ "$("$L" text "@$id")" = "$("$L" run -q -m "$MODEL" -p Once -n 30 -s 4 --ignore-eos \
    --db "$TMP/run.db")" ]
result a_batch_survives_a_kill $? "$id $("$L" list)"
"$L" list --requests --state cancelled | grep -q 'cancelled .*/6000 .*Once$'
result a_request_without_a_key_is_cancelled_then $? "$("$L" list)"
stop
exit $failed
