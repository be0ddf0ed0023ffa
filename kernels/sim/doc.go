// Package sim runs the CUDA kernels of kernels/cuda on machines without a GPU:
// a libcuda in C++, which scripts/cuda_sim.sh builds and a program loads in
// place of NVIDIA's. In Go there are only its tests; the README beside this
// file says what it does and which LFSIM_ variables steer it.
package sim
