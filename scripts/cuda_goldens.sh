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
if [ "${LORAFUSE_LONG:-}" != 1 ]; then
	case ${1:-} in
	few) few ;;
	*) some ;;
	esac
	exit 0
fi
all # in forward order, with late copies
for mode in 'reverse 1' 'random 0'; do
	export LFSIM_ORDER="${mode% *}" LFSIM_EAGER_CP="${mode#* }" LFSIM_SEED=7
	some
done
