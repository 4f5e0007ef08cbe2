#!/bin/sh
# deps-cuda.sh DIR: an nvcc of a pinned version in DIR (bin/nvcc), from NVIDIA's wheels on PyPI: about 100 MB to load. Nothing of it is needed
# where longhand runs. Does nothing when DIR has it, or when the machine has an nvcc of its own.
set -eu
dir=$1
packages="nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96"

if [ -x "$dir/bin/nvcc" ] || command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    [ -n "${FORCE:-}" ] || { echo "nvcc is there"; exit 0; }
fi
for tool in python3 g++; do
    command -v $tool >/dev/null || { echo "missing: $tool (nvcc: to be installed with it, and to compile with it)" >&2; exit 1; }
done
python3 -m pip --version >/dev/null 2>&1 || { echo "missing: pip for python3 (Debian: python3-pip)" >&2; exit 1; }
mkdir -p "$(dirname "$dir")"
rm -rf "$dir.new"
# shellcheck disable=SC2086
python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --no-compile --target "$dir.new" $packages
mv "$dir.new/nvidia/cu13" "$dir.new/toolkit"
rm -rf "$dir"
mv "$dir.new/toolkit" "$dir"
rm -rf "$dir.new"
"$dir/bin/nvcc" --version | tail -1
