// Package driver has the calls of the CUDA driver that gorgonia.org/cu lacks:
// pinned memory, launches of whole programs in one call, graphs, large shared
// memory, names of errors. It takes cu's handles. Like the driver's own, its
// functions work on the calling thread's current context.
package driver
