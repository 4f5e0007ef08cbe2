/* All kernels in one translation unit, which nvcc compiles once for each architecture. */
#include "kernels/cu_attend.cu"
#include "kernels/cu_cache.cu"
#include "kernels/cu_naive.cu"
#include "kernels/cu_sample.cu"
#include "kernels/cu_product.cu"
#include "kernels/cu_row.cu"
#include "kernels/cu_train.cu"
