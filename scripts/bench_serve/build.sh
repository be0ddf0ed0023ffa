#!/bin/sh
# Builds llama-server of llama.cpp for this machine, for comparison with lorafuse serve
# by dev/load:
#
#   sh scripts/bench_serve/build.sh output/bench-serve
#   output/bench-serve/llama-server --model M.gguf --lora A.gguf --lora B.gguf --lora-init-without-apply --parallel 8 --threads 2
#   go run ./dev/load --url http://127.0.0.1:8080 --streams 8 --vocab 32000 --variants '[{"lora": [{"id": 0, "scale": 1}]}, {"lora": [{"id": 1, "scale": 1}]}]'
#
# Its sources are included in llama-cpp-python's. Needs python3 with pip, cmake and a C++
# compiler; takes some fifteen minutes on two cores.
set -eu
if [ $# -ne 1 ]; then
	echo "usage: $0 DIR" >&2
	exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
python3 -m pip download --quiet --no-deps --no-binary llama-cpp-python -r "$here/../bench_decode/requirements.txt"
tar xzf llama_cpp_python-*.tar.gz
flags=
case $(${CXX:-c++} --version 2>/dev/null) in
*clang*) ;;
*) # see scripts/bench_decode/build.sh
	! grep -q amx_tile /proc/cpuinfo 2>/dev/null || flags="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
	;;
esac
cmake -S llama_cpp_python-*/vendor/llama.cpp -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF \
	-DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF \
	"-DCMAKE_C_FLAGS=$flags" "-DCMAKE_CXX_FLAGS=$flags"
cmake --build build --target llama-server -j 2
ln -sf build/bin/llama-server llama-server
./llama-server --version
