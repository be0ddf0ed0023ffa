#!/bin/sh
# Runs the goldens of scripts/goldens.sh on a CUDA device; without a GPU that is the
# simulated one.
#   scripts/cuda_goldens.sh                     some of each kind
#   scripts/cuda_goldens.sh few                 fewer
#   LORAFUSE_LONG=1 scripts/cuda_goldens.sh     all, and some in every order of
#                                               threads, with late or with eager copies
set -eu
cd "$(dirname "$0")/.."
eval "$(sh scripts/cuda_env.sh)"
export LORAFUSE_LIBCUDA="${LORAFUSE_LIBCUDA:-$PWD/kernels/sim/build/libcuda_sim.so}"
export LORAFUSE_TEST_BACKEND=cuda
tags=cuda
. scripts/goldens.sh

# devices STREAMS…: runs on several devices, and runs that lose one in the gradients or in
# the update of the second step, with each kind of streams. Real drivers lose none.
devices() (
	nm -D "$LORAFUSE_LIBCUDA" | grep -q lfsim_leaks || exit 0
	export LFSIM_DEVICES=4
	for LFSIM_STREAMS in "$@"; do
		export LFSIM_STREAMS
		export LFSIM_LEAKS=1 LFSIM_FAIL=
		goldens internal/train 'TestShareOfDevices|TestDevicesRefused'
		export LFSIM_LEAKS=0 # a lost device frees nothing
		for LFSIM_FAIL in lost:1100 launch:adamw_table_f32:6; do
			goldens internal/train TestLostDevice
		done
	done
)

if [ "${LORAFUSE_LONG:-}" != 1 ]; then
	case ${1:-} in
	few) few ;;
	*) some ;;
	esac
	devices eager
	exit 0
fi
all # in forward order, with late copies
devices eager lazy
for mode in 'reverse 1' 'random 0'; do
	export LFSIM_ORDER="${mode% *}" LFSIM_EAGER_CP="${mode#* }" LFSIM_SEED=7
	some
	devices eager lazy
done
