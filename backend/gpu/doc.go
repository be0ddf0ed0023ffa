// Package gpu is what the backends for GPUs have in common, in plain Go. It plans what a
// GPU launches for a program: which kernels, how many blocks of how many threads, how much
// shared memory, and which arguments:
//
//	plan, err := gpu.New(program, target)  // once
//	plan.Bind(launches)
//	plan.Fill(i, &run)                     // for each launch of the program, in each run
//
// And it runs such plans: a Device keeps memory, copies and programs under way, on top of
// a Driver, which is all that a backend, such as backend/cuda, adds.
//
// Filling in allocates nothing. Kernels are those of kernels/cuda, whose sources
// declare what they are handed: tests hold every launch against them
// (kernels.Signatures). All sizes and all sums follow from the program and the
// sizes of the run alone, so that every device launches the same.
package gpu
