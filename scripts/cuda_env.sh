#!/bin/sh
# Prints the environment that a build with -tags cuda needs, for evaluation:
#   eval "$(scripts/cuda_env.sh)"
# The folder of the linker script comes first, because gorgonia.org/cu links a libcuda
# of its own, which would have to exist when the program starts. The compatibility
# header comes before CUDA's own. -z lazy: go-nvml resolves its functions when they are
# called.
set -eu
cd "$(dirname "$0")/.."
home=$(sh scripts/cuda_toolchain.sh)
echo "export CUDA_HOME='$home'"
echo "export CGO_CFLAGS='-g -O2 -I$PWD/backend/cuda/compat -I$home/include'"
echo "export CGO_LDFLAGS='-g -O2 -L$PWD/backend/cuda/internal/shim/lib -Wl,--as-needed -Wl,-z,lazy'"
