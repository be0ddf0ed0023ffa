// Package kernels holds the GPU kernels written by hand: cuda has one operation
// per file, all on the one header device.cuh, and sim runs the same sources on
// machines without a GPU. With the build tag cuda it embeds what nvcc made of
// them (make kernels); without it there is nothing to import here.
//
// A kernel of cuda is
//
//	extern "C" __global__ void __launch_bounds__(N) name(pointers and numbers) { … }
//	LF_KERNEL(name);
//
// and its file says formula, layout, grid, traffic and the loop that it replaces.
// Sums have a fixed order and nothing is atomic: the same bytes come out every
// run.
package kernels
