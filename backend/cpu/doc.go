// Package cpu implements the pure-Go backend, the default and the reference for the others. Matrix multiplications
// and row kernels are Go assembly that is selected at run time (AMX, AVX-512, AVX2, NEON), with portable Go as the
// fallback. The environment variable LORAFUSE_CPU forces one. Results do not depend on the number of threads.
package cpu
