#!/bin/sh
# Keeps a server busy for the given number of minutes: requests for several adapters,
# clients that disconnect, adapters that are swapped while requests use them. Prints
# resource usage over time, and fails if it grows or if pages or requests are left.
#
#     scripts/soak.sh MINUTES
#
# The nightly checks run it for one minute, a release for an hour (scripts/soak.sh 60).
set -eu
cd "$(dirname "$0")/.."
minutes=${1:?minutes}
dir=$PWD/output/soak
rm -rf "$dir"
mkdir -p "$dir/adapters"
go build -o "$dir/lorafuse" ./cmd/lorafuse
go build -o "$dir/soak" ./dev/soak
model=testdata/lm/llama
for name in lora dora rslora_all; do cp -r "$model/adapters/$name" "$dir/adapters/$name"; done
"$dir/lorafuse" serve --model "$model/model" --adapter tiny="$model/adapters/lora" --adapter other="$model/adapters/dora" \
	--adapter third="$model/adapters/patterns" --adapters-dir "$dir/adapters" --allow-adapter-updates --max-loras 3 \
	--cache-tokens 1024 --max-num-seqs 8 --listen 127.0.0.1:0 2>"$dir/log" &
pid=$!
trap 'kill "$pid" 2>/dev/null || true' EXIT
url=
for _ in $(seq 300); do
	url=$(sed -n 's/.*msg=serving url=\([^ ]*\).*/\1/p' "$dir/log")
	[ -z "$url" ] || break
	sleep 0.1
done
[ -n "$url" ] || { cat "$dir/log"; exit 1; }
"$dir/soak" --url "$url" --for "${minutes}m" --adapters tiny,other,third --swap lora,dora,rslora_all
kill "$pid"
wait "$pid"
trap - EXIT
