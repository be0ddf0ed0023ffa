#!/bin/sh
# Runs the program built with -tags cuda without a driver, in a folder with only the
# program, the libraries that ldd lists and a model, like a container without --gpus.
# It must start and compute on the CPU, print the reason once, and refuse to compute
# on a GPU with the reason.
#
# chroot needs root or user namespaces. Without either it prints a notice and does
# nothing.
#   scripts/cuda_alone.sh            builds the program first
#   scripts/cuda_alone.sh PROGRAM    uses an existing program
set -eu
cd "$(dirname "$0")/.."
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir "$root/tmp"
enter="chroot"
[ "$(id -u)" = 0 ] || enter="unshare --map-root-user chroot"
cp /bin/true "$root/true"
program=${1:-}
if [ -z "$program" ]; then
	program=$root/lorafuse
	eval "$(sh scripts/cuda_env.sh)"
	"${GO:-go}" build -tags cuda -o "$program" ./cmd/lorafuse
else
	cp "$program" "$root/lorafuse"
fi

# with_libraries FILE: copies a file and the libraries to which it is linked.
with_libraries() {
	ldd "$1" | grep -o '/[^ ]*' | while read -r library; do
		mkdir -p "$root$(dirname "$library")"
		cp -L "$library" "$root$library"
	done
}
with_libraries "$root/true"
with_libraries "$program"
if ! $enter "$root" /true 2>"$root/why"; then
	echo "SKIPPED: chroot is not permitted here: $(cat "$root/why")"
	exit 0
fi
if find "$root" -name 'libcuda*' -o -name 'libnvidia*' | grep .; then
	echo "cuda_alone: the program is linked to a library of the driver" >&2
	exit 1
fi
if nm -D --undefined-only "$program" | grep -E ' cu[A-Z]'; then
	echo "cuda_alone: the program has undefined symbols of the driver" >&2
	exit 1
fi
cp -r testdata/lm/llama/model "$root/model"

# lorafuse STATUS COMMAND…: runs a command and checks its exit status.
lorafuse() {
	wanted=$1
	shift
	status=0
	env -i PATH="$PATH" HOME=/ $enter "$root" /lorafuse "$@" >"$root/out" 2>&1 || status=$?
	if [ $status != "$wanted" ]; then
		echo "cuda_alone: lorafuse $*: status $status, expected $wanted" >&2
		cat "$root/out" >&2
		exit 1
	fi
	echo "lorafuse $*: status $status"
}
# says N TEXT: checks that N lines of the output contain the text.
says() {
	n=$(grep -c -- "$2" "$root/out" || true)
	if [ "$n" != "$1" ]; then
		echo "cuda_alone: $n lines with \"$2\", expected $1:" >&2
		cat "$root/out" >&2
		exit 1
	fi
}
why='no CUDA driver: libcuda.so.1, .*: cannot open shared object file'

lorafuse 0 devices
says 1 '^cpu:0 '
says 1 "^cuda .*$why"
lorafuse 0 inspect /model
lorafuse 0 generate --backend auto --model /model --prompt 'The quick' --max-new-tokens 3
says 1 "computing on cpu: backend cuda: .*$why"
lorafuse 0 generate --backend cpu --model /model --prompt 'The quick' --max-new-tokens 3
says 0 CUDA
lorafuse 2 generate --backend cuda --model /model --prompt 'The quick' --max-new-tokens 3
says 1 "backend cuda: .*$why"
