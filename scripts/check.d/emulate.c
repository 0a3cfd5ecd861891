// Runs a program and does for it the instructions that this processor lacks: those
// of AMX's tiles with products in bfloat16, and AVX-VNNI's VPDPWSSD.
//
//	cc -O2 -mfma -o emulate emulate.c; ./emulate PROGRAM [ARGUMENT]…
//
// For tests where no such processor is at hand: each costs some 20 µs, for the
// program stops at it (ptrace(2)). What they do is told by Intel's manual, volume 2.
// An instruction that is none of these, or that a processor would refuse too, ends
// the program as ever. It ends with the program's status. Linux on x86-64.
#define _GNU_SOURCE
#include <elf.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NONE, P66, PF3, PF2 }; // prefixes as VEX has them
enum { YMM_HIGH = 576 };      // where their upper halves stand in an XSAVE area

// A thread's tiles: how many rows of how many bytes, and these.
typedef struct {
	pid_t thread;
	uint8_t rows[8];
	uint16_t bytes[8];
	uint8_t tile[8][16][64];
} Tiles;

static Tiles *tiles_of(pid_t thread) {
	static Tiles all[1024];
	for (int i = 0; i < 1024; i++)
		if (all[i].thread == thread || all[i].thread == 0) {
			all[i].thread = thread;
			return &all[i];
		}
	return NULL;
}

// move reads or writes n pieces of the program's memory, stride apart.
static int move(pid_t p, int write, uint64_t at, int64_t stride, void *to, size_t step, int n, size_t size) {
	struct iovec here[16], there[16];
	for (int i = 0; i < n; i++) {
		here[i] = (struct iovec){(char *)to + i * step, size};
		there[i] = (struct iovec){(void *)(at + i * stride), size};
	}
	ssize_t all = (write ? process_vm_writev : process_vm_readv)(p, here, n, there, n, 0);
	return all == (ssize_t)(n * size);
}

static float bfloat16(const uint8_t *p) {
	uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
	float f;
	memcpy(&f, &bits, 4);
	return f;
}

// multiply is TDPBF16PS: c += a·b, even and odd products summed apart.
static int multiply(Tiles *t, int c, int a, int b) {
	int rows = t->rows[c], columns = t->bytes[c] / 4, depth = t->bytes[a] / 4;
	if (rows == 0 || t->rows[a] != rows || t->rows[b] != depth || t->bytes[b] != t->bytes[c])
		return 0;
	for (int i = 0; i < rows; i++)
		for (int j = 0; j < columns; j++) {
			float even = 0, odd = 0, sum;
			for (int k = 0; k < depth; k++) {
				const uint8_t *x = t->tile[a][i] + 4 * k, *y = t->tile[b][k] + 4 * j;
				even = __builtin_fmaf(bfloat16(x), bfloat16(y), even);
				odd = __builtin_fmaf(bfloat16(x + 2), bfloat16(y + 2), odd);
			}
			memcpy(&sum, t->tile[c][i] + 4 * j, 4);
			sum += even + odd;
			memcpy(t->tile[c][i] + 4 * j, &sum, 4);
		}
	return 1;
}

// vpdpwssd is that of YMM registers.
static int vpdpwssd(pid_t p, int sum, int a, int b) {
	uint8_t area[16384] __attribute__((aligned(64)));
	struct iovec v = {area, sizeof area};
	if (ptrace(PTRACE_GETREGSET, p, NT_X86_XSTATE, &v) != 0)
		return 0;
	uint8_t *legacy = area + offsetof(struct user_fpregs_struct, xmm_space);
	area[512] |= 7; // the halves are in use
	for (int lane = 0; lane < 8; lane++) {
		uint8_t *half = lane < 4 ? legacy : area + YMM_HIGH;
		int16_t x[2], y[2];
		int32_t s;
		memcpy(x, half + 16 * a + lane % 4 * 4, 4);
		memcpy(y, half + 16 * b + lane % 4 * 4, 4);
		memcpy(&s, half + 16 * sum + lane % 4 * 4, 4);
		s = (uint32_t)s + x[0] * y[0] + (uint32_t)(x[1] * y[1]);
		memcpy(half + 16 * sum + lane % 4 * 4, &s, 4);
	}
	return ptrace(PTRACE_SETREGSET, p, NT_X86_XSTATE, &v) == 0;
}

