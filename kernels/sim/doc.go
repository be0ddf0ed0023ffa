// Package sim runs the kernels of GPUs on machines without one: a libcuda in C++
// for those of kernels/cuda, which scripts/cuda_sim.sh builds and a program loads
// in place of NVIDIA's, and a Metal for those of kernels/metal, which
// scripts/metal_sim.sh builds and the backend is linked with. In Go there are only
// its tests; the README beside this file says what they do and which LFSIM_
// variables steer them.
package sim
