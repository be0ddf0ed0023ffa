#!/bin/sh
# Prints CUDA_HOME: a folder with bin/nvcc, nvvm and include/cuda.h. An existing
# CUDA_HOME with nvcc is used unchanged. Otherwise pip installs the pinned compiler
# once into output/cuda, from NVIDIA's own packages (about 105 MB to download), which
# needs python3 with pip and a package index.
#
# 13.0 is pinned because later versions generate PTX that drivers of this generation
# (580) cannot read.
set -eu
cd "$(dirname "$0")/.."
version=13.0.2
say() { echo "cuda_toolchain: $*" >&2; }

if [ -n "${CUDA_HOME:-}" ]; then
	if [ ! -x "$CUDA_HOME/bin/nvcc" ]; then
		say "CUDA_HOME=$CUDA_HOME has no bin/nvcc; unset it to have the pinned compiler installed"
		exit 1
	fi
	echo "$CUDA_HOME"
	exit 0
fi

home=$PWD/output/cuda/$version/nvidia/cu13
if [ -x "$home/bin/nvcc" ]; then
	echo "$home"
	exit 0
fi
if ! command -v python3 >/dev/null || ! python3 -m pip --version >/dev/null 2>&1; then
	say "python3 with pip is needed to install nvcc $version; or set CUDA_HOME to a CUDA toolkit of version 12.9 or 13"
	exit 1
fi
say "installing nvcc $version into output/cuda"
new=$PWD/output/cuda/$version.$$
mkdir -p "$new"
trap 'rm -rf "$new"' EXIT
# A single command, because a second would not merge into the same folder. cccl has
# the headers that cuda_fp16.h needs.
if ! PIP_ROOT_USER_ACTION=ignore timeout 600 python3 -m pip install --quiet --disable-pip-version-check --no-warn-script-location \
	--retries 2 --timeout 20 --only-binary :all: --target "$new" \
	"cuda-toolkit[nvcc,cudart,crt,nvvm,cccl]==$version" >&2; then
	say "pip could not install cuda-toolkit==$version: is a package index within reach? Or set CUDA_HOME to a CUDA toolkit of version 12.9 or 13"
	exit 1
fi
# Remove unused parts, half of the total size.
rm -rf "$new"/nvidia/cu13/bin/nvlink "$new"/nvidia/cu13/lib/libcudart* "$new"/nvidia/cu13/lib/libnvvm* "$new"/nvidia/cu13/nvvm/lib64
rm -rf "${home%/nvidia/cu13}"
mv "$new" "${home%/nvidia/cu13}"
"$home/bin/nvcc" --version >/dev/null || {
	say "the installed nvcc does not run"
	exit 1
}
echo "$home"
