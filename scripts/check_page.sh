#!/bin/sh
# Serves small models of testdata and checks the page of each server in a real Chromium
# (Debian: chromium), with scripts/check_page.
#
#     scripts/check_page.sh              runs all checks
#     scripts/check_page.sh --pictures   regenerates docs/page-*.png from examples/godoc
#
# Without Chromium it prints a notice and succeeds; in CI, as root, it installs Chromium. The exit
# status is 1 if a check fails; output/page then has a screenshot.
set -eu
cd "$(dirname "$0")/.."
dir=$PWD/output/page
find_chromium() {
	for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
		! command -v "$name" >/dev/null || return 0
	done
	return 1
}
if ! find_chromium && [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -qq -y --no-install-recommends chromium >/dev/null || true
fi
if ! find_chromium; then
	echo 'left out: the page in a browser, for there is no Chromium (Debian: apt-get install chromium)'
	exit 0
fi
rm -rf "$dir"
mkdir -p "$dir"
go build -o "$dir/lorafuse" ./cmd/lorafuse
(cd scripts/check_page && go build -o "$dir/check_page" .)
. scripts/server.sh

# look KIND ARGUMENTS…
look() {
	printf -- '-- %s\n' "$1"
	"$dir/check_page" -url "$url" -pictures "$dir" -kind "$@" || failed=1
}

rows=$dir/rows.jsonl valid=$dir/valid.jsonl
if [ "${1:-}" = --pictures ]; then
	head -n 1200 examples/godoc/train.jsonl >"$rows"
	head -n 120 examples/godoc/eval.jsonl >"$valid"
	serve --model examples/godoc/model --served-model-name godoc-model --train-dir "$dir/train"
	look train -rows "$rows" -valid "$valid" -show docs
	ended
	exit $failed
fi

# A language model with a chat template, and enough context for answers that are stopped.
model=$dir/model
mkdir "$model"
cp testdata/lm/qwen3/model/* "$model"
cp testdata/tokenizers/chat/qwen3_style.jinja "$model/chat_template.jinja"
sed 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 40960/' testdata/lm/qwen3/model/config.json >"$model/config.json"
serve --model "$model" --adapter tiny=testdata/lm/qwen3/adapters/lora
look chat -adapter tiny

serve --model "$model" --api-key sesame
look key -key sesame

head -n 120 examples/godoc/train.jsonl >"$rows"
head -n 20 examples/godoc/eval.jsonl >"$valid"
serve --model examples/godoc/model --train-dir "$dir/train"
look plain
look train -rows "$rows" -valid "$valid"

serve --model testdata/encoders/mpnet
look vectors

ended
exit $failed
