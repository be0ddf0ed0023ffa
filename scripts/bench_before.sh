#!/bin/sh
# Compares this working tree with an earlier revision, row by row of lorafuse bench:
#
#   scripts/bench_before.sh [--rounds N] REVISION [SUITE...] [-- FLAG...]
#   scripts/bench_before.sh v0.3 step -- --size small --runs 1
#   scripts/bench_before.sh --rounds 5 HEAD~1 layer -- --only 'bf16.*r=16, m=2048'
#
# It builds both, the earlier one in a temporary worktree, and runs them alternately
# (before, after, before, ...), so that load on the machine affects both. The default
# suites are step, decode and layer. Flags are passed to all suites.
#
# For each row it prints the ratio of the times, after to before, of the medians and of
# the fastest samples, and the medians in milliseconds. The worst rows come first. Rows
# that only one build has are listed at the end.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
LC_ALL=C
export LC_ALL

usage() {
	echo "bench_before.sh: $1; usage: scripts/bench_before.sh [--rounds N] REVISION [SUITE...] [-- FLAG...]" >&2
	exit 2
}

rounds=3
if [ "${1-}" = --rounds ]; then
	rounds=${2-}
	case $rounds in '' | *[!0-9]* | 0*) usage "--rounds: found '$rounds', expected 1 or more" ;; esac
	shift 2
fi
[ $# -gt 0 ] || usage "no revision"
case $1 in -*) usage "unknown flag $1" ;; esac
commit=$(git rev-parse --verify --quiet "$1^{commit}") || usage "no revision $1"
shift
suites=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	case $1 in
	step | decode | layer | kernels | load | upload) suites="$suites $1" ;;
	*) usage "found suite '$1', expected some of step, decode, layer, kernels, load, upload" ;;
	esac
	shift
done
[ $# -eq 0 ] || shift
: "${suites:=step decode layer}"

dir=$(mktemp -d)
end() {
	git worktree remove --force "$dir/tree" 2>/dev/null || true
	rm -rf "$dir"
}
trap end EXIT
trap 'exit 130' INT TERM
git worktree add --quiet --detach "$dir/tree" "$commit"
(cd "$dir/tree" && $go build -o "$dir/before" ./cmd/lorafuse)
$go build -o "$dir/after" ./cmd/lorafuse

round=1
while [ "$round" -le "$rounds" ]; do
	for suite in $suites; do
		for build in before after; do
			echo "round $round of $rounds: $suite, $build" >&2
			"$dir/$build" bench "$suite" --json "$@" >"$dir/$suite.$round.$build.json" 2>"$dir/log" || {
				cat "$dir/log" >&2
				exit 1
			}
		done
	done
	round=$((round + 1))
done

# samples prints one line per sample of a build: the row, the build, the seconds.
samples() {
	cat "$dir"/*."$1".json | awk -v build="$1" '
		function text() { sub(/^ *"[a-z]*": "/, ""); sub(/",?$/, ""); return $0 }
		/^ *"group": "/ { group = text() }
		/^ *"program": "/ { program = text() }
		/^ *"name": "/ { name = text() }
		/^ *"input": "/ { input = text() }
		inside && /\]/ { inside = 0 }
		inside { sub(/,$/, ""); printf "%s: %s: %s, %s\t%s\t%s\n", group, program, name, input, build, $1 }
		/^ *"seconds": \[$/ { inside = 1 }'
}

tab=$(printf '\t')
{ samples before; samples after; } | sort -t "$tab" -k1,1 -k2,2r -k3,3g | awk -F '\t' '
	function flush() {
		if (n) { median[build] = (s[int((n + 1) / 2)] + s[int(n / 2) + 1]) / 2; fastest[build] = s[1] }
		n = 0
	}
	function done() {
		flush()
		if (("before" in median) && ("after" in median)) {
			printf "%.3f\t%.3f\t%.4g\t%.4g\t%s\n", median["after"] / median["before"], fastest["after"] / fastest["before"], 1e3 * median["before"], 1e3 * median["after"], row
		} else if (row != "") {
			for (b in median) printf "0\t%s alone has the row: %s\n", b, row
		}
		delete median["before"]; delete median["after"]
	}
	$1 != row { done(); row = $1; build = $2 }
	$2 != build { flush(); build = $2 }
	{ s[++n] = $3 + 0 }
	END { done() }' | sort -t "$tab" -k1,1gr | awk -F '\t' '
	BEGIN { print "after/before  fastest  before ms   after ms  row" }
	NF == 5 { printf "%12s  %7s  %9s  %9s  %s\n", $1, $2, $3, $4, $5 }
	NF == 2 { print $2 }'
