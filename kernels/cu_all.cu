/* Every kernel in one translation unit: what nvcc compiles, once per architecture. */
#include "kernels/cu_attend.cu"
#include "kernels/cu_cache.cu"
#include "kernels/cu_choose.cu"
#include "kernels/cu_product.cu"
#include "kernels/cu_row.cu"
#include "kernels/cu_train.cu"
