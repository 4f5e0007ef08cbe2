/* cuBLAS, loaded with dlopen. Start reading at cublas_open. */
#include "kernels/cuda/cublas.h"

#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Constants of cuBLAS, unchanged since version 11. */
enum { OP_N = 0, OP_T = 1, R_32F = 0, R_16BF = 14, COMPUTE_32F = 68, GEMM_DEFAULT = -1 };

struct cublas {
    void *lib, *handle;
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*gemm_ex)(void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                   int a_type, int lda, const void *b, int b_type, int ldb, const void *beta, void *c,
                   int c_type, int ldc, int compute, int algorithm);
};

static bool load(struct cublas *b, const char *name)
{
    const struct { const char *name; void *slot; } call[] = {
        { "cublasCreate_v2", &b->create }, { "cublasDestroy_v2", &b->destroy }, { "cublasSetStream_v2",
            &b->set_stream }, { "cublasGemmEx", &b->gemm_ex },
    };
    if (!(b->lib = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)))
        return false;
    for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
        void *f = dlsym(b->lib, call[i].name);
        if (!f) {
            dlclose(b->lib);
            return false;
        }
        memcpy(call[i].slot, &f, sizeof f);
    }
    return true;
}

/* Tries the newest version first. A version too new for the driver does not start; then the one before it is
 * tried. */
int cublas_open(struct cublas **out, void *stream, char *why, size_t why_size)
{
    static const char *const names[] = { "libcublas.so.13", "libcublas.so.12" };
    struct cublas *b = calloc(1, sizeof *b);
    *out = NULL;
    snprintf(why, why_size,
             "training on a GPU needs cuBLAS, and neither libcublas.so.13 nor libcublas.so.12 is there; "
             "--device cpu trains without it");
    for (size_t i = 0; b && i < sizeof names / sizeof *names; i++) {
        if (!load(b, names[i]))
            continue;
        int rc = b->create(&b->handle);
        if (rc == 0 && (rc = b->set_stream(b->handle, stream)) != 0)
            b->destroy(b->handle);
        if (rc == 0) {
            *out = b;
            return 0;
        }
        snprintf(why, why_size,
                 "training on a GPU needs cuBLAS, and %s does not start (status %d); --device cpu trains "
                 "without it",
                 names[i], rc);
        dlclose(b->lib);
    }
    free(b);
    return -1;
}

int cublas_gemm(struct cublas *b, const struct gpu_gemm *g, char *why, size_t why_size)
{
    const float one = 1, beta = g->add ? 1 : 0;
    assert(g->m <= INT_MAX && g->n <= INT_MAX && g->k <= INT_MAX && g->lda <= INT_MAX && g->ldb <= INT_MAX &&
           g->ldc <= INT_MAX);
    int rc = b->gemm_ex(b->handle, g->a_t ? OP_T : OP_N, g->b_t ? OP_T : OP_N, (int)g->m, (int)g->n,
                        (int)g->k, &one, g->a, R_16BF, (int)g->lda, g->b, R_16BF, (int)g->ldb, &beta, g->c,
                        R_32F, (int)g->ldc, COMPUTE_32F, GEMM_DEFAULT);
    if (rc)
        snprintf(why, why_size, "cublasGemmEx of %zu x %zu x %zu: status %d", g->m, g->n, g->k, rc);
    return rc ? -1 : 0;
}

void cublas_close(struct cublas *b)
{
    if (b) {
        b->destroy(b->handle);
        dlclose(b->lib);
    }
    free(b);
}
