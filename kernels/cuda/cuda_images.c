/* The kernel images of this binary: embedded files, their architectures and the choice among them. Start
 * reading at cuda_image_for. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_images.h"
#include "kernels/device.h"
#include "kernels/cuda/gpu.h"

#ifdef WITH_CUDA
#define IMAGES(X) \
    X(sm_80, cubin) X(sm_89, cubin) X(sm_90a, cubin) X(sm_100, cubin) X(sm_120, cubin) X(compute_80, ptx)
#define EMBED(name, type) \
    __asm__(".section .rodata,\"a\"\n.balign 64\n" \
            "cuda_" #name ":\n.incbin \"" CU_DIR "/" #name "." #type "\"\n" \
            "cuda_" #name "_end:\n.byte 0\n.previous\n"); \
    extern const char cuda_##name[], cuda_##name##_end[];
IMAGES(EMBED)
#define LIST(name, type) \
    to[n++] = (struct cuda_image){ cuda_##name, (size_t)(cuda_##name##_end - cuda_##name) };
#else
#define IMAGES(X)
#endif

static size_t images(struct cuda_image *to)
{
    size_t n = 0;
    IMAGES(LIST)
    to[n] = (struct cuda_image){ NULL, 0 };
    return n;
}

/* The word after `mark`, such as the value of "-arch sm_90a ..." that the assembler notes in a cubin. */
static const char *word_after(const struct cuda_image *i, const char *mark, char text[16])
{
    const char *at = memmem(i->data, i->size, mark, strlen(mark));
    size_t n = 0;
    for (const char *p = at ? at + strlen(mark) : i->data + i->size; p < i->data + i->size && n < 15 &&
         (*p == '_' || (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z')); p++)
        text[n++] = *p;
    text[n] = 0;
    return text;
}

const char *cuda_image_arch(const struct cuda_image *i, char text[16])
{
    char word[16];
    if (i->size > 64 && memcmp(i->data, "\177ELF\2\1\1\63\7", 9) == 0) {    /* CUDA 12, up to sm_90a */
        const unsigned flags = (unsigned char)i->data[0x31];
        snprintf(text, 16, "sm_%u%s", (unsigned)(unsigned char)i->data[0x30], flags & 8 ? "a" : "");
    } else if (i->size > 64 && memcmp(i->data, "\177ELF", 4) == 0) {
        const unsigned sm = (unsigned char)i->data[0x31];      /* e_flags, second byte */
        word_after(i, "-arch ", word);
        const bool same = strncmp(word, "sm_", 3) == 0 && (unsigned)atoi(word + 3) == sm;
        snprintf(text, 16, same ? "%s" : "?", word);
    } else {
        word_after(i, ".target ", word);
        snprintf(text, 16, strncmp(word, "sm_", 3) == 0 ? "compute_%s" : "?", word + 3);
    }
    return text;
}

enum { IMAGES_MAX = 8 };
static struct cuda_image all_[IMAGES_MAX + 1];

const struct cuda_image *cuda_image_for(int major, int minor)
{
    char wanted[3][16], arch[16];
    snprintf(wanted[0], 16, "sm_%d%da", major, minor);
    snprintf(wanted[1], 16, "sm_%d%d", major, minor);
    snprintf(wanted[2], 16, "sm_%d0", major);
    const size_t n = images(all_);
    for (size_t w = 0; w < 3; w++)
        for (size_t i = 0; i < n; i++)
            if (strcmp(cuda_image_arch(&all_[i], arch), wanted[w]) == 0)
                return &all_[i];
    for (size_t i = 0; i < n; i++)
        if (strncmp(cuda_image_arch(&all_[i], arch), "compute_", 8) == 0 &&
            atoi(arch + 8) <= major * 10 + minor)
            return &all_[i];
    return NULL;
}

const char *cuda_numerics(const struct cuda_image *i, int major, int minor, char text[32])
{
    char arch[16], own[16] = "";
    cuda_image_arch(i, arch);
    const bool ptx = strncmp(arch, "compute_", 8) == 0;
    snprintf(own, sizeof own, "sm_%d%d", major, minor);
    const bool same = strncmp(arch, own, strlen(own)) == 0 && strspn(arch + strlen(own), "0123456789") == 0;
    snprintf(own, sizeof own, "-on-%d%d", major, minor);
    snprintf(text, 32, "cuda-%s%.8s%s-%d", ptx ? "ptx_" : "", ptx ? arch + 8 : arch, same ? "" : own,
             GPU_NUMERICS_VERSION);
    return text;
}

const char *device_cuda_images(char *text, size_t size)
{
    char arch[16];
    size_t at = 0;
    const size_t n = images(all_);
    assert(n <= IMAGES_MAX && size);
    *text = 0;
    for (size_t i = 0; i < n && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s", i ? " " : "", cuda_image_arch(&all_[i], arch));
    return text;
}
