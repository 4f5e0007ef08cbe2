#!/bin/bash
# Nothing is taken in silence: tools without a place in the template, lists as JSON inside a string, origins,
# options of drafting that cannot apply, and the options of llama.cpp.
# tests/cli/edges_silence.py asks servers.
. tests/cli/lib.inc
L=$LONGHAND
R=(run -m "$MODEL" -p x -n 3 --seed 1)

# ---- options of llama.cpp: names of its command line and its server; = after one that has a value ----
common="
    --version -cl --cache-list --completion-bash --server-base= --verbose-prompt --display-prompt
    --no-display-prompt -co= --color= -t= --threads= -tb= --threads-batch= -C= --cpu-mask= -Cr=
    --cpu-range= --cpu-strict= --prio= --poll= -Cb= --cpu-mask-batch= -Crb= --cpu-range-batch=
    --cpu-strict-batch= --prio-batch= --poll-batch= -c= --ctx-size= -n= --predict= --n-predict= -b=
    --batch-size= -ub= --ubatch-size= --keep= --swa-full -ctxcp= --ctx-checkpoints= --swa-checkpoints=
    -cram= --cache-ram= --context-shift --no-context-shift -fa= --flash-attn= -p= --prompt= -sys=
    --system-prompt= --perf --no-perf --show-timings --no-show-timings -f= --file= -sysf=
    --system-prompt-file= -bf= --binary-file= -e --escape --no-escape -ptc= --print-token-count=
    --prompt-cache= --prompt-cache-all --prompt-cache-ro -r= --reverse-prompt= -sp --special -cnv
    --conversation -no-cnv --no-conversation -st --single-turn -i --interactive -if --interactive-first
    -mli --multiline-input --in-prefix-bos --in-prefix= --in-suffix= --warmup --no-warmup --samplers=
    -s= --seed= --sampler-seq= --sampling-seq= --ignore-eos --temp= --temperature= --top-k= --top-p=
    --min-p= --top-nsigma= --top-n-sigma= --xtc-probability= --xtc-threshold= --typical= --typical-p=
    --repeat-last-n= --repeat-penalty= --presence-penalty= --frequency-penalty= --dry-multiplier=
    --dry-base= --dry-allowed-length= --dry-penalty-last-n= --dry-sequence-breaker= --adaptive-target=
    --adaptive-decay= --dynatemp-range= --dynatemp-exp= --mirostat= --mirostat-lr= --mirostat-ent= -l=
    --logit-bias= --grammar= --grammar-file= -j= --json-schema= -jf= --json-schema-file= -bs
    --backend-sampling --rope-scaling= --rope-scale= --rope-freq-base= --rope-freq-scale=
    --yarn-orig-ctx= --yarn-ext-factor= --yarn-attn-factor= --yarn-beta-slow= --yarn-beta-fast= -gan=
    --grp-attn-n= -gaw= --grp-attn-w= -kvo --kv-offload -nkvo --no-kv-offload --repack -nr --no-repack
    --no-host -ctk= --cache-type-k= -ctv= --cache-type-v= -dt= --defrag-thold= -np= --parallel= -mm=
    --mmproj= -mmu= --mmproj-url= --mmproj-auto --no-mmproj --no-mmproj-auto --mmproj-offload
    --no-mmproj-offload --image= --audio= --video= --image-min-tokens= --image-max-tokens= --video-fps=
    --video-timestamp-interval= --video-ffmpeg-dir= --rpc= -lm= --load-mode= -lzm= --lazy-mode= --numa=
    -dev= --device= --list-devices -ot= --override-tensor= -cmoe --cpu-moe -ncmoe= --n-cpu-moe= -ncffn=
    --n-cpu-ffn= -ngl= --gpu-layers= --n-gpu-layers= -sm= --split-mode= -ts= --tensor-split= -mg=
    --main-gpu= -fit= --fit= -fitt= --fit-target= -fitc= --fit-ctx= --check-tensors --override-kv=
    --op-offload --no-op-offload --lora= --lora-scaled= --control-vector= --control-vector-scaled=
    --control-vector-layer-range= -mu= --model-url= -dr= --docker-repo= -hff= --hf-file= -hft=
    --hf-token= -o= --output= --output-file= --chat-template-kwargs= --jinja --no-jinja
    --reasoning-format= -rea= --reasoning= --reasoning-effort= --reasoning-budget=
    --reasoning-budget-message= --reasoning-preserve --no-reasoning-preserve --chat-template=
    --chat-template-file= --skip-chat-parsing --no-skip-chat-parsing --simple-io --log-disable
    --log-file= --log-jsonl --no-log-jsonl --log-prompts-dir= --log-colors= -v --verbose --log-verbose
    --offline -lv= --verbosity= --log-verbosity= --log-prefix --no-log-prefix --log-timestamps
    --no-log-timestamps --spec-draft-hf= -hfd= -hfrd= --hf-repo-draft= --spec-draft-threads= -td=
    --threads-draft= --spec-draft-threads-batch= -tbd= --threads-batch-draft= --spec-draft-cpu-mask=
    -Cd= --cpu-mask-draft= --spec-draft-cpu-range= -Crd= --cpu-range-draft= --spec-draft-cpu-strict=
    --cpu-strict-draft= --spec-draft-prio= --prio-draft= --spec-draft-poll= --poll-draft=
    --spec-draft-cpu-mask-batch= -Cbd= --cpu-mask-batch-draft= --spec-draft-cpu-strict-batch=
    --cpu-strict-batch-draft= --spec-draft-prio-batch= --prio-batch-draft= --spec-draft-poll-batch=
    --poll-batch-draft= --spec-draft-type-k= -ctkd= --cache-type-k-draft= --spec-draft-type-v= -ctvd=
    --cache-type-v-draft= --spec-draft-override-tensor= -otd= --override-tensor-draft=
    --spec-draft-cpu-moe -cmoed --cpu-moe-draft --spec-draft-n-cpu-moe= --spec-draft-ncmoe= -ncmoed=
    --n-cpu-moe-draft= --spec-draft-n-max= --spec-draft-n-min= --spec-synth-len= --spec-synth-rates=
    --spec-draft-p-split= --draft-p-split= --spec-draft-p-min= --draft-p-min=
    --spec-draft-backend-sampling --no-spec-draft-backend-sampling --spec-draft-device= -devd=
    --device-draft= --spec-draft-ngl= -ngld= --gpu-layers-draft= --n-gpu-layers-draft=
    --spec-draft-model= -md= --model-draft= --spec-type --spec-ngram-mod-n-min= --spec-ngram-mod-n-max=
    --spec-ngram-mod-n-match= --spec-ngram-simple-size-n= --spec-ngram-simple-size-m=
    --spec-ngram-simple-min-hits= --spec-ngram-map-k-size-n= --spec-ngram-map-k-size-m=
    --spec-ngram-map-k-min-hits= --spec-ngram-map-k4v-size-n= --spec-ngram-map-k4v-size-m=
    --spec-ngram-map-k4v-min-hits= --draft= --draft-n= --draft-max= --draft-min= --draft-n-min=
    --gpt-oss-20b-default --gpt-oss-120b-default --vision-gemma-4b-default --vision-gemma-12b-default
    --spec-default"
