# make fuzz runs libFuzzer over every tests/fuzz/fuzz_NAME.c, FUZZ_RUNS executions each, with ASan and UBSan.
# It needs clang. make fuzz_NAME runs one fuzzer. It starts from the inputs of tests/data/corpus.tar.gz, which
# `make test` replays. Inputs that reach new code are added to build/fuzz/NAME; make fuzz-keep adds these to
# the archive. tests/fuzz/NAME.dict, if it exists, is the fuzzer's dictionary. A finding stops the run and is
# left in a file fuzz-NAME-*. FUZZ_CMP=1 lets the fuzzer watch comparisons: it is several times slower, but
# finds words that no dictionary has.
FUZZ_RUNS  ?= 10000000
FUZZ_CC    ?= clang
FUZZ_FLAGS ?= -entropic=0 -max_len=4096 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
# Inputs of fuzz_quant: a byte and two blocks of the longest type. Shorter inputs mean more runs a second.
fuzz_quant: FUZZ_FLAGS += -max_len=421
FUZZ_BUILD := $(BUILD)-fuzz$(if $(FUZZ_CMP),-cmp)
FUZZ_NAMES := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SAN   := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FUZZ_COV   := -fsanitize=fuzzer-no-link $(if $(FUZZ_CMP),,-fno-sanitize-coverage=trace-cmp)
# All product objects, of the kernels only those that take bytes of files. The others parse nothing, and
# coverage would slow them down: the fuzzers use the kernels of the normal build.
FUZZ_QUANT := kernels/quant.c kernels/quant_pack.c
FUZZ_OBJ   := $(patsubst %,$(FUZZ_BUILD)/%.o,$(filter-out kernels/%,$(SRC)) $(FUZZ_QUANT)) \
              $(filter-out $(FUZZ_QUANT:%=$(BUILD)/%.o),$(filter $(BUILD)/kernels/%,$(OBJ)))

$(FUZZ_BUILD)/%.c.o: %.c fuzz.mk
	@mkdir -p $(@D)
	$(FUZZ_CC) -std=c11 -D_GNU_SOURCE -g -O2 -ffp-contract=off -DFUZZING -I. $(FUZZ_COV) $(FUZZ_SAN) -MMD \
	    -MP -c $< -o $@
$(FUZZ_BUILD)/fuzz_%: $(FUZZ_BUILD)/tests/fuzz/fuzz_%.c.o $(FUZZ_OBJ)
	$(FUZZ_CC) -fsanitize=fuzzer $(FUZZ_SAN) $^ $(LDLIBS) -o $@

$(FUZZ_NAMES:%=fuzz_%): fuzz_%: $(FUZZ_BUILD)/fuzz_% | data
	@mkdir -p build/fuzz/$* build/data/corpus/$*
	$< -runs=$(FUZZ_RUNS) $(FUZZ_FLAGS) $(if $(wildcard tests/fuzz/$*.dict),-dict=tests/fuzz/$*.dict) \
	    -artifact_prefix=fuzz-$*- build/fuzz/$* build/data/corpus/$*
fuzz-keep: data
	cp -r build/fuzz/. build/data/corpus
	tests/make/pack.sh build/data/corpus tests/data/corpus.tar.gz
	rm -r build/fuzz
fuzz-have-clang:
	@command -v $(FUZZ_CC) >/dev/null || \
	    { echo "make fuzz needs clang with its runtime library (Debian: clang libclang-rt-dev)"; exit 2; }
fuzz: fuzz-have-clang
	@for name in $(FUZZ_NAMES); do $(MAKE) --no-print-directory fuzz_$$name || exit 1; done
.PHONY: fuzz fuzz-keep fuzz-have-clang $(FUZZ_NAMES:%=fuzz_%)
-include $(shell find $(FUZZ_BUILD) -name '*.d' 2>/dev/null)
