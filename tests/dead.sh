#!/bin/bash
# Every function of the product is called by the product: what only tests call is a part of the tests.
#
#     symbols      every function and table of an object file that no other object file needs, and that the
#                  code of the product names nowhere but where it is declared and defined
#     headers      every inline function of a header that the code of the product names once
#
# Code that this build leaves out, such as that of CUDA, counts, too. KEPT has the exceptions, with reasons.
# Then the script plants functions that nobody calls in a copy of the tree, and checks that it finds them.
#
# tensors_parse reads a header in memory, safetensors_open a folder: tests and the fuzzer need them.
KEPT="main tensors_parse safetensors_open"
build=$(realpath "$(dirname "${LONGHAND:-build/cc/longhand}")")
TMP=$(mktemp -d) || exit 1
trap 'rm -rf "$TMP"' EXIT
failed=0

# FOLDER BUILD: lines "FILE: NAME" of the functions that the product in FOLDER does not call.
dead()
{
    (cd "$1" && find src kernels ngram kvmgr runs -name '*.[ch]' -o -name '*.cu') | sort >"$TMP/sources"
    (cd "$2" && sed -n 's/\.c$/.c.o/p' "$TMP/sources" | xargs nm -A -g) | awk '
        $(NF - 1) == "U" { needed[$NF] = 1; next }
        { owner[$NF] = $1; sub(/\.o:.*/, "", owner[$NF]) }
        END { for (s in owner) if (!(s in needed) && s !~ /^__/) print owner[s] ": " s }' >"$TMP/alone"
    python3 - "$1" "$TMP" "$KEPT" <<'P'
import collections, re, sys
tree, tmp, kept = sys.argv[1:]
named = collections.Counter()
lines = [line.split(": ") for line in open(tmp + "/alone").read().splitlines()]
for path in open(tmp + "/sources").read().splitlines():
    code = open(f"{tree}/{path}", encoding="utf-8").read()
    code = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', " ", code, flags=re.S)
    if path.endswith(".h"):
        lines += [[path, name] for name in re.findall(r"^static inline [^;{=]*?\b(\w+)\(", code, re.M)]
        code = re.sub(r"^(?!static|#|\s)[^;{}=#]*\([^;{}]*\);", " ", code, flags=re.M)      # a declaration
    named.update(re.findall(r"[A-Za-z_]\w*", code))
print("".join(f"{path}: {name}\n" for path, name in sorted(lines)
              if named[name] < 2 and name not in kept.split()), end="")
P
}

if ! dead . "$build" >"$TMP/dead" || [ -s "$TMP/dead" ]; then
    failed=1; sed 's/^/    /' "$TMP/dead"; echo "FAIL every_function_is_called"
else echo "ok every_function_is_called"; fi

# ---- the test of this test ----

mkdir "$TMP/tree" "$TMP/build"
cp -r src kernels ngram kvmgr runs "$TMP/tree"
for d in $(find src kernels ngram kvmgr runs -type d); do
    mkdir -p "$TMP/build/$d"
    ln -s "$build/$d"/*.c.o "$TMP/build/$d" 2>/dev/null
done
# planted_here is called, by a function that is not: it is found once that one has gone.
cat >"$TMP/tree/src/text/planted.c" <<'C'
#include "src/text/planted.h"
int planted_alone(int x) { return x; }             /* planted_alone */
int planted_here(int x) { return x; }
int planted_there(int x) { return planted_here(x); }
C
cat >"$TMP/tree/src/text/planted.h" <<'H'
int planted_alone(int x);
int planted_here(int x);
int planted_there(int x);
static inline int planted_inline(int x) { return x; }
H
(cd "$TMP/tree" && ${CC:-cc} -I. -c src/text/planted.c -o "$TMP/build/src/text/planted.c.o") || failed=1
dead "$TMP/tree" "$TMP/build" | grep planted >"$TMP/dead"
printf 'src/text/planted.%s\n' 'c: planted_alone' 'c: planted_there' 'h: planted_inline' >"$TMP/planted"
if cmp -s "$TMP/dead" "$TMP/planted"; then echo "ok planted_functions_are_found"; else
    failed=1; sed 's/^/    /' "$TMP/dead"; echo "FAIL planted_functions_are_found"
fi
exit $failed
