/* The kernel images of this binary, one for each architecture (Makefile, CUDA=1). */
#pragma once
#include <stddef.h>

struct cuda_image { const char *data; size_t size; };   /* a cubin (ELF), or PTX text with a final NUL */

/* Architecture of an image, read from its bytes: "sm_90a", "compute_80"; "?" when it is neither. */
const char *cuda_image_arch(const struct cuda_image *, char text[16]);
/* The image for compute capability major.minor: code of this very architecture, else code that runs on it,
 * else PTX; NULL: none. */
const struct cuda_image *cuda_image_for(int major, int minor);
/* The numerics id of an image on such a GPU: "cuda-sm_90a-2" on the architecture that the image was made for,
 * elsewhere "cuda-sm_80-on-86-1" or "cuda-ptx_80-on-120-1". */
const char *cuda_numerics(const struct cuda_image *, int major, int minor, char text[32]);
