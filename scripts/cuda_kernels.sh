#!/bin/sh
# Compiles kernels/cuda/*.cu and kernels/shared/*.cu into fat binaries, kernels/cuda/build/*.fatbin,
# only if their sources changed: machine code for sm_80, 89, 90a and 100, and PTX of 80,
# which drivers compile for all later devices. Installs the compiler first if
# there is none (scripts/cuda_toolchain.sh).
#
#   LORAFUSE_CUDA_ARCH=90a scripts/cuda_kernels.sh    machine code for sm_90a alone, in a
#                                                     fifth of the time and bytes
#   scripts/cuda_kernels.sh FOLDER                    into another folder
#
# ptxas says what each kernel takes, and never more registers than its
# __launch_bounds__ leave to a thread (a test of package kernels wants them for
# every kernel): what does not fit is spilled. A kernel that spills or has a stack
# frame fails here; framed names the exceptions, whose sine needs an array for large
# angles. The table is printed with the occupancy that registers and static shared
# memory allow, and stored next to the fat binary.
set -eu
cd "$(dirname "$0")/.."
CUDA_HOME=$(sh scripts/cuda_toolchain.sh)
out=${1:-kernels/cuda/build}
mkdir -p "$out"
# PTX is compressed, machine code is not (nvcc's default): drivers load it
# without unpacking, and the simulator reads the names and parameters in it.
flags="-O3 -std=c++17 --threads 0 --compress-mode=default -Werror=all-warnings $(sh scripts/cuda_arch.sh)"

# headers FILE: the headers that it includes, itself or by others. Its own folder may lack them.
headers() {
	for header in $(sed -n 's/^#include "\([a-z_0-9]*\.[cuh]*\)".*/\1/p' "$1"); do
		folder=kernels/cuda
		[ -f "$folder/$header" ] || folder=kernels/shared
		echo "$folder/$header"
		headers "$folder/$header"
	done
}

# stamp FILE: prints a hash of the sources of its fat binary: the file, its
# headers, this script, and the compiler, independent of paths, so that a build
# can be moved.
compiler=$(cat "$CUDA_HOME/bin/nvcc.profile" && grep '#define CUDA_VERSION' "$CUDA_HOME/include/cuda.h" && cksum <"$CUDA_HOME/bin/ptxas")
stamp() {
	# shellcheck disable=SC2046
	(cat "$1" $(headers "$1" | sort -u) scripts/cuda_kernels.sh scripts/cuda_table.awk && echo "$flags $compiler") | cksum
}

framed='unary_cos_f32 unary_sin_f32'
keep=$(mktemp -d)
trap 'rm -rf "$keep"' EXIT

made=
for file in kernels/cuda/*.cu kernels/shared/*.cu; do
	name=$(basename "$file" .cu)
	new=$(stamp "$file")
	if [ -f "$out/$name.fatbin" ] && [ "$(cat "$out/$name.stamp" 2>/dev/null)" = "$new" ]; then
		continue
	fi
	echo "cuda_kernels: $file"
	rm -f "$out/$name.stamp"
	# -Xptxas -v reports on stderr, between real messages; the PTX that is kept has the threads.
	rm -f "$keep"/*
	# shellcheck disable=SC2086
	if ! "$CUDA_HOME/bin/nvcc" $flags -Ikernels/cuda -Ikernels/shared -Xptxas -v -keep --keep-dir "$keep" -fatbin "$file" -o "$out/$name.fatbin" 2>"$out/$name.log"; then
		cat "$out/$name.log" >&2
		exit 1
	fi
	grep -E 'warning' "$out/$name.log" >&2 || true
	if ! awk -v framed="$framed" -f scripts/cuda_table.awk "$keep"/*.ptx "$out/$name.log" >"$out/$name.txt"; then
		cat "$out/$name.txt" >&2
		echo "cuda_kernels: $file: a kernel spills registers or has a stack frame" >&2
		exit 1
	fi
	echo "$new" >"$out/$name.stamp"
	made=yes
done
# Fat binaries of files that are gone would still be embedded.
for fat in "$out"/*.fatbin; do
	name=$(basename "$fat" .fatbin)
	[ -f "kernels/cuda/$name.cu" ] || [ -f "kernels/shared/$name.cu" ] || rm -f "${fat%.fatbin}".*
done
cat "$out"/*.txt
[ -n "$made" ] || echo "cuda_kernels: nothing has changed" >&2
