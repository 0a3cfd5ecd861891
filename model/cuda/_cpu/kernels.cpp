// The kernels of kernels.cu, check.cu and train.cu for the CPU, as a shared object: see scripts/cuda-on-cpu.
#define CUDA_ON_CPU
#include "../kernels.cu"
#include "../check.cu"
#include "../train.cu"

#define NAME(k) static int added_##k = emu::add(#k, k);
NAME(lines_half) NAME(project_half) NAME(step_half) NAME(output_half)
NAME(lines_float) NAME(project_float) NAME(step_float) NAME(output_float)
NAME(check_sum) NAME(check_product)
NAME(train_lines) NAME(train_lines_backward) NAME(train_rows) NAME(train_sums) NAME(train_loss) NAME(train_total)
NAME(train_squares) NAME(train_norm) NAME(train_adamw) NAME(train_adamw_rows)
#define PRODUCT_NAMES(T) NAME(train_nn_##T) NAME(train_nt_##T) NAME(train_tn_##T) NAME(train_forward_##T) NAME(train_backward_##T)
PRODUCT_NAMES(float) PRODUCT_NAMES(half) PRODUCT_NAMES(bf16)
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
