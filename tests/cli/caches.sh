#!/bin/bash
# --model as a name: models in the caches of Hugging Face, llama.cpp, LM Studio and Ollama, which are folders
# of links to small models here. The order of the caches, what fits, and the names that list shows.
. tests/cli/lib.inc
L=$LONGHAND
DIRECTORY=$PWD/build/data/models/llama2-bf16 A=$PWD/tests/data/gguf/qwen35-grouped-bf16.gguf
B=$PWD/tests/data/gguf/qwen35moe-fused-bf16.gguf
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HOME XDG_CACHE_HOME LLAMA_CACHE OLLAMA_MODELS
export HOME=$TMP/home
mkdir "$HOME"
# put FILE PLACE: a link, with its folder
put() { mkdir -p "$(dirname "$2")" && ln -sfn "$1" "$2"; }
# means NAME FILE MODEL: --model MODEL is this file or directory.
means()
{
    "$L" inspect -m "$3" --json >"$TMP/inspect" 2>"$TMP/err"
    [ "$(realpath "$(sed 's/^{"model": "\([^"]*\)".*/\1/' "$TMP/inspect")" 2>&1)" = "$(realpath "$2")" ]
    result "$1" $? "$(head -c 200 "$TMP/inspect"; cat "$TMP/err")"
}
check nothing_is_downloaded 2 "^longhand: --model: 'org/tiny' is not a file or directory here, and no cache.*\
longhand downloads nothing" inspect -m org/tiny

# ---- Hugging Face ----
HUB=$HOME/.cache/huggingface/hub R=$HOME/.cache/huggingface/hub/models--org--tiny
put "$DIRECTORY" "$R/snapshots/00aa"
means hub_without_refs_has_its_only_snapshot "$DIRECTORY" org/tiny
check caches_that_exist_are_named 2 "not the name of a model in $HUB; longhand downloads" inspect -m org/other
mkdir "$R/snapshots/11bb"; cp "$DIRECTORY/config.json" "$R/snapshots/11bb"
means a_snapshot_without_weights_does_not_count "$DIRECTORY" org/tiny
put "$PWD/build/data/models/qwen3-bf16" "$R/snapshots/22cc"
check two_snapshots_without_refs 2 "'org/tiny' fits several models in $R/snapshots: 00aa, 22cc; name" \
    inspect -m org/tiny
mkdir "$R/refs"; printf 22cc >"$R/refs/main"
means refs_name_the_snapshot build/data/models/qwen3-bf16 org/tiny
printf 11bb >"$R/refs/main"; rm "$R/snapshots/22cc"
means another_snapshot_where_refs_has_no_weights "$DIRECTORY" org/tiny
printf '../../x' >"$R/refs/main"
means refs_that_are_no_hash_do_not_count "$DIRECTORY" org/tiny
rm "$R/snapshots/00aa"; printf 11bb >"$R/refs/main"
check what_is_missing_is_named 2 "11bb.*model.safetensors" run -m org/tiny -p x -n 1
put "$DIRECTORY" "$R/snapshots/00aa"; printf 00aa >"$R/refs/main"
means the_repository_as_a_path "$DIRECTORY" "$R"

G=$HUB/models--org--tiny-GGUF/snapshots/33dd
put "$A" "$G/tiny-Q4_K_M.gguf"
python3 -c 'import sys
text = lambda s: len(s).to_bytes(8, "little") + s
head = b"GGUF\3\0\0\0" + bytes(8) + (1).to_bytes(8, "little")
data = head + text(b"general.type") + b"\x08\0\0\0" + text(b"mmproj")
sys.stdout.buffer.write(data)' >"$G/mmproj-tiny-f16.gguf"
means the_only_file_of_a_repository "$A" org/tiny-GGUF
put "$B" "$G/Q8_0/tiny-Q8_0.gguf"
check two_files_of_a_repository 2 \
    "fits several models in .*: 33dd/Q8_0/tiny-Q8_0.gguf, 33dd/tiny-Q4_K_M.gguf;.*add :QUANT" \
    inspect -m org/tiny-GGUF
means quant_chooses_a_file "$B" org/tiny-GGUF:q8_0
means quant_chooses_the_other_file "$A" org/tiny-GGUF:Q4_K_M
check quant_is_a_whole_word 2 "no 'Q4_K' is in .*; it has .*tiny-Q4_K_M.gguf" inspect -m org/tiny-GGUF:Q4_K
means hf_is_an_alias "$A" org/tiny-GGUF:Q4_K_M
"$L" inspect -hf org/tiny-GGUF:Q8_0 --json >"$TMP/a" 2>"$TMP/err"; grep -q '"qwen3_5_moe"' "$TMP/a"
result hf_takes_a_name $? "$(cat "$TMP/a" "$TMP/err")"
for i in HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HOME XDG_CACHE_HOME LLAMA_CACHE; do
    case $i in HF_HOME) sub=hub/ ;; XDG_CACHE_HOME) sub=huggingface/hub/ ;; *) sub= ;; esac
    put "$B" "$TMP/$i/${sub}models--org--tiny-GGUF/snapshots/44ee/$i.gguf"
done
all=$(for i in HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HOME XDG_CACHE_HOME LLAMA_CACHE; do
    echo "$i=$TMP/$i"; done)
