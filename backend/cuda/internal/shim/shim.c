//go:build cuda && linux

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "shim.h"
#include "symbols.h"

// Results of the driver that mean "not yet" and "not in this driver".
enum { NOT_INITIALIZED = 3, NOT_SUPPORTED = 801 };

static int not_loaded(void) { return NOT_INITIALIZED; }
static int not_supported(void) { return NOT_SUPPORTED; }

typedef int (*function)(void);

// The trampolines jump to these addresses, at first to a function that
// reports that the driver is missing.
#define NOT_LOADED(i, name) [i] = not_loaded,
__attribute__((visibility("hidden"))) function lorafuse_cuda_table[LORAFUSE_CUDA_SYMBOLS] = {LORAFUSE_CUDA_EACH(NOT_LOADED)};

#define NAME(i, name) [i] = #name,
static const char *const names[LORAFUSE_CUDA_SYMBOLS] = {LORAFUSE_CUDA_EACH(NAME)};

// gorgonia.org/cu calls cuInit before main and ends the process when it fails,
// so before the driver is open it succeeds and does nothing.
static int (*init)(unsigned flags);
__attribute__((visibility("hidden"))) int cuInit(unsigned flags) { return init ? init(flags) : 0; }

// find finds a function by name; a driver older than the headers may have it
// without a version suffix.
static function find(void *library, const char *name) {
	function f = (function)dlsym(library, name);
	const char *version = strstr(name, "_v");
	char plain[128];
	size_t n = version ? (size_t)(version - name) : 0;
	if (f || !version || n >= sizeof plain) return f;
	memcpy(plain, name, n);
	plain[n] = 0;
	return (function)dlsym(library, plain);
}

int lorafuse_cuda_open(const char *path, char *why, int size, int *missing) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(why, size, "%s", dlerror());
		return -1;
	}
	int (*start)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
	if (!start) {
		snprintf(why, size, "no cuInit in it: not a CUDA driver");
		dlclose(library);
		return -1;
	}
	int result = start(0);
	if (result) {
		const char *name = 0;
		int (*describe)(int, const char **) = (int (*)(int, const char **))dlsym(library, "cuGetErrorName");
		if (describe) describe(result, &name);
		snprintf(why, size, "cuInit: %s (%d)", name ? name : "error", result);
		dlclose(library);
		return result;
	}
	*missing = 0;
	for (int i = 0; i < LORAFUSE_CUDA_SYMBOLS; i++) {
		function f = find(library, names[i]);
		if (!f) ++*missing;
		lorafuse_cuda_table[i] = f ? f : not_supported;
	}
	init = start;
	return 0;
}

int lorafuse_cuda_call(int i) { return lorafuse_cuda_table[i](); }

int lorafuse_cuda_symbols(void) { return LORAFUSE_CUDA_SYMBOLS; }
