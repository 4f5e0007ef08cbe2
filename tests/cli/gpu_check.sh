#!/bin/bash
# scripts/gpu-check is skipped without a GPU; its bundle runs in a root that has only a C library and a shell.
# With LONG=1 its checks pass on the emulated GPU, and one failing check fails it.
. tests/cli/lib.inc
B=$(dirname "$LONGHAND")
T="test_device test_device_every test_device_rows test_device_sample test_device_r1 test_device_shapes \
test_device_models test_graphs test_decoder_image test_train_gpu"
for t in longhand longhand-test labbench $T; do
    [ -x "$B/$t" ] || { skip gpu_check "the test programs are not built"; exit $failed; }
done
# The last line says why there is no GPU, and nothing was checked.
is_skipped() { [ $r = 0 ] && tail -1 "$1" | grep -q '^skipped: .' && grep -q '^gpu  *skipped ' "$1" &&
    ! grep -q ' ok ' "$1"; }
CUDA_VISIBLE_DEVICES= scripts/gpu-check "$B" >"$TMP/out" 2>&1; r=$?
is_skipped "$TMP/out"; result gpu_check_is_skipped_without_a_gpu $? "exit $r: $(tail -2 "$TMP/out")"
for o in --nonsense --out "--part 4" "--minutes 0"; do
    scripts/gpu-check $o >"$TMP/out" 2>"$TMP/err"; r=$?
    [ $r = 2 ] && [ "$(wc -l <"$TMP/err")" = 1 ]; result "gpu_check_refuses_${o// /_}" $? "exit $r"
done

# The bundle: at most 60 MiB. The new root has bash, the C library, and nothing else.
root=$TMP/root
scripts/gpu-check --bundle "$TMP/bundle.tar.gz" "$B" >"$TMP/out" 2>&1; r=$?
[ $r = 0 ] && [ "$(stat -c %s "$TMP/bundle.tar.gz")" -le $((60 << 20)) ]
result gpu_check_packs_a_bundle $? "exit $r: $(tail -2 "$TMP/out")"
mkdir -p "$root/bin" && tar xzf "$TMP/bundle.tar.gz" -C "$root" && cp "$(command -v bash)" "$root/bin"
# Libraries of bash and, of those of longhand, the parts of the C library.
{
    ldd "$root/bin/bash"
    ldd "$B/longhand" | grep -E '^[[:space:]]*(libc|libm|libpthread|libdl|librt)\.so'
} | grep -o '/[^ ]*' | sort -u | while read -r f; do
    mkdir -p "$root${f%/*}" && cp -L "$f" "$root$f"
done
enter=chroot
[ "$(id -u)" = 0 ] || enter="unshare -r chroot"
in_root() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin $enter "$root" /bin/bash "$@"; }
if ! in_root -c : 2>"$TMP/err"; then
    skip gpu_check_bundle_runs_in_an_empty_root "$(head -1 "$TMP/err")"
elif [ $slower != 1 ]; then
    skip gpu_check_bundle_runs_in_an_empty_root "a sanitizer needs /proc"
else
    in_root /gpu-check/scripts/gpu-check >"$TMP/out" 2>&1; r=$?
    is_skipped "$TMP/out" && [ "$(wc -l <"$TMP/out")" = 3 ]
    result gpu_check_bundle_runs_in_an_empty_root $? "exit $r: $(tail -3 "$TMP/out")"
    # Without the libraries of the bundle it does not: the test sees what is missing.
    rm -r "$root/gpu-check/lib"
    in_root /gpu-check/scripts/gpu-check >"$TMP/out" 2>&1; r=$?
    [ $r = 1 ] && grep -q 'libmicrohttpd\|libsqlite3' "$TMP/out"
    result gpu_check_bundle_needs_its_libraries $? "exit $r: $(tail -3 "$TMP/out")"
fi
rm -rf "$root" "$TMP/bundle.tar.gz"