for i in HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HOME XDG_CACHE_HOME; do
    env $all "$L" inspect -m org/tiny-GGUF --json 2>&1 | grep -q "/$i/"
    result "$i"_comes_first $?; all=$(grep -v "^$i=" <<<"$all")
done

# ---- llama.cpp, LM Studio ----
put "$A" "$TMP/llama/org_small_small-Q4_0.gguf"; put "$B" "$TMP/llama/org_small_small-Q8_0.gguf"
LLAMA_CACHE=$TMP/llama means llama_cpp_has_files "$A" org/small:Q4_0
LLAMA_CACHE=$TMP/llama check llama_cpp_has_two 2 "in $TMP/llama: org_small_small-Q4_0.gguf, org_small" \
    inspect -m org/small
put "$A" "$TMP/llama/models--org--new/snapshots/44ee/new-Q4_0.gguf"
LLAMA_CACHE=$TMP/llama means llama_cpp_has_the_layout_of_the_hub "$A" org/new
put "$A" "$HOME/.cache/llama.cpp/org_mini_mini-Q4_0.gguf"
means llama_cpp_has_a_default_place "$A" org/mini
put "$B" "$HOME/.lmstudio/models/org/lm/lm-Q8_0.gguf"
means lm_studio_has_folders "$B" org/lm
means path_comes_before_names "$DIRECTORY" "$(realpath --relative-to=. "$DIRECTORY")"

# ---- split files ----
for i in 1 2 3; do put "$A" "$TMP/split/part-0000$i-of-00003.gguf"; done
"$L" inspect -m "$TMP/split" >"$TMP/inspect" 2>&1
grep -q "^model  *$TMP/split/part-00001-of-00003.gguf$" "$TMP/inspect"
result a_split_set_is_one_model $? "$(cat "$TMP/inspect")"

# ---- Ollama ----
O=$HOME/.ollama/models
sha=$(printf %064d 7)
# manifest PLACE LAYERS
manifest() { mkdir -p "$(dirname "$O/manifests/$1")"; echo "{\"layers\": [$2]}" >"$O/manifests/$1"; }
layer() { echo "{\"mediaType\": \"application/vnd.ollama.image.$1\", \"digest\": \"sha256:$2\"}"; }
put "$A" "$O/blobs/sha256-$sha"
other=$(printf %064d 8)
manifest registry.ollama.ai/library/tiny/0.1b "$(layer template "$other"), $(layer model "$sha")"
means ollama_has_the_only_tag "$A" tiny
means ollama_has_tags "$A" tiny:0.1b
put "$B" "$O/blobs/sha256-$other"
manifest registry.ollama.ai/library/tiny/8b "$(layer model "$other")"
means ollama_has_other_tags "$B" tiny:8b
check ollama_has_two_tags 2 "'tiny' fits several models in .*/library/tiny: 0.1b, 8b; name" inspect -m tiny
manifest registry.ollama.ai/library/tiny/latest "$(layer model "$other")"
means ollama_has_a_latest_tag "$B" tiny
manifest hf.co/org/pulled/Q4_0 "$(layer model "$sha")"
means ollama_has_names_of_hosts "$A" hf.co/org/pulled:Q4_0
check ollama_lacks_a_tag 2 "'tiny:9b': no '9b' is in .*/library/tiny; it has latest" inspect -m tiny:9b
manifest registry.ollama.ai/library/adapted/latest "$(layer model "$sha"), $(layer adapter "$other")"
check ollama_with_an_adapter 2 "adapted/latest: the model has an adapter" inspect -m adapted
manifest registry.ollama.ai/library/broken/latest "$(layer model ../../etc)"
check ollama_with_a_bad_digest 2 "broken/latest: no layer of type .*image.model with a SHA-256" \
    inspect -m broken
echo '{' >"$O/manifests/registry.ollama.ai/library/broken/latest"
check ollama_with_bad_json 2 "broken/latest: " inspect -m broken
OLLAMA_MODELS=$TMP/none means an_empty_cache_is_passed_over "$B" tiny:8b

# ---- names in the list ----
rm "$R/snapshots/00aa"; mkdir "$R/snapshots/00aa"; ln -s "$DIRECTORY"/* "$R/snapshots/00aa"
for m in org/tiny org/tiny-GGUF:Q4_K_M tiny:0.1b hf.co/org/pulled:Q4_0 org/lm "$DIRECTORY"; do
    "$L" submit -m "$m" -p "a" -n 2 -s 1 >/dev/null 2>"$TMP/err" || cat "$TMP/err"
done
"$L" list --columns model | tail -n +3 | sed 's/ *$//' >"$TMP/names"
printf '%s\n' org/tiny tiny-Q4_K_M.gguf hf.co/org/pulled:Q4_0 hf.co/org/pulled:Q4_0 lm-Q8_0.gguf \
    llama2-bf16 >"$TMP/want"
same list_shows_names "$TMP/want" "$TMP/names"
rm -r "$O/manifests"
"$L" list 3 --columns model | grep -q "^sha256-$sha"
result list_without_manifests_shows_the_file $? "$("$L" list 3 --columns model)"
"$L" work -q 2>"$TMP/err"; result jobs_of_names_are_written $? "$(cat "$TMP/err")"
exit $failed
