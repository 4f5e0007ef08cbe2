#!/bin/bash
# Comparing: report --by of several parameters, windows as CSV, pages of several jobs.
. tests/cli/lib.inc
L="$LONGHAND"

# ---- report --by ----
for t in 0.7 1; do for d in none ngram; do for s in 1 2; do
    "$L" submit -q -m $MODEL -p "Once upon a time" -n 1050 -s $s --temp $t --drafter $d --ignore-eos \
        >/dev/null
done; done; done
"$L" work -q --parallel 1       # only jobs that ran alone have a speedup
# Whether ngram drafts at all is the planner's choice: these counters say that it did.
for name in drafted:40 plain_seconds:2 drafted_depth:20 accepted:5; do
    sql "INSERT OR REPLACE INTO metric
         SELECT id, 0, '', '${name%:*}', 0, ${name#*:} FROM job WHERE id IN (3, 4, 7, 8)"
done
check report_by_two_parameters 0 '' report --all --by temperature --by drafter --json -o "$TMP/by.json"
check report_by_an_alias 0 '' report --all --by temp,drafter --json -o "$TMP/by1.json"
same an_alias_is_the_option "$TMP/by.json" "$TMP/by1.json"
check report_by_a_list 0 '' report --all --by temperature,drafter --json -o "$TMP/by2.json"
same by_twice_is_by_a_list "$TMP/by.json" "$TMP/by2.json"
"$L" report --all --json -o "$TMP/all.json"
python3 - "$TMP" <<'P'
import json, statistics, sys
groups, jobs = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("by", "all"))
assert [(g["temperature"], g["drafter"]) for g in groups] == [
    (t, d) for t in (0.7, 1) for d in ("ngram", "none")]
for g in groups:
    own = [j for j in jobs if j["parameters"]["temperature"] == g["temperature"] and
           j["parameters"]["drafting"]["drafter"] == g["drafter"]]
    assert g["n"] == len(own) == 2
    for name, of in (("tokens/s", lambda j: j["tokens_per_second"]),
                     ("speedup", lambda j: j["speedup"]),
                     ("acceptance length", lambda j: j["mean_acceptance_length"]),
                     ("alpha", lambda j: j["alpha"]),
                     ("loops", lambda j: len(j["repetition"])),
                     ("distinct-1", lambda j: j["distinct"]["tokens"]["1"]),
                     ("distinct-4", lambda j: j["distinct"]["tokens"]["4"])):
        v = [of(j) for j in own if of(j) is not None]
        f = g[name]
        assert f["n"] == len(v), (name, f, v)
        if v:
            assert abs(f["mean"] - statistics.mean(v)) <= 1e-6 * abs(f["mean"]), (name, f, v)
            sd = statistics.stdev(v) if len(v) > 1 else None
            if name == "speedup":        # pairs with the jobs of drafter none
                assert len(v) == 2 and f["low"] <= f["mean"] <= f["high"], f
                continue
            assert f["sd"] is sd or abs(f["sd"] - sd) <= 1e-6 * abs(f["mean"]), (name, f, v)
P
result groups_have_n_mean_sd_of_every_figure $? ""
"$L" report --all --by temperature,drafter >"$TMP/table"
[ "$(grep -c '^' "$TMP/table")" = 6 ] &&
    grep -q '^temperature  drafter  n .*speedup.*loops.*distinct-4' "$TMP/table"
result the_table_has_a_row_for_each_combination $? "$(cat "$TMP/table")"
"$L" report --all --by temperature,drafter --csv >"$TMP/csv"
python3 -c 'import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
assert len(rows) == 4 and rows[0]["temperature"] == "0.7" and rows[0]["alpha n"] == "2", rows
assert rows[1]["speedup n"] == "0" and rows[1]["speedup mean"] == ""
assert float(rows[0]["tokens/s sd"]) > 0' "$TMP/csv"
result by_as_csv $? "$(cat "$TMP/csv")"
check by_an_unknown_parameter 2 "by nothing: job 1 has no such parameter" \
    report --all --by temperature,nothing
check by_an_empty_name 2 "has an empty name" report --all --by temperature,
"$L" report --all >"$TMP/table"
grep -q 'temperature=0.7, drafter=ngram, seed=2$' "$TMP/table"
result rows_are_labelled_by_what_differs $? "$(cat "$TMP/table")"

