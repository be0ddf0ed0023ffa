// Package gpu plans and runs programs on GPUs, for all GPU backends, in plain Go. A Plan holds the launches of a
// program: the kernels, their grids and blocks, their shared memory and their arguments:
//
//	plan, err := gpu.New(program, target)  // once
//	plan.Bind(launches)
//	plan.Fill(i, &run)                     // for each launch of the program, in each run
//
// A Device runs plans and manages memory, copies and pending runs. It works on top of a Driver, the only part that a
// backend such as backend/cuda implements.
//
// Filling in a launch allocates nothing. The kernels are in kernels/cuda, whose sources declare their parameters;
// tests check every launch against them (kernels.Signatures). Sizes and the order of sums depend only on the program
// and the sizes of the run, so every device launches the same kernels.
package gpu
