/* Replays the corpora of the fuzz targets that read jobs: snapshots, batch lines and stored parameters. See
 * tests/fuzz/test_fuzz_corpus.c for the other targets. */
#include "tests/fuzz/corpus.h"

#define LLVMFuzzerTestOneInput fuzz_snapshot
#include "tests/fuzz/fuzz_snapshot.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_batch
#include "tests/fuzz/fuzz_batch.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_job
#include "tests/fuzz/fuzz_job.c"
#undef LLVMFuzzerTestOneInput

/* A refused input shows little, so each test checks that some inputs were accepted. */
static void snapshot(void)
{
    replay_corpus("build/data/corpus/snapshot", fuzz_snapshot);
    CHECK(snap_good > 0, "no file was accepted");
}
static void batch(void)
{
    replay_corpus("build/data/corpus/batch", fuzz_batch);
    CHECK(batch_rendered > 0 && batch_ready > 0, "%zu chats rendered, %zu requests ready", batch_rendered,
          batch_ready);
}
static void job(void)
{
    replay_corpus("build/data/corpus/job", fuzz_job);
    CHECK(job_written > 0, "no text was begun");
}

int main(void)
{
    RUN(snapshot);
    RUN(batch);
    RUN(job);
    return test_end();
}
