/* What stands for options and verbs of llama.cpp, vLLM and Ollama that longhand does not have. Start at
 * option_hint. */
#include "src/request/options_impl.h"

#include <string.h>

static const struct { const char *words, *hint; } hints[] = {
    { "-c --ctx-size --max-model-len", "the context is as long as prompt and --tokens need" },
    { "-ngl --gpu-layers --n-gpu-layers", "--device cuda computes all layers on a GPU" },
    { "-dev -sm --split-mode -ts --tensor-split -mg --main-gpu -ot --override-tensor -cmoe --cpu-moe -ncmoe "
      "--n-cpu-moe -tp --tensor-parallel-size", "a model is on one device, which --device names" },
    { "-md --model-draft --speculative-config --speculative-model --draft-max --draft-min",
      "--drafter names the drafters" },
    { "-cnv --conversation", "--chat sends the prompt through the chat template" },
    { "--jinja --no-jinja", "--chat runs the model's chat template, which is Jinja" },
    { "--chat-template-file", "--chat-template takes a file, too" },
    { "--reasoning-budget", "--thinking-budget N ends a thought after N tokens" },
    { "--reasoning-format -rea --reasoning", "--thinking on|off is for the template" },
    { "-st --single-turn", "run writes one text and ends" },
    { "-v --verbose -lv --verbosity --log-verbosity --verbose-prompt --perf --show-timings",
      "longhand show JOB and longhand report JOB tell everything about a text" },
    { "-b --batch-size -ub --ubatch-size -fa --flash-attn --no-mmap --mlock --no-warmup --swa-full "
      "-nkvo --no-kv-offload --numa --enforce-eager", "longhand chooses it" },
    { "-tb --threads-batch", "--threads is the number for prompts, too" },
    { "-sys --system-prompt", "--chat --system TEXT is the system message" },
    { "--mirostat --mirostat-lr --mirostat-ent --mirostat-eta --mirostat-tau --dynatemp-range --dynatemp-exp "
      "--adaptive-target", "longhand's samplers are --top-n-sigma, --top-k, --typical, --top-p, --min-p, "
      "--eta, --xtc-probability and DRY" },
    { "--samplers --sampler-seq", "the order of the samplers is fixed" },
    { "--grammar --grammar-file -j --json-schema -jf --guided-json --guided-regex", "texts are free" },
    { "--in-prefix --in-suffix -i --interactive", "longhand writes whole texts, and does not talk" },
    { "-no-cnv --no-conversation --no-display-prompt --simple-io --log-disable --color",
      "only the text goes to standard output, without the prompt; -q silences the rest" },
    { "--log-file", "messages go to standard error" },
    { "-r --reverse-prompt", "--stop TEXT ends a text" },
    { "--prompt-cache --prompt-cache-all", "jobs with a common beginning read it once, without an option" },
    { "--lora --lora-scaled --enable-lora", "a model with its adapter merged into it is needed" },
    { "-mu --model-url -hff --hf-file -hft --hf-token -dr --docker-repo",
      "longhand downloads nothing; --model takes a path or org/name:QUANT of a local cache" },
    { "--api-key", "longhand serve --api-key-file FILE asks clients for a key" },
    { "-np --max-num-seqs", "--parallel N is the number of texts at once" },
    { "--gpu-memory-utilization", "--max-memory SIZE is the memory of the process" },
    { "--trust-remote-code", "longhand runs no code of a model" },
    { "--quantization", "--weights q8_0 or q4_0 quantises a 16-bit model" },
    { "--dtype", "--compute is the number format of the computation, --weights that of the matrices" },
    /* verbs */
    { "chat", "longhand run --chat --prompt TEXT writes an answer and ends" },
    { "server", "longhand serve answers OpenAI's API over HTTP" },
    { "generate complete completion cli", "longhand run writes a text" },
    { "pull download", "longhand downloads nothing; --model takes a path or the name of a model in a cache" },
    { "quantize", "longhand convert writes a GGUF file with weights of 8 or 4 bits" },
    { "perplexity", "longhand score measures it" },
    { "ls ps status", "longhand list shows the queue" },
    { "rm delete", "longhand remove deletes jobs and their texts" },
};

bool option_is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; *p;) {
        const size_t len = strcspn(p, ", ");
        if (len == n && memcmp(p, name, n) == 0)
            return true;
        p += len + strspn(p + len, ", ");
    }
    return false;
}

const char *option_hint(const char *word)
{
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (option_is_listed(hints[i].words, word))
            return hints[i].hint;
    return NULL;
}
