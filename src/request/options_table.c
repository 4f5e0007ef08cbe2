/* The table of options and the table of verbs. Parsing, help, man page and completions all read these two
 * tables. Start at options_table. */
#include "src/request/options_impl.h"
#include "src/text/chat.h"

#include <limits.h>

#define F(x) offsetof(struct options, x)
#define BIG 1e9
#define THE_MODELS "the model's own, else off"

static const char TEXTS[] = "Text", SAMPLING[] = "Sampling", DRAFTING[] = "Drafting",
                  MODELS[] = "Model and machine", OUTPUT[] = "Output", TRAINING[] = "Training",
                  STORE[] = "Jobs";

const struct option options_table[] = {
    { "model", "-m", "DIR", VERBS_MODEL | VERB_SUBMIT, TEXT, F(model), MODELS, MAIN,
      "The model: a Hugging Face directory, a GGUF file (of a split file the first part), or org/name "
      "from the local Hugging Face cache. Supported are Llama, Mistral, Qwen2 and Qwen3, on a CPU also "
      "Mixtral, Qwen2-MoE, Qwen3-MoE, and Qwen3.5 to 3.8 (dense and MoE)." },
    { "model", "-m", "DIR", VERB_WORK | VERB_RESUME | VERB_EXTEND | VERB_FORK, TEXT, F(model), STORE, 0,
      "The new place of a model that was moved. Its files must have the fingerprint that the jobs have. "
      "work: for all jobs with this fingerprint." },
    { "prompt", "-p", "TEXT", VERBS_MAKE, TEXT, F(prompt), TEXTS, MAIN,
      "The prompt that the text continues." },
    { "prompt-file", "-f --file", "FILE", VERBS_MAKE, TEXT, F(prompt_file), TEXTS, MAIN,
      "Read the prompt from a file, without its byte order mark. - is standard input." },
    { "chat", "", NULL, VERBS_MAKE, FLAG, F(chat), TEXTS, MAIN,
      "Treat the prompt as a user's message: it goes through the model's chat template. Of a batch: lines "
      "{\"prompt\": ..} and --lines." },
    { "messages", "", "FILE.json", VERBS_MAKE, TEXT, F(messages), TEXTS, 0,
      "Read a conversation instead of a prompt: a list of messages with role and content, as in OpenAI's "
      "API. "
      "It goes through the model's chat template. - is standard input." },
    { "escape", "-e", NULL, VERBS_SAMPLE, FLAG, F(escape), TEXTS, 0,
      "Replace \\n, \\t, \\r, \\\", \\' and \\\\ in the values of --prompt, --stop and --append by the "
      "characters that they stand for." },
    { "system", "", "TEXT", VERBS_MAKE, TEXT, F(system), TEXTS, 0,
      "With --chat: the system message that precedes the prompt." },
    { "chat-template", "", "NAME", VERBS_MAKE, TEXT, F(chat_template), TEXTS, 0,
      "With --chat: the chat template to use. NAME is one of " CHAT_NAMES ".",
      .shown = "the model's own, if it is known" },
    { "thinking", "", "auto|on|off", VERBS_MAKE, CHOICE, F(thinking), TEXTS, 0,
      "With --chat and a template of Qwen3 or later: off asks for an answer without thoughts, auto leaves it "
      "to the template.", .value = "auto" },
    { "chat-date", "", "DATE", VERBS_MAKE, TEXT, F(chat_date), TEXTS, 0,
      "With --chat and the template llama3.1: the date in the system message.", .shown = "26 Jul 2024" },
    { "tokens", "-n --predict --n-predict --max-tokens", "N",
      VERBS_MAKE | VERB_INSPECT | VERB_BENCH | VERB_FORK, SIZE, F(tokens), TEXTS, MAIN,
      "Number of tokens to generate. inspect: the length for which memory is itemised. fork: the length "
      "of the whole text.", .min = 1, .max = BIG, .shown = "fork: the length of the other job" },
    { "tokens", "-n --predict --n-predict --max-tokens", "+N", VERB_EXTEND, TEXT, F(more_tokens), TEXTS, 0,
      "Number of tokens to add to the text." },
    { "min-tokens", "", "N", VERBS_SAMPLE, SIZE, F(min_tokens), TEXTS, 0,
      "Do not end the text before it has N tokens: until then end-of-text tokens are banned.", .max = BIG,
      .value = "0" },
    { "ignore-eos", "", NULL, VERBS_SAMPLE, FLAG, F(ignore_eos), TEXTS, MAIN,
      "Ban end-of-text tokens, so that the text reaches its full length." },
    { "stop", "", "TEXT", VERBS_SAMPLE, LIST, F(stop), TEXTS, 0,
      "End the text before the first TEXT. May be given several times." },
    { "on-loop", "", "warn|stop|off", VERBS_SAMPLE, CHOICE, F(on_loop), TEXTS, 0,
      "What to do when the text falls into repetition: warn, stop writing, or not check at all.",
      .value = "warn" },
    { "samples", "", "N", VERBS_MAKE, SIZE, F(samples), TEXTS, 0,
      "Number of texts to write. More than one text needs -o FILE; the texts go to FILE.0, FILE.1, ... "
      "FILE.0 is the text that --samples 1 writes.", .min = 1, .max = 1e6, .value = "1" },
    { "context-scaling", "--rope-scaling", "yarn:F[:ORIG]", VERBS_MAKE | VERB_SCORE | VERB_INSPECT, TEXT,
      F(context_scaling), MODELS, 0,
      "Stretch the context F times. ORIG is the length that the model was trained for. linear:F is "
      "supported too.", .shown = "the model's own" },
    { "rope-scale", "", "F", VERBS_MAKE | VERB_SCORE | VERB_INSPECT, TEXT, F(rope_scale), MODELS, HIDDEN,
      "The F of --context-scaling." },
    { "yarn-orig-ctx", "", "ORIG", VERBS_MAKE | VERB_SCORE | VERB_INSPECT, SIZE, F(yarn_orig_ctx), MODELS,
      HIDDEN, "The ORIG of --context-scaling.", .min = 1, .max = BIG },
    { "allow-beyond-context", "", NULL, VERBS_MAKE, FLAG, F(allow_beyond_context), MODELS, 0,
      "Continue beyond the context length that the model was made for." },

    { "seed", "-s", "S", VERBS_MAKE | VERB_BENCH | VERB_TRAIN | VERB_FORK, U64, F(seed), SAMPLING, MAIN,
      "The seed, a number of 64 bits. The same seed writes the same text.",
      .shown = "drawn at random and printed; train: 42" },
    { "temperature", "--temp", "T", VERBS_SAMPLE | VERB_BENCH, REAL, F(temperature), SAMPLING, MAIN,
      "The sampling temperature. 0 always takes the likeliest token.", .max = 1000,
      .shown = "the model's own, else 1" },
    { "top-k", "", "K", VERBS_SAMPLE, LONG, F(top_k), SAMPLING, 0,
      "Keep the K most likely tokens. 0 or -1 keeps all.", .min = -1, .max = BIG, .shown = THE_MODELS },
    { "top-p", "", "P", VERBS_SAMPLE | VERB_BENCH, REAL, F(top_p), SAMPLING, 0,
      "Keep the most likely tokens whose probabilities sum to P. 1 keeps all.", .max = 1,
      .shown = THE_MODELS },
    { "min-p", "", "P", VERBS_SAMPLE | VERB_BENCH, REAL, F(min_p), SAMPLING, MAIN,
      "Keep tokens that are at least P times as probable as the most likely token.", .max = 1,
      .shown = THE_MODELS },
    { "eta", "", "E", VERBS_SAMPLE, REAL, F(eta), SAMPLING, 0,
      "Keep tokens with a probability above min(E, sqrt(E) exp(-entropy)).", .max = 1, .shown = THE_MODELS },
    { "min-keep", "", "N", VERBS_SAMPLE, SIZE, F(min_keep), SAMPLING, 0,
      "Number of tokens that survive every filter.", .min = 1, .max = BIG, .value = "1" },
    { "penalty", "--repeat-penalty --repetition-penalty", "T", VERBS_SAMPLE | VERB_BENCH, REAL, F(penalty),
      SAMPLING, MAIN, "Repetition penalty: divide the logits of recent tokens by T.", .min = 0.01, .max = 100,
      .shown = THE_MODELS " (1)" },
    { "penalty-window", "--repeat-last-n", "W", VERBS_SAMPLE | VERB_BENCH, LONG, F(penalty_window), SAMPLING,
      0,
      "Number of last tokens of prompt and text that --penalty applies to. 0: none, -1: all.", .min = -1,
      .max = BIG, .value = "1024" },
    { "presence-penalty", "", "X", VERBS_SAMPLE, REAL, F(presence), SAMPLING, 0,
      "Subtract X from the logit of every token that the text already contains.", .min = -100, .max = 100,
      .value = "0" },
    { "frequency-penalty", "", "X", VERBS_SAMPLE, REAL, F(frequency), SAMPLING, 0,
      "Subtract X from the logit of a token for each time that the text contains it.", .min = -100,
      .max = 100, .value = "0" },
    { "dry-multiplier", "", "X", VERBS_SAMPLE, REAL, F(dry_multiplier), SAMPLING, 0,
      "DRY: a token that would continue a repetition of L >= A tokens loses X * B^(L-A) of its logit. 0 "
      "turns DRY off.", .max = 1000, .value = "0" },
    { "dry-base", "", "B", VERBS_SAMPLE, REAL, F(dry_base), SAMPLING, 0,
      "The B of DRY: how steeply the penalty grows with the length of the repetition.", .min = 1, .max = 100,
      .value = "1.75" },
    { "dry-allowed-length", "", "A", VERBS_SAMPLE, SIZE, F(dry_allowed_length), SAMPLING, 0,
      "The A of DRY: shorter repetitions have no penalty.", .min = 1, .max = 65536, .value = "2" },
    { "dry-penalty-last-n", "", "N", VERBS_SAMPLE, LONG, F(dry_penalty_last_n), SAMPLING, 0,
      "Number of last tokens of prompt and text in which DRY looks for repetitions. 0: none, -1: all.",
      .min = -1, .max = BIG, .value = "-1" },
    { "dry-sequence-breaker", "", "TEXT", VERBS_SAMPLE, LIST, F(dry_breakers), SAMPLING, 0,
      "DRY: a repetition never extends back across TEXT. The escapes \\n, \\t, \\\" and \\\\ are "
      "supported. May be given several times; the first use replaces the default. none: no breakers.",
      .shown = "newline, colon, double quote and asterisk" },
    { "logit-bias", "", "ID:BIAS", VERBS_SAMPLE, LIST, F(logit_bias), SAMPLING, 0,
      "Add BIAS to the logit of token ID; -inf bans the token. May be given several times, or once as a "
      "JSON object {\"ID\": BIAS, ..}." },
    { "generation-config", "", "auto|none", VERBS_MAKE, CHOICE, F(generation_config), SAMPLING, 0,
      "auto: use the sampling settings of the model's generation_config.json. none: use the neutral ones.",
      .value = "auto" },

    { "threads", "-t", "N",
      VERBS_BRANCH | VERBS_MAKE | VERBS_COMPUTE | VERB_SCORE | VERB_INSPECT | VERB_BENCH | VERB_TRAIN |
          VERB_CONVERT | VERB_PLAN,
      SIZE, F(threads), MODELS, MAIN, "Number of computing threads. The text does not depend on it.",
      .min = 1, .max = 512, .shown = "the physical cores that the process may use" },
    { "compute", "", "bf16|f32", VERBS_MAKE | VERB_SCORE | VERB_INSPECT | VERB_BENCH | VERB_TRAIN, CHOICE,
      F(compute), MODELS, 0, "Number format of the computation. f32 is meant for comparisons.",
      .value = "bf16" },
    { "kv-dtype", "", "auto|int16|bf16", VERBS_MAKE | VERB_SCORE | VERB_INSPECT | VERB_BENCH | VERB_TRAIN,
      CHOICE, F(kv_dtype), MODELS, 0,
      "Number format of the KV cache. int16, with a scale for each row, is closer to f32 than bf16 and "
      "faster on CPUs. auto is int16 on a CPU and bf16 on a GPU. A text keeps the format that it began "
      "with.", .value = "auto" },
    { "drafter", "", "auto|none|LIST", VERBS_MAKE | VERB_BENCH, TEXT, F(drafter), DRAFTING, MAIN,
      "How to guess tokens before the model verifies them. The text does not depend on it. LIST is a list "
      "of " OPTION_DRAFTERS ". mtp is the model's own draft layer. none writes one token at a time.",
      .value = "auto" },
    { "preset", "", "NAME", VERBS_MAKE | VERB_BENCH, TEXT, F(preset), DRAFTING, 0,
      "tokenswift: draft as in the TokenSwift paper; its filters keep 20 tokens, which changes the text. "
      "table11-MODEL: also use the paper's sampling settings for MODEL. magicdec: four draft passes of the "
      "model over its last 256 keys and the first. medusa: a tree of the drafting heads alone; "
      "--drafter heads:FILE names independent heads." },
    { "tree", "", "A,B,..", VERBS_MAKE | VERB_BENCH, TEXT, F(tree), DRAFTING, 0,
      "Number of candidates at each depth of the draft tree. All candidates are verified.",
      .shown = "whatever is fastest" },
    { "ngram-k", "", "K", VERBS_MAKE | VERB_BENCH, SIZE, F(ngram_k), DRAFTING, 0,
      "Number of continuations to take from the table of 4-grams.", .max = 32, .shown = "20" },
    { "ngram-lead", "", "first|all|root", VERBS_MAKE | VERB_BENCH, CHOICE, F(ngram_lead), DRAFTING, 0,
      "The tokens after which continuations from the 4-gram table are added: the first candidate for the "
      "next token, all candidates for it, or the last token of the text.", .value = "first" },
    { "ngram-delay", "", "N", VERBS_MAKE | VERB_BENCH, SIZE, F(ngram_delay), DRAFTING, 0,
      "Number of tokens that a 4-gram waits before it enters the table.", .max = BIG,
      .shown = "the penalty's window" },
    { "draft-passes", "", "N", VERBS_MAKE | VERB_BENCH, SIZE, F(draft_passes), DRAFTING, 0,
      "Number of draft passes over the partial cache in each round.", .max = 16,
      .shown = "whatever is fastest" },
    { "kv-budget", "", "N|prompt", VERBS_MAKE | VERB_BENCH, TEXT, F(kv_budget), DRAFTING, 0,
      "Number of keys in the partial cache. The caches of model and mtp keep 4096 at most.",
      .shown = "4096" },
    { "kv-sinks", "", "N", VERBS_MAKE | VERB_BENCH, SIZE, F(kv_sinks), DRAFTING, 0,
      "Number of first tokens that always stay in these caches.", .min = 1, .max = BIG, .shown = "16" },
    { "kv-policy", "", "full|static|dynamic|window|mean", VERBS_MAKE | VERB_BENCH, CHOICE, F(kv_policy),
      DRAFTING, 0,
      "The keys in the partial cache: all of them, the keys that mattered at the start, the keys that "
      "matter now, the most recent keys, or the most recent keys and means of earlier keys (CPU only).",
      .shown = "whatever is fastest; dynamic with --tree, --kv-budget or --preset" },
    { "draft-weights", "", "int8|model", VERBS_MAKE | VERB_BENCH, CHOICE, F(draft_weights), DRAFTING, 0,
      "Weights for draft passes. int8: an 8-bit copy of the model, if memory has room for it (CPU only, "
      "not with --verifier paper). model: the model itself.", .value = "int8" },
    { "verifier", "", "exact|paper", VERBS_MAKE, CHOICE, F(verifier), DRAFTING, 0,
      "paper: the published acceptance rule, for comparison. Its text is not the model's own, and it "
      "changes when a run is interrupted.", .value = "exact" },
    { "device", "", "auto|cpu|cuda[:N|:all]",
      VERBS_BRANCH | VERBS_MAKE | VERBS_COMPUTE | VERB_SCORE | VERB_BENCH | VERB_TRAIN, TEXT, F(device),
      MODELS, 0,
      "Where to compute. auto: the first GPU that can hold the model, else the CPU. train: auto is the CPU. "
      "cuda:all, for work only: one worker for each GPU. A text keeps the arithmetic that it began with.",
      .value = "auto" },
    { "weights", "", "as-is|q8_0|q4_0",
      VERBS_MAKE | VERB_SCORE | VERB_INSPECT | VERB_WORK | VERB_RESUME | VERB_EXTEND | VERB_FORK |
          VERB_PLAN, CHOICE, F(weights),
      MODELS, 0,
      "Number format of the matrices of a model in 16 bits: q8_0 and q4_0 write the text that a file of "
      "convert "
      "would write. Verbs about jobs need it with --model, for jobs that have it.", .value = "as-is" },
    { "weights", "", "bf16|q8_0|q4_0", VERB_CONVERT, CHOICE, F(convert_weights), MODELS, MAIN,
      "Number format of the matrices. q8_0 has 8.5 bits for a weight, q4_0 4.5 (and 8.5 for the logits' "
      "matrix).",
      .value = "q8_0" },

    { "format", "", "text|ids", VERB_RUN | VERB_TEXT | VERB_TAIL, CHOICE, F(format), OUTPUT, 0,
      "The form of the text on standard output. ids writes one decimal number per line.", .value = "text" },
    { "output", "-o --out", "FILE",
      VERBS_BRANCH | VERB_RUN | VERB_TRAIN | VERB_TEXT | VERB_REPORT | VERB_EXPORT | VERB_CONVERT |
          VERB_PLAN, TEXT, F(output), OUTPUT, MAIN,
      "Write the result to FILE. The file appears under its name when it is complete.",
      .shown = "standard output; train, convert: none, FILE is required" },
    { "per-token", "", NULL, VERB_SCORE, FLAG, F(per_token), OUTPUT, 0,
      "Also print every token with its negative log-likelihood." },
    { "window", "", "N", VERB_SCORE | VERB_TRAIN, SIZE, F(window), TEXTS, 0,
      "Split the text into pieces of N tokens.", .min = 2, .max = BIG,
      .shown = "the whole text at once; train: 8192" },
    { "json-stats", "", "FILE", VERB_RUN, TEXT, F(json_stats), OUTPUT, 0,
      "Write statistics of the run to FILE, as JSON: rounds, acceptance, times, windows of 1,000 tokens." },
    { "jsonl", "", NULL, VERB_TOKENIZE, FLAG, F(jsonl), OUTPUT, 0,
      "Read one JSON string per line and write one JSON array of ids per line." },
    { "decode", "", NULL, VERB_TOKENIZE, FLAG, F(decode), OUTPUT, 0,
      "Convert ids to text, without special tokens." },
    { "json", "", NULL,
      VERB_SCORE | VERB_INSPECT | VERB_DISTINCT | VERB_BENCH | VERB_LIST | VERB_SHOW | VERB_REPORT |
          VERB_VERIFY | VERB_DU | VERB_PLAN | VERB_TEXT | VERB_DOCTOR,
      FLAG, F(json), OUTPUT, 0, "Print one JSON value on standard output." },
    { "points", "", "LIST", VERB_BENCH, TEXT, F(bench_points), OUTPUT, 0,
      "Run only these points, separated by commas." },
    { "repeat", "", "N", VERB_BENCH, SIZE, F(repeat), OUTPUT, 0, "Number of interleaved runs of each point.",
      .min = 1, .max = 1000 },
    { "progress", "", "auto|plain|json|none",
      VERBS_BRANCH | VERB_RUN | VERB_SCORE | VERB_TRAIN | VERB_CONVERT | VERBS_COMPUTE, CHOICE,
      F(progress), OUTPUT, 0,
      "How to show progress on standard error. auto: a redrawn line on a terminal, otherwise a line every "
      "10 s.", .value = "auto" },
    { "quiet", "-q", NULL,
      VERBS_BRANCH | VERB_RUN | VERB_SCORE | VERB_INSPECT | VERB_BENCH | VERB_TRAIN | VERB_SUBMIT |
          VERB_EXPORT |
          VERB_CONVERT | VERBS_COMPUTE | VERBS_CHANGE | VERB_COMPACT | VERB_BACKUP,
      FLAG, F(quiet), OUTPUT, 0, "Print only errors on standard error." },
    { "data", "", "FILES...", VERB_TRAIN | VERB_BENCH, FILES, F(data), TRAINING, 0,
      "Texts to train on. Takes all words up to the next option." },
    { "valid", "", "FILES...", VERB_TRAIN, FILES, F(valid), TRAINING, 0,
      "Held-out texts, for measuring loss and accuracy." },
    { "kind", "", "chained|independent|both", VERB_TRAIN, CHOICE, F(train_kind), TRAINING, 0,
      "chained: each head reads the state of the head before it. independent: each head reads the model's "
      "state. both: train both in one run; the independent heads go to FILE-independent.",
      .value = "chained" },
    { "ablate", "", "none|random|distill|hard|no-feedback|no-activations", VERB_TRAIN, CHOICE,
      F(train_ablation), TRAINING, 0,
      "Train a SPIRe drafter without one of its parts: random first weights; omega 1 in the loss; the "
      "cross-entropy of the text as loss; no feedback memories; neither feedback memories nor the model's "
      "activations.", .value = "none" },
    { "heads", "", "N", VERB_TRAIN, SIZE, F(heads), TRAINING, 0,
      "Number of heads, which is the number of tokens to guess ahead.", .min = 1, .max = 16, .value = "3" },
    { "from", "", "FILE", VERB_TRAIN, TEXT, F(train_from), TRAINING, 0,
      "Start from the heads in FILE instead of random ones. With --kind both also from FILE-independent." },
    { "steps", "", "N", VERB_TRAIN, SIZE, F(train_steps), TRAINING, 0, "Number of optimiser steps.", .min = 1,
      .max = BIG, .shown = "one pass over the data" },
    { "batch-windows", "", "N", VERB_TRAIN, SIZE, F(train_batch), TRAINING, 0,
      "Number of windows in each step.", .min = 1, .max = 1e6, .value = "1" },
    { "learning-rate", "--lr", "R", VERB_TRAIN, REAL, F(train_rate), TRAINING, 0,
      "Learning rate of AdamW after the warm-up. It falls to 0 along a cosine.", .max = 100,
      .shown = "0.005 x 4096 / the model's hidden size, at most 0.2" },
    { "warmup", "", "N", VERB_TRAIN, SIZE, F(train_warmup), TRAINING, 0,
      "Number of warm-up steps, in which the learning rate rises. At most a quarter of all steps.",
      .max = BIG, .value = "50" },
    { "weight-decay", "", "X", VERB_TRAIN, REAL, F(train_decay), TRAINING, 0, "Weight decay of the matrices.",
      .max = 100, .shown = "0.0005 / the learning rate, at most 0.1" },
    { "clip", "", "X", VERB_TRAIN, REAL, F(train_clip), TRAINING, 0,
      "Largest norm of a gradient. 0: no limit.", .max = 1e9, .value = "1" },
    { "valid-every", "", "N", VERB_TRAIN, SIZE, F(valid_every), TRAINING, 0,
      "Number of steps between measurements on held-out text.", .min = 1, .max = BIG, .value = "100" },
    { "valid-windows", "", "N", VERB_TRAIN, SIZE, F(valid_windows), TRAINING, 0,
      "Number of held-out windows to measure, spread over the text.", .min = 1, .max = BIG, .value = "8" },
    { "checkpoint-every", "", "S", VERB_TRAIN, REAL, F(checkpoint_seconds), TRAINING, 0,
      "Seconds between checkpoints in FILE.checkpoint. After an interruption the same command continues "
      "from the last one.", .max = 1e9, .value = "60" },
    { "curves", "", "FILE", VERB_TRAIN, TEXT, F(curves), TRAINING, 0,
      "Write loss and accuracy of every head to FILE, as CSV." },
    { "all", "", NULL, VERB_HELP, FLAG, F(all), OUTPUT, 0, "Show every verb and every option." },
    { "man", "", NULL, VERB_HELP, FLAG, F(man), OUTPUT, 0, "Print the man page as troff source." },
    { "completion", "", "bash|zsh|fish", VERB_HELP, CHOICE, F(completion), OUTPUT, 0,
      "Print the script that completes verbs and options in this shell." },

    { "db", "", "FILE", VERBS_STORE, LIST, F(db), STORE, MAIN,
      "The store: the file that holds jobs, texts and figures.",
      .shown = "LONGHAND_DB, else longhand/longhand.db in XDG_STATE_HOME (~/.local/state)" },
    { "shared-db", "", NULL, VERBS_STORE, FLAG, F(shared_db), STORE, 0,
      "Several machines use the store on a network file system. Use it only if the file system's locks "
      "work." },
    { "resume", "", "JOB", VERB_RUN, TEXT, F(resume), STORE, 0,
      "Continue this job here, and print its text from the start." },
    { "from-here", "", NULL, VERBS_BRANCH | VERB_RUN, FLAG, F(from_here), STORE, 0,
      "With --resume, or --run of another verb: print only the new text, --append included." },
    { "batch", "", "FILE.jsonl", VERBS_MAKE, TEXT, F(batch), STORE, 0,
      "Read requests in the format of the OpenAI Batch API, one per line, or lines {\"prompt\": .., "
      "\"custom_id\": .., \"metadata\": ..} of which only the prompt is needed. Options are the defaults for "
      "fields that a line does not have." },
    { "lines", "", NULL, VERBS_MAKE, FLAG, F(lines), STORE, 0,
      "With --batch: every line of the file is a prompt, as plain text. Its custom_id is the number of "
      "the line." },
    { "keep", "", NULL, VERBS_MAKE, FLAG, F(keep), STORE, 0,
      "With --batch of a name that is in use: keep its jobs as they are, also where the options of the "
      "command line "
      "are other ones." },
    { "name", "", "NAME", VERBS_MAKE, TEXT, F(name), STORE, 0,
      "Name of the batch or of the job: @NAME selects "
      "it. The jobs of --samples are @NAME/0, @NAME/1, ..", .shown = "a batch: the name of the file" },
    { "shard", "", "I/N", VERBS_MAKE, TEXT, F(shard), STORE, 0,
      "Queue only part I of N of the lines of a batch." },
    { "grid", "", "NAME=A,B,..", VERB_SUBMIT, LIST, F(grid), STORE, 0,
      "Queue a text for every value of an option of sampling, drafting or length. Given several times: "
      "for every "
      "combination. The name of the jobs is --name, else grid-SEED; all have the same seed." },
    { "priority", "", "P", VERB_SUBMIT, LONG, F(priority), STORE, 0,
      "Priority of the jobs. Jobs of a higher priority are written first.", .min = -1e6, .max = 1e6,
      .value = "0" },
    { "until-empty", "", NULL, VERB_WORK, FLAG, F(until_empty), STORE, 0,
      "Exit when the queue is empty. This is the default." },
    { "watch", "", NULL, VERB_WORK, FLAG, F(watch), STORE, 0, "Keep running and wait for new jobs." },
    { "max-time", "", "S", VERB_WORK, REAL, F(max_time), STORE, 0,
      "Store the texts and exit after S seconds. The exit status is 75 if work is left.", .max = 1e9,
      .shown = "no limit" },
    { "max-jobs", "", "N", VERB_WORK, SIZE, F(max_jobs), STORE, 0, "Exit after N jobs.", .min = 1, .max = BIG,
      .shown = "no limit" },
    { "parallel", "", "auto|N", VERB_RUN | VERB_WORK, TEXT, F(parallel), STORE, 0,
      "Write up to N texts at once (with run: of a batch), 1 to 64. The texts are the same for every N. "
      "auto begins with 4 and doubles their number as long as that raises the tokens per second of all texts "
      "together and memory has room.", .value = "auto" },
    { "max-memory", "", "SIZE", VERB_RUN | VERB_WORK, BYTES, F(max_memory), STORE, 0,
      "Memory of this process in all (K, M, G, T). A text that does not fit beside those that are being "
      "written waits.", .min = 1, .shown = "what the machine has available, less a margin" },
    { "metrics", "", "FILE", VERB_WORK, TEXT, F(metrics), STORE, 0,
      "Write the figures of the worker to FILE every 5 s, in Prometheus' text format, with vLLM's names "
      "where "
      "vLLM has the metric. FILE appears whole. With several GPUs: one file for each, FILE.0 and so on." },
    { "max-attempts", "", "N", VERB_WORK, SIZE, F(max_attempts), STORE, 0,
      "A job fails after N attempts in a row that produced neither a token nor a longer snapshot. 0: no "
      "limit.", .max = 1e6, .value = "10" },
    { "kv-snapshot", "", "auto|on|off", VERB_RUN | VERB_WORK, CHOICE, F(kv_snapshot), STORE, 0,
      "Keep the KV cache in a file next to the store, so that a resumed job need not process its text "
      "again. auto: keep it when that would take more than 5 s.", .value = "auto" },
    { "kv-snapshot-max", "", "SIZE", VERB_RUN | VERB_WORK, BYTES, F(kv_snapshot_max), STORE, 0,
      "Total size of the snapshots of a store, including one that is being replaced (K, M, G, T).",
      .shown = "no limit, but 256 MB of the disk stay free" },
    { "accept-numerics-change", "", NULL, VERBS_COMPUTE | VERB_RESUME | VERB_EXTEND | VERB_FORK, FLAG,
      F(accept_change), STORE, 0,
      "Continue a text that other arithmetic or another model began. The change is recorded." },
    { "rounds", "", NULL, VERB_RUN | VERB_WORK | VERB_REPORT, FLAG, F(rounds), STORE, 0,
      "Store every round. report: include every round." },
    { "state", "", "STATE", VERBS_SELECT, TEXT, F(state), STORE, 0,
      "Select jobs that are queued, running, paused, done, failed or cancelled." },
    { "finish", "", "REASON", VERBS_SELECT, TEXT, F(finish), STORE, 0,
      "Select jobs whose text ended by length, stop or repetition." },
    { "loops", "", NULL, VERBS_SELECT, FLAG, F(loops), STORE, 0,
      "Select jobs whose text repeats itself, as --on-loop warn and stop find it." },
    { "all", "", NULL, VERBS_SELECT, FLAG, F(all), STORE, 0, "Select every job." },
    { "limit", "", "N", VERB_LIST, SIZE, F(limit), OUTPUT, 0, "Show N jobs, the first ones of the order.",
      .min = 1,
      .max = BIG, .shown = "all" },
    { "sort", "", "COLUMN", VERB_LIST, TEXT, F(sort), OUTPUT, 0, "Order the jobs by this column.",
      .shown = "job" },
    { "reverse", "", NULL, VERB_LIST, FLAG, F(reverse), OUTPUT, 0, "Turn the order round." },
    { "columns", "", "LIST", VERB_LIST, TEXT, F(columns), OUTPUT, 0,
      "The columns of the table, with --json the members of each job: job, state, tokens, rate, finish, age, "
      "model, name, prompt, custom_id, error, priority, seed.",
      .shown = "the first nine; --json: more" },
    { "older-than", "", "AGE", VERB_REMOVE, TEXT, F(older_than), STORE, 0,
      "Of the selected jobs (default: all) only those that ended at least AGE ago: a number and s, m, h "
      "or d, "
      "like 30d." },
    { "force", "", NULL, VERB_REMOVE, FLAG, F(force), STORE, 0,
      "Also remove jobs that a worker is writing. Without it, nothing is removed if there is one." },
    { "force", "", NULL, VERB_BACKUP, FLAG, F(force), STORE, 0,
      "Replace the file that is there, also when it is not an earlier backup of this store." },
    { "follow", "-f", NULL, VERB_TAIL, FLAG, F(follow), STORE, 0,
      "Follow the text as it grows, until it ends." },
    { "from", "", "TOKEN", VERB_TAIL, SIZE, F(from), STORE, 0,
      "Start at this token of the text, counted from 0.", .max = BIG,
      .shown = "about 100 tokens before the end" },
    { "at", "", "TOKEN", VERB_FORK, SIZE, F(at), STORE, 0,
      "Number of tokens that the new job shares with the old one.", .max = BIG },
    { "at-text", "", "PHRASE", VERB_FORK, TEXT, F(at_text), STORE, 0,
      "In place of --at: share the text before the first PHRASE. If PHRASE begins inside a token, this token "
      "is not shared." },
    { "occurrence", "", "N", VERB_FORK, SIZE, F(occurrence), STORE, 0,
      "With --at-text: before the PHRASE number N.", .min = 1, .max = BIG, .value = "1" },
    { "find", "", "PHRASE", VERB_TEXT, TEXT, F(find), OUTPUT, 0,
      "Print the places of PHRASE instead of the text: the token with its first byte, and the offset of this "
      "byte, both counted from 0." },
    { "with-prompt", "", "model|user", VERB_TEXT, CHOICE, F(with_prompt), OUTPUT, OPTIONAL,
      "Print the prompt before each text: what the model read, with the marks of the chat template, or what "
      "the user wrote." },
    { "dir", "", "DIR", VERB_EXPORT, TEXT, F(dir), OUTPUT, 0,
      "Write one file per job into DIR, named after the job's custom_id or name. No file is overwritten." },
    { "append", "", "TEXT", VERBS_BRANCH, TEXT, F(append), STORE, 0,
      "Add TEXT to the text before continuing." },
    { "append-file", "", "FILE", VERBS_BRANCH, TEXT, F(append_file), STORE, 0,
      "Add the text in FILE before continuing, without its byte order mark. - is standard input." },
    { "run", "", NULL, VERBS_BRANCH, FLAG, F(run_now), STORE, 0,
      "Write the text at once, as longhand run --resume does." },
    { "format", "", "text|ids|jsonl|csv|openai-batch", VERB_EXPORT, CHOICE, F(export_format), OUTPUT, 0,
      "text: the texts, one after the other. ids: their token ids, one decimal number per line. jsonl: "
      "one flat JSON object per job. csv: one line per job; a text that begins with =, +, - or @ gets an "
      "apostrophe before it. openai-batch: the output format of the OpenAI Batch API." },
    { "fields", "", "LIST", VERB_EXPORT, TEXT, F(fields), OUTPUT, 0,
      "With --format jsonl or csv: only these fields, in this order, such as custom_id,text,metadata.book or "
      "parameters.temperature.",
      .shown = "all" },
    { "partial", "", NULL, VERB_EXPORT, FLAG, F(partial), OUTPUT, 0,
      "Also export texts that are not finished." },
    { "gzip", "", NULL, VERB_EXPORT, FLAG, F(gzip), OUTPUT, 0, "Compress the output." },
    { "csv", "", NULL, VERB_REPORT, FLAG, F(csv), OUTPUT, 0, "Print CSV, one line per job." },
    { "html", "", NULL, VERB_REPORT | VERB_PLAN | VERB_TRAIN, FLAG, F(html), OUTPUT, 0,
      "Write a page with plots, in one file that loads nothing. train: beside the result, the curves of loss "
      "and accuracy in FILE.html, and their numbers in the file of --curves, else in FILE.csv." },
    { "by", "", "A,B,..", VERB_REPORT, LIST, F(by), OUTPUT, 0,
      "Group the jobs by these parameters, such as temperature,drafter or metadata.book, and show means and "
      "standard deviations. May be given several times." },
    { "windows", "", NULL, VERB_REPORT, FLAG, F(windows), OUTPUT, 0,
      "With --csv: one line for every 1,000 tokens of every job, with the parameters of --by." },
    { "repair", "", NULL, VERB_DOCTOR, FLAG, F(repair), STORE, 0,
      "Repair what is safe to repair: delete snapshots that no job needs, and keep the tokenizers of jobs of "
      "an older longhand." },
    { "sample", "", "N", VERB_VERIFY, SIZE, F(sample), STORE, 0, "Verify only N tokens, chosen at random.",
      .min = 1, .max = BIG, .shown = "all" },
    { "shape", "", "NAME", VERB_PLAN, TEXT, F(shape), MODELS, MAIN,
      "The shape of a model instead of a model: llama3.2-1b, llama3.2-3b, llama3-8b, llama3-70b, llama2-7b, "
      "mistral-7b, qwen2.5-0.5b, qwen2.5-3b, qwen2.5-7b, qwen2.5-14b, qwen3-8b, qwen3-32b, "
      "qwen3-30b-a3b, qwen3.5-4b, qwen3.5-27b or qwen3.5-35b-a3b.",
      .shown = "llama3-8b" },
    { "hardware", "", "NAME", VERB_PLAN, TEXT, F(hardware), MODELS, MAIN,
      "The machine: h100, h200, zen4, measured (this machine), or GFLOPS:GBS, operations and bytes a "
      "second. measured with --model times passes and rounds of this model with its drafters, which takes "
      "about 300 passes of 1 row and 100 of 64 for each; not of models with recurrent states.",
      .shown = "measured" },
    { "drafter", "", "LIST", VERB_PLAN, TEXT, F(drafters), DRAFTING, MAIN,
      "The drafters to predict: a list of those of run, with tokenswift for heads and partial together, and "
      "model:SHAPE. An unknown name lists all of them.",
      .shown = "those that --hardware measured measures" },
    { "acceptance", "", "LIST", VERB_PLAN, TEXT, F(acceptance), DRAFTING, MAIN,
      "Tokens that a round makes with a drafter: NAME=TOKENS, or NAME=@JOB for what a job of the store has "
      "shown; a job with a fixed --tree shows it by depth.",
      .shown = "what the papers published" },
    { "lengths", "", "LIST", VERB_PLAN, TEXT, F(lengths), TEXTS, MAIN, "Lengths of the text in tokens.",
      .shown = "1000,8000,32000,100000" },
    { "batch-sizes", "", "LIST", VERB_PLAN, TEXT, F(batch_sizes), TEXTS, MAIN,
      "Numbers of texts that are written at once.", .shown = "1" },
    { "paper", "", "spire", VERB_PLAN, TEXT, F(paper), OUTPUT, MAIN,
      "Print the speedups of SPIRe's throughput model, and compare all 432 cells with the paper's." },
    { "help", "-h", NULL, ~0u, FLAG, F(help), OUTPUT, HIDDEN, "" },
    { NULL },
};
_Static_assert(sizeof options_table / sizeof *options_table <= OPTIONS_MAX, "each option has a place in "
                                                                            "`given`");

