# make              build everything this machine can build: ./longhand
# make demo         two books: killed, resumed, verified, reported
# make test         build and run all tests              make test LONG=1   with the long ones
# make bench        measure this machine, then the engine against it
# make fuzz         fuzz the parsers (FUZZ_RUNS=10000000 each; needs clang)
# make deps         install what is missing on Debian and Ubuntu
# make install      program, man page and completions: PREFIX=/usr/local DESTDIR=      make uninstall
# make help         this list                            make clean
# Switches: SAN=address,undefined  SAN=thread  CC=clang  CUDA=0|1  BUILD=dir
MAKEFLAGS += -r
ifeq ($(origin CC),default)
CC := cc
endif
comma := ,
# One build directory per configuration: switching flags never mixes objects.
BUILD := build/$(notdir $(CC))$(if $(SAN),-$(subst $(comma),-,$(SAN)))

# CUDA is found when making, and asked for again when running. CUDA=1 insists on it; `make deps CUDA=1` installs an nvcc into build/nvcc.
NVCC ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc build/nvcc/bin/nvcc))
CUDA ?= $(if $(NVCC),1,0)

WARN   := -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wno-missing-field-initializers
CFLAGS  = -std=c11 -D_GNU_SOURCE -g -O2 -ffp-contract=off $(WARN) -MMD -MP -I.
LDLIBS  = -ljansson -lsqlite3 -lz -lm -lpthread -ldl
ifneq ($(SAN),)
CFLAGS += -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all
LDLIBS += -fsanitize=$(SAN)
endif

ifeq ($(CUDA),1)
ifeq ($(NVCC)$(filter deps,$(MAKECMDGOALS)),)
$(error CUDA=1, but there is no nvcc: make deps CUDA=1, or NVCC=/path/to/nvcc, or CUDA=0)
endif
# One set of kernels for all configurations: what nvcc makes of them does not depend on the C compiler's switches.
CU     := build/cu
CUBINS := $(CU)/sm_80.cubin $(CU)/sm_89.cubin $(CU)/sm_90a.cubin $(CU)/compute_80.ptx
NVCCFLAGS = -std=c++17 -O3 -fmad=false -Werror all-warnings -I.
$(BUILD)/kernels/cuda.c.o $(BUILD)/kernels/cuda_images.c.o: CFLAGS += -DWITH_CUDA -DCU_DIR='"$(CU)"' -idirafter $(abspath $(dir $(realpath $(NVCC)))../include)
endif

