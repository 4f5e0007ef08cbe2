#!/bin/bash
# A store with 10,000 finished jobs of 8 tokens: list, report and export. Times are of processors, as shares
# of a fixed loop of Python that runs beside them: processors and their load differ. The best of three counts.
. tests/cli/lib.inc
L="$LONGHAND" n=10000
"$L" run -q -m $MODEL -p "Once upon a time" -n 8 -s 1 --ignore-eos --threads 1 >/dev/null 2>"$TMP/err"
python3 - "$LONGHAND_DB" $n <<'P'
import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
for i in range(2, int(sys.argv[2]) + 1):
    for table in ("job", "input", "chunk", "metric", "event"):
        key = "id" if table == "job" else "job"
        columns = [r[1] for r in c.execute(f"PRAGMA table_info({table})") if r[1] != "id" or table == "job"]
        values = ", ".join("?1" if x == key else x for x in columns)
        names = ", ".join(columns)
        c.execute(f"INSERT INTO {table} ({names}) SELECT {values} FROM {table} WHERE {key} = 1", (i,))
c.commit()
P
ms() # COMMAND..: its processor time in milliseconds
{
    local TIMEFORMAT='%U %S'
    { time "$@" >"$TMP/out" 2>"$TMP/err" </dev/null; } 2>&1 | awk '{ print int(1000 * ($1 + $2)) + 1 }'
}
timed()                              # NAME PERCENT LINES ARGS..: PERCENT of the time of the loop
{
    local name=$1 limit=$2 lines=$3 best=1000000 loop=1000000 t
    shift 3
    for _ in 1 2 3; do
        t=$(ms python3 -c 'n = 0
for i in range(5000000): n += i'); [ "$t" -lt $loop ] && loop=$t
        t=$(ms "$L" "$@"); [ "$t" -lt $best ] && best=$t
    done
    [ $((100 * best)) -lt $((loop * limit * slower)) ] && [ "$(wc -l <"$TMP/out")" -ge "$lines" ]
    result "$name" $? "$best ms, the loop $loop ms, $(wc -l <"$TMP/out") lines"
    echo "    $name: $best ms, the loop $loop ms"
}
timed list_of_many_jobs 100 $n list
timed report_of_many_jobs 700 $n report --all
timed export_of_many_jobs 500 $n export --all --format jsonl
exit $failed
