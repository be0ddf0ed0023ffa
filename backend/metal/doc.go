// Package metal runs programs on Apple GPUs. It is built on macOS with cgo. With the tags metal and metalfake it is
// also built elsewhere, for tests: the same Objective-C code and shaders run on a fake Metal (kernels/sim/metal).
// Other builds do not contain it.
//
// A run of a program is one command buffer on the device's single queue, or several if its estimated duration is more
// than 100 ms (see EnvCommand). One C call encodes a command buffer from the launches that package gpu plans. Commands
// complete in order; a goroutine waits for them one by one. The host and the device share memory: the host copies data
// that no command uses at once, and other data is copied by a later command. Weights in mapped files are used in place.
//
// Shaders (kernels/metal, kernels/shared) are compiled from source, each file when its first kernel is requested. They
// are compiled in the form that the device supports: with or without simdgroup operations, with or without the type
// bfloat.
package metal
