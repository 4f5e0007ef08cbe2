/* The CUDA driver below device_gpu.c. libcuda.so.1 comes with the machine's GPU driver and is loaded at run
 * time; no other part of CUDA is needed. A build without CUDA has no device. Start reading at
 * device_cuda_open. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cublas.h"
#include "kernels/cuda/cuda_images.h"
#include "kernels/device.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/graphs.h"

#ifndef WITH_CUDA

size_t device_cuda_count(char *why, size_t why_size)
{
    snprintf(why, why_size, "this build has no CUDA");
    return 0;
}

int device_cuda_open(struct device **out, size_t ordinal, char *why, size_t why_size)
{
    (void)out, (void)ordinal;
    snprintf(why, why_size, "this build has no CUDA");
    return -1;
}

bool device_cuda_is_refused(void) { return false; }

#else
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>

#define CALLS(X) \
    X(cuInit, ) X(cuDriverGetVersion, ) X(cuDeviceGetCount, ) X(cuDeviceGet, ) X(cuDeviceGetName, ) \
    X(cuDeviceGetAttribute, ) X(cuDevicePrimaryCtxRetain, ) X(cuDevicePrimaryCtxRelease, _v2) \
    X(cuCtxSetCurrent, ) X(cuModuleLoadData, ) X(cuModuleUnload, ) X(cuModuleGetFunction, ) \
    X(cuFuncGetAttribute, ) X(cuFuncSetAttribute, ) X(cuMemAlloc, _v2) X(cuMemFree, _v2) \
    X(cuMemGetInfo, _v2) X(cuMemcpyHtoDAsync, _v2) X(cuMemcpyDtoHAsync, _v2) X(cuMemcpyDtoDAsync, _v2) \
    X(cuMemsetD8Async, ) X(cuStreamCreate, ) X(cuStreamDestroy, _v2) X(cuStreamSynchronize, ) \
    X(cuLaunchKernelEx, ) X(cuStreamBeginCapture, _v2) X(cuStreamEndCapture, ) \
    X(cuGraphInstantiateWithFlags, ) X(cuGraphLaunch, ) X(cuGraphExecDestroy, ) X(cuGraphDestroy, ) \
    X(cuGetErrorName, ) X(cuEventCreate, ) X(cuEventDestroy, _v2) X(cuEventRecord, ) X(cuStreamWaitEvent, ) \
    X(cuMemAllocHost, _v2) X(cuMemFreeHost, ) X(cuDeviceGetUuid, _v2)

/* cuda.h renames some calls to their present version, so the prototypes match the names. */
static struct {
#define X(name, version) __typeof__(name) *name##_;
    CALLS(X)
#undef X
} cu;
/* cuFuncLoad, from 12.4 on; in older versions any query of a function loads it */
static CUresult (*cu_func_load)(CUfunction);

enum { FETCH_BYTES = 1 << 20, UP_BYTES = 16 << 20, UP_PIECE = 1 << 20, DOWN_BYTES = 64 << 10 };
struct cuda {
    struct gpu_driver d;
    CUdevice device;
    CUcontext context;
    CUmodule module; char *image_file;       /* image_file: NULL, or the image of LONGHAND_CUDA_IMAGES */
    CUstream stream;
    CUfunction kernel[CU_N_KERNELS];
    bool graphs;
    bool overlaps;                           /* programmatic dependent launch */
    bool plain_next;                         /* weights were written: the next kernel must not read ahead */
    char *up; size_t up_at;  /* pinned memory: UP_BYTES of uploads in flight, then DOWN_BYTES for downloads */
    struct graphs recorded;                  /* CUgraphExec */
    uint64_t key; bool recording;
    struct cublas *cublas;                   /* NULL: not loaded */
    /* Fetching uses a stream of its own, ordered after an event of the first stream, and pinned memory, which
     * the copy engine reaches while kernels run. */
    CUstream fetch_stream;
    CUevent mark;
    void *pinned; bool lock_made;
    pthread_mutex_t lock;                    /* protects the pinned memory */
};

/* Cubins of a toolkit load in every driver of the same major version of CUDA or a later one. */
enum { CUDA_NEEDED = CUDA_VERSION / 1000 * 1000, DRIVER_NEEDED = CUDA_VERSION >= 13000 ? 580 : 525 };
static bool refused_;

