// Package kernels holds hand-written GPU kernels and parses their signatures. Folder
// shared has operations that are written once, in macros that device.h of folders cuda and
// metal defines; those two have the operations that the devices compute in different ways;
// folder sim runs all of them on machines without a GPU. A file has one operation. With
// the build tag cuda the package embeds the fat binaries that nvcc compiles (make
// cuda-kernels).
//
// A kernel in shared begins with LF_ENTRY, which params.h describes. In cuda it has the form
//
//	extern "C" __global__ void __launch_bounds__(N) name(pointers and numbers) { … }
//	LF_KERNEL(name);
//
// and its file opens with formula, layout, grid, memory traffic and reference loop.
// Sums have a fixed order and kernels use no atomics, so results are bit-identical in
// every run.
package kernels
