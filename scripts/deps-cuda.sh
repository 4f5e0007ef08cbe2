#!/bin/sh
# deps-cuda.sh DIR: install a pinned version of nvcc in DIR (DIR/bin/nvcc) from NVIDIA's wheels on PyPI.
#
# The download is about 100 MB. Only the build needs nvcc; machines that run longhand do not. The script does
# nothing if DIR or the machine already has an nvcc. FORCE=1 installs it anyway.
set -eu
dir=$1
packages="nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88"
packages="$packages nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96"

if [ -x "$dir/bin/nvcc" ] || command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    [ -n "${FORCE:-}" ] || { echo "nvcc is already installed"; exit 0; }
fi
for tool in python3 g++; do
    command -v $tool >/dev/null || { echo "missing: $tool (nvcc needs it)" >&2; exit 1; }
done
python3 -m pip --version >/dev/null 2>&1 ||
    { echo "missing: pip for python3 (Debian: python3-pip)" >&2; exit 1; }
mkdir -p "$(dirname "$dir")"
rm -rf "$dir.new"
# shellcheck disable=SC2086
python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --no-compile \
    --target "$dir.new" $packages
mv "$dir.new/nvidia/cu13" "$dir.new/toolkit"
rm -rf "$dir"
mv "$dir.new/toolkit" "$dir"
rm -rf "$dir.new"
"$dir/bin/nvcc" --version | tail -1
