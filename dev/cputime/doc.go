// Package cputime times what benchmarks of tests compare by the processor, not by
// the clock: on machines that others share, waiting is no part of it.
//
// It is for Linux.
package cputime
