// The kernels of train.cu for the CPU, as a shared object; kernels.cpp has the others too.
#ifndef CUDA_ON_CPU
#define CUDA_ON_CPU
#endif
#include "../train.cu"

#define NAME(k) static int added_##k = emu::add(#k, k);
NAME(train_lines) NAME(train_lines_backward) NAME(train_rows) NAME(train_sums) NAME(train_loss) NAME(train_total)
NAME(train_squares) NAME(train_norm) NAME(train_adamw) NAME(train_adamw_rows)
#define PRODUCT_NAMES(T) NAME(train_nn_##T) NAME(train_nt_##T) NAME(train_tn_##T) NAME(train_forward_##T) NAME(train_backward_##T)
PRODUCT_NAMES(float) PRODUCT_NAMES(half) PRODUCT_NAMES(bf16)

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
