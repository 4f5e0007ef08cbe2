#!/bin/sh
# The change of perplexity, in per cent of int16's, under forms of the KV cache (kv_forms.c):
#   tests/make/kv_forms.sh MODEL FORM.. -- TEXT..        from the top folder, after make
set -u
program=${TMPDIR:-/tmp}/longhand-kv-forms build=${BUILD:-build/cc} model=$1 forms=
shift
while [ "$1" != -- ]; do forms="$forms $1"; shift; done
shift
cc -std=c11 -D_GNU_SOURCE -O2 -I. -Wl,--wrap=kv_store tests/make/kv_forms.c $build/src/cli/main.c.o \
    $build/liblonghand.a -lmicrohttpd -lsqlite3 -lz -lm -lpthread -ldl -o "$program" || exit 1
nll()
{
    for text; do KV_FORM=$form "$program" score -m "$model" "$text" --json -q; done |
        awk -F'[:,}]' '{ n += $4; nll += $6 } END { printf "%.9f", nll / n }'
}
form=0,0,0,0,0
base=$(nll "$@")
for form in $forms; do
    echo "$form $(nll "$@") $base" | awk '{ printf "%-12s %+.3f\n", $1, 100 * (exp($2 - $3) - 1) }'
done
