#!/bin/bash
# The lines of the product, folder by folder, against the ceilings of tests/sizes.
#
#     ceilings     no folder has more lines than its ceiling, nor have all of them together
#     table        every folder of the product has a row, and every row a folder
#
# Then it adds lines and a folder to a copy of the tree, and checks that it finds them.
TMP=$(mktemp -d) || exit 1
trap 'rm -rf "$TMP"' EXIT
failed=0

# NAME FILE: passes when FILE is empty, otherwise prints it.
empty() { if [ -s "$2" ]; then failed=1; sed 's/^/    /' "$2"; echo "FAIL $1"; else echo "ok $1"; fi; }
# NAME LINE FILE: passes when FILE has this line.
found()
{
    if grep -qxF "$2" "$3"; then echo "ok $1"; else failed=1; sed 's/^/    /' "$3"; echo "FAIL $1"; fi
}

# TREE: a line for every folder that is over its ceiling or has no row, and for every row without a folder.
over() # TREE
{
    (cd "$1" && find src kernels ngram kvmgr runs -type f '(' -name '*.[ch]' -o -name '*.cu*' ')' \
        -exec wc -l {} + 2>/dev/null) | awk '
        FNR == NR && $1 == "but" { but[$2] = 1 }
        FNR == NR && /^[a-z]/ && $1 != "but" { ceiling[$1] = $2 }
        FNR == NR || $2 == "total" || but[$2] { next }
        { folder = $2; sub(/\/[^\/]*$/, "", folder); lines[folder] += $1; lines["all"] += $1 }
        END {
            for (f in lines)
                if (!(f in ceiling))
                    print f " has " lines[f] " lines and no row in tests/sizes"
                else if (lines[f] > ceiling[f])
                    print f " has " lines[f] " lines, at most " ceiling[f] " are allowed"
            for (f in ceiling)
                if (!(f in lines))
                    print f " has a row in tests/sizes and no files"
        }' tests/sizes - | sort
}

over . >"$TMP/over"
empty no_folder_is_over_its_ceiling "$TMP/over"

# ---- the test of this test ----

mkdir "$TMP/tree"
cp -r src kernels ngram kvmgr runs "$TMP/tree"
mkdir "$TMP/tree/src/stray"
echo 'int stray;' >"$TMP/tree/src/stray/stray.c"
ceiling=$(awk '$1 == "ngram" { print $2 }' tests/sizes)
seq "$ceiling" >"$TMP/tree/ngram/more.h"
rm -r "$TMP/tree/kvmgr"
seq 100000 | tee "$TMP/tree/src/base/unicode_tables.h" >"$TMP/tree/src/cli/more.c"
over "$TMP/tree" >"$TMP/found"
lines=$(cat ngram/*.[ch] "$TMP/tree/ngram/more.h" | wc -l)
found added_lines_are_found "ngram has $lines lines, at most $ceiling are allowed" "$TMP/found"
found added_folder_is_found "src/stray has 1 lines and no row in tests/sizes" "$TMP/found"
found missing_folder_is_found "kvmgr has a row in tests/sizes and no files" "$TMP/found"
if grep -q '^all has' "$TMP/found" && ! grep -q '^src/base ' "$TMP/found"; then
    echo "ok generated_tables_do_not_count"
else
    failed=1; echo "FAIL generated_tables_do_not_count"
fi
exit $failed
