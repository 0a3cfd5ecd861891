// The kernels of kernels.cu, check.cu and train.cu (train.cpp) for the CPU, as a shared object: see scripts/standin.
#define CUDA_ON_CPU
#include "../kernels.cu"
#include "../check.cu"
#include "train.cpp"

NAME(lines_half) NAME(project_half) NAME(step_half) NAME(output_half)
NAME(lines_float) NAME(project_float) NAME(step_float) NAME(output_float)
NAME(check_sum) NAME(check_product)
NAME(resident_1) NAME(resident_2) NAME(resident_3) NAME(resident_4) NAME(resident_5) NAME(resident_6)
#if __CUDA_ARCH__ >= 800
NAME(resident_7) NAME(resident_8)
#endif
