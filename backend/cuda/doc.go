// Package cuda runs programs on NVIDIA GPUs, on the CUDA driver alone. It is
// part of builds with the tag cuda on Linux; such a binary starts on hosts
// without a driver too, where the backend says that it is unavailable.
//
// A device has one goroutine that is tied to a thread and makes all calls that
// enqueue work: on the device's primary context, which it shares with other
// libraries of the process. Two streams, one for computing and one for copies,
// wait for each other by events where they touch the same buffers. What a
// launch needs is prepared when a program is compiled; a run fills in addresses
// and sizes, hands the launches over in batches, and allocates nothing.
//
// A program has backend.Flights flights, each with what one run under way needs for
// itself: arguments, and a trap, where its kernels say what they found wrong. The
// streams have runs, and uploads into what they read, follow each other, and the
// host waits for neither: the device has the next run when one ends.
//
// Weights of whole models come by Load, in one of three ways: package
// safetensors reads into a ring of pinned slots that the device copies from, the
// pages of the mapped files are pinned and copied from, or the driver is left to
// do it. The goroutine issues these copies too, in the stream of copies, so that
// runs wait for them by the same events.
//
// A family of operations has a file launch_x.go here and kernels/cuda/x.cu;
// the table in launch.go brings both together.
package cuda
