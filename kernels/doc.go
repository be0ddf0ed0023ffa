// Package kernels holds hand-written GPU kernels and parses their signatures. Folder
// cuda has one operation per file, all on top of the header device.cuh; folder metal
// has the same operations as Metal shaders; folder sim runs both on machines without a
// GPU. With the build tag cuda the package embeds the fat binaries that nvcc compiles
// (make cuda-kernels).
//
// A kernel in cuda has the form
//
//	extern "C" __global__ void __launch_bounds__(N) name(pointers and numbers) { … }
//	LF_KERNEL(name);
//
// and its file opens with formula, layout, grid, memory traffic and reference loop.
// Sums have a fixed order and kernels use no atomics, so results are bit-identical in
// every run.
package kernels
