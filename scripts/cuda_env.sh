#!/bin/sh
# Prints what a build with -tags cuda needs in its environment, to be evaluated:
#   eval "$(scripts/cuda_env.sh)"
# The folder of the linker script comes first, since gorgonia.org/cu looks for a
# libcuda of its own, which would have to be there when the program starts.
# The compatibility header comes before CUDA's own. -z lazy: go-nvml leaves its
# functions to be found when they are called.
set -eu
cd "$(dirname "$0")/.."
home=$(sh scripts/cuda_toolchain.sh)
echo "export CUDA_HOME='$home'"
echo "export CGO_CFLAGS='-g -O2 -I$PWD/backend/cuda/compat -I$home/include'"
echo "export CGO_LDFLAGS='-g -O2 -L$PWD/backend/cuda/internal/shim/lib -Wl,--as-needed -Wl,-z,lazy'"
