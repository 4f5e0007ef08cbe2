/* All kernels in one translation unit, which nvcc compiles once for each architecture. */
#include "kernels/cuda/cu_attend.cu"
#include "kernels/cuda/cu_cache.cu"
#include "kernels/cuda/cu_sample.cu"
#include "kernels/cuda/cu_product.cu"
#include "kernels/cuda/cu_row.cu"
#include "kernels/cuda/cu_train.cu"