// emulate does the instruction at which thread p stands, or returns 0.
static int emulate(pid_t p) {
	struct user_regs_struct r;
	uint8_t code[10]; // the longest is as long; what follows belongs to the program as well
	if (ptrace(PTRACE_GETREGS, p, NULL, &r) != 0 || !move(p, 0, r.rip, 0, code, 0, 1, sizeof code))
		return 0;
	if (code[0] != 0xc4 || (code[1] & 31) != 2 || code[2] >> 7) // VEX, map 0F38, W0
		return 0;
	const unsigned long long general[] = {r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15};
	int high = ~code[1] >> 5, prefix = code[2] & 3, vector = code[2] & 4, second = ~code[2] >> 3 & 15, op = code[3];
	int mode = code[4] >> 6, first = (code[4] >> 3 & 7) | (high & 4) << 1, third = (code[4] & 7) | (high & 1) << 3;
	int length = 5, done;
	if (vector) {
		done = op == 0x52 && prefix == P66 && mode == 3 && vpdpwssd(p, first, second, third);
	} else {
		Tiles *t = tiles_of(p);
		if (t == NULL)
			return 0;
		uint64_t at = 0, stride = 0;
		if (mode != 3) {
			if (third % 8 == 4) { // a base, an index and its scale
				int index = (code[length] >> 3 & 7) | (high & 2) << 2;
				third = (code[length] & 7) | (high & 1) << 3;
				stride = index == 4 ? 0 : general[index] << (code[length] >> 6);
				length++;
			}
			if (mode == 0 && third % 8 == 5) // no base
				return 0;
			at = general[third];
			int32_t far = 0;
			if (mode == 1)
				far = (int8_t)code[length++];
			if (mode == 2) {
				memcpy(&far, code + length, 4);
				length += 4;
			}
			at += far;
		}
		uint8_t(*tile)[64] = t->tile[first & 7];
		int rows = t->rows[first & 7], bytes = t->bytes[first & 7];
		switch (op << 4 | prefix << 1 | (mode == 3)) {
		case 0x49 << 4 | NONE << 1: { // LDTILECFG
			uint8_t config[64];
			if (!move(p, 0, at, 0, config, 0, 1, 64) || config[0] != 1)
				return 0;
			memcpy(t->bytes, config + 16, sizeof t->bytes);
			memcpy(t->rows, config + 48, sizeof t->rows);
			memset(t->tile, 0, sizeof t->tile);
			done = 1;
			for (int i = 0; i < 8; i++)
				done = done && t->rows[i] <= 16 && t->bytes[i] <= 64;
			break;
		}
		case 0x49 << 4 | NONE << 1 | 1: // TILERELEASE
			memset(t->rows, 0, sizeof t->rows);
			done = 1;
			break;
		case 0x49 << 4 | PF2 << 1 | 1: // TILEZERO
			memset(tile, 0, sizeof t->tile[0]);
			done = rows > 0;
			break;
		case 0x4b << 4 | PF2 << 1: // TILELOADD
		case 0x4b << 4 | P66 << 1: // TILELOADDT1
			memset(tile, 0, sizeof t->tile[0]);
			done = rows > 0 && move(p, 0, at, stride, tile, 64, rows, bytes);
			break;
		case 0x4b << 4 | PF3 << 1: // TILESTORED
			done = rows > 0 && move(p, 1, at, stride, tile, 64, rows, bytes);
			break;
		case 0x5c << 4 | PF3 << 1 | 1: // TDPBF16PS
			done = multiply(t, first & 7, third & 7, second & 7);
			break;
		default:
			return 0;
		}
	}
	r.rip += length;
	return done && ptrace(PTRACE_SETREGS, p, NULL, &r) == 0;
}

int main(int argc, char **argv) {
	if (argc < 2) {
		fprintf(stderr, "usage: emulate PROGRAM [ARGUMENT]...\n");
		return 2;
	}
	pid_t program = fork();
	if (program == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		execvp(argv[1], argv + 1);
		perror(argv[1]);
		_exit(127);
	}
	int status;
	waitpid(program, &status, 0);
	if (ptrace(PTRACE_SETOPTIONS, program, NULL, PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC) != 0) {
		perror("emulate: ptrace");
		return 3;
	}
	long count = 0;
	ptrace(PTRACE_CONT, program, NULL, 0);
	for (;;) {
		pid_t p = wait4(-1, &status, __WALL, NULL);
		if (p < 0) {
			perror("emulate: wait");
			return 3;
		}
		if (!WIFSTOPPED(status)) {
			if (p != program)
				continue; // a thread's end
			fprintf(stderr, "emulate: %ld instructions\n", count);
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		}
		int signal = WSTOPSIG(status);
		if (signal == SIGILL && emulate(p)) {
			signal = 0;
			count++;
		}
		if (signal == SIGTRAP || signal == SIGSTOP)
			signal = 0; // of the tracing
		ptrace(PTRACE_CONT, p, NULL, signal);
	}
}
