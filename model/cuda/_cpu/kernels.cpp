// The kernels of kernels.cu for the CPU, as a shared object: see scripts/cuda-on-cpu.
#define CUDA_ON_CPU
#include "../kernels.cu"
#include "../check.cu"

#define NAME(k) static int added_##k = emu::add(#k, k);
NAME(lines_half) NAME(project_half) NAME(step_half) NAME(output_half)
NAME(lines_float) NAME(project_float) NAME(step_float) NAME(output_float)
NAME(check_sum) NAME(check_product)
NAME(resident_1) NAME(resident_2) NAME(resident_3) NAME(resident_4) NAME(resident_5) NAME(resident_6)
#if __CUDA_ARCH__ >= 800
NAME(resident_7) NAME(resident_8)
#endif

// find_kernel is the kernel of that name, or null.
extern "C" void *find_kernel(const char *name) {
  auto k = emu::kernels().find(name);
  return k == emu::kernels().end() ? nullptr : &k->second;
}

// run_kernel runs it to its end; grid and block are x, y, z, and params point to
// the arguments.
extern "C" void run_kernel(void *kernel, const unsigned grid[3], const unsigned block[3], void **params) {
  (*(emu::Kernel *)kernel)(params, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]});
}
