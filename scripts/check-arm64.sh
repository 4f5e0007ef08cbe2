#!/bin/bash
# Compiles the engine for Arm64 and runs the tests of operations and the golden hashes under qemu: the plain C
# twin gives the same bits there. Needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user (Debian's
# names); without them the script says so and exits 0. It omits the parts that need libraries for Arm64 (the
# store, the commands). An emulated fused multiply-add takes about 100 ns, so the texts and the attention
# tests run only with --all, in about an hour.
#     scripts/check-arm64.sh [--all] [BUILD_DIR]
set -u
tests="test_ops test_kv test_pool test_coin test_op_matmul test_golden" golden=--logits
[ "${1:-}" = --all ] && { tests="$tests test_op_attn test_op_attn_reference"; golden=; shift; }
build=${1:-build/arm64}
cc=aarch64-linux-gnu-gcc
skip() { echo "skip check-arm64 ($1)"; exit 0; }
command -v $cc >/dev/null ||
    skip "no $cc: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) ||
    skip "no qemu-aarch64: apt-get install qemu-user"
echo 'int main(void) { return 0; }' | $cc -static -x c - -o /dev/null 2>/dev/null ||
    skip "no C library for Arm64: apt-get install libc6-dev-arm64-cross"

warn="-Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith"
flags="-std=c11 -D_GNU_SOURCE -g -O2 -ffp-contract=off $warn -I."
mkdir -p "$build" || exit 1
rm -f "$build"/*.o "$build"/engine.a
objects=
for f in $(find kernels kvmgr ngram src -name '*.c' | sort); do
    [ "$f" != src/cli/main.c ] || continue
    o=$build/$(echo "$f" | tr / _).o
    extra=
    case $f in kernels/*) extra="-O3 -fno-math-errno -fno-trapping-math" ;; esac
    $cc $flags $extra -c "$f" -o "$o" || { echo "FAIL check-arm64 ($f does not compile)"; exit 1; }
    objects="$objects $o"
done
aarch64-linux-gnu-ar rcs "$build/engine.a" $objects || exit 1

failed=0
for t in $tests; do
    [ -f tests/$t.c ] || continue
    if ! $cc $flags -static tests/$t.c "$build/engine.a" -lm -lpthread -o "$build/$t"; then
        echo "FAIL check-arm64 ($t does not link)"
        failed=1
        continue
    fi
    echo "== $t on Arm64"
    [ $t = test_golden ] && arg=$golden || arg=
    "$qemu" "$build/$t" $arg || failed=1
done
[ $failed = 0 ] && echo "ok check-arm64" || echo "FAIL check-arm64"
exit $failed
