#!/bin/sh
# Serves a small model of testdata, trains on it with Tinker's own client and with the loops
# of tinker-cookbook, then kills the server and checks that the saved state is complete.
#
#     scripts/check_tinker.sh
#
# It installs the clients in output/clients, and needs python3 with pip and venv, and access
# to a package index. TINKER_PYTHON names a python that already has tinker and
# tinker-cookbook. Clients that cannot be installed are skipped with a notice. The exit
# status is 1 if a client reports a fault.
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
	# A requirement for models with images and sound, which some indexes lack.
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

# again restarts the server on the existing store.
again() { serve --api-key tml-sesame --model testdata/lm/llama/model --served-model-name tiny --train-dir "$store"; }

# client ARGUMENTS…
client() { "$python" scripts/check_tinker.py --url "$url" --key tml-sesame "$@"; }

again
client --fields internal/serve/tinker/testdata/tinker_public.json --proxy $cookbook || failed=1
saved=$(client --begin) || failed=1
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
pid=
again
client --end "$saved" || failed=1
serve --api-key tml-sesame --model testdata/lm/llama/model --name tiny --train-dir "$store" --batch-invariant
client --gap || failed=1
ended
exit $failed
