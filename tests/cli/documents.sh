#!/bin/bash
# The documents: scripts/bench_tables.py makes their tables, the files that they name exist, and they keep
# their bounds.
. tests/cli/lib.inc
documents="README.md CONTRIBUTING.md tests/README.md docs/architecture.md docs/bench.md docs/serve.md
           docs/tried.md"

mkdir -p "$TMP/tree/scripts"
cp -r README.md docs "$TMP/tree"
cp scripts/bench_tables.py "$TMP/tree/scripts"
python3 "$TMP/tree/scripts/bench_tables.py" 2>"$TMP/err" &&
    cmp -s README.md "$TMP/tree/README.md" && cmp -s docs/bench.md "$TMP/tree/docs/bench.md"
result tables_are_those_of_the_script $? "run scripts/bench_tables.py: $(head -3 "$TMP/err")"

folders='src|kernels|kvmgr|ngram|runs|tests|scripts|docs'
for f in $(grep -ohE "\`($folders)/[A-Za-z0-9_./-]+\`" $documents | tr -d '`' | grep -v NAME | sort -u) \
    $(grep -ohE '\]\([A-Za-z/_]+\.(md|png)\)' README.md CONTRIBUTING.md | tr -d ']()'); do
    [ -e "$f" ] || echo "$f"
done >"$TMP/missing"
[ ! -s "$TMP/missing" ]; result documents_name_files_that_exist $? "$(cat "$TMP/missing")"

[ "$(wc -l <README.md)" -le 150 ] && [ "$(wc -l <docs/bench.md)" -le 170 ] &&
    [ "$(wc -l <CONTRIBUTING.md)" -le 120 ]
result documents_keep_their_lengths $? "$(wc -l README.md docs/bench.md CONTRIBUTING.md)"

for f in tests/cli/*.patch; do grep -qF "\`$f\`" CONTRIBUTING.md || echo "$f"; done >"$TMP/missing"
[ ! -s "$TMP/missing" ]; result each_recipe_has_its_patch $? "$(cat "$TMP/missing")"

# The papers are those of docs/paper.md.
[ "$(sed -n 's/^version: //p' CITATION.cff)" = "$("$LONGHAND" --version | sed -n '1s/^longhand //p')" ] &&
    [ "$(grep 'value:' CITATION.cff | grep -oE '[0-9]{4}\.[0-9]{5}' | sort)" = \
      "$(sed -n '/^The papers/,/^$/p' docs/paper.md | grep -oE '[0-9]{4}\.[0-9]{5}' | sort)" ]
result the_citation_has_version_and_papers $? "$(grep -E '^version|arXiv' CITATION.cff)"

# Tables between markers are generated.
awk '/<!-- bench:/ { skip = 1 } /<!-- \/bench:/ { skip = 0 }
     !skip && length > 110 { print FILENAME ":" FNR }' $documents >"$TMP/wide"
[ ! -s "$TMP/wide" ]; result documents_have_110_columns $? "$(cat "$TMP/wide")"
# Characters, not bytes: awk of Debian counts bytes. Data and pins have lines of any length.
find src runs kernels kvmgr ngram tests scripts Makefile Containerfile ./*.mk -type f \
    ! -path '*/data/*' ! -path '*/pins/*' '(' -path 'scripts/*' -o -name '*.[ch]' -o -name '*.cu' \
    -o -name '*.inc' -o -name '*.sh' -o -name '*.py' -o -name '*file' -o -name '*.mk' ')' >"$TMP/sources"
python3 - "$TMP/sources" >"$TMP/wide" <<'P'
import sys
for path in open(sys.argv[1]).read().splitlines():
    for i, line in enumerate(open(path, encoding="utf-8", errors="replace"), 1):
        if len(line.rstrip("\n")) > 110:
            print(f"{path}:{i}")
P
[ ! -s "$TMP/wide" ]; result sources_have_110_columns $? "$(cat "$TMP/wide")"
exit $failed
