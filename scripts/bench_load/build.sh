#!/bin/sh
# Build the programs that `lorafuse bench load --peers DIR` measures beside ours, and say in DIR/peers.json how they
# are called. Each is left out, with a word, where what it needs is not there: a C compiler, cargo, go, python3.
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
if command -v "$cc" >/dev/null; then
	"$cc" -O2 -o "$dir/peer-c" "$here/peer.c"
	add c "$dir/peer-c"
else
	missing c "no $cc"
fi

if command -v cargo >/dev/null; then
	cargo build --quiet --release --locked --manifest-path "$here/rust/Cargo.toml" --target-dir "$dir/rust"
	add rust "$dir/rust/release/bench-load-peer"
else
	missing rust "no cargo"
fi

if command -v "${GO:-go}" >/dev/null; then
	(cd "$here/gopeer" && "${GO:-go}" build -o "$dir/peer-go" .)
	add go "$dir/peer-go"
else
	missing go "no go"
fi

python=${PEER_PYTHON:-$dir/venv/bin/python}
if [ -z "${PEER_PYTHON:-}" ] && [ ! -x "$python" ] && command -v python3 >/dev/null; then
	python3 -m venv "$dir/venv" && "$python" -m pip install --quiet -r "$here/requirements.txt"
fi
if "$python" -c 'import safetensors.torch' 2>/dev/null; then
	add python "$python" "$here/peer.py"
else
	missing python "no environment with requirements.txt"
fi

printf '{\n%s\n}\n' "$list" >"$dir/peers.json"
echo "wrote $dir/peers.json"
