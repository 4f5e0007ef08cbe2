#!/bin/sh
# Checks that the peak resident memory of `run` exceeds the sum of `inspect` for this length by at most 64
# MiB.
#   scripts/check_rss.sh [MODEL_DIR [TOKENS...]]          LONGHAND=./longhand
# The prompt fills most of the length, so that prefill, which is fast, touches the whole cache.
set -eu
cd "$(dirname "$0")/.."
longhand=${LONGHAND:-./longhand}
model=${1:-models/demo}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- 500 5000 20000
command -v python3 >/dev/null || { echo "skip check_rss (no python3 to read the peak of a child)"; exit 0; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
for n in "$@"; do
    python3 - "$longhand" "$model" "$n" "$dir/prompt" <<'PY' || failed=1
import json, resource, subprocess, sys
longhand, model, n, prompt = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
new = 16
word = "one two three four five six seven eight nine ten. "
text = word
def ids(s):
    out = subprocess.run([longhand, "tokenize", "--model", model, "--jsonl"], input=json.dumps(s) + "\n",
                         text=True, check=True, stdout=subprocess.PIPE).stdout
    return len(json.loads(out))
per = ids(word * 100) / 100
text = word * int((n - new) / per)
with open(prompt, "w") as f:
    f.write(text)
total = ids(text) + new
inspect = subprocess.run([longhand, "inspect", "--model", model, "--json", "--tokens", str(total)],
                         text=True, check=True, stdout=subprocess.PIPE).stdout
plan = json.loads(inspect)["memory"]
before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
subprocess.run([longhand, "run", "--model", model, "--prompt-file", prompt, "--tokens", str(new), "--seed",
                "1", "--ignore-eos", "--quiet"], check=True, stdout=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
sum_, mib = plan["total"] + plan["model_in_8_bits_if_there_is_room"], 1 << 20
items = ", ".join(f"{k} {v / mib:.1f}" for k, v in plan.items()
                  if isinstance(v, int) and k not in ("total", "available"))
ok = peak <= sum_ + 64 * mib
print(f"{'ok' if ok else 'FAIL'} {model}, {total} tokens: peak {peak / mib:.1f} MiB, "
      f"itemised {sum_ / mib:.1f} MiB ({items}), difference {(peak - sum_) / mib:+.1f}")
assert before * 1024 <= peak
sys.exit(0 if ok else 1)
PY
done
exit $failed
