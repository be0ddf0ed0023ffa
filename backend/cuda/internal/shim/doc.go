// Package shim stands in for libcuda when a program is linked: its functions
// are trampolines into the driver, which is opened when the program runs. One
// binary therefore starts on hosts with and without a GPU.
//
// Before [Load] has succeeded, functions of the driver return
// CUDA_ERROR_NOT_INITIALIZED; afterwards those that this driver does not have
// return CUDA_ERROR_NOT_SUPPORTED. The names are in symbols.txt; go generate
// writes the trampolines.
package shim
