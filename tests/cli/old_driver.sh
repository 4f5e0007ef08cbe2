#!/bin/bash
# A machine whose NVIDIA driver is too old for the kernels: a library calls itself libcuda.so.1 and says so.
. tests/cli/lib.inc
L=$LONGHAND
names="one_line_names_both_versions auto_takes_the_cpu a_chosen_gpu_is_refused"
why=
"$L" --version | grep -q '^cuda: not built' && why="this build has no CUDA"
[ $slower = 1 ] || why="a sanitizer must be loaded first"
command -v cc >/dev/null || why="no C compiler"
if [ -n "$why" ]; then for t in $names; do skip $t "$why"; done; exit 0; fi
echo 'int cuDriverGetVersion(int *v) { *v = 11040; return 0; }' >"$TMP/old.c"
cc -shared -fPIC "$TMP/old.c" -o "$TMP/libcuda.so.1" || exit 1
line='the NVIDIA driver is too old: it supports CUDA up to 11\.4, this program needs CUDA 1[0-9]\.0 (driver'
line="$line 5[0-9]* or newer)"

LD_LIBRARY_PATH=$TMP "$L" --version >"$TMP/version"
grep -q "^gpus: none, --device auto is the CPU ($line)\$" "$TMP/version"
result one_line_names_both_versions $? "$(tail -1 "$TMP/version")"

LD_LIBRARY_PATH=$TMP "$L" run -m "$MODEL" -p "It was" -n 8 -s 1 >"$TMP/a" 2>"$TMP/err"; r=$?
"$L" run -m "$MODEL" -p "It was" -n 8 -s 1 --device cpu >"$TMP/b" 2>/dev/null
[ $r = 0 ] && [ "$(grep -c "^--device auto is the CPU: $line\$" "$TMP/err")" = 1 ] && cmp -s "$TMP/a" "$TMP/b"
result auto_takes_the_cpu $? "exit $r: $(cat "$TMP/err")"

LD_LIBRARY_PATH=$TMP "$L" run -m "$MODEL" -p "It was" -n 8 -s 1 --device cuda >"$TMP/a" 2>"$TMP/err"; r=$?
[ $r = 2 ] && grep -q "^longhand.*--device cuda: $line (auto and cpu are available)\$" "$TMP/err"
result a_chosen_gpu_is_refused $? "exit $r: $(cat "$TMP/err")"
exit $failed