SRC   := $(filter-out src/cli/main.c,$(wildcard src/*/*.c ngram/*.c kvmgr/*.c runs/*/*.c kernels/*.c))
OBJ   := $(SRC:%=$(BUILD)/%.o)
# What tests add to the product: the emulated GPU and a drafter that knows the text.
TEST_OBJ := $(patsubst %,$(BUILD)/%.o,$(wildcard tests/emulated/*.c) tests/oracle.c)
TESTS := $(patsubst tests/%.c,$(BUILD)/%,$(wildcard tests/test_*.c))

all: longhand cuda-says

longhand: $(BUILD)/longhand
	@ln -sf $< $@
$(BUILD)/longhand: $(BUILD)/src/cli/main.c.o $(OBJ)
	$(CC) $^ $(LDLIBS) -o $@
$(BUILD)/labbench: $(patsubst %,$(BUILD)/%.o,$(wildcard tests/labbench/*.c)) $(OBJ) $(TEST_OBJ)
	$(CC) $^ $(LDLIBS) -o $@
$(BUILD)/longhand-test: $(BUILD)/src/cli/main.c.o $(OBJ) $(TEST_OBJ)
	$(CC) $^ $(LDLIBS) -o $@
$(BUILD)/test_%: $(BUILD)/tests/test_%.c.o $(OBJ) $(TEST_OBJ)
	$(CC) $^ $(LDLIBS) -o $@

# Made with CUDA or without, in one directory: the two objects that differ follow.
$(BUILD)/kernels/cuda.c.o $(BUILD)/kernels/cuda_images.c.o: $(BUILD)/cuda-$(CUDA)
$(BUILD)/cuda-$(CUDA):
	@mkdir -p $(@D) && rm -f $(BUILD)/cuda-* && touch $@
ifeq ($(CUDA),1)
$(BUILD)/kernels/cuda_images.c.o: $(CUBINS)
$(CU)/%.cubin: kernels/cu_all.cu
	@mkdir -p $(@D)
	$(NVCC) -cubin -arch=$* $(NVCCFLAGS) -MMD -MF $@.d $< -o $@
$(CU)/%.ptx: kernels/cu_all.cu
	@mkdir -p $(@D)
	$(NVCC) -ptx -arch=$* $(NVCCFLAGS) -MMD -MF $@.d $< -o $@
cuda-says:
else
cuda-says: longhand
	@echo "CUDA was not built: $(if $(NVCC),CUDA=0,there is no nvcc; make deps CUDA=1 installs one)"
endif

# The kernels: full optimisation, and each twin with the instructions it is for.
$(BUILD)/kernels/%.c.o $(BUILD)/tests/emulated/%.c.o: CFLAGS += $(if $(SAN),-O1,-O3) -fno-math-errno -fno-trapping-math
ifneq ($(findstring address,$(SAN)),)
# Red zones around its many 16-float values make gcc take a minute for the plain twin.
$(BUILD)/kernels/generic.c.o: CFLAGS += $(if $(findstring clang,$(CC)),-mllvm -asan-stack=0,--param asan-stack=0)
endif
ifneq ($(filter x86_64% amd64%,$(shell $(CC) -dumpmachine)),)
$(BUILD)/kernels/avx2.c.o: CFLAGS += -mavx2 -mfma -mf16c
$(BUILD)/kernels/avx512.c.o: CFLAGS += -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mavx512vnni -mprefer-vector-width=512
# The tests of the operations once more with the AVX-512 twin on instructions written in C, for CPUs that have AVX2 only. By gcc: to clang some of them are macros.
ifeq ($(findstring clang,$(CC)),)
IN_C := $(patsubst %,$(BUILD)/in_c_%,ops op_matmul op_attn int8 golden)
$(BUILD)/avx512_in_c.o: CFLAGS += $(if $(findstring address,$(SAN)),--param asan-stack=0)
endif
$(BUILD)/avx512_in_c.o: kernels/avx512.c tests/avx512_in_c.h Makefile | have-deps
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -Og -fno-math-errno -fno-trapping-math -mavx2 -mfma -mf16c -Wno-psabi -Wno-maybe-uninitialized -include tests/avx512_in_c.h -c $< -o $@
$(BUILD)/in_c_%: $(BUILD)/tests/test_%.c.o $(BUILD)/avx512_in_c.o $(filter-out %/avx512.c.o,$(OBJ))
	$(CC) $^ $(LDLIBS) -o $@
endif
$(BUILD)/%.c.o: %.c Makefile | have-deps
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@

PREFIX ?= /usr/local
SHARE  := $(DESTDIR)$(PREFIX)/share
INSTALLED := $(DESTDIR)$(PREFIX)/bin/longhand $(SHARE)/man/man1/longhand.1 $(SHARE)/bash-completion/completions/longhand \
             $(SHARE)/zsh/site-functions/_longhand $(SHARE)/fish/vendor_completions.d/longhand.fish
install: $(BUILD)/longhand
	mkdir -p $(dir $(INSTALLED))
	install -m 755 $< $(word 1,$(INSTALLED))
	$< help --man >$(word 2,$(INSTALLED))
	$< help --completion bash >$(word 3,$(INSTALLED))
	$< help --completion zsh >$(word 4,$(INSTALLED))
	$< help --completion fish >$(word 5,$(INSTALLED))
uninstall:
	rm -f $(INSTALLED)

have-deps:
	@scripts/deps.sh --quiet
deps:
	@scripts/deps.sh
	@$(if $(filter 1,$(CUDA)),scripts/deps-cuda.sh build/nvcc)
demo: longhand
	@scripts/demo.sh
tests: $(TESTS) $(IN_C) $(BUILD)/labbench $(BUILD)/longhand-test $(if $(SAN),,$(BUILD)/faults.so)
# Faults for the program under test, in front of the C library (tests/faults.h); the sanitizers want that place for themselves.
$(BUILD)/faults.so: $(BUILD)/tests/faults.c.o
	$(CC) -shared $^ -o $@
$(BUILD)/tests/faults.c.o: CFLAGS += -fPIC
# A make of its own builds in parallel, after the packages are there.
test: have-deps
	@$(MAKE) --no-print-directory -j$$(nproc) longhand tests
	@LONG=$(LONG) IN_C="$(IN_C)" scripts/run-tests.sh $(BUILD)
bench: longhand $(BUILD)/labbench
	./longhand bench $(BENCH)
help:
	@sed -n '1,/^MAKEFLAGS/{s/^# //p}' Makefile
	@echo "Now: BUILD=$(BUILD) CUDA=$(CUDA)$(if $(NVCC), (nvcc found), (no nvcc))"
clean:
	rm -rf build longhand
-include fuzz.mk
.PHONY: all install uninstall have-deps deps demo tests test bench help clean fuzz
.PRECIOUS: $(BUILD)/%.c.o
-include $(shell find $(BUILD) $(CU) -name '*.d' 2>/dev/null)