bool device_cuda_is_refused(void) { return refused_; }

/* Opens the driver's library and checks its version, before any call that an old driver lacks. */
static int load_library(void **lib, char *why, size_t size)
{
    int version = 0;
    if (!*lib && !(*lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))) {
        snprintf(why, size, "no NVIDIA driver (libcuda.so.1)");
        return -1;
    }
    void *f = dlsym(*lib, "cuDriverGetVersion");
    memcpy(&cu.cuDriverGetVersion_, &f, sizeof f);
    if (f && cu.cuDriverGetVersion_(&version) == CUDA_SUCCESS && version < CUDA_NEEDED) {
        snprintf(why, size, "the NVIDIA driver is too old: it supports CUDA up to %d.%d, this program needs "
                 "CUDA %d.%d (driver %d or newer)", version / 1000, version % 1000 / 10, CUDA_NEEDED / 1000,
                 CUDA_NEEDED % 1000 / 10, DRIVER_NEEDED);
        refused_ = true;
        return -1;
    }
    return 0;
}

static int load(char *why, size_t size)
{
    static void *lib;
    if (load_library(&lib, why, size))
        return -1;
#define X(name, version) \
    { void *f = dlsym(lib, #name #version); \
      if (!f) { \
          snprintf(why, size, "the NVIDIA driver is too old: it lacks %s", #name #version); \
          refused_ = true; \
          return -1; \
      } \
      memcpy(&cu.name##_, &f, sizeof f); }
    CALLS(X)
#undef X
    void *func_load = dlsym(lib, "cuFuncLoad");
    memcpy(&cu_func_load, &func_load, sizeof cu_func_load);
    CUresult r = cu.cuInit_(0);
    if (r != CUDA_SUCCESS) {
        const char *name = "?";
        cu.cuGetErrorName_(r, &name);
        snprintf(why, size, "the NVIDIA driver finds no GPU (cuInit: %s)", name);
        return -1;
    }
    return 0;
}

static int failed(struct cuda *c, CUresult r, const char *what, const char *which)
{
    const char *name = "?";
    if (r == CUDA_SUCCESS)
        return 0;
    cu.cuGetErrorName_(r, &name);
    if (!*c->d.error)
        snprintf(c->d.error, sizeof c->d.error, "%s%s%s: %s", what, *which ? " " : "", which, name);
    return -1;
}

#define CALL(c, name, ...) failed(c, cu.name##_(__VA_ARGS__), #name, "")

/* Calls may come from another thread than the one that opened the device. */
static struct cuda *enter(struct gpu_driver *d)
{
    struct cuda *c = (struct cuda *)d;
    cu.cuCtxSetCurrent_(c->context);
    return c;
}

static void destroy_graphs(struct cuda *c)
{
    for (size_t i = 0; i < c->recorded.n; i++)
        cu.cuGraphExecDestroy_(c->recorded.at[i].graph);
    c->recorded.n = c->recorded.bytes = 0;
}

static void cuda_close(struct gpu_driver *d)
{
    struct cuda *c = enter(d);
    if (c->stream)
        cu.cuStreamSynchronize_(c->stream);
    destroy_graphs(c);
    cublas_close(c->cublas);
    if (c->fetch_stream)
        cu.cuStreamDestroy_(c->fetch_stream);
    if (c->mark)
        cu.cuEventDestroy_(c->mark);
    if (c->pinned)
        cu.cuMemFreeHost_(c->pinned);
    if (c->up)
        cu.cuMemFreeHost_(c->up);
    if (c->lock_made)
        pthread_mutex_destroy(&c->lock);
    if (c->stream)
        cu.cuStreamDestroy_(c->stream);
    if (c->module)
        cu.cuModuleUnload_(c->module);
    cu.cuDevicePrimaryCtxRelease_(c->device);
    free(c->image_file);
    free(c);
}

static int cuda_zero(struct gpu_driver *d, void *dst, size_t bytes)
{
    struct cuda *c = enter(d);
    return CALL(c, cuMemsetD8Async, (CUdeviceptr)dst, 0, bytes, c->stream);
}

static void *cuda_alloc(struct gpu_driver *d, size_t bytes, bool zeroed)
{
    CUdeviceptr p = 0;
    enter(d);
    if (cu.cuMemAlloc_(&p, bytes ? bytes : 1) != CUDA_SUCCESS)
        return NULL;
    if (bytes && zeroed)
        cuda_zero(d, (void *)p, bytes);
    return (void *)p;
}

static void cuda_free(struct gpu_driver *d, void *p)
{
    struct cuda *c = enter(d);
    cu.cuStreamSynchronize_(c->stream);
    destroy_graphs(c);                        /* graphs may hold this address */
    cu.cuMemFree_((CUdeviceptr)p);
}

static size_t cuda_bytes_free(struct gpu_driver *d)
{
    size_t left = 0, all;
    enter(d);
    return cu.cuMemGetInfo_(&left, &all) == CUDA_SUCCESS ? left : 0;
}

/* Waits until nothing is in flight. */
static int synchronize(struct cuda *c)
{
    c->up_at = 0;
    return CALL(c, cuStreamSynchronize, c->stream);
}

/* Uploads through pinned memory. Whether a copy from pageable memory has finished when the call returns
 * depends on driver and machine. */
static int cuda_upload(struct gpu_driver *d, void *dst, const void *src, size_t bytes)
{
    struct cuda *c = enter(d);
    for (size_t at = 0, n; at < bytes; at += n) {
        if (c->up_at == UP_BYTES && synchronize(c))
            return -1;
        n = UP_BYTES - c->up_at < UP_PIECE ? UP_BYTES - c->up_at : UP_PIECE;
        n = bytes - at < n ? bytes - at : n;
        memcpy(c->up + c->up_at, (const char *)src + at, n);
        if (CALL(c, cuMemcpyHtoDAsync, (CUdeviceptr)dst + at, c->up + c->up_at, n, c->stream))
            return -1;
        c->up_at += (n + 63) / 64 * 64;
    }
    return 0;
}

static int cuda_download(struct gpu_driver *d, const struct gpu_piece *p, size_t n)
{
    struct cuda *c = enter(d);
    char *at = c->up + UP_BYTES;
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += p[i].bytes;
    /* ids and scores of a round: through pinned memory, without the driver's staging */
    const bool few = bytes <= DOWN_BYTES;
    bytes = 0;
    for (size_t i = 0; i < n; bytes += p[i++].bytes)
        if (p[i].bytes && CALL(c, cuMemcpyDtoHAsync, few ? at + bytes : p[i].dst, (CUdeviceptr)p[i].src,
                               p[i].bytes, c->stream))
            return -1;
    if (synchronize(c))
        return -1;
    for (size_t i = 0; i < n && few; at += p[i++].bytes)
        memcpy(p[i].dst, at, p[i].bytes);
    return 0;
}

static int cuda_copy(struct gpu_driver *d, void *dst, const void *src, size_t bytes)
{
    struct cuda *c = enter(d);
    return bytes ? CALL(c, cuMemcpyDtoDAsync, (CUdeviceptr)dst, (CUdeviceptr)src, bytes, c->stream) : 0;
}

/* The copies of fetch wait for everything launched before the mark. */
static int cuda_fetch_mark(struct gpu_driver *d)
{
    struct cuda *c = enter(d);
    return CALL(c, cuEventRecord, c->mark, c->stream) ||
        CALL(c, cuStreamWaitEvent, c->fetch_stream, c->mark, 0) ? -1 : 0;
}

static int cuda_fetch(struct gpu_driver *d, void *dst, const void *src, size_t bytes, char *why,
                      size_t why_size)
{
    struct cuda *c = enter(d);
    CUresult r = CUDA_SUCCESS;
    pthread_mutex_lock(&c->lock);
    for (size_t at = 0, n; at < bytes && r == CUDA_SUCCESS; at += n) {
        n = bytes - at < FETCH_BYTES ? bytes - at : FETCH_BYTES;
        r = cu.cuMemcpyDtoHAsync_(c->pinned, (CUdeviceptr)src + at, n, c->fetch_stream);
        if (r == CUDA_SUCCESS && (r = cu.cuStreamSynchronize_(c->fetch_stream)) == CUDA_SUCCESS)
            memcpy((char *)dst + at, c->pinned, n);
    }
    pthread_mutex_unlock(&c->lock);
    if (r == CUDA_SUCCESS)
        return 0;
    const char *name = "?";
    cu.cuGetErrorName_(r, &name);
    snprintf(why, why_size, "%s: reading its memory: %s", c->d.name, name);
    return -1;
}

#define X(name, args) "kernel_" #name,
static const char *const kernel_name[] = { CU_KERNELS(X) };
#undef X

static int cuda_launch(struct gpu_driver *d, const struct gpu_launch *l)
{
    struct cuda *c = enter(d);
    const char *name = kernel_name[l->kernel];
    void *args[] = { (void *)(uintptr_t)l->args };
    CUlaunchAttribute overlap = { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                  .value.programmaticStreamSerializationAllowed = 1 };
    const CUlaunchConfig at = { .gridDimX = l->grid[0], .gridDimY = l->grid[1], .gridDimZ = l->grid[2],
                                .blockDimX = l->block, .blockDimY = 1, .blockDimZ = 1,
                                .sharedMemBytes = (unsigned)l->shared_bytes, .hStream = c->stream,
                                    .attrs = &overlap, .numAttrs = c->overlaps && !c->plain_next };
    c->plain_next = l->kernel == CU_pack || l->kernel == CU_noise;
    return failed(c, cu.cuLaunchKernelEx_(&at, c->kernel[l->kernel], args, NULL), "cuLaunchKernelEx", name);
}

static int cuda_gemm_open(struct gpu_driver *d, char *why, size_t why_size)
{
    struct cuda *c = enter(d);
    return c->cublas ? 0 : cublas_open(&c->cublas, c->stream, why, why_size);
}

static int cuda_gemm(struct gpu_driver *d, const struct gpu_gemm *g)
{
    char why[160];
    struct cuda *c = enter(d);
    if (cublas_gemm(c->cublas, g, why, sizeof why) == 0)
        return 0;
    if (!*d->error)
        snprintf(d->error, sizeof d->error, "%s", why);
    return -1;
}

static bool cuda_graph_begin(struct gpu_driver *d, uint64_t key)
{
    struct cuda *c = enter(d);
    void *known, *old;
    if (!c->graphs)
        return false;
    if ((known = graphs_find(&c->recorded, key))) {
        CALL(c, cuGraphLaunch, known, c->stream);
        return true;
    }
    const bool room = graphs_room(&c->recorded, &old);
    if (old) {
        cu.cuStreamSynchronize_(c->stream);
        cu.cuGraphExecDestroy_(old);
    }
    if (!room)
        return false;
    c->key = key;
    c->recording = !CALL(c, cuStreamBeginCapture, c->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    return false;
}

/* Without memory for a graph, the pass runs without one, and no more graphs are recorded. */
static int cuda_graph_end(struct gpu_driver *d)
{
    struct cuda *c = enter(d);
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    if (!c->recording)
        return 0;
    c->recording = false;
    if (CALL(c, cuStreamEndCapture, c->stream, &graph))
        return -1;
    const size_t before = cuda_bytes_free(d);
    CUresult r = *c->d.error ? CUDA_SUCCESS : cu.cuGraphInstantiateWithFlags_(&exec, graph, 0);
    cu.cuGraphDestroy_(graph);
    if (*c->d.error)
        return -1;
    if (r == CUDA_SUCCESS && (r = cu.cuGraphLaunch_(exec, c->stream)) == CUDA_SUCCESS) {
        const size_t after = cuda_bytes_free(d);     /* some drivers take the memory at the first launch */
        graphs_keep(&c->recorded, c->key, exec, before > after ? before - after : 0);
        return 0;
    }
    if (exec)
        cu.cuGraphExecDestroy_(exec);
    if (r != CUDA_ERROR_OUT_OF_MEMORY)
        return failed(c, r, exec ? "cuGraphLaunch" : "cuGraphInstantiate", "");
    c->graphs = false;
    cu.cuStreamSynchronize_(c->stream);
    destroy_graphs(c);
    return 1;
}

size_t device_cuda_count(char *why, size_t why_size)
{
    int n = 0;
    if (load(why, why_size))
        return 0;
    if (cu.cuDeviceGetCount_(&n) != CUDA_SUCCESS || n <= 0)
        snprintf(why, why_size, "the NVIDIA driver finds no GPU");
    return n > 0 ? (size_t)n : 0;
}

/* LONGHAND_CUDA_IMAGES=DIR: takes the image from DIR/ARCH.cubin instead of this binary, for comparisons of
 * variants (cuda.mk). Its texts need not be those of the binary's own kernels, so it has another id. */
static int other_image(struct cuda *c, struct cuda_image *image, const char *arch)
{
    const char *dir = getenv("LONGHAND_CUDA_IMAGES");
    char path[1024];
    size_t size = 0;
    FILE *f;
    if (!dir || !*dir)
        return 0;
    snprintf(path, sizeof path, "%s/%s.cubin", dir, arch);
    if (!(f = fopen(path, "rb"))) {
        snprintf(c->d.error, sizeof c->d.error, "LONGHAND_CUDA_IMAGES: %.400s cannot be opened", path);
        return -1;
    }
    const size_t most = (size_t)64 << 20;
    if ((c->image_file = malloc(most + 1)))
        size = fread(c->image_file, 1, most, f);
    fclose(f);
    *image = (struct cuda_image){ c->image_file, size };
    char own[16];
    if (!c->image_file || strcmp(cuda_image_arch(image, own), arch)) {
        snprintf(c->d.error, sizeof c->d.error, "LONGHAND_CUDA_IMAGES: %.400s is no image for %s", path,
                 arch);
        return -1;
    }
    strncat(c->d.numerics, "-variant", sizeof c->d.numerics - strlen(c->d.numerics) - 1);
    return 0;
}

/* Loads the kernels from their image now, not at their first launch, which a graph may be recording
 * (CUDA_MODULE_LOADING is lazy by default). All kernels ask for the same split of an SM's memory: a kernel
 * with another split waits until the SM is empty and cannot overlap with the kernel before it. */
static int load_kernels(struct cuda *c, const struct cuda_image *image, const char *arch)
{
    int version = 0;
    if (failed(c, cu.cuModuleLoadData_(&c->module, image->data), "cuModuleLoadData", arch)) {
        const size_t n = strlen(c->d.error);
        if (cu.cuDriverGetVersion_(&version) == CUDA_SUCCESS && version < CUDA_VERSION)
            snprintf(c->d.error + n, sizeof c->d.error - n,
                     "; the NVIDIA driver supports CUDA up to %d.%d, these kernels need %d.%d: install a "
                     "newer driver", version / 1000, version % 1000 / 10, CUDA_VERSION / 1000,
                     CUDA_VERSION % 1000 / 10);
        return -1;
    }
    for (int i = 0; i < CU_N_KERNELS; i++) {
        int registers;
        if (failed(c, cu.cuModuleGetFunction_(&c->kernel[i], c->module, kernel_name[i]),
                   "cuModuleGetFunction", kernel_name[i]) ||
            failed(c, cu_func_load ? cu_func_load(c->kernel[i])
                   : cu.cuFuncGetAttribute_(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, c->kernel[i]),
                   "cuFuncLoad", kernel_name[i]) ||
            failed(c, cu.cuFuncSetAttribute_(c->kernel[i], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                             CU_SHARED_MAX), "cuFuncSetAttribute", kernel_name[i]))
            return -1;
        /* a hint: errors do not matter */
        cu.cuFuncSetAttribute_(c->kernel[i], CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                               CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
    }
    return 0;
}

/* The UUID, and the driver's version: its own where the kernel tells it, and that of CUDA. */
static void identify(struct cuda *c)
{
    char *id = c->d.id, driver[32] = "";
    CUuuid uuid = { { 0 } };
    int version = 0;
    FILE *f = fopen("/sys/module/nvidia/version", "r");
    if (f && fgets(driver, sizeof driver, f))
        driver[strcspn(driver, "\n")] = 0;
    if (f)
        fclose(f);
    cu.cuDeviceGetUuid_(&uuid, c->device);
    cu.cuDriverGetVersion_(&version);
    for (size_t i = 0; i < sizeof uuid.bytes; i++)
        id += sprintf(id, "%s%02x", i ? "" : "GPU ", (unsigned char)uuid.bytes[i]);
    sprintf(id, ", driver %s, CUDA %d", driver, version);
}

/* Chooses the image for this GPU, loads its kernels and makes the streams. LONGHAND_CUDA_OFF=graphs,overlap
 * switches off graphs, and kernels that begin early, to locate the source of an error. */
static int start(struct cuda *c, size_t ordinal)
{
    int major = 0, minor = 0, version = 0;
    char model[96] = "", arch[16];
    const char *off = getenv("LONGHAND_CUDA_OFF");
    void *up;
    snprintf(c->d.name, sizeof c->d.name, "cuda:%zu", ordinal);
    if (CALL(c, cuDeviceGet, &c->device, (int)ordinal) ||
        CALL(c, cuDeviceGetName, model, sizeof model, c->device) ||
        CALL(c, cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, c->device) ||
        CALL(c, cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, c->device) ||
        CALL(c, cuDevicePrimaryCtxRetain, &c->context, c->device))
        return -1;
    snprintf(c->d.name, sizeof c->d.name, "cuda:%zu %s", ordinal, model);
    identify(c);
    cu.cuCtxSetCurrent_(c->context);
    const struct cuda_image *own = cuda_image_for(major, minor);
    if (!own) {
        snprintf(c->d.error, sizeof c->d.error, "compute capability %d.%d; 8.0 or newer is needed", major,
                 minor);
        return -1;
    }
    struct cuda_image image = *own;
    cuda_image_arch(&image, arch);
    const bool ptx = strncmp(arch, "compute_", 8) == 0;
    cuda_numerics(&image, major, minor, c->d.numerics);
    if (other_image(c, &image, arch) || load_kernels(c, &image, arch) ||
        CALL(c, cuStreamCreate, &c->stream, CU_STREAM_NON_BLOCKING) ||
        CALL(c, cuStreamCreate, &c->fetch_stream, CU_STREAM_NON_BLOCKING) ||
        CALL(c, cuEventCreate, &c->mark, CU_EVENT_DISABLE_TIMING) ||
        CALL(c, cuMemAllocHost, &c->pinned, FETCH_BYTES) ||
        CALL(c, cuMemAllocHost, &up, UP_BYTES + DOWN_BYTES))
        return -1;
    c->up = up;
    c->lock_made = pthread_mutex_init(&c->lock, NULL) == 0;
    if (!c->lock_made) {
        snprintf(c->d.error, sizeof c->d.error, "no mutex");
        return -1;
    }
    /* in graphs, overlapping kernels are supported from 12.3 on */
    c->overlaps = major >= 9 && cu.cuDriverGetVersion_(&version) == CUDA_SUCCESS && version >= 12030 &&
        !ptx &&
        !(off && strstr(off, "overlap"));
    c->graphs = !(off && strstr(off, "graphs"));
    c->d.graph_bytes = c->graphs ? GRAPHS_BYTES : 0;
    return 0;
}

int device_cuda_open(struct device **out, size_t ordinal, char *why, size_t why_size)
{
    const size_t n = device_cuda_count(why, why_size);
    if (ordinal >= n) {
        if (n)
            snprintf(why, why_size, "cuda:%zu does not exist; the GPUs here are cuda:0 to cuda:%zu", ordinal,
                     n - 1);
        return -1;
    }
    struct cuda *c = calloc(1, sizeof *c);
    if (!c) {
        snprintf(why, why_size, "out of memory");
        return -1;
    }
    c->d = (struct gpu_driver){ .kind = "cuda", .close = cuda_close, .alloc = cuda_alloc, .free = cuda_free,
                                .bytes_free = cuda_bytes_free, .upload = cuda_upload,
        .download = cuda_download, .copy = cuda_copy, .zero = cuda_zero, .fetch_mark = cuda_fetch_mark,
            .fetch = cuda_fetch, .launch = cuda_launch,
        .gemm_open = cuda_gemm_open, .gemm = cuda_gemm, .graph_begin = cuda_graph_begin,
            .graph_end = cuda_graph_end };
    if (start(c, ordinal)) {
        snprintf(why, why_size, "%s: %s", c->d.name, c->d.error);
        refused_ = true;
        if (c->context)
            cuda_close(&c->d);
        else
            free(c);
        return -1;
    }
    return gpu_open(out, &c->d, why, why_size);
}
#endif