const struct verb verbs_table[] = {
    { "run", VERB_RUN,
      "--model DIR (--prompt TEXT | --prompt-file FILE) --tokens N [options], or --batch IN.jsonl -o "
      "OUT.jsonl",
      "Write a text that continues a prompt.", 0, 0 },
    { "submit", VERB_SUBMIT,
      "--model DIR (--prompt TEXT | --prompt-file FILE) --tokens N [options], or --batch FILE.jsonl",
      "Queue a text, or a batch of texts.", 0, 0 },
    { "work", VERB_WORK, "[options]", "Write the queued texts.", 0, 0 },
    { "list", VERB_LIST, "[SEL...] [options]",
      "Show the queue: counts, speed, and the selected jobs (default: all).", 0, INT_MAX },
    { "show", VERB_SHOW, "SEL... [options]", "Show everything about jobs: parameters, progress, history.", 0,
      INT_MAX },
    { "text", VERB_TEXT, "SEL... [options]", "Print the texts of jobs, as far as they are written.", 0,
      INT_MAX },
    { "tail", VERB_TAIL, "JOB [options]", "Print the end of a text.", 1, 1 },
    { "export", VERB_EXPORT, "SEL... --format text|ids|jsonl|csv|openai-batch [options]",
      "Export texts for other programs.", 0, INT_MAX },
    { "pause", VERB_PAUSE, "SEL... [options]", "Take jobs out of the queue. A worker stops within a second.",
      0, INT_MAX },
    { "resume", VERB_RESUME, "SEL... [options]",
      "Queue paused and failed jobs again. They continue where they stopped.", 0, INT_MAX },
    { "retry", VERB_RESUME, "SEL... [options]", NULL, 0, INT_MAX },
    { "cancel", VERB_CANCEL, "SEL... [options]", "End jobs for good. Their texts stay.", 0, INT_MAX },
    { "priority", VERB_PRIORITY, "SEL... P [options]",
      "Change the priority of jobs to P. Jobs of a higher priority are written first.", 1,
      INT_MAX },
    { "remove", VERB_REMOVE, "SEL... [options]", "Delete jobs and their texts.", 0, INT_MAX },
    { "extend", VERB_EXTEND, "JOB --tokens +N [--append TEXT]", "Continue a finished text.", 1, 1 },
    { "fork", VERB_FORK, "JOB --at TOKEN [options]",
      "Create a job that shares the beginning of another job's text.", 1, 1 },
    { "report", VERB_REPORT, "SEL... [options]", "Report how texts were written and how they read.", 0,
      INT_MAX },
    { "verify", VERB_VERIFY, "JOB [options]", "Recompute a stored text, token by token.", 1, 1 },
    { "doctor", VERB_DOCTOR, "[options]",
      "Check the store, its snapshots, its disk, and the models of its jobs.", 0, 0 },
    { "du", VERB_DU, "[SEL...] [options]", "Show the bytes of the store by job.", 0, INT_MAX },
    { "compact", VERB_COMPACT, "[options]", "Give the free pages of the store back to the disk.", 0, 0 },
    { "backup", VERB_BACKUP, "FILE [options]",
      "Copy the store to FILE, also while workers use it. FILE is new or an earlier backup of this store.", 1,
      1 },
    { "score", VERB_SCORE, "--model DIR FILE [options]",
      "Measure how likely a text is to a model: negative log-likelihood and perplexity.", 1, 1 },
    { "tokenize", VERB_TOKENIZE, "--model DIR [FILE] [options]",
      "Convert text to token ids, and ids to text.", 0, 1 },
    { "inspect", VERB_INSPECT, "--model DIR [options]",
      "Show what a model is, how much memory it needs, and which files are missing.", 0, 0 },
    { "distinct", VERB_DISTINCT, "FILE... [options]",
      "Measure Distinct-n: the share of different words and word sequences in a text.", 1, INT_MAX },
    { "convert", VERB_CONVERT, "--model DIR --weights bf16|q8_0|q4_0 -o FILE.gguf [options]",
      "Convert a Hugging Face model to a GGUF file.", 0, 0 },
    { "train", VERB_TRAIN, "heads|longspec|gumiho|spire --model DIR --data FILES... --out FILE [options]",
      "Train drafting heads, or a drafter of LongSpec, Gumiho or SPIRe, for a model.", 1, 1 },
    { "plan", VERB_PLAN, "[--model DIR | --shape NAME] [--hardware NAME] [options]",
      "Predict the speed of drafters on this machine, measured, or on one that you do not have.", 0, 0 },
    { "bench", VERB_BENCH, "[--model DIR] [options]", "Measure this machine and the engine.", 0, INT_MAX },
    { "version", VERB_VERSION, "", "Print the version and how the program was built.", 0, 0 },
    { "help", VERB_HELP, "[VERB | --all | --man | --completion SHELL]",
      "Show this help, the options of a verb, or everything.", 0, 1 },
    { NULL },
};

const char *option_group_at(size_t i)
{
    const char *const groups[] = { TEXTS, SAMPLING, DRAFTING, MODELS, STORE, TRAINING, OUTPUT };
    return i < sizeof groups / sizeof *groups ? groups[i] : NULL;
}
