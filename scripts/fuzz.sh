#!/bin/sh
# Run every fuzz target of the module for a while: scripts/fuzz.sh 10s
set -eu
cd "$(dirname "$0")/.."
time=${1:-10s}
go=${GO:-go}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
grep -rl --include='*_test.go' '^func Fuzz' . | grep -v '^./tools/' | sort | while read -r file; do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		echo "$(dirname "$file") $target"
		$go test "$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "$time" >"$log" 2>&1 || {
			cat "$log"
			exit 1
		}
	done
done
