# make fuzz: libFuzzer over every tests/fuzz_NAME.c, FUZZ_RUNS executions each, with ASan and UBSan; needs clang.
# make fuzz_NAME runs one. Inputs that reach new code go to tests/corpus/NAME (tests/corpus/NAME.dict, where there is
# one, has words to build them of); `make test` replays them all. A finding stops the run and is left in fuzz-NAME-*.
FUZZ_RUNS  ?= 10000000
FUZZ_CC    ?= clang
FUZZ_FLAGS ?= -max_len=4096 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
FUZZ_BUILD := $(BUILD)-fuzz
FUZZ_NAMES := $(patsubst tests/fuzz_%.c,%,$(wildcard tests/fuzz_*.c))
FUZZ_SAN   := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FUZZ_OBJ   := $(SRC:%=$(FUZZ_BUILD)/%.o)

$(FUZZ_BUILD)/kernels/avx2.c.o: FUZZ_ISA := -mavx2 -mfma -mf16c
$(FUZZ_BUILD)/kernels/avx512.c.o: FUZZ_ISA := -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16
$(FUZZ_BUILD)/%.c.o: %.c fuzz.mk
	@mkdir -p $(@D)
	$(FUZZ_CC) -std=c11 -D_GNU_SOURCE -g -O2 -ffp-contract=off -I. $(FUZZ_ISA) -fsanitize=fuzzer-no-link $(FUZZ_SAN) -MMD -MP -c $< -o $@
$(FUZZ_BUILD)/fuzz_%: $(FUZZ_BUILD)/tests/fuzz_%.c.o $(FUZZ_OBJ)
	$(FUZZ_CC) -fsanitize=fuzzer $(FUZZ_SAN) $^ $(LDLIBS) -o $@

fuzz_%: $(FUZZ_BUILD)/fuzz_%
	@mkdir -p tests/corpus/$*
	$< -runs=$(FUZZ_RUNS) $(FUZZ_FLAGS) $(if $(wildcard tests/corpus/$*.dict),-dict=tests/corpus/$*.dict) -artifact_prefix=fuzz-$*- tests/corpus/$*
fuzz-have-clang:
	@command -v $(FUZZ_CC) >/dev/null || { echo "make fuzz needs clang with its runtime library (Debian: clang libclang-rt-dev)"; exit 2; }
fuzz: fuzz-have-clang
	@for name in $(FUZZ_NAMES); do $(MAKE) --no-print-directory fuzz_$$name || exit 1; done
.PHONY: fuzz fuzz-have-clang $(FUZZ_NAMES:%=fuzz_%)
-include $(shell find $(FUZZ_BUILD) -name '*.d' 2>/dev/null)
