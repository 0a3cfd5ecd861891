// Tells a process what AMX's tiles are where a virtual machine hides it.
//
//	cc -O2 -shared -fPIC -o tiles.so tiles.c; LD_PRELOAD=./tiles.so python3 …
//
// Some virtual machines show AMX among the processor's flags and leave CPUID's
// leaves 1D and 1E, which describe the tiles, empty. oneDNN takes the palette
// from there: PyTorch and OpenVINO then end with an illegal instruction at their
// first product in bfloat16. On Linux CPUID can be made to fault (arch_prctl(2),
// ARCH_CPUID). Each one is then run here, and these two leaves answered as a
// processor with palette 1 does (Intel's manual, volume 2, CPUID): 8 tiles of
// 16 rows of 64 bytes. Nothing else of the process changes.
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { ARCH_SET_CPUID = 0x1012, LAST = 0x1e };

static void fault(int sig, siginfo_t *, void *context) {
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
	if (memcmp((void *)r[REG_RIP], "\x0f\xa2", 2) != 0) { // no CPUID
		signal(sig, SIG_DFL);
		return;
	}
	unsigned leaf = r[REG_RAX], sub = r[REG_RCX], a, b, c, d;
	syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
	__cpuid_count(leaf, sub, a, b, c, d);
	syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
	if (leaf == 0 && a < LAST)
		a = LAST;
	if (leaf == 0x1d || leaf == 0x1e)
		a = b = c = d = 0;
	if (leaf == 0x1d && sub == 0)
		a = 1; // the last palette
	if (leaf == 0x1d && sub == 1)
		a = 1024 << 16 | 8192, b = 8 << 16 | 64, c = 16;
	if (leaf == 0x1e && sub == 0)
		b = 64 << 8 | 16;
	r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d;
	r[REG_RIP] += 2;
}

__attribute__((constructor)) static void begin(void) {
	unsigned a, b, c, d;
	if (__get_cpuid_count(0x1d, 0, &a, &b, &c, &d) && a > 0)
		return; // nothing is hidden
	struct sigaction act = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
	sigaction(SIGSEGV, &act, 0);
	syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
}
