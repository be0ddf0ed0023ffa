// Package gpu plans what a GPU launches for a program, in plain Go: which kernels, how
// many blocks of how many threads, how much shared memory, and which arguments. It
// knows no driver. What has one, such as backend/cuda, finds the kernels by their
// names, gives launches their memory, has them filled in for each run, and hands them
// to the device:
//
//	plan, err := gpu.New(program, target)  // once
//	plan.Bind(launches)                    // memory of the device's driver, or Go's
//	plan.Fill(i, &run)                     // for each launch of the program, in each run
//
// Filling in allocates nothing. Kernels are those of kernels/cuda, whose sources
// declare what they are handed: tests hold every launch against them
// (kernels.Signatures). All sizes and all sums follow from the program and the
// sizes of the run alone, so that every device launches the same.
package gpu
