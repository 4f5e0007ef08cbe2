/* As tests/test_fuzz_corpus.c, for what jobs are made of. */
#include "tests/corpus.h"

#define LLVMFuzzerTestOneInput fuzz_snapshot
#include "tests/fuzz_snapshot.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_batch
#include "tests/fuzz_batch.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_job
#include "tests/fuzz_job.c"
#undef LLVMFuzzerTestOneInput

static void snapshot(void) { replay("tests/corpus/snapshot", fuzz_snapshot); }
static void batch(void) { replay("tests/corpus/batch", fuzz_batch); }
static void job(void) { replay("tests/corpus/job", fuzz_job); }

int main(void)
{
    RUN(snapshot);
    RUN(batch);
    RUN(job);
    return test_end();
}
