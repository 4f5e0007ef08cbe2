#!/bin/bash
# The order of the folders (docs/architecture.md). A folder may include itself and the folders above it in
# ORDER. A folder's sub-folders belong to it, unless ORDER names them. src/cli/main.c, the table of verbs,
# stands below all of them.
#
#     includes    every #include of the product that names a folder further down
#     symbols     every object file that needs a symbol from a folder further down
#     circles     every set of object files that need each other's symbols, directly or through further files
#     units       every set of units that include each other. A unit is NAME.c with NAME.h and NAME_impl.h,
#                 the header of its further files. STANDING has the includes that may close a circle
#
# The script prints each violation and the symbols or includes that cause it. Then it plants an include that
# runs upwards, files that call each other and headers that include each other in a copy of the tree, and
# checks that it finds them.
ORDER="src/base kernels kernels/cuda ngram kvmgr src/model src/text/jinja src/text src/sample src/decode
       runs/store src/request runs/work runs/report runs/serve src/cli src/lab"
# In each of these the second unit is a part of the first one, or a row of its table, and works on its struct.
STANDING="src/decode/engine:src/decode/weights"
build=$(realpath "$(dirname "${LONGHAND:-build/cc/longhand}")")
TMP=$(mktemp -d) || exit 1
trap 'rm -rf "$TMP"' EXIT
failed=0

# NAME FILE: passes when FILE is empty, otherwise prints it.
empty() { if [ -s "$2" ]; then failed=1; sed 's/^/    /' "$2"; echo "FAIL $1"; else echo "ok $1"; fi; }
# NAME PATTERN FILE: passes when a line of FILE matches.
found() { if grep -qE "$2" "$3"; then echo "ok $1"; else failed=1; sed 's/^/    /' "$3"; echo "FAIL $1"; fi; }

# FOLDER: the product's files, by path.
sources() { (cd "$1" && find src kernels ngram kvmgr runs '(' -name '*.[ch]' -o -name '*.cu*' ')'); }

# The start of an awk program: place(PATH) is the place of the file's folder in ORDER, or 0.
PLACE='
    BEGIN { n = split(order, name, " "); for (i = 1; i <= n; i++) at[name[i]] = i }
    function place(path)
    {
        if (path == "src/cli/main.c")
            return n + 1
        while (sub(/\/[^\/]*$/, "", path))
            if (path in at)
                return at[path]
        return 0
    }
'

# FOLDER: its includes that run upwards, and folders that ORDER does not have.
upward_includes()
{
    sources "$1" | (cd "$1" && xargs grep -n '^ *# *include *"') | awk -v order="$ORDER" "$PLACE"'
        {
            split($0, part, ":"); split($0, quoted, "\"")
            to = place(quoted[2])
            if (!to || to > place(part[1]))
                print part[1] ":" part[2] " includes " quoted[2]
        }'
    sources "$1" | awk -v order="$ORDER" "$PLACE"'
        { path = $0; sub(/\/[^\/]*$/, "") }
        !place(path) && !seen[$0]++ { print $0 " has no place in the order" }'
}

# FOLDER BUILD: lines "FILE needs FILE: SYMBOLS", from the object files of BUILD.
needs()
{
    sources "$1" | sed -n 's/\.c$/.c.o/p' >"$TMP/objects"
    (cd "$2" && xargs nm -A -g <"$TMP/objects") | awk '
        { file = $1; sub(/\.o:.*/, "", file) }
        $(NF - 1) == "U" { from[++n] = file; symbol[n] = $NF; next }
        { owner[$NF] = file }
        END {
            for (i = 1; i <= n; i++)
                if (symbol[i] in owner && owner[symbol[i]] != from[i]) {
                    pair = from[i] " needs " owner[symbol[i]] ":"
                    list[pair] = list[pair] " " symbol[i]
                }
            for (k in list)
                print k list[k]
        }' | sort
}

# FOLDER: lines "UNIT needs UNIT: FILE:LINE..", from the includes that STANDING does not have.
unit_needs()
{
    sources "$1" | (cd "$1" && xargs grep -n '^ *# *include *"') | awk -v standing="$STANDING" '
        BEGIN { n = split(standing, pair, " "); for (i = 1; i <= n; i++) stands[pair[i]] = 1 }
        function unit(path) { sub(/(_impl)?\.[a-z]+$/, "", path); return path }
        {
            split($0, part, ":"); split($0, quoted, "\"")
            from = unit(part[1]); to = unit(quoted[2])
            if (from != to && !((from ":" to) in stands))
                list[from " needs " to ":"] = list[from " needs " to ":"] " " part[1] ":" part[2]
        }
        END { for (k in list) print k list[k] }' | sort
}