# ---- report --windows --csv ----
check report_windows_csv 0 '' report --all --windows --csv --by drafter -o "$TMP/windows.csv"
python3 - "$TMP" <<'P'
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[1] + "/windows.csv")))
jobs = json.load(open(sys.argv[1] + "/all.json"))
assert len(rows) == sum(len(j["windows"]) for j in jobs) == 16
for j in jobs:
    own = [r for r in rows if int(r["job"]) == j["job"]]
    for r, w in zip(own, j["windows"]):
        assert r["drafter"] == j["parameters"]["drafting"]["drafter"] and int(r["start"]) == w["start"]
        for c, x in (("tokens", w["tokens"]), ("seconds", w["seconds"]), ("alpha", w["alpha"]),
                     ("tokens_per_second", w["tokens_per_second"]), ("distinct_4", w["distinct"]["4"]),
                     ("distinct_2_so_far", w["distinct_so_far"]["2"]),
                     ("share_ngram", w["sources"].get("ngram", {}).get("share"))):
            assert r[c] == "" if x is None else abs(float(r[c]) - x) <= 1e-8 * abs(x), (c, r[c], x)
P
result windows_of_every_job $? "$(head -3 "$TMP/windows.csv")"
check windows_need_csv 2 "windows needs --csv" report --all --windows
check windows_or_rounds 2 "only one of them" report --all --windows --rounds --csv

# ---- pages of several jobs ----
"$L" report --all --html -o "$TMP/all.html"
"$L" report --all --by temperature,drafter --html -o "$TMP/by.html"
"$L" report 3 4 --html -o "$TMP/two.html"
python3 - "$TMP" <<'P'
import json, re, sys
jobs = json.load(open(sys.argv[1] + "/all.json")); groups = json.load(open(sys.argv[1] + "/by.json"))
def curves(name):
    page = open(f"{sys.argv[1]}/{name}.html").read()
    head = page[:page.index("<article")]
    plots = {}
    for card in re.findall(r'<h3>([^<]*)</h3>.*?<svg(.*?)</svg>', head, re.S):
        plots[card[0]] = [(n, [float(y) for y in d.split() if y != "-"]) for n, d in
                          re.findall(r'data-name="([^"]*)" data-y="([^"]*)"', card[1])]
    return head, plots
head, plots = curves("all")
assert len(plots["Speed"]) == 8, plots
assert plots["Speed"][2][0] == "job 3: temperature=0.7, drafter=ngram, seed=1", plots
for j, (_, y) in zip(jobs, plots["Speed"]):
    assert all(abs(a - w["tokens_per_second"]) < 1e-4 * a for a, w in zip(y, j["windows"]))
legend = head[head.index('class="legend"'):]
assert legend[:legend.index("</div>")].count("<i></i>") == 8
head, plots = curves("by")
assert [n for n, _ in plots["Mean acceptance length"]] == \
    [f"temperature={g['temperature']}, drafter={g['drafter']}" for g in groups]
own = jobs[2:4]                       # temperature 0.7, drafter ngram
want = [sum(j["windows"][i]["mean_acceptance_length"] for j in own) / 2 for i in (0, 1)]
assert all(abs(a - b) < 1e-4 * b for a, b in zip(plots["Mean acceptance length"][0][1], want))
half = re.search(r'<h3>Mean acceptance length</h3>.*?data-half="([^ "]*)', head, re.S)[1]
spread = abs(own[0]["windows"][0]["mean_acceptance_length"] - own[1]["windows"][0]["mean_acceptance_length"])
assert abs(float(half) - 12.706 * spread / 2) < 1e-3 * float(half) + 1e-6, (half, spread)
assert head.count('class="error') >= 2, "error bars over seeds"
for c in "speedup", "loops":
    assert re.search(r'<div class="card scroll"><table>.{0,800}<th[^>]*>' + c, head, re.S), c
head, _ = curves("two")               # no job of the page was written one token at a time
assert "longhand fork 3 --at 0 --seed 1 --drafter none --alone" in head and "~" not in head
P
result curves_of_several_jobs_with_a_legend $? ""
if command -v chromium >/dev/null; then
    # The page is not wider than a window of 1,100 pixels; wider tables scroll in their frames.
    sed 's|<meta http-equiv="Content-Security-Policy"[^>]*>||
         s|</body>|<script>document.title = "wide " + document.documentElement.scrollWidth</script></body>|' \
        "$TMP/by.html" >"$TMP/wide.html"
    timeout 60 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$TMP/profile" \
        --window-size=1100,900 --dump-dom "file://$TMP/wide.html" >"$TMP/dom" 2>"$TMP/err"
    if [ -s "$TMP/dom" ]; then
        wide=$(sed -n 's/.*<title>wide \([0-9]*\).*/\1/p' "$TMP/dom"); [ "${wide:-9999}" -le 1100 ]
        result pages_fit_1100_pixels $? "$wide pixels"
    else skip pages_fit_1100_pixels "chromium does not start here"; fi
else skip pages_fit_1100_pixels "no chromium here"; fi
count() { grep -o "$1" "$TMP/by.html" | wc -l; }
[ "$(count '<table')" = "$(count '<div class="card scroll"><table')" ]
result every_table_scrolls_in_its_frame $? "$(grep -o '.\{30\}<table' "$TMP/by.html" | sort | uniq -c)"
exit $failed
