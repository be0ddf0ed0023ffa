// Package driver wraps calls of the CUDA driver that gorgonia.org/cu lacks: pinned memory, launches of whole programs
// in one call, graphs, large shared memory, error names. It accepts cu's handles. Like the driver's own functions, its
// functions use the calling thread's current context.
package driver