# Of the lines of `needs`: those that run upwards.
upward_needs()
{
    awk -v order="$ORDER" "$PLACE"'
        { to = $3; sub(/:$/, "", to) }
        place(to) > place($1)'
}

# Of the lines of `needs` or `unit_needs`: those between files of one circle, that is where the second file
# reaches the first one. For speed, files that no file needs, and files that need no file, are removed first,
# again and again.
circles()
{
    awk '
        { to = $3; sub(/:$/, "", to); line[NR] = $0; a[NR] = $1; b[NR] = to; on[NR] = 1 }
        function reaches(x, goal,    i, top, stack, seen) {
            stack[top = 1] = x
            while (top) {
                x = stack[top--]
                for (i = 1; i <= NR; i++)
                    if (on[i] && a[i] == x && !(b[i] in seen)) {
                        if (b[i] == goal)
                            return 1
                        seen[b[i]] = 1
                        stack[++top] = b[i]
                    }
            }
            return 0
        }
        END {
            do {
                split("", out); split("", into); removed = 0
                for (i = 1; i <= NR; i++)
                    if (on[i]) { out[a[i]] = 1; into[b[i]] = 1 }
                for (i = 1; i <= NR; i++)
                    if (on[i] && (!(b[i] in out) || !(a[i] in into))) { on[i] = 0; removed++ }
            } while (removed)
            for (i = 1; i <= NR; i++)
                if (on[i] && reaches(b[i], a[i]))
                    print line[i]
        }'
}

upward_includes . >"$TMP/includes"
empty no_include_runs_upwards "$TMP/includes"
needs . "$build" >"$TMP/needs" 2>"$TMP/missing"
empty every_file_was_built "$TMP/missing"
upward_needs <"$TMP/needs" >"$TMP/upward"
empty no_symbol_is_needed_upwards "$TMP/upward"
circles <"$TMP/needs" >"$TMP/circles"
empty no_circle_of_files "$TMP/circles"
unit_needs . >"$TMP/units"
circles <"$TMP/units" >"$TMP/circles"
empty no_circle_of_units "$TMP/circles"
for pair in $STANDING; do
    cat "${pair%:*}"{.c,.h,_impl.h} 2>/dev/null | grep -q "include \"${pair#*:}[._]" || echo "$pair"
done >"$TMP/gone"
empty no_standing_include_is_gone "$TMP/gone"

# ---- the test of this test ----

mkdir "$TMP/tree" "$TMP/build"
cp -r src kernels ngram kvmgr runs "$TMP/tree"
for d in $(find src kernels ngram kvmgr runs -type d); do
    mkdir -p "$TMP/build/$d"
    ln -s "$build/$d"/*.c.o "$TMP/build/$d" 2>/dev/null
done
plant()
{
    printf '%s\n' "$2" >"$TMP/tree/$1"
    ${CC:-cc} -c "$TMP/tree/$1" -o "$TMP/build/$1.o" || failed=1
}
echo '#include "src/text/chat.h"' >>"$TMP/tree/src/model/rope.c"
mkdir "$TMP/tree/src/stray"
touch "$TMP/tree/src/stray/stray.c"
upward_includes "$TMP/tree" >"$TMP/found"
echo '#include "src/lab/bench.h"' >>"$TMP/tree/src/cli/cmd_list.c"
upward_includes "$TMP/tree" >"$TMP/found"
found planted_include_of_the_lab_is_found '^src/cli/cmd_list.c:[0-9]+ includes src/lab/bench.h$' "$TMP/found"
found planted_include_is_found '^src/model/rope.c:[0-9]+ includes src/text/chat.h$' "$TMP/found"
found unknown_folder_is_found '^src/stray has no place' "$TMP/found"

echo '#include "src/sample/sample.h"' >>"$TMP/tree/src/sample/sampling.c"
unit_needs "$TMP/tree" >"$TMP/units"
circles <"$TMP/units" >"$TMP/found"
found planted_circle_of_units_is_found '^src/sample/sampling needs src/sample/sample: .*/sampling.c:' \
    "$TMP/found"

plant src/text/one.c 'int two(void); int one(void); int one(void) { return two(); }'
plant src/text/two.c 'int three(void); int two(void); int two(void) { return three(); }'
plant src/sample/three.c 'int one(void); int three(void); int three(void) { return one(); }'
needs "$TMP/tree" "$TMP/build" >"$TMP/needs" 2>&1
upward_needs <"$TMP/needs" >"$TMP/found"
found planted_call_upwards_is_found '^src/text/two.c needs src/sample/three.c: three$' "$TMP/found"
circles <"$TMP/needs" >"$TMP/found"
found planted_circle_is_found '^src/text/one.c needs src/text/two.c: two$' "$TMP/found"
found planted_circle_is_found_whole '^src/sample/three.c needs src/text/one.c: one$' "$TMP/found"
exit $failed
