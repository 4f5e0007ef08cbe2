# The CUDA part of the Makefile: the compiler, and the images of the kernels in build/cu.
#
# CUDA=1 insists on a compiler. `make deps CUDA=1` installs one of CUDA 12 into build/nvcc; its images load in
# drivers from 525 on, those of CUDA 13 from 580 on. The program loads the CUDA driver when it starts, and
# works without one.
#
# A variant is another form of some kernels, for comparisons on a GPU: code under #ifdef LH_VARIANT_NAME in
# kernels/cuda/*.cu, with the same launches. `make variants` compiles those of CU_VARIANTS into folders
# build/cu/variants/NAME, and `scripts/gpu-check --part 3` compares them. `make VARIANT=NAME tests` builds the
# tests with a variant on the emulated GPU, in a build directory of its own.
NVCC ?= $(firstword $(wildcard build/nvcc/bin/nvcc) $(shell command -v nvcc) \
          $(wildcard /usr/local/cuda/bin/nvcc))
CUDA ?= $(if $(NVCC),1,0)

# Builds with and without CUDA share a directory. Two objects differ, and are rebuilt when CUDA changes.
CUDA_OBJ := $(BUILD)/kernels/cuda/cuda.c.o $(BUILD)/kernels/cuda/cuda_images.c.o
$(CUDA_OBJ): $(BUILD)/cuda-$(CUDA) cuda.mk
$(BUILD)/cuda-$(CUDA):
	@mkdir -p $(@D) && rm -f $(BUILD)/cuda-* && touch $@

ifeq ($(CUDA),1)
ifeq ($(NVCC)$(filter deps,$(MAKECMDGOALS)),)
$(error CUDA=1, but no nvcc was found: make deps CUDA=1, or NVCC=/path/to/nvcc, or CUDA=0)
endif
# All configurations share the compiled kernels: they do not depend on the switches of the C compiler.
CU     := build/cu
CUBINS := $(patsubst %,$(CU)/%.cubin,sm_80 sm_89 sm_90a sm_100 sm_120) $(CU)/compute_80.ptx
NVCCFLAGS = -std=c++17 -O3 -fmad=false -Werror all-warnings -I.
$(CUDA_OBJ): CFLAGS += -DWITH_CUDA -DCU_DIR='"$(CU)"' \
    -idirafter $(abspath $(dir $(realpath $(NVCC)))../include)
$(BUILD)/kernels/cuda/cuda_images.c.o: $(CUBINS)
$(CU)/%.cubin: kernels/cuda/cu_all.cu
	@mkdir -p $(@D)
	$(NVCC) -cubin -arch=$* $(NVCCFLAGS) -MMD -MF $@.d $< -o $@
$(CU)/%.ptx: kernels/cuda/cu_all.cu
	@mkdir -p $(@D)
	$(NVCC) -ptx -arch=$* $(NVCCFLAGS) -MMD -MF $@.d $< -o $@
CU_VARIANTS ?= EARLY
variants: $(foreach v,$(CU_VARIANTS),$(patsubst %,$(CU)/variants/$v/%.cubin,sm_80 sm_89 sm_90a sm_100 sm_120))
define variant
$(CU)/variants/$1/%.cubin: kernels/cuda/cu_all.cu cuda.mk
	@mkdir -p $$(@D)
	$(NVCC) -cubin -arch=$$* -DLH_VARIANT_$1 $(NVCCFLAGS) -MMD -MF $$@.d $$< -o $$@
endef
$(foreach v,$(CU_VARIANTS),$(eval $(call variant,$v)))
# A source that was renamed since the kernels were compiled does not stop make.
kernels/%.cu: ;
kernels/%.h: ;
cuda-note:
else
cuda-note: longhand
	@echo "CUDA was not built: $(if $(NVCC),CUDA=0,no nvcc was found; make deps CUDA=1 installs one)"
endif
