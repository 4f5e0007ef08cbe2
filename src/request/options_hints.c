/* What stands for options and verbs of llama.cpp, vLLM and Ollama that longhand does not have. Start at
 * option_hint. */
#include "src/request/options_impl.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

/* Words are patterns of fnmatch; the first that fits counts. A mark after one says that the option is taken
 * and changes nothing: ! alone, = with its value, ~ with on, off or auto if that follows, # with a number,
 * without which it is longhand's own option. */
static const struct { const char *words, *hint; } hints[] = {
    { "-c --ctx-size --max-model-len", "the context is as long as prompt and --tokens need" },
    { "-ngl --gpu-layers --n-gpu-layers", "--device cuda computes all layers on a GPU" },
    { "-md -hf*d -td -tbd -C*d -ctkd -ctvd -otd -cmoed -ncmoed -devd -ngld --*-draft --spec-* --no-spec-* "
      "--speculative-* --draft --draft-[mn]* --draft-p-* -lcs -lcd --lookup-cache-*",
      "--drafter names the drafters" },
    { "-dev -sm --split-mode -ts --tensor-split -mg --main-gpu -ot --override-tensor -cmoe --cpu-moe -ncmoe "
      "--n-cpu-moe -ncffn --n-cpu-ffn -tp --tensor-parallel-size --rpc --list-devices",
      "a model is on one device, which --device names" },
    { "-no-cnv! --no-conversation!", "without --chat a text continues its prompt" },
    { "-cnv --conversation", "--chat sends the prompt through the chat template" },
    { "--jinja! --no-jinja --reasoning-preserve --no-reasoning-preserve",
      "--chat runs the model's chat template, which is Jinja" },
    { "--reasoning-budget-message", "--thinking-end TEXT ends a thought" },
    { "--reasoning-format -rea --reasoning --reasoning-effort",
      "--thinking on|off|low|medium|high is for the template" },
    { "--prefill-assistant --no-prefill-assistant",
      "continue_final_message in a request continues its last message" },
    { "-st! --single-turn!", "run writes one text and ends" },
    { "-v! --verbose! --log-verbose! -lv= --verbosity= --log-verbosity= --verbose-prompt! --perf! "
      "--show-timings!", "longhand show JOB and longhand report JOB tell everything about a text" },
    { "-b= --batch-size= -ub= --ubatch-size= -fa~ --flash-attn~ --mmap! --no-mmap! --mlock! -dio! "
      "--direct-io! -lm= -lzm= --*-mode= --*warmup! --swa-full! -*kvo! --*kv-offload! --numa= "
      "--enforce-eager! --*repack! -nr! --no-host! --*op-offload! -dt= --defrag-thold= -fit~ --fit~ -fit?= "
      "--fit-*= -bs! --backend-sampling! --check-tensors! --prio*= --poll*= --cpu-strict*= -ctxcp= "
      "--*-checkpoints= -cms= --checkpoint-min-step= -cram= --cache-ram= -*kvu! --*kv-unified! "
      "--kv-unified-*= -*cb! --*cont-batching! --*slots! -sps= --slot-prompt-*= --threads-http= -to= "
      "--timeout= --sse-*= --sleep-*= -tb= --threads-batch=", "longhand chooses it, or has no such thing" },
    { "-C --cpu-mask* -Cr --cpu-range* -Cb -Crb", "longhand computes on the CPUs that taskset leaves it" },
    { "-sys --system-prompt -sysf --system-prompt-file",
      "--chat --system TEXT is the system message; --system \"$(cat FILE)\" reads a file" },
    { "--mirostat* --dynatemp-* --adaptive-*", "longhand's samplers are --top-n-sigma, --top-k, --typical, "
      "--top-p, --min-p, --eta, --xtc-probability and DRY" },
    { "--samplers --sampler-seq --sampling-seq", "the order of the samplers is fixed" },
    { "--grammar* -j -jf --json-schema* --guided-json --guided-regex", "texts are free" },
    { "-l", "--logit-bias ID:BIAS adds to a logit" },
    { "--in-prefix* --in-suffix -i -if --interactive* -mli --multiline-input --spm-infill --server-base",
      "longhand writes whole texts, and does not talk" },
    { "--display-prompt --log-prompts-dir -sp --special",
      "longhand text JOB has --with-prompt, and --format ids for special tokens" },
    { "--no-display-prompt! --simple-io! --log-disable! -co~ --color~ --log-colors~ --log-prefix! "
      "--log-timestamps! --no-log-*! --no-perf! --no-show-timings! -ptc= --print-token-count=",
      "only the text goes to standard output, without the prompt; -q silences the rest" },
    { "--log-file --log-jsonl", "messages go to standard error, with --progress json as JSON" },
    { "-r --reverse-prompt", "--stop TEXT ends a text" },
    { "--keep# --no-context-shift! --no-escape! --skip-chat-parsing!", "longhand does so without an option" },
    { "--context-shift", "--allow-beyond-context goes on after the end of the context" },
    { "-gan --grp-attn-* -gaw --rope-freq-* --yarn-ext-factor --yarn-attn-factor --yarn-beta-*",
      "--context-scaling stretches the context" },
    { "--prompt-cache= --prompt-cache-*! --cache-prompt! --no-cache-prompt! --cache-reuse= --slot-save-path=",
      "jobs with a common beginning read it once, without an option" },
    { "--lora* --enable-lora --control-vector* --override-kv",
      "a model with its adapter merged into it is needed" },
    { "--no-mmproj*! --no-ui*! --no-webui*!", "longhand has none" },
    { "--mmproj* -mm -mmu -mmdev --image* --audio --video* --mtmd-* --media-path -bf "
      "--binary-file --embd-[ns]* --embedding* --rerank* --pooling --no-skip-chat-parsing",
      "longhand reads and writes texts alone" },
    { "--offline! -mu --model-url -hff --hf-file -hft --hf-token -dr --docker-repo -cl --cache-list --fim-* "
      "--gpt-oss-* --vision-* --embd-gemma-default",
      "longhand downloads nothing; --model takes a path or org/name:QUANT of a local cache" },
    { "--api-key", "longhand serve --api-key-file FILE asks clients for a key" },
    { "-a --alias --tags --models-* --no-models-autoload --path --ui* --webui* "
      "--api-prefix --ssl-* --reuse-port --props --tools* --mcp-* -ag --agent -no-ag! --no-agent!",
      "serve has one model, called as its file, its own pages and no tools; a proxy before it does more" },
    { "--cors-* --no-cors-credentials --allowed-*", "--cors ORIGIN lets the pages of an origin in" },
    { "--metrics", "serve has GET /metrics without an option, and work --metrics FILE writes a file" },
    { "--completion-bash --version", "longhand help --completion bash and longhand --version print it" },
    { "--max-num-seqs", "--parallel N is the number of texts at once" },
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

const char *option_hint(const char *word, char *mark)
{
    char pattern[40], ignored;
    mark = mark ? mark : &ignored;
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        for (const char *p = hints[i].words; *p; p += strspn(p, " ")) {
            const size_t n = strcspn(p, " !=~#");
            snprintf(pattern, sizeof pattern, "%.*s", (int)n, p);
            p += n;
            *mark = *p && *p != ' ' ? *p++ : 0;
            if (fnmatch(pattern, word, 0) == 0)
                return hints[i].hint;
        }
    return NULL;
}
