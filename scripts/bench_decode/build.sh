#!/bin/sh
# Makes a Python environment with llama.cpp, built for this machine, for lorafuse bench decode:
#
#   sh scripts/bench_decode/build.sh output/bench-llama
#   bin/lorafuse bench decode --llama-python output/bench-llama/bin/python
#
# Needs python3, cmake and a C++ compiler; takes some ten minutes on two cores.
set -eu
if [ $# -ne 1 ]; then
	echo "usage: $0 DIR" >&2
	exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
python3 -m venv "$1"
flags=
case $(${CXX:-c++} --version 2>/dev/null) in
*clang*) ;;
*)
	# GCC 12 miscompiles llama.cpp's AMX tile configuration: it treats all but its first bytes as unused.
	! grep -q amx_tile /proc/cpuinfo 2>/dev/null || flags="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
	;;
esac
CMAKE_ARGS="-DGGML_NATIVE=ON '-DCMAKE_C_FLAGS=$flags' '-DCMAKE_CXX_FLAGS=$flags'" "$1/bin/pip" install --no-binary llama-cpp-python -r "$here/requirements.txt"
"$1/bin/python" -c 'import llama_cpp; print("llama-cpp-python", llama_cpp.__version__)'
