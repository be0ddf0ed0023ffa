#!/bin/sh
# Build the programs that `lorafuse bench load --peers DIR` measures for comparison, and write their command lines
# to DIR/peers.json. One that cannot be built is left out, with a word.
#
#   sh scripts/bench_load/build.sh [DIR]            DIR is output/bench-peers where none is given
#   PEER_PYTHON=.venv/bin/python sh scripts/bench_load/build.sh    an environment that has requirements.txt already
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-$here/../../output/bench-peers}"
dir=$(cd "${1:-$here/../../output/bench-peers}" && pwd)
list=""

# add NAME PROGRAM [ARGUMENT]
add() {
	list="$list${list:+,
}  \"$1\": [\"$2\"${3:+, \"$3\"}]"
	echo "$1: $2 ${3:-}"
}
missing() {
	echo "$1: left out, $2" >&2
}

cc=${CC:-cc}
if "$cc" -O2 -o "$dir/peer-c" "$here/peer.c"; then
	add c "$dir/peer-c"
else
	missing c "it takes a C compiler"
fi

if cargo build --quiet --release --locked --manifest-path "$here/rust/Cargo.toml" --target-dir "$dir/rust"; then
	add rust "$dir/rust/release/bench-load-peer"
else
	missing rust "it takes cargo and the crates of rust/Cargo.lock"
fi

if (cd "$here/gopeer" && "${GO:-go}" build -o "$dir/peer-go" .); then
	add go "$dir/peer-go"
else
	missing go "it takes go and the modules of gopeer/go.mod"
fi

python=${PEER_PYTHON:-$dir/venv/bin/python}
if [ -z "${PEER_PYTHON:-}" ] && [ ! -x "$python" ]; then
	python3 -m venv "$dir/venv" && "$python" -m pip install --quiet -r "$here/requirements.txt" || true
fi
if "$python" -c 'import numpy, torch, safetensors.torch'; then
	add python "$python" "$here/peer.py"
else
	missing python "it takes python3 and requirements.txt"
fi

printf '{\n%s\n}\n' "$list" >"$dir/peers.json"
echo "wrote $dir/peers.json"
