#!/bin/sh
# Writes models of testdata as GGUF files and compares what llama.cpp computes from them with
# lorafuse: see check_gguf.py.
#
#     scripts/check_gguf.sh
#
# It installs the gguf package and a llama.cpp in output/gguf, and needs python3 with pip and
# venv, and access to a package index. Without these it is left out with a notice.
set -eu
cd "$(dirname "$0")/.."
dir=$PWD/output/gguf
mkdir -p "$dir"
go build -o "$dir/lorafuse" ./cmd/lorafuse
# xllamacpp has a library of llama.cpp for most systems, and llama-cpp-py-sync its declarations.
if python3 -m venv "$dir/venv" && "$dir/venv/bin/pip" install --quiet --disable-pip-version-check gguf==0.19.0 xllamacpp==2026.10.11549 llama-cpp-py-sync==0.11548; then
	exec "$dir/venv/bin/python" scripts/check_gguf.py --lorafuse "$dir/lorafuse"
fi
echo 'left out: llama.cpp, which could not be installed'
