//go:build cuda && cgo

// Defines every function of libcuda and libnvidia-ml that the program refers
// to, as a jump through a slot. So the binary starts where neither library is,
// also with LD_BIND_NOW=1. The slots lead to a stub that returns "not found"
// until linnet_open_cuda and linnet_open_nvml fill them from the libraries. All
// of it is hidden, or the libraries themselves would call these.
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#include "shim.h"

#define HIDDEN __attribute__((visibility("hidden")))

static int cuda_missing(void) { return 500; } // CUDA_ERROR_NOT_FOUND
static int nvml_missing(void) { return 13; }  // NVML_ERROR_FUNCTION_NOT_FOUND

#if defined(__x86_64__)
#define JUMP(slot) "endbr64\n\tjmp *" slot "(%rip)"
#elif defined(__aarch64__)
#define JUMP(slot) "adrp x16, " slot "\n\tldr x16, [x16, :lo12:" slot "]\n\tbr x16"
#else
#error "gpuinit: -tags cuda is for amd64 and arm64"
#endif

#define TRAMPOLINE(name, missing)                                                     \
	HIDDEN void *linnet_slot_##name = (void *)missing;                                \
	__asm__(".pushsection .text\n.globl " #name "\n.hidden " #name "\n.type " #name   \
	        ",%function\n" #name ":\n\t" JUMP("linnet_slot_" #name) "\n.popsection\n");
#define CUDA(name) TRAMPOLINE(name, cuda_missing)
#define NVML(name) TRAMPOLINE(name, nvml_missing)
#include "symbols.h"
#undef CUDA
#undef NVML

// The package init of gorgonia.org/cu calls cuInit and exits the process on an
// error. linnet_init_cuda calls the real one.
HIDDEN int cuInit(unsigned flags) { return 0; }

// go-nvml asks for the text of an error once the library is open.
static const char *nvml_text(int code) { return "unknown error"; }
static const char *(*error_string)(int) = nvml_text;
HIDDEN const char *nvmlErrorString(int code) { return error_string(code); }

struct slot {
	const char *name;
	void **slot;
};

#define ROW(name) {#name, &linnet_slot_##name},
static const struct slot cuda_slots[] = {
#define CUDA(name) ROW(name)
#define NVML(name)
#include "symbols.h"
#undef CUDA
#undef NVML
};
static const struct slot nvml_slots[] = {
#define CUDA(name)
#define NVML(name) ROW(name)
#include "symbols.h"
#undef CUDA
#undef NVML
};

static void *open_library(const char *name, const struct slot *slots, size_t n, char *why, size_t size) {
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		const char *text = dlerror();
		snprintf(why, size, "%s", text ? text : name);
		return NULL;
	}
	for (size_t i = 0; i < n; i++) {
		void *f = dlsym(lib, slots[i].name); // an older driver lacks some
		if (f) *slots[i].slot = f;
	}
	return lib;
}

static void *cuda;

HIDDEN int linnet_open_cuda(char *why, size_t size) {
	cuda = open_library("libcuda.so.1", cuda_slots, sizeof cuda_slots / sizeof *cuda_slots, why, size);
	return cuda != NULL;
}

HIDDEN int linnet_init_cuda(void) {
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
	return init ? init(0) : cuda_missing();
}

HIDDEN int linnet_open_nvml(char *why, size_t size) {
	void *lib = open_library("libnvidia-ml.so.1", nvml_slots, sizeof nvml_slots / sizeof *nvml_slots, why, size);
	if (!lib) return 0;
	void *f = dlsym(lib, "nvmlErrorString");
	if (f) error_string = (const char *(*)(int))f;
	// Drivers 535.43 to 535.86 write a process of 32 bytes where all others, and
	// go-nvml, have one of 24. The next had a function of its own for those.
	if (!dlsym(lib, "nvmlDeviceGetRunningProcessDetailList")) {
		if ((f = dlsym(lib, "nvmlDeviceGetComputeRunningProcesses_v2"))) linnet_slot_nvmlDeviceGetComputeRunningProcesses_v3 = f;
		if ((f = dlsym(lib, "nvmlDeviceGetMPSComputeRunningProcesses_v2"))) linnet_slot_nvmlDeviceGetMPSComputeRunningProcesses_v3 = f;
	}
	return 1;
}