server="
    -lcs= --lookup-cache-static= -lcd= --lookup-cache-dynamic= --kv-unified-per-slot= -cms=
    --checkpoint-min-step= -kvu --kv-unified -no-kvu --no-kv-unified --cache-idle-slots
    --no-cache-idle-slots --spm-infill --pooling= -np= --parallel= -cb --cont-batching -nocb
    --no-cont-batching --mtmd-batch-max-tokens= -a= --alias= --tags= --embd-normalize= --host= --port=
    --reuse-port --path= --cors-origins= --cors-methods= --cors-headers= --cors-credentials
    --no-cors-credentials --api-prefix= --ui-config= --webui-config= --ui-config-file=
    --webui-config-file= --ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy
    --tools= --tools-runtime= --mcp-servers-config= --mcp-servers-json= -ag --agent -no-ag --no-agent
    --ui --webui --no-ui --no-webui --embedding --embeddings --rerank --reranking --api-key=
    --api-key-file= --ssl-key-file= --ssl-cert-file= -to= --timeout= --sse-ping-interval=
    --threads-http= --cache-prompt --no-cache-prompt --cache-reuse= --metrics --props --slots --no-slots
    --slot-save-path= --media-path= --models-dir= --models-preset= --models-max= --models-autoload
    --no-models-autoload --prefill-assistant --no-prefill-assistant -sps= --slot-prompt-similarity=
    --lora-init-without-apply --sleep-idle-seconds= --spec-ngram-size-n= --spec-ngram-size-m=
    --spec-ngram-min-hits= --embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default
    --fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec --fim-qwen-30b-default -mmdev=
    --mmproj-device="
