#!/bin/bash
# run-tests.sh BUILD [check]: run the test programs of a build side by side. `make test` and `make check` call
# it.
#
# The programs are BUILD/test_* for each test_*.c under tests/, those named in $IN_C, and the scripts
# tests/*.sh, tests/cli/*.sh and tests/real/*.sh. A program prints the lines "ok NAME", "FAIL NAME" and
# "skip NAME (why)". A program that exits with another status than 0 without a FAIL line counts as one
# failure. So does a program with a sanitizer finding, a program that does not end within LIMIT seconds, and
# a program that was never run.
#
# tests/plan.txt says which programs take long, which run in several shards, which run alone, and which
# `check` runs. This script prints one line for each program, and the whole output of a program that fails.
# Its last lines are the twins that this machine cannot run, the skipped tests, the failures, and "N passed, N
# failed, N skipped".
#
# JOBS=N       programs at a time (default: nproc)      ONLY=WORDS  only programs with a word in the name
# LONG=1       the long forms of the tests              KEEP=DIR     leave the output of every program in DIR
# LIMIT=SECONDS   for each program (default: 1800, or 6 hours with LONG=1)
build=$1 mode=$2
limit=${LIMIT:-${LONG:+21600}}
limit=${limit:-1800}
count() { grep -ac "$@"; }
dir_of() { echo "$work/${1//\//-}-${2/\//of}"; }       # NAME SHARD

# Run "NAME SHARD": the worker's side of the pool. SHARD is "all" or "INDEX/COUNT".
run_one()
{
    local name=$1 shard=$2 dir command start=$EPOCHREALTIME rc passed failed skipped
    dir=$(dir_of "$name" "$shard")
    mkdir -p "$dir/tmp" "$dir/found"
    case $name in
    *.sh) command=(bash "$name")
        # The C programs print their findings. Some of them replace functions of the C library, which a
        # sanitizer that opens a log file would call.
        local log=log_path=$dir/found/finding
        export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}$log
        export TSAN_OPTIONS=${TSAN_OPTIONS:+$TSAN_OPTIONS:}$log
        export UBSAN_OPTIONS=${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}print_stacktrace=1:$log ;;
    *) command=("$build/$name" ${LONG:+--long}) ;;
    esac
    [ "$shard" = all ] || export TEST_SHARD=$shard
    local cpu=($CPUS)
    [ -z "$CPUS" ] || command=(taskset -c "${cpu[SLOT % ${#cpu[@]}]}" "${command[@]}")
    TMPDIR=$dir/tmp LONGHAND_DB=$dir/tmp/longhand.db timeout --foreground -k 10 "$limit" "${command[@]}" \
        >"$dir/log" 2>&1 </dev/null
    rc=$?
    if [ $rc = 124 ] || { [ $rc = 137 ] && awk -v a="$start" -v b="$EPOCHREALTIME" -v limit="$limit" \
        'BEGIN { exit b - a < limit }'; }; then
        echo "FAIL $name (it did not end within $limit s)" >>"$dir/log"
    fi
    if [ $rc != 0 ] && ! grep -aq '^FAIL' "$dir/log"; then
        echo "FAIL $name (exit status $rc)" >>"$dir/log"
    fi
    if [ -n "$(ls -A "$dir/found")" ] || grep -aq 'Sanitizer:\|runtime error:' "$dir/log"; then
        cat "$dir"/found/* >>"$dir/log" 2>/dev/null
        echo "FAIL $name (sanitizer finding)" >>"$dir/log"
    fi
    rm -rf "$dir/tmp"
    passed=$(count '^ok ' "$dir/log") failed=$(count '^FAIL' "$dir/log") skipped=$(count '^skip ' "$dir/log")
    {
        flock 9
        printf '%-44s %4d passed' "$name$([ "$shard" = all ] || echo " $shard")" "$passed"
        [ "$failed" = 0 ] || printf ', %d failed' "$failed"
        [ "$skipped" = 0 ] || printf ', %d skipped' "$skipped"
        awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf ", %.1f s\n", b - a }'
        [ "$failed" = 0 ] || sed 's/^/    | /' "$dir/log"
    } 9>"$work/lock"
    : >"$dir/ended"
}
if [ "$mode" = --one ]; then
    run_one "$3" "$4"
    exit 0
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
export work LONGHAND=$build/longhand
[ -x "$LONGHAND" ] || { echo "FAIL run-tests ($LONGHAND does not exist)"; exit 1; }

# Every program with its row of the plan, longest first: lines "SECONDS pool|alone NAME SHARD".
scripts=$(find tests/*.sh tests/cli/*.sh tests/real/*.sh 2>/dev/null)
for t in $(find tests -name 'test_*.c') $IN_C $scripts; do
    case $t in *.sh) echo "$t" ;; *) basename "$t" .c ;; esac
done | awk -v mode="$mode" -v only="$ONLY" '
    BEGIN { n_only = split(only, word) }
    NR == FNR && /^[^#]/ { seconds[$1] = $2; shards[$1] = $3; words[$1] = " " $4 " " $5 " " }
    NR == FNR { next }
    only != "" {
        found = 0
        for (i = 1; i <= n_only; i++)
            found += index($1, word[i]) > 0
        if (!found)
            next
    }
    mode == "check" && $1 in seconds && words[$1] !~ / check / { next }
    {
        n = shards[$1] > 1 ? shards[$1] : 1
        s = $1 in seconds ? seconds[$1] / n : 1
        kind = words[$1] ~ / alone / ? "alone" : "pool"
        for (i = 1; i <= n; i++)
            print s, kind, $1, (n > 1 ? i "/" n : "all")
    }' tests/plan.txt - | sort -rn >"$work/plan"

# Each slot of the pool gets a CPU of its own. A program starts as many threads as it has CPUs, and threads
# that wait for each other while other programs run in between cost more time than they save. Programs that
# test several threads say how many they want, or run alone.
cpus() # print "0 1 2 .." for the CPUs that this process may use
{
    sed -n 's/^Cpus_allowed_list:\s*//p' /proc/self/status | tr , '\n' |
        while IFS=- read -r a b; do seq "$a" "${b:-$a}"; done | tr '\n' ' '
}
run() # KIND JOBS
{
    awk -v kind="$1" '$2 == kind { print $3, $4 }' "$work/plan" |
        xargs -r -P "$2" -L 1 --process-slot-var=SLOT "$0" "$build" --one
}
start=$SECONDS
CPUS=$(! command -v taskset >/dev/null || cpus) run pool "${JOBS:-$(nproc)}"
CPUS= run alone 1

# xargs starts nothing more after one of its processes was killed.
while read -r _ _ name shard; do
    dir=$(dir_of "$name" "$shard")
    [ -e "$dir/ended" ] && continue
    mkdir -p "$dir"
    echo "FAIL $name $shard (it was not run to its end)" >>"$dir/log"
done <"$work/plan"

find "$work" -name log | sort | xargs cat >"$work/all"
if [ -n "$KEEP" ]; then
    mkdir -p "$KEEP"
    for d in "$work"/*/; do cp "$d/log" "$KEEP/$(basename "$d").log"; done
fi
echo
grep -a '^twin not run' "$work/all" | sort -u
grep -a '^skip ' "$work/all"
grep -a '^FAIL' "$work/all"
passed=$(count '^ok ' "$work/all") failed=$(count '^FAIL' "$work/all") skipped=$(count '^skip ' "$work/all")
echo "The tests took $((SECONDS - start)) s."
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
