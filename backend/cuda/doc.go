// Package cuda runs programs on NVIDIA GPUs through the CUDA driver API alone. It is built with the tag cuda on Linux.
// Such a binary also starts on hosts without a driver; the backend is then reported as unavailable.
//
// Each device has one goroutine, locked to a thread, that makes all calls that enqueue work. It uses the device's
// primary context, which other libraries in the process share. There are two streams, one for kernels and one for
// copies; they wait for each other through events if they access the same buffers. Compiling a program prepares its
// launches. A run fills in addresses and sizes, submits the launches in batches, and allocates nothing.
//
// A program has backend.MaxInFlight flights. Each holds the state of one pending run: its arguments, and a trap in which
// kernels report errors. The streams order runs and the uploads that they read without blocking the host, so the
// device has the next run when one ends.
//
// Load uploads the weights of whole models in one of three ways: package safetensors reads files into a ring of pinned
// slots from which the device copies, the pages of mapped files are pinned and copied directly, or the driver copies
// from pageable memory. The same goroutine issues these copies on the copy stream, so that runs wait for them through
// the same events.
//
// Package gpu plans the launches; their kernels are in kernels/cuda and kernels/shared.
package cuda
