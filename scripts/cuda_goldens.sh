#!/bin/sh
# Runs the goldens of scripts/goldens.sh on a CUDA device; without a GPU that is the
# simulated one.
#   scripts/cuda_goldens.sh                     some of each kind
#   scripts/cuda_goldens.sh few                 fewer
#   LORAFUSE_LONG=1 scripts/cuda_goldens.sh     all, and some in every order of
#                                               threads, with late and with eager copies
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
all
for order in forward reverse random; do
	for eager in 0 1; do
		[ "$order $eager" = "forward 0" ] && continue # already covered above
		export LFSIM_ORDER=$order LFSIM_EAGER_CP=$eager LFSIM_SEED=7
		some
	done
done
