// Package shim replaces libcuda at link time. Its functions are trampolines into the driver, which is opened at run
// time, so one binary starts on hosts with and without a GPU.
//
// Until [Load] has succeeded, functions of the driver return CUDA_ERROR_NOT_INITIALIZED. Afterwards, functions that
// the installed driver lacks return CUDA_ERROR_NOT_SUPPORTED. The names are in symbols.txt; go generate writes the
// trampolines.
package shim