names() # VERB NAMES..: prints those that are only unknown, or read as something else
{
    local verb=$1 name said
    local only="unknown option|is one word too many|takes no value|^longhand: -[a-z]: '"
    shift
    for name; do
        case $name in
        *=) said=$("$L" "$verb" "${name%=}" 1 2>&1 >/dev/null </dev/null) ;;
        *) said=$("$L" "$verb" "$name" 2>&1 >/dev/null </dev/null) ;;
        esac
        if [[ $said =~ $only ]]; then echo "$name: $said"; fi
    done
}
names run $common >"$TMP/a"; names serve $server >"$TMP/b"
[ $(echo $common $server | wc -w) -gt 400 ] && [ ! -s "$TMP/a" ] && [ ! -s "$TMP/b" ]
result no_option_of_llama_cpp_is_only_unknown $? "$(head -c 900 "$TMP/a" "$TMP/b")"
"$L" "${R[@]}" -q >"$TMP/plain" 2>/dev/null
harmless() # NAME ARGS..: the text is as without ARGS, one line says so
{
    local name=$1
    shift
    "$L" "${R[@]}" "$@" >"$TMP/out" 2>"$TMP/err" && cmp -s "$TMP/out" "$TMP/plain" &&
        [ "$(grep -c 'changes nothing: ' "$TMP/err")" = 1 ]
    result "$name" $? "$(cat "$TMP/err")"
}
harmless harmless_options -b 512 -fa --no-mmap --mlock -lv -1 --jinja --no-warmup -no-cnv --color
harmless harmless_options_with_words -fa on --color off -fit off --flash-attn=on --keep 10 --keep=-1
check one_text_at_once 0 '^job: ' "${R[@]}" -np 1
check a_word_is_no_value 2 "'README.md' is one word too many" "${R[@]}" -fa README.md
check an_option_is_no_value 2 "tokens: '0' is not|-n: '0' is not" run -m "$MODEL" -p x -b -n 0
check a_file_of_the_system_message 2 "no option '-sysf': --chat --system" "${R[@]}" -sysf x
check keep_without_a_number_is_longhands 2 '^longhand: run: --keep needs --batch' "${R[@]}" --keep
check harmless_options_do_not_hide_others 2 "^longhand: run: there is no option '-ngl'" "${R[@]}" --mlock \
    -ngl 9
check an_unknown_short_option_is_whole 2 "unknown option '-zebra'; see" "${R[@]}" -zebra
"$L" "${R[@]}" --progress json --mlock 2>&1 >/dev/null | grep -q '"message": *"'"'--mlock' changes nothing"
result harmless_options_are_notices_of_json $?
"$L" score -m "$MODEL" -fa README.md >/dev/null 2>&1; result a_file_after_an_option_without_value $?

