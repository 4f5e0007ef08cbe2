/* The kernel images of this binary, identified by their own bytes; and a machine without a GPU. */
#include "kernels/cuda/cuda_images.h"
#include "kernels/device.h"
#include "tests/test.h"

static char images[128];

static void images_say_what_they_are_for(void)
{
    CHECK(strcmp(images, "sm_80 sm_89 sm_90a sm_100 sm_120 compute_80") == 0, "%s", images);
}

static void every_gpu_gets_the_code_made_for_it_or_the_closest(void)
{
    static const struct { int major, minor; const char *arch, *numerics; } gpu[] = {
        { 8, 0, "sm_80", "cuda-sm_80-2" }, { 8, 6, "sm_80", "cuda-sm_80-on-86-2" }, { 8, 9, "sm_89",
            "cuda-sm_89-2" }, { 9, 0, "sm_90a", "cuda-sm_90a-2" },
        { 10, 0, "sm_100", "cuda-sm_100-2" }, { 10, 3, "sm_100", "cuda-sm_100-on-103-2" },
        { 12, 0, "sm_120", "cuda-sm_120-2" }, { 12, 1, "sm_120", "cuda-sm_120-on-121-2" },
        { 11, 0, "compute_80", "cuda-ptx_80-on-110-2" },
        { 7, 5, NULL, NULL },
    };
    char arch[16], id[32];
    for (size_t i = 0; i < sizeof gpu / sizeof *gpu; i++) {
        const struct cuda_image *image = cuda_image_for(gpu[i].major, gpu[i].minor);
        CHECK(!image == !gpu[i].arch, "%d.%d", gpu[i].major, gpu[i].minor);
        CHECK(!image || strcmp(cuda_image_arch(image, arch), gpu[i].arch) == 0, "%d.%d gets %s", gpu[i].major,
              gpu[i].minor, arch);
        CHECK(!image || strcmp(cuda_numerics(image, gpu[i].major, gpu[i].minor, id), gpu[i].numerics) == 0,
              "%d.%d: %s", gpu[i].major, gpu[i].minor, id);
    }
}

static void bytes_that_are_no_image_are_not_named(void)
{
    char arch[16], elf[128] = "\177ELF";
    const struct cuda_image text = { "no kernels here", 15 }, short_elf = { elf, sizeof elf };
    CHECK(strcmp(cuda_image_arch(&text, arch), "?") == 0, "%s", arch);
    CHECK(strcmp(cuda_image_arch(&short_elf, arch), "?") == 0, "%s", arch);
}

static void no_gpu_is_said_not_crashed_on(void)
{
    char why[256] = "";
    struct device *d;
    const size_t n = device_cuda_count(why, sizeof why);
    if (n)
        SKIP("there is a GPU");
    CHECK(*why, "no reason");
    CHECK(device_cuda_open(&d, 0, why, sizeof why) == -1 && *why, "opened");
    CHECK(device_cuda_open(&d, 7, why, sizeof why) == -1 && *why, "opened");
}

int main(void)
{
    device_cuda_images(images, sizeof images);
    if (*images) {
        RUN(images_say_what_they_are_for);
        RUN(every_gpu_gets_the_code_made_for_it_or_the_closest);
    } else {
        printf("skip images_say_what_they_are_for (this build has no CUDA)\n");
    }
    RUN(bytes_that_are_no_image_are_not_named);
    RUN(no_gpu_is_said_not_crashed_on);
    return test_end();
}
