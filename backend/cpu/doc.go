// Package cpu is the pure-Go backend: the default and the reference of the
// others. Matrix products and row kernels are Go assembly chosen at run time
// (AMX, AVX-512, AVX2, NEON) with portable Go beside it; the environment variable
// LORAFUSE_CPU forces one. Results do not depend on the number of threads.
package cpu
