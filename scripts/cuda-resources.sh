#!/bin/sh
# Prints a Markdown table of each kernel's resources by architecture: registers and spilled bytes from ptxas,
# dynamic shared memory as device_gpu.c requests it, and blocks that fit a multiprocessor. docs/cuda.md holds
# the table. Needs nvcc (NVCC=...), no GPU.
set -eu
cd "$(dirname "$0")/.."
nvcc=${NVCC:-$(command -v nvcc || echo build/nvcc/bin/nvcc)}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for arch in sm_80 sm_89 sm_90a; do
    "$nvcc" -cubin -arch=$arch -std=c++17 -O3 -fmad=false -Xptxas -v -I. kernels/cuda/cu_all.cu \
        -o "$out/x.cubin" 2>&1 | awk -v arch=$arch '
        /Compiling entry/ { match($0, /kernel_[a-z0-9_]+/); name = substr($0, RSTART + 7, RLENGTH - 7) }
        /spill stores/ {
            match($0, /[0-9]+ bytes spill stores/); split(substr($0, RSTART), w, " "); spill[name] = w[1]
        }
        /Used [0-9]+ registers/ {
            match($0, /Used [0-9]+/); print arch, name, substr($0, RSTART + 5, RLENGTH - 5), spill[name]
        }'
done >"$out/list"
awk '
    BEGIN {
        split("sm_80 sm_89 sm_90a", arch)
        per_sm["sm_80"] = 164; per_sm["sm_89"] = 100; per_sm["sm_90a"] = 228
        warps["sm_80"] = 64; warps["sm_89"] = 48; warps["sm_90a"] = 64
        # threads; KB of dynamic shared memory: stages x (16 KB + 128 bytes a row) for products, queries + 2
        # blocks of K and V for attention
        threads["rmsnorm"] = threads["norm_back"] = threads["xent"] = threads["kv_select"] = 512
        threads["sample"] = 1024; threads["kv_copy"] = threads["kv_zero"] = 32
        n = split("pack embed swiglu gather widen narrow noise count gain_back squares adamw", a)
        for (i = 1; i <= n; i++) threads[a[i]] = 256
        shared["product_few"] = 72; shared["product_many"] = 96
        shared["attend_64_one"] = 38; shared["attend_128_one"] = 72; shared["merge"] = 1.5
        shared["attend_64_few"] = 40; shared["attend_64_many"] = 48
        shared["attend_128_few"] = 80; shared["attend_128_many"] = 96
        shared["sample"] = 16.1; shared["kv_select"] = 1.1; shared["gain_back"] = 1; shared["squares"] = 2
        printf "| kernel | threads | shared KB | registers / spilled bytes / blocks per SM: sm_80"
        print " | sm_89 | sm_90a |\n|---|---|---|---|---|---|"
    }
    { reg[$1, $2] = $3; spill[$1, $2] = $4; if (!($2 in seen)) { seen[$2] = 1; order[++m] = $2 } }
    function blocks(a, k,   t, r, b, x) {
        t = k in threads ? threads[k] : 128; r = int((reg[a, k] + 7) / 8) * 8
        b = int(65536 / (r * t)); x = int(warps[a] / (t / 32)); if (x < b) b = x
        x = int(per_sm[a] / ((k in shared ? shared[k] : 0.1) + 1)); if (x < b) b = x
        return a == "sm_89" && b > 24 ? 24 : b > 32 ? 32 : b
    }
    END {
        for (i = 1; i <= m; i++) {
            k = order[i]
            printf "| %s | %d | %s |", k, k in threads ? threads[k] : 128, k in shared ? shared[k] : "-"
            for (j = 1; j <= 3; j++)
                printf " %d / %d / %d |", reg[arch[j], k], spill[arch[j], k], blocks(arch[j], k)
            print ""
        }
    }' "$out/list"
