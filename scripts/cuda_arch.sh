#!/bin/sh
# Prints the nvcc options that select the target devices: all, or the one that
# LORAFUSE_CUDA_ARCH names, such as 90a.
set -eu
case ${LORAFUSE_CUDA_ARCH:-all} in
all)
	for arch in 80 89 90a 100; do printf '%s' "-gencode arch=compute_$arch,code=sm_$arch "; done
	echo '-gencode arch=compute_80,code=compute_80'
	;;
80 | 89 | 90a | 100) echo "-gencode arch=compute_$LORAFUSE_CUDA_ARCH,code=sm_$LORAFUSE_CUDA_ARCH" ;;
*)
	echo "cuda_arch: LORAFUSE_CUDA_ARCH is \"$LORAFUSE_CUDA_ARCH\", expected 80, 89, 90a or 100, or nothing for all" >&2
	exit 1
	;;
esac
