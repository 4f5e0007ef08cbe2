/* Fuzz target: the stored parameters of a job. Accepted parameters survive being written and read again,
 * and a worker can begin with them: a decoder of a tiny model opens and writes a few tokens. */
#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/decode/decode.h"
#include "src/request/job_params.h"
#include "src/request/model_options.h"
#include "src/request/request.h"

static struct engine job_engine;
static size_t job_written;                   /* texts that were begun; test_fuzz_jobs.c checks it */
static const int32_t job_prompt[] = { 1, 30, 31, 32, 30, 31 };
enum { JOB_PROMPT = sizeof job_prompt / sizeof *job_prompt, JOB_TEXT_MAX = JOB_PROMPT + 40 };

static void job_start(void)
{
    static char *argv[] = {
        (char *)"longhand",  (char *)"submit", (char *)"-m",       (char *)"build/data/models/llama2-bf16",
        (char *)"-p",        (char *)"a",      (char *)"-n",       (char *)"40",
        (char *)"--threads", (char *)"1",      (char *)"--device", (char *)"cpu"
    };
    struct options o;
    struct progress quiet;
    struct err e;
    progress_open(&quiet, PROGRESS_NONE, true);
    if (options_parse(&o, sizeof argv / sizeof *argv, argv, &e) || options_open_engine(&job_engine, &o, &e) ||
        engine_load(&job_engine, NULL, &quiet, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        abort();
    }
    options_free(&o);
}

static void job_refused(const struct err *e)
{
    if (e->code != ERR_INPUT || !*e->msg || strchr(e->msg, '\n') || strchr(e->msg, '\r') ||
        strchr(e->msg, '\033'))
        abort();
}

/* The JSON text written again, with reals that are exact. */
static char *job_written_again(const char *text)
{
    struct json root;
    struct err e;
    char *copy;
    size_t n;
    FILE *f = memory_file(&copy, &n);
    if (!f || js_check(&root, "parameters", text, strlen(text), &e))
        abort();
    jw_value(&(struct json_writer){ .f = f, .digits = 17 }, NULL, &root);
    if (stream_end(f))
        abort();
    return copy;
}

/* Parameters that were accepted are accepted again, with the same values. */
static void job_stored_again(const struct job_params *p, const char *stored)
{
    struct job_params again;
    struct err e;
    char *text = job_written_again(stored), *same = job_written_again(text);
    if (strcmp(text, same) || job_parse(&again, text, &e) ||
        again.sampling.temperature != p->sampling.temperature || again.draft.drafters != p->draft.drafters)
        abort();
    job_close(&again);
    free(text);
    free(same);
}

/* Writes some tokens; each is in the vocabulary. */
static void job_write(const struct job_params *p)
{
    struct decode_setup setup = { .draft = p->draft };
    struct decoder d;
    struct err e;
    setup.draft.drafters &= ~(1u << DRAFTER_HEADS);           /* the tiny model has none */
    if (decode_open(&d, &job_engine.model, &p->sampling, &setup, job_prompt, JOB_PROMPT, JOB_TEXT_MAX, &e))
        return;
    if (decode_prefill(&d, 0, NULL, NULL, &e))
        abort();
    for (int i = 0; i < 3 && d.n_tokens < d.n_max && decode_step(&d, &e) == 0; i++)
        decode_add_stats(&d, 1);
    for (size_t i = 0; i < d.n_tokens; i++)
        if (d.tokens[i] < 0 || (size_t)d.tokens[i] >= job_engine.config.vocab)
            abort();
    job_written += d.n_tokens > JOB_PROMPT;
    decode_close(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct job_params p;
    struct err e;
    if (!job_engine.tokenizer)
        job_start();
    char *text = strndup((const char *)data, n);
    if (job_parse(&p, text, &e)) {
        job_refused(&e);
        if (p.strings || p.sampling.bias || p.stop.v)
            abort();
    } else {
        job_stored_again(&p, text);
        const struct job_binding binding = { .seed = 7, .text_max = JOB_TEXT_MAX };
        if (job_bind(&p, &job_engine.config, job_engine.tokenizer, job_engine.dir, &binding, &e) ||
            job_check_memory(&p, &job_engine, JOB_TEXT_MAX, job_engine.weight_bytes, &e))
            job_refused(&e);
        else
            job_write(&p);
    }
    job_close(&p);
    free(text);
    return 0;
}
