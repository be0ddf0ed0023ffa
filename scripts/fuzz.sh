#!/bin/sh
# Runs every fuzz target of the module for the given time: scripts/fuzz.sh 10s
#
# A finding is an input that Go has recorded, or any failure except one: before Go 1.27
# the end of -fuzztime itself may be reported as "context deadline exceeded" and nothing
# else (golang.org/issue/75804).
set -eu
cd "$(dirname "$0")/.."
time=${1:-10s}
go=${GO:-go}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
log=$out/log
corpus=$($go env GOCACHE)/fuzz/$($go list -m) # where go test keeps it
built=
grep -rl --include='*_test.go' '^func Fuzz' . | grep -v '^./tools/' | sort | while read -r file; do
	package=$(dirname "$file")
	if [ "$package" != "$built" ]; then # a program for all targets of a package
		$go test -c -fuzz . -o "$out/fuzz" "$package"
		built=$package
	fi
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		echo "$package $target"
		(cd "$package" && "$out/fuzz" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" \
			-test.fuzzcachedir "$corpus/${package#./}") >"$log" 2>&1 && continue
		if sed -n '/^--- FAIL/{n;p;}' "$log" | grep -qx '    context deadline exceeded' &&
			! grep -q -e 'Failing input' -e 'panic' "$log"; then
			echo "   (the time ended while an input ran)"
			continue
		fi
		cat "$log"
		exit 1
	done
done
