// Package cputime compares functions in benchmarks by CPU time instead of wall time, so that waiting on shared
// machines does not count.
//
// It supports Linux only.
package cputime
