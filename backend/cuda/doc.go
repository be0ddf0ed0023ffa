// Package cuda will hold the backend for NVIDIA GPUs: a device of package
// backend on the CUDA driver, behind the build tag cuda, which launches what
// package kernels embeds. Nothing is here yet: no build registers it, and
// asking for it is an error that says so.
package cuda