# ---- options of drafting ----
drafts() # NAME PATTERN ARGS..: one line that says what changes nothing, exit 0
{
    local name=$1 pattern=$2
    shift 2
    check "$name" 0 "$pattern" "${R[@]}" "$@"
    [ "$(grep -c 'this changes nothing' "$TMP/err")" = 1 ]
    result "${name}_in_one_line" $? "$(cat "$TMP/err")"
}
drafts a_tree_of_no_drafter "^with --drafter none this changes nothing: --tree .for any drafter.$" \
    --drafter none --tree 3,3
drafts a_cache_of_suffixes "suffix this changes nothing: --kv-budget .for partial, model:DIR, mtp.$" \
    --drafter suffix --kv-budget 64
drafts all_that_suffixes_lack \
    "suffix .*--ngram-k .*--draft-passes .*--kv-sinks .*--kv-policy .*--draft-weights" \
    --drafter suffix --ngram-k 3 --draft-passes 2 --kv-sinks 4 --kv-policy window --draft-weights model
drafts a_preset_without_its_drafter 'suffix .*--draft-passes .*--kv-policy' --drafter suffix --preset magicdec
"$L" "${R[@]}" --drafter ngram --tree 2 --ngram-k 3 2>"$TMP/err" >/dev/null
! grep -q 'changes nothing' "$TMP/err"; result what_applies_is_not_named $? "$(cat "$TMP/err")"
"$L" submit -m "$MODEL" -p x -n 3 --grid drafter=none,suffix --tree 2 --name grid 2>"$TMP/err" &&
    [ "$(grep -c 'changes nothing' "$TMP/err")" = 1 ] &&
    grep -q '^drafter=none: with --drafter none this changes nothing: --tree' "$TMP/err"
result a_combination_of_a_grid_is_named $? "$(cat "$TMP/err")"
printf '{"prompt": "x"}\n{"prompt": "y"}\n' >"$TMP/two.jsonl"
"$L" submit -m "$MODEL" -n 3 --batch "$TMP/two.jsonl" --drafter none --kv-budget 64 2>"$TMP/err" &&
    [ "$(grep -c 'changes nothing' "$TMP/err")" = 1 ]
result a_batch_says_it_once $? "$(cat "$TMP/err")"

# ---- tools, and lists as JSON inside a string ----
line() # JSON: the members of a body of a chat, as the only line of a batch
{
    printf '{"messages": [{"role": "user", "content": "a"}], %s}\n' "$1" >"$TMP/line.jsonl"
}
tool='"tools": [{"type": "function", "function": {"name": "f"}}]'
for field in "$tool" '"documents": [{"text": "d"}]'; do
    line "$field"
    check "a_template_without_a_place_for_${field:1:5}" 2 \
        'line 1: the chat template has no place for (tools|documents): the model would not see them$' \
        submit -m "$MODEL" -n 3 --chat-template chatml --batch "$TMP/line.jsonl"
done
echo '[{"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}]' >"$TMP/m.json"
check calls_without_a_place_for_them 2 '^longhand: the chat template has no place for tool_calls' run \
    -m "$MODEL" -n 3 --chat-template chatml --messages "$TMP/m.json"
line "$tool"
"$L" submit -m "$MODEL" -n 3 --chat-template '{{ tools[0].function.name }}{{ messages }}' --name tools \
    --batch "$TMP/line.jsonl" 2>"$TMP/err" && "$L" work -q && "$L" text @tools --with-prompt | grep -q '^f'
result tools_with_a_place_are_rendered $? "$(cat "$TMP/err")"
"$L" help batch | grep -q 'tools .*names it; calls come back as the model wrote them'
result the_help_says_how_calls_come_back $?
python3 tests/cli/edges_silence.py "$L" "$MODEL" "$TMP"; result edges_silence_of_servers $?
exit $failed
