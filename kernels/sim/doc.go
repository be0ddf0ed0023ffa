// Package sim tests two simulators that run GPU kernels on machines without a GPU. A
// libcuda in C++, which scripts/cuda_sim.sh builds and a program loads instead of
// NVIDIA's, runs kernels/cuda and kernels/shared. A Metal library, which
// scripts/metal_sim.sh builds and the backend is linked with, runs kernels/metal and
// kernels/shared. The README in this folder describes the simulators and the LFSIM_ environment variables that configure them.
package sim