# Parts 2 and 3 on a machine that has a GPU and the tools, all of which are played: what is called, what the
# table says, what is kept.
P=$TMP/played
mkdir -p "$P/scripts" "$P/build/cc" "$P/bin"
cp scripts/gpu-check "$P/scripts" && echo 'CU_VARIANTS ?= EARLY' >"$P/cuda.mk"
played() { { echo '#!/bin/bash'; cat; } >"$P/$1"; chmod +x "$P/$1"; }
played build/cc/longhand <<'END'
printf 'cuda: sm_90a\ngpus: 1\n'
END
played build/cc/labbench <<'END'
echo "cuda:0 played (cuda-sm_90a-1): copies inside it 4000 GB/s"
for d in 0 4096; do echo "8B random decode $d 1 ${LONGHAND_CUDA_IMAGES:+2.0000 }4.0000"; done
echo "8B qkv 0 1 ${LONGHAND_CUDA_IMAGES:+1}10.0 50.3 4000.0 100.0%"
END
for t in $T; do echo 'echo ok one' | played "build/cc/$t"; done
played bin/nvcc <<'END'
[[ "$*" == *-arch=sm_90a*-DLH_VARIANT_EARLY* ]] && touch "${@: -1}"
END
played bin/ncu <<'END'
[[ "$*" == *"--profile-from-start off --csv"*"--points profile,depth="* ]] || exit 1
[ "$LONGHAND_CUDA_OFF" = graphs,overlap ] || exit 1
while [ "$1" != --log-file ]; do shift; done
printf '"ID","Kernel Name"\n"0","kernel_embed"\n"1","kernel_rmsnorm"\n' >"$2"
END
played bin/compute-sanitizer <<'END'
[ "$2" = racecheck ] && { echo "========= RACECHECK SUMMARY: 1 hazard"; exit 9; }
echo "========= ERROR SUMMARY: 0 errors"
END
PATH=$P/bin:$PATH "$P/scripts/gpu-check" --part 2 --out "$P/kept" >"$TMP/out" 2>&1; r=$?
[ $r = 1 ] && tail -1 "$TMP/out" | grep -q '^FAILED: 1 of 6 checks$' &&
    grep -q '^compute-sanitizer memcheck  *ok  *ERROR SUMMARY: 0 errors' "$TMP/out" &&
    grep -q '^compute-sanitizer racecheck  *FAILED  *exit code 9' "$TMP/out" &&
    grep -q '^compute-sanitizer synccheck  *ok' "$TMP/out" &&
    grep -q '^ncu at 4096 tokens  *ok  *2 kernels' "$TMP/out" && [ -s "$P/kept/ncu-100000.csv" ]
result gpu_check_calls_sanitizers_and_ncu $? "exit $r: $(cat "$TMP/out")"
PATH=$P/bin:$PATH "$P/scripts/gpu-check" --part 3 --out "$P/kept" >"$TMP/out" 2>&1; r=$?
[ $r = 0 ] && tail -1 "$TMP/out" | grep -q '^ok: 3 checks, 0 skipped$' &&
    grep -qE '^decode 4096 1  *4\.0000  *2\.0000  *0\.500$' "$P/kept/variants.txt" &&
    grep -qE '^8B qkv 0 1  *0\.0100  *0\.1100 *11\.000$' "$P/kept/variants.txt" &&
    [ -e "$P/build/cu/variants/EARLY/sm_90a.cubin" ] && [ -s "$P/kept/variant-EARLY-3.txt" ]
result gpu_check_compares_variants $? "exit $r: $(cat "$TMP/out")"

if [ -z "${LONG:-}" ]; then skip gpu_check_emulated "LONG=1 runs it"; exit $failed; fi
scripts/gpu-check --emulated --out "$TMP/kept" "$B" >"$TMP/out" 2>&1; r=$?
[ $r = 0 ] && tail -1 "$TMP/out" | grep -q '^ok: [0-9]* checks, [0-3] skipped$' &&
    grep -q '^tiny random  *rows ' "$TMP/out" && grep -q '^comparison of variants  *ok ' "$TMP/out"
result gpu_check_emulated $? "exit $r: $(tail -3 "$TMP/out")"
python3 - "$TMP/kept" <<'END'
import glob, json, os, sys
out = sys.argv[1]
bench = {os.path.basename(f): json.load(open(f)) for f in glob.glob(out + "/*.json")}
assert len(bench["bench-kernels.json"]["kernels"]) > 20 and bench["bench-passes.json"]["models"]
assert len(bench["bench-modes.json"]["models"]) == 3
assert {"text-0-none.json", "text-0-auto.json", "variant-program-1.json"} <= set(bench)
names = os.listdir(out)
assert {"table.txt", "version.txt", "tools.txt", "variants.txt", "texts.log"} <= set(names)
assert sum(n.endswith(".log") for n in names) > 12
END
result gpu_check_keeps_its_logs $? "$(ls "$TMP/kept")"
mkdir "$TMP/broken"
for t in longhand longhand-test labbench $T; do
    [ $t = test_device ] || ln -s "$(realpath "$B/$t")" "$TMP/broken/$t"
done
printf '#!/bin/sh\necho ok one\necho FAIL two\nexit 1\n' >"$TMP/broken/test_device"
chmod +x "$TMP/broken/test_device"
scripts/gpu-check --emulated --part 1 "$TMP/broken" >"$TMP/out" 2>&1; r=$?
[ $r = 1 ] && tail -1 "$TMP/out" | grep -q '^FAILED: 1 of ' && grep -q '^products.*FAILED *1 of 2' "$TMP/out"
result gpu_check_fails_when_a_check_does $? "exit $r: $(tail -3 "$TMP/out")"
exit $failed
