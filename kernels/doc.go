// Package kernels will hold the GPU kernels written by hand, one operation per
// file for CUDA and for Metal, with the launch convention that both share and
// a harness that runs them without a GPU. Nothing is here yet: the CPU's
// kernels live in backend/cpu/internal.
package kernels
