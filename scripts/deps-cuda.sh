#!/bin/sh
# deps-cuda.sh DIR: install a pinned compiler of CUDA 12 for the kernels in DIR (DIR/bin/nvcc), from NVIDIA's
# wheels on PyPI.
#
# Kernels compiled by CUDA 12 load in every driver from 525 on; those of CUDA 13 need 580. The download is
# about 95 MB. Only the build needs the compiler; machines that run longhand do not. The script does nothing
# if DIR has this compiler.
set -eu
dir=$1
packages="nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-runtime-cu12==12.9.79"

driver=$(dirname "$0")/nvrtc                 # stands for nvcc: PyPI has no nvcc of CUDA 12
if [ "$(cat "$dir/packages" 2>/dev/null)" = "$packages" ]; then
    { [ ! -L "$dir/bin/nvcc" ] && cmp -s "$driver" "$dir/bin/nvcc"; } ||
        cp --remove-destination "$driver" "$dir/bin/nvcc"
    exit 0
fi
command -v python3 >/dev/null ||
    { echo "missing: python3 (it installs the compiler of the kernels)" >&2; exit 1; }
python3 -m pip --version >/dev/null 2>&1 ||
    { echo "missing: pip for python3 (Debian: python3-pip)" >&2; exit 1; }
echo "installing: $packages" >&2
mkdir -p "$(dirname "$dir")"
rm -rf "$dir.new"
mkdir -p "$dir.new/bin"
# shellcheck disable=SC2086
python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --no-compile \
    --retries 1 --timeout 20 --target "$dir.new/wheels" $packages
mv "$dir.new/wheels/nvidia/cuda_nvrtc/lib" "$dir.new/lib"
mv "$dir.new/wheels/nvidia/cuda_runtime/include" "$dir.new/include"
rm -rf "$dir.new/wheels" "$dir.new"/lib/*.alt.so*
cp "$driver" "$dir.new/bin/nvcc"
echo "$packages" >"$dir.new/packages"
rm -rf "$dir"
mv "$dir.new" "$dir"
"$dir/bin/nvcc" --version | tail -1 >&2
