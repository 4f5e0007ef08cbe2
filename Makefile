# make              build everything this machine can build: ./longhand
# make demo         a story from the demonstration model       make test    build and run all tests
# make bench        measure this machine and the engine        make fuzz    fuzz the parsers
# make deps         install what is missing (Debian, Ubuntu)   make help    make clean
# Switches: CUDA=0|1   SAN=address,undefined | thread   CC=clang   V=1
MAKEFLAGS += -r
ifeq ($(origin CC),default)
CC := cc
endif
NVCC ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
comma := ,
# One build directory per configuration: switching flags never mixes objects.
BUILD := build/$(notdir $(CC))$(if $(SAN),-$(subst $(comma),-,$(SAN)))

WARN   := -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
CFLAGS  = -std=c11 -D_GNU_SOURCE -g -O2 -ffp-contract=off $(WARN) -MMD -MP -I.
LDLIBS  = -ljansson -lm -lpthread
ifneq ($(SAN),)
CFLAGS += -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all
LDLIBS += -fsanitize=$(SAN)
endif

SRC   := $(filter-out src/main.c,$(wildcard src/*.c ngram/*.c kvmgr/*.c runs/*.c kernels/*.c))
OBJ   := $(SRC:%=$(BUILD)/%.o)
TESTS := $(patsubst tests/%.c,$(BUILD)/%,$(wildcard tests/test_*.c))

all: longhand

longhand: $(BUILD)/longhand
	@ln -sf $< $@ 2>/dev/null || cp $< $@
$(BUILD)/longhand: $(BUILD)/src/main.c.o $(OBJ)
	$(CC) $^ $(LDLIBS) -o $@
$(BUILD)/test_%: $(BUILD)/tests/test_%.c.o $(OBJ)
	$(CC) $^ $(LDLIBS) -o $@

# The kernels: full optimisation, and each twin with the instructions it is for.
$(BUILD)/kernels/%.c.o: CFLAGS += -O3 -fno-math-errno -fno-trapping-math
ifneq ($(filter x86_64% amd64%,$(shell $(CC) -dumpmachine)),)
$(BUILD)/kernels/avx2.c.o: CFLAGS += -mavx2 -mfma -mf16c
$(BUILD)/kernels/avx512.c.o: CFLAGS += -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mprefer-vector-width=512
endif
$(BUILD)/%.c.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@

tests: $(TESTS)
clean:
	rm -rf build longhand
.PHONY: all tests clean
.SECONDARY:
-include $(shell find build -name '*.d' 2>/dev/null)
