#!/bin/sh
# Serves small models of testdata and checks the server with real clients: OpenAI's for
# Python, JavaScript and Go, curl, and for /v1/responses openai-agents, langchain-openai and
# litellm. It installs them in output/clients, and needs
# python3 with pip and venv, node with npm, and access to their package indexes.
#
#     scripts/check_clients.sh
#
# A client whose tools are missing is skipped with a notice. The exit status is 1 if a
# client reports a fault.
set -eu
cd "$(dirname "$0")/.."
dir=$PWD/output/clients
mkdir -p "$dir"
go build -o "$dir/lorafuse" ./cmd/lorafuse
. scripts/server.sh

# client NAME COMMAND…
client() {
	printf -- '-- %s\n' "$1"
	shift
	"$@" || failed=1
}

python= node= agents=
if python3 -m venv "$dir/venv" && "$dir/venv/bin/pip" install --quiet --disable-pip-version-check openai==3.57.0; then
	python=$dir/venv/bin/python
else
	echo 'left out: openai for Python, which could not be installed'
fi
if [ -n "$python" ] && "$dir/venv/bin/pip" install --quiet --disable-pip-version-check openai-agents==0.24.0 langchain-openai==1.7.4 litellm==1.110.2; then
	agents=1
else
	echo 'left out: openai-agents, langchain-openai and litellm, which could not be installed'
fi
if command -v npm >/dev/null && npm install --silent --no-audit --no-fund --prefix "$dir/npm" openai@7.57.0; then
	node=$dir/npm
else
	echo 'left out: openai for JavaScript, which could not be installed'
fi

# A language model whose template supports tools, with enough context for it.
model=$dir/model
rm -rf "$model"
mkdir "$model"
cp testdata/lm/qwen3/model/* "$model"
cp testdata/tokenizers/chat/qwen3_style.jinja "$model/chat_template.jinja"
sed 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 4096/' testdata/lm/qwen3/model/config.json >"$model/config.json"
rm -rf "$dir/tuning"
served="--model $model --adapter tiny=testdata/lm/qwen3/adapters/lora --adapter other=testdata/lm/qwen3/adapters/dora --train-dir $dir/tuning"
serve --api-key sesame $served
[ -z "$python" ] || client 'openai for Python' "$python" scripts/check_openai.py --url "$url" --key sesame
[ -z "$agents" ] || client 'openai-agents, LangChain and litellm' "$python" scripts/check_responses.py --url "$url" --key sesame
[ -z "$node" ] || (cd "$node" && client 'openai for JavaScript' node ../../../scripts/check_openai.mjs --url "$url" --key sesame --adapter tiny --tuning; exit $failed) || failed=1
(cd scripts/check_openai_go && client 'openai for Go' go run . -url "$url" -key sesame -adapter other; exit $failed) || failed=1
client curl sh scripts/check_curl.sh --url "$url" --key sesame --adapter tiny

# A fine-tuning job resumes after kill -9.
if [ -n "$python" ]; then
	job=$("$python" scripts/check_openai.py --url "$url" --key sesame --begin) || failed=1
	kill -9 "$pid"
	wait "$pid" 2>/dev/null || true
	pid=
	serve --api-key sesame $served
	client 'openai for Python, after kill -9' "$python" scripts/check_openai.py --url "$url" --key sesame --end "$job"
fi

serve --api-key sesame --model testdata/encoders/mpnet
[ -z "$python" ] || client 'openai for Python, vectors' "$python" scripts/check_openai.py --url "$url" --key sesame
[ -z "$node" ] || (cd "$node" && client 'openai for JavaScript, vectors' node ../../../scripts/check_openai.mjs --url "$url" --key sesame --embeddings; exit $failed) || failed=1
(cd scripts/check_openai_go && client 'openai for Go, vectors' go run . -url "$url" -key sesame -embeddings; exit $failed) || failed=1

# The server shuts down cleanly.
ended
exit $failed
