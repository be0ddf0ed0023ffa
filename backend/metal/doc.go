// Package metal runs programs on Apple GPUs. It is part of builds for macOS with cgo;
// elsewhere it is part of builds with the tags metal and metalfake, which run the same
// Objective-C and the same shaders on a stand-in for Metal (kernels/sim/metal), for
// tests. Other builds have nothing of it.
//
// A run of a program is one command buffer of the device's one queue, encoded from the
// launches that package gpu plans, by one call of C. Commands are done in their order; a
// goroutine waits for them one by one. The host and the device compute in the same
// memory: what no command uses is copied at once, by the host, and what one does by a
// command behind it. Weights in mapped files are used where they lie.
//
// Shaders (kernels/metal) are compiled from their text, each file when the first of its
// kernels is asked for, in the form that the device is found able to run: with or
// without what simdgroups exchange, with or without the type bfloat.
package metal
