#!/bin/sh
# Takes the steps of the Dockerfile without Docker, in a scratch folder, and
# starts what comes out of them as a container engine would: in a chroot, as the
# image's user, with its health check. Needs Go, and root for the chroot; what
# the image for CUDA is made of is taken from output/cuda and kernels/cuda/build
# where make cuda-kernels has been run, else it is installed and compiled.
#   scripts/docker_steps.sh               both images, and the one for the CPU for arm64
#   scripts/docker_steps.sh cpu,cuda      these; arm64 is the third
set -eu
cd "$(dirname "$0")/.."
LORAFUSE_DOCKER_STEPS=${1:-all}
export LORAFUSE_DOCKER_STEPS
exec "${GO:-go}" test ./dev/image -count=1 -run 'TestSteps|TestContext|TestDockerfile|TestCompose' -v -timeout 20m
