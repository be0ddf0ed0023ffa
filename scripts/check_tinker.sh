#!/bin/sh
# Serves a small model of testdata and has Tinker's own client train on it, and the loops of
# tinker-cookbook; then kills the server, and sees that what was saved is still there.
#
#     scripts/check_tinker.sh
#
# What it installs lies in output/clients; it needs python3 with pip and venv, and a package
# index within reach. TINKER_PYTHON names a python that has tinker and tinker-cookbook
# already. What cannot be installed is left out with a line that says so. The exit status is
# 1 if a client finds a fault.
set -eu
cd "$(dirname "$0")/.."
dir=$PWD/output/clients
mkdir -p "$dir"
go build -o "$dir/lorafuse" ./cmd/lorafuse

python=${TINKER_PYTHON:-}
if [ -z "$python" ]; then
	pip="$dir/tinker/bin/pip install --quiet --disable-pip-version-check"
	if python3 -m venv "$dir/tinker" && $pip tinker==0.38.0; then
		python=$dir/tinker/bin/python
	else
		echo 'left out: tinker, which could not be installed'
		exit 0
	fi
	# One of its requirements, for models with images and sound, is not to be had everywhere.
	if ! $pip --no-deps tinker-cookbook==0.6.1 || ! $pip aiohttp blobfile chz cloudpickle datasets pillow pyrage safetensors termcolor tiktoken torch tqdm; then
		echo 'tinker-cookbook could not be installed'
	fi
fi
cookbook=--cookbook
if ! "$python" -c 'import tinker_cookbook.rl.train, tinker_cookbook.supervised.train' 2>/dev/null; then
	echo 'left out: tinker-cookbook, which is not there'
	cookbook=
fi

. scripts/server.sh
store=$dir/tinker-store
rm -rf "$store"

# again serves what is in the store.
again() { serve --api-key tml-sesame --model testdata/lm/llama/model --name tiny --train-dir "$store"; }

# client ARGUMENTS…
client() { "$python" scripts/check_tinker.py --url "$url" --key tml-sesame "$@"; }

again
client --fields serve/tinker/testdata/tinker_public.json --proxy $cookbook || failed=1
saved=$(client --begin) || failed=1
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
pid=
again
client --end "$saved" || failed=1
ended
exit $failed
