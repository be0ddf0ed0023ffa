#!/bin/sh
# Builds all images with docker, podman or buildah, whichever works. Otherwise it
# lists the missing tools.
#   scripts/docker_build.sh            lorafuse, lorafuse:cuda, lorafuse:mpi and lorafuse:mpi-cuda, for this machine
#   PLATFORMS=linux/amd64,linux/arm64 scripts/docker_build.sh   for these platforms
#   ENGINE=podman scripts/docker_build.sh                       with this engine
set -eu
cd "$(dirname "$0")/.."
why=
for engine in ${ENGINE:-docker podman buildah}; do
	if ! command -v "$engine" >/dev/null; then
		why="$why
  $engine: not installed"
		continue
	fi
	if ! found=$("$engine" info 2>&1 >/dev/null); then
		why="$why
  $engine: $(printf '%s\n' "$found" | tail -n 1)"
		continue
	fi
	platform=${PLATFORMS:+--platform=$PLATFORMS}
	export DOCKER_BUILDKIT=1
	for target in cpu cuda mpi mpi-cuda; do
		tag=lorafuse:$target
		[ $target != cpu ] || tag=lorafuse
		# shellcheck disable=SC2086
		"$engine" build $platform --target "$target" -t "$tag" .
	done
	exit 0
done
echo "docker_build: no container engine that works:$why" >&2
exit 1
