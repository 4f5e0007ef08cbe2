/* The table of options and the table of verbs. Parsing, help, man page and completions all read these two
 * tables. Start at options_table. */
#include "src/request/options_impl.h"
#include "src/text/banned.h"
#include "src/text/chat.h"
#include "src/text/emit.h"

#include <limits.h>

#define F(x) offsetof(struct options, x)
#define J(x) offsetof(struct options, job.x)
#define BIG 1e9
#define OF(...) .of = (const struct clause[]){ __VA_ARGS__, { 0 } }
#define THE_MODELS "the model's own, else off"

static const char TEXTS[] = "Text", SAMPLING[] = "Sampling", DRAFTING[] = "Drafting",
                  MODELS[] = "Model and machine", OUTPUT[] = "Output", TRAINING[] = "Training",
                  STORE[] = "Jobs", SERVER[] = "Server";

const struct option options_table[] = {
    { "model", "-m -hf -hfr --hf-repo", "DIR", VERBS_MODEL | VERB_SUBMIT | VERB_SERVE, TEXT,
      F(model), MODELS, MAIN,
      "The model: a Hugging Face directory, a GGUF file (of a split file the first part), or the name of a "
      "model in a cache of this machine: org/name or org/name:QUANT of Hugging Face, llama.cpp or LM Studio, "
      "name or name:TAG of Ollama. Supported are Llama, Mistral, Phi-3, Phi-4, Qwen2 and Qwen3, on a CPU "
      "also EXAONE 4, Gemma 3, Gemma 4, gpt-oss, SmolLM3, Ministral 3, OLMo 3, Granite (4: dense), Mixtral, "
      "Qwen2-MoE, Qwen3-MoE, and Qwen3.5 to 3.8 (dense and MoE)." },
    { "model", "-m -hf -hfr --hf-repo", "DIR", VERB_WORK | VERB_RESUME | VERB_EXTEND | VERB_FORK, TEXT,
      F(model), STORE, 0,
      "The new place of a model that was moved. Its files must have the fingerprint that the jobs "
      "have.", OF({ VERB_WORK, "for all jobs with this fingerprint" }) },
    { "prompt", "-p", "TEXT", VERBS_MAKE, TEXT, F(prompt), TEXTS, MAIN,
      "The prompt that the text continues." },
    { "prompt-file", "-f --file", "FILE", VERBS_MAKE, TEXT, F(prompt_file), TEXTS, MAIN,
      "Read the prompt from a file, without its byte order mark. - is standard input." },
    { "chat", "", NULL, VERBS_MAKE, FLAG, F(chat), TEXTS, MAIN,
      "Treat the prompt as a user's message: it goes through the model's chat template. Of a batch: lines "
      "{\"prompt\": ..} and --lines." },
    { "messages", "", "FILE.json", VERBS_CHAT, TEXT, F(messages), TEXTS, 0,
      "Read a conversation instead of a prompt: a list of messages with role and content, as in OpenAI's "
      "API. It goes through the model's chat template. - is standard input." },
    { "escape", "-e", NULL, VERBS_SAMPLE, FLAG, F(escape), TEXTS, 0,
      "Replace \\n, \\t, \\r, \\\", \\' and \\\\ in the values of --prompt, --stop, --ban-phrase and "
      "--append by the characters that they stand for." },
    { "system", "", "TEXT", VERBS_MAKE, TEXT, F(system), TEXTS, 0,
      "With --chat: the system message that precedes the prompt." },
    { "chat-template", "--chat-template-file", "TEMPLATE", VERBS_CHAT | VERB_SERVE, TEXT, F(chat_template),
      TEXTS, DECIDES,
      "With --chat: the chat template to use: a file, a text in Jinja, or one of " CHAT_NAMES ".",
      .shown = "the model's own", .member = "chat" },
    { "chat-template-kwargs", "", "JSON", VERBS_CHAT | VERB_SERVE, TEXT, F(chat_kwargs), TEXTS, DECIDES,
      "With --chat: an object with more variables for the template, like {\"enable_thinking\": false}.",
      .member = "chat" },
    { "thinking", "", "auto|on|off|low|medium|high", VERBS_CHAT | VERB_SERVE, CHOICE, F(thinking),
      TEXTS, DECIDES,
      "With --chat: on and off set the template's variables enable_thinking and thinking, the others "
      "reasoning_effort. auto leaves them to the template.", .value = "auto", .member = "chat" },
    { "thinking-budget", "--reasoning-budget", "N", VERBS_WRITE, LONG, J(sampling.thought_budget), TEXTS,
      STORED | DECIDES | WHEN_SET | BODY | GRID,
      "End the model's thought after N tokens, so that it answers. -1: it thinks as long as it likes.",
      .min = -1, .max = BIG, .value = "-1", .fields = "thinking_token_budget" },
    { "thinking-end", "", "TEXT", VERBS_WRITE, TEXT, J(thinking_end), TEXTS, STORED | DECIDES | WHEN_SET,
      "The text that ends a thought for --thinking-budget.", .shown = "that of the chat template" },
    { "chat-date", "", "DATE", VERBS_CHAT | VERB_SERVE, TEXT, F(chat_date), TEXTS, DECIDES,
      "With --chat: the day that the template knows, like 2024-07-26 or 26 Jul 2024.",
      .shown = "the day of the command", .member = "chat" },
    { "tokens", "-n --predict --n-predict --max-tokens --max-new-tokens", "N",
      VERBS_WRITE | VERB_INSPECT | VERB_BENCH | VERB_FORK, SIZE, F(tokens), TEXTS, MAIN | GRID,
      "Number of tokens to generate; 100k is 100,000.", .min = 1, .max = BIG,
      OF({ VERB_INSPECT, "the length for which memory is itemised" },
         { VERB_FORK, "the length of the whole text", "the length of the other job" },
         { VERB_SERVE, "of a request without max_tokens", NULL },
         { VERBS_WRITE, NULL, "to the end of the text, at most of the context or of the memory" }),
      .fields = "max_tokens max_completion_tokens" },
    { "tokens", "-n --predict --n-predict --max-tokens --max-new-tokens", "+N", VERB_EXTEND, TEXT,
      F(more_tokens), TEXTS, 0, "Number of tokens to add to the text." },
    { "min-tokens", "", "N", VERBS_SAMPLE, SIZE, J(sampling.min_tokens), TEXTS, SAMPLED,
      "Do not end the text before it has N tokens: until then end-of-text tokens are banned.", .max = BIG,
      .value = "0" },
    { "ignore-eos", "", NULL, VERBS_SAMPLE, FLAG, J(sampling.ignore_eos), TEXTS, MAIN | CHANGED | BODY,
      "Ban end-of-text tokens, so that the text reaches its full length." },
    { "stop", "", "TEXT", VERBS_SAMPLE, LIST, J(stop), TEXTS, CHANGED | BODY,
      "End the text before the first TEXT. May be given several times.", .max = STOP_STRINGS_MAX },
    { "stop-id", "", "ID", VERBS_SAMPLE, IDS, J(stop_ids), TEXTS, CHANGED | WHEN_SET,
      "End the text before the token ID. May be given several times. A --stop that spells a control token, "
      "like <|im_end|>, is such an ID, too.", .max = INT32_MAX, .fields = "stop_token_ids",
      .member = "stop_token_ids" },
    { "ban-phrase", "", "TEXT", VERBS_SAMPLE, LIST, J(banned), TEXTS, CHANGED | WHEN_SET,
      "Never write TEXT, in small or large letters: the text is taken back to the token in which TEXT "
      "begins, and goes on without that token. May be given several times.", .max = BANNED_MAX,
      .fields = "banned_strings", .member = "banned_strings" },
    { "ban-phrases-file", "", "FILE", VERBS_SAMPLE, TEXT, F(ban_file), TEXTS, DECIDES | CHANGES,
      "Ban every line of FILE as --ban-phrase does. An empty FILE bans nothing.",
      .member = "banned_strings" },
    { "on-loop", "", "warn|stop|off|retake[:N]", VERBS_SAMPLE, CHOICE, J(on_loop), TEXTS, SAMPLED,
      "What to do when the text falls into repetition: warn, stop writing, not check at all, or take the "
      "repetition back and write on differently. After N retakes in a row (32) the text ends before the "
      "repetition.", .value = "warn" },
    { "logprobs", "", "N", VERBS_MAKE, LONG, J(logprobs), TEXTS, STORED | WHEN_SET,
      "Keep the model's own log-probability of each token, before sampling settings, and the N likeliest "
      "tokens at its place, at most 20. Exports as JSON have them. -1: keep none.", .min = -1, .max = 20,
      .value = "-1" },
    { "samples", "", "N", VERBS_MAKE, SIZE, F(samples), TEXTS, 0,
      "Number of texts to write. More than one text needs -o FILE; the texts go to FILE.0, FILE.1, ... "
      "FILE.0 is the text that --samples 1 writes.", .min = 1, .max = 1e6, .value = "1", .fields = "n" },
    { "context-scaling", "--rope-scaling", "yarn:F[:ORIG]", VERBS_FORM, TEXT, J(scaling), MODELS,
      STORED | DECIDES,
      "Stretch the context F times. ORIG is the length that the model was trained for. linear:F is "
      "supported too. short, of Phi-3 and Phi-4 with longrope: the original context and its frequencies, "
      "where transformers would change them within a text.", .shown = "the model's own" },
    { "rope-scale", "", "F", VERBS_FORM, TEXT, F(rope_scale), MODELS, HIDDEN,
      "The F of --context-scaling." },
    { "yarn-orig-ctx", "", "ORIG", VERBS_FORM, SIZE, F(yarn_orig_ctx), MODELS, HIDDEN,
      "The ORIG of --context-scaling.", .min = 1, .max = BIG },
    { "cache-type-k", "-ctk", "TYPE", VERBS_FORM | VERB_BENCH | VERB_TRAIN, TEXT,
      F(cache_k), MODELS, HIDDEN, "llama.cpp's word for --kv-dtype" },
    { "cache-type-v", "-ctv", "TYPE", VERBS_FORM | VERB_BENCH | VERB_TRAIN, TEXT,
      F(cache_v), MODELS, HIDDEN, "llama.cpp's word for --kv-dtype" },
    { "allow-beyond-context", "", NULL, VERBS_WRITE, FLAG, J(allow_beyond_context), MODELS, STORED,
      "Continue beyond the context length that the model was made for." },

    { "seed", "-s", "S", VERBS_DRAFT | VERB_TRAIN | VERB_FORK | VERB_REDO, SEED, F(seed),
      SAMPLING, MAIN | BODY | GRID,
      "The seed, a number of 64 bits; -1: one drawn at random. The same seed writes the same text.",
      .shown = "drawn at random and printed",
      OF({ VERB_TRAIN, NULL, "42" }, { VERB_REDO, "from it and its custom_id a job of a batch gets its seed",
                                       "that of the other samples" }) },
    { "temperature", "--temp", "T", VERBS_SAMPLE | VERB_BENCH, REAL, J(sampling.temperature), SAMPLING,
      MAIN | SAMPLED, "The sampling temperature. 0 always takes the likeliest token.", .max = 1000,
      .least = 1e-4, .shown = "the model's own, else 1", .generation = "temperature" },
    { "top-k", "", "K", VERBS_SAMPLE, LONG, J(sampling.top_k), SAMPLING, SAMPLED,
      "Keep the K most likely tokens. 0 or -1 keeps all.", .min = -1, .max = BIG, .shown = THE_MODELS,
      .generation = "top_k" },
    { "top-p", "", "P", VERBS_SAMPLE | VERB_BENCH, REAL, J(sampling.top_p), SAMPLING, SAMPLED | ABOVE_MIN,
      "Keep the most likely tokens whose probabilities sum to P. 1 keeps all.", .max = 1,
      .shown = THE_MODELS, .generation = "top_p" },
    { "min-p", "", "P", VERBS_SAMPLE | VERB_BENCH, REAL, J(sampling.min_p), SAMPLING, MAIN | SAMPLED,
      "Keep tokens that are at least P times as probable as the most likely token.", .max = 1,
      .shown = THE_MODELS, .generation = "min_p" },
    { "eta", "", "E", VERBS_SAMPLE, REAL, J(sampling.eta), SAMPLING, SAMPLED | BELOW_MAX,
      "Keep tokens with a probability above min(E, sqrt(E) exp(-entropy)).", .max = 1, .shown = THE_MODELS,
      .generation = "eta_cutoff" },
    { "top-n-sigma", "--top-nsigma", "N", VERBS_SAMPLE, REAL, J(sampling.top_n_sigma), SAMPLING,
      SAMPLED | WHEN_SET, "Keep tokens whose logits are at most N standard deviations below the largest. "
      "0 or -1 keeps all.", .min = -1, .max = 1000, .value = "0" },
    { "typical", "--typical-p", "P", VERBS_SAMPLE, REAL, J(sampling.typical), SAMPLING,
      SAMPLED | WHEN_SET | ABOVE_MIN,
      "Keep the tokens nearest to the expected surprise whose probabilities sum to P. 1 keeps all.",
      .max = 1, .shown = THE_MODELS, .fields = "typical_p", .generation = "typical_p" },
    { "xtc-probability", "", "P", VERBS_SAMPLE, REAL, J(sampling.xtc_probability), SAMPLING,
      SAMPLED | WHEN_SET, "Probability with which XTC removes, at a position, all tokens that are at least "
      "as probable as --xtc-threshold, but for the least probable of them.", .max = 1, .value = "0" },
    { "xtc-threshold", "", "P", VERBS_SAMPLE, REAL, J(sampling.xtc_threshold), SAMPLING,
      SAMPLED | WHEN_SET | ABOVE_MIN, "Probability from which on XTC removes tokens.", .max = 1,
      .value = "0.1" },
    { "min-keep", "", "N", VERBS_SAMPLE, SIZE, J(sampling.min_keep), SAMPLING, SAMPLED,
      "Number of tokens that survive every filter.", .min = 1, .max = BIG, .value = "1" },
    { "penalty", "--repeat-penalty --repetition-penalty", "T", VERBS_SAMPLE | VERB_BENCH, REAL,
      J(sampling.penalty), SAMPLING, MAIN | CHANGED | GRID,
      "Repetition penalty: divide the logits of recent tokens by T.", .min = 0.01, .max = 100,
      .shown = THE_MODELS " (1)", .fields = "repetition_penalty repeat_penalty",
      .generation = "repetition_penalty" },
    { "penalty-window", "--repeat-last-n", "W", VERBS_SAMPLE | VERB_BENCH, LONG,
      J(sampling.penalty_window), SAMPLING, SAMPLED,
      "Number of last tokens of prompt and text that --penalty applies to. 0: none, -1: all.", .min = -1,
      .max = BIG, .value = "1024", .fields = "repeat_last_n" },
    { "presence-penalty", "", "X", VERBS_SAMPLE, REAL, J(sampling.presence), SAMPLING, SAMPLED,
      "Subtract X from the logit of every token that the text already contains.", .min = -100, .max = 100,
      .value = "0" },
    { "frequency-penalty", "", "X", VERBS_SAMPLE, REAL, J(sampling.frequency), SAMPLING, SAMPLED,
      "Subtract X from the logit of a token for each time that the text contains it.", .min = -100,
      .max = 100, .value = "0" },
    { "dry-multiplier", "", "X", VERBS_SAMPLE, REAL, J(sampling.dry_multiplier), SAMPLING, SAMPLED,
      "DRY: a token that would continue a repetition of L >= A tokens loses X * B^(L-A) of its logit. 0 "
      "turns DRY off.", .max = 1000, .value = "0" },
    { "dry-base", "", "B", VERBS_SAMPLE, REAL, J(sampling.dry_base), SAMPLING, SAMPLED,
      "The B of DRY: how steeply the penalty grows with the length of the repetition.", .min = 1, .max = 100,
      .value = "1.75" },
    { "dry-allowed-length", "", "A", VERBS_SAMPLE, SIZE, J(sampling.dry_allowed), SAMPLING, SAMPLED,
      "The A of DRY: shorter repetitions have no penalty.", .min = 1, .max = 65536, .value = "2" },
    { "dry-penalty-last-n", "", "N", VERBS_SAMPLE, LONG, J(sampling.dry_last_n), SAMPLING, SAMPLED,
      "Number of last tokens of prompt and text in which DRY looks for repetitions. 0: none, -1: all.",
      .min = -1, .max = BIG, .value = "-1" },
    { "dry-sequence-breaker", "", "TEXT", VERBS_SAMPLE, LIST, J(breakers), SAMPLING, CHANGED | NULL_IF_EMPTY,
      "DRY: a repetition never extends back across TEXT. The escapes \\n, \\t, \\\" and \\\\ are "
      "supported. May be given several times; the first use replaces the default. none: no breakers.",
      .shown = "newline, colon, double quote and asterisk", .max = STOP_STRINGS_MAX,
      .fields = "dry_sequence_breakers", .member = "dry_sequence_breakers" },
    { "logit-bias", "", "ID:BIAS", VERBS_SAMPLE, BIASES, F(logit_bias), SAMPLING, CHANGED | BODY,
      "Add BIAS to the logit of token ID; -inf bans the token. May be given several times, or once as a "
      "JSON object {\"ID\": BIAS, ..}." },
    { "generation-config", "", "auto|none", VERBS_WRITE, CHOICE, F(generation_config), SAMPLING, GRID,
      "auto: use the sampling settings of the model's generation_config.json. none: use the neutral ones.",
      .value = "auto" },

    { "threads", "-t", "N",
      VERBS_BRANCH | VERBS_MAKE | VERBS_COMPUTE | VERB_SCORE | VERB_INSPECT | VERB_BENCH | VERB_TRAIN |
          VERB_CONVERT | VERB_PLAN,
      SIZE, F(threads), MODELS, MAIN | MACHINE,
      "Number of computing threads. The text does not depend on it.", .min = 1, .max = 512,
      .shown = "the physical cores that the process may use" },
    { "compute", "", "bf16|f32", VERBS_FORM | VERB_BENCH | VERB_TRAIN, CHOICE,
      J(compute), MODELS, STORED | DECIDES, "Number format of the computation. f32 is meant for comparisons.",
      .value = "bf16" },
    { "kv-dtype", "", "auto|int16|bf16|int8|int4", VERBS_FORM | VERB_BENCH | VERB_TRAIN, CHOICE,
      J(kv_dtype), MODELS, STORED | DECIDES | LATER,
      "Number format of the KV cache. int16, with a scale for each row, is closer to f32 than bf16 and "
      "faster on CPUs. int8 takes half the memory of int16, int4 (values in 4 bits, keys in 8) 0.4 of it, "
      "and both read a long text faster. Perplexity rises by about 0.05 % and by 0.1 to 0.7 %. They need a "
      "CPU. auto is int16 on a CPU and bf16 on a GPU. A text keeps the format that it began with.",
      .value = "auto" },
    { "drafter", "", "auto|none|LIST", VERBS_DRAFT | VERB_FORK, DRAFTERS, J(drafter), DRAFTING,
      MAIN | DRAFTED | CHANGES,
      "How to guess tokens before the model verifies them. The text does not depend on it. LIST is a list "
      "of " OPTION_DRAFTERS ". mtp is the model's own draft layer, assistant the drafter beside a Gemma 4 "
      "model. none writes one token at a time. To compare drafters, give --tree, too: without it nothing is "
      "drafted while no draft pays, as in short texts.", .value = "auto",
      OF({ VERB_FORK, "auto or none, and the sample number stays", "that of the other job" }) },
    { "preset", "", "NAME", VERBS_DRAFT, TEXT, F(preset), DRAFTING, GRID,
      "tokenswift: draft as in the TokenSwift paper; its filters keep 20 tokens, which changes the text. "
      "table11-MODEL: also use the paper's sampling settings for MODEL. magicdec: four draft passes of the "
      "model over its last 256 keys and the first. medusa: a tree of the drafting heads alone; "
      "--drafter heads:FILE names independent heads. story: penalty 1.1 over 256 tokens, min-p 0.05, DRY "
      "with 0.8, --on-loop retake, temperature 0.8 if the model has none; --preset medusa,story is both." },
    { "tree", "", "A,B,..", VERBS_DRAFT, WIDTHS, J(draft), DRAFTING, DRAFTED,
      "Number of candidates at each depth of the draft tree. All candidates are verified.",
      .shown = "whatever is fastest" },
    { "ngram-k", "", "K", VERBS_DRAFT, SIZE, J(draft.ngram_k), DRAFTING, DRAFTED,
      "Number of continuations to take from the table of 4-grams.", .max = 32, .shown = "20" },
    { "ngram-lead", "", "first|all|root", VERBS_DRAFT, CHOICE, J(draft.ngram_lead), DRAFTING, DRAFTED,
      "The tokens after which continuations from the 4-gram table are added: the first candidate for the "
      "next token, all candidates for it, or the last token of the text.", .value = "first" },
    { "ngram-delay", "", "N", VERBS_DRAFT, LONG, J(draft.ngram_delay), DRAFTING, DRAFTED,
      "Number of tokens that a 4-gram waits before it enters the table.", .max = BIG,
      .shown = "the penalty's window" },
    { "draft-passes", "", "N", VERBS_DRAFT, LONG, J(draft.draft_passes), DRAFTING, DRAFTED,
      "Number of draft passes over the partial cache in each round.", .max = 16,
      .shown = "whatever is fastest" },
    { "kv-budget", "", "N|prompt", VERBS_DRAFT, SIZE, J(draft.kv_budget), DRAFTING, DRAFTED,
      "Number of keys in the partial cache. The caches of model and mtp keep 4096 at most.",
      .shown = "4096", .min = 2, .max = BIG, .word = "prompt" },
    { "kv-sinks", "", "N", VERBS_DRAFT, SIZE, J(draft.kv_sinks), DRAFTING, DRAFTED,
      "Number of first tokens that always stay in these caches.", .min = 1, .max = BIG, .shown = "16" },
    { "kv-policy", "", "full|static|dynamic|window|mean", VERBS_DRAFT, CHOICE, J(draft.kv_policy),
      DRAFTING, DRAFTED,
      "The keys in the partial cache: all of them, the keys that mattered at the start, the keys that "
      "matter now, the most recent keys, or the most recent keys and means of earlier keys (CPU only).",
      .shown = "whatever is fastest; dynamic with --tree, --kv-budget or --preset",
      .words = "dynamic|static|window|mean|full|auto" },
    { "draft-weights", "", "int8|model", VERBS_DRAFT, CHOICE, J(draft.weights), DRAFTING, DRAFTED | LATER,
      "Weights for draft passes. int8: an 8-bit copy of the model, if memory has room for it (CPU only, "
      "not with --verifier paper). model: the model itself.", .value = "int8" },
    { "verifier", "", "exact|paper", VERBS_WRITE, CHOICE, J(draft.verifier), DRAFTING, DRAFTED,
      "paper: the published acceptance rule, for comparison. Its text is not the model's own, and it "
      "changes when a run is interrupted.", .value = "exact" },
    { "device", "", "auto|cpu|cuda[:N|:all]",
      VERBS_BRANCH | VERBS_MAKE | VERBS_COMPUTE | VERB_SCORE | VERB_BENCH | VERB_TRAIN, TEXT, F(device),
      MODELS, MACHINE,
      "Where to compute. auto: the first GPU if its kernels passed a check (seconds, once for a GPU, driver "
      "and program) and it can hold the model, else the CPU; where there is a GPU, a line says which and "
      "why. cuda:all, for work only: one worker for each GPU. A text keeps the arithmetic that it began "
      "with.", .value = "auto", OF({ VERB_TRAIN, "auto is the CPU" }) },
    { "weights", "", "as-is|q8_0|q4_0",
      VERBS_FORM | VERBS_BRANCH | VERB_WORK | VERB_RESUME | VERB_PLAN, CHOICE, J(weights), MODELS,
      STORED | DECIDES | WHEN_SET,
      "Number format of the matrices of a model in 16 bits: q8_0 and q4_0 write the text that a file of "
      "convert would write. Verbs about jobs need it with --model, for jobs that have it.",
      .value = "as-is" },
    { "weights", "", "bf16|q8_0|q4_0", VERB_CONVERT, CHOICE, F(convert_weights), MODELS, MAIN,
      "Number format of the matrices. q8_0 has 8.5 bits for a weight, q4_0 4.5 (and 8.5 for the logits' "
      "matrix).", .value = "q8_0" },

    { "format", "", "text|ids", VERB_RUN | VERB_TEXT | VERB_TAIL, CHOICE, F(format), OUTPUT, 0,
      "The form of the text on standard output. ids writes one decimal number per line.", .value = "text" },
    { "output", "-o --out --output-file", "FILE",
      VERBS_BRANCH | VERB_RUN | VERB_TRAIN | VERB_TEXT | VERB_REPORT | VERB_EXPORT | VERB_CONVERT |
          VERB_PLAN, TEXT, F(output), OUTPUT, MAIN,
      "Write the result to FILE. The file appears under its name when it is complete. A file that is there "
      "is replaced if it is empty, an earlier output, or with --force.",
      .shown = "standard output",
      OF({ VERB_TRAIN | VERB_CONVERT, "no file is an earlier output", "none, FILE is required" },
         { VERBS_BRANCH, "no file is an earlier output" },
         { VERB_RUN, "earlier outputs are, with --batch, files whose lines are of this batch, and, with "
                     "--resume of a job that is done, files with which its text begins" },
         { VERB_TEXT | VERB_EXPORT, "earlier outputs of text and ids are files with which the new one "
                                    "begins, of --gzip the same file, of jsonl, csv and openai-batch those "
                                    "whose lines are lines of the new one, in this order, but for texts "
                                    "that were not done" },
         { VERB_REPORT | VERB_PLAN, "the first line of an earlier output begins with the same word" }) },
    { "per-token", "", NULL, VERB_SCORE, FLAG, F(per_token), OUTPUT, 0,
      "Also print every token with its negative log-likelihood." },
    { "window", "", "N", VERB_SCORE | VERB_TRAIN, SIZE, F(window), TEXTS, 0,
      "Split the text into pieces of N tokens.", .min = 2, .max = BIG,
      .shown = "the whole text at once", OF({ VERB_TRAIN, NULL, "8192" }) },
    { "json-stats", "", "FILE", VERB_RUN, TEXT, F(json_stats), OUTPUT, 0,
      "Write statistics of the run to FILE, as JSON: rounds, acceptance, times, windows of 1,000 tokens." },
    { "render", "", NULL, VERB_TOKENIZE, FLAG, F(render), OUTPUT, 0,
      "With --messages: print the text that the chat template makes, not its ids." },
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
          VERB_EXPORT | VERB_CONVERT | VERBS_COMPUTE | VERBS_CHANGE | VERB_COMPACT | VERB_BACKUP | VERB_REDO,
      FLAG, F(quiet), OUTPUT, MACHINE, "Print only errors on standard error." },
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
    { "draft-vocab-size", "", "N", VERB_TRAIN, SIZE, F(draft_vocab), TRAINING, 0,
      "Number of tokens that the drafter guesses: the most frequent ones of the training text. Fewer make "
      "training and drafting faster. 0, and a model with less than twice as many tokens: all tokens.",
      .max = BIG, .value = "8192" },
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

    { "db", "", "FILE", VERBS_STORE, LIST, F(db), STORE, MAIN | MACHINE,
      "The store: the file that holds jobs, texts and figures.",
      .shown = "LONGHAND_DB, else longhand/longhand.db in XDG_STATE_HOME (~/.local/state)" },
    { "shared-db", "", NULL, VERBS_STORE, FLAG, F(shared_db), STORE, MACHINE,
      "Several machines use the store on a network file system. Use it only if the file system's locks "
      "work." },
    { "shared-group", "", NULL, VERBS_WRITE | VERB_WORK, FLAG, F(shared_group), STORE, MACHINE,
      "The group of a new store may read and write it and its snapshots, as far as umask allows (umask 007). "
      "An existing store keeps its mode." },
    { "max-store", "", "SIZE", VERBS_SAMPLE | VERB_WORK | VERB_REDO, BYTES, F(max_store), STORE, MACHINE,
      "No new job while the texts and snapshots of the store have this size (K, M, G, T): none is queued, "
      "work begins none, and jobs that have begun go on.", .min = 1, .shown = "no limit" },
    { "resume", "", "JOB", VERB_RUN, TEXT, F(resume), STORE, 0,
      "Continue this job here, and print its text from the start." },
    { "from-here", "", NULL, VERBS_BRANCH | VERB_RUN, FLAG, F(from_here), STORE, 0,
      "With --resume, or --run of another verb: print only the new text, --append included." },
    { "batch", "", "FILE", VERBS_MAKE, TEXT, F(batch), STORE, 0,
      "Read requests from FILE.jsonl, one per line: {\"prompt\": ..} or {\"messages\": ..} with the fields "
      "that the line needs, or the format of the OpenAI Batch API. FILE.csv and FILE.tsv are tables. Options "
      "are the defaults for fields that a line does not have. longhand help batch lists the fields." },
    { "csv", "", NULL, VERBS_MAKE, FLAG, F(csv), STORE, 0,
      "With --batch: the file is a table of CSV, whatever its name. Its first row names the columns." },
    { "lines", "", NULL, VERBS_MAKE, FLAG, F(lines), STORE, 0,
      "With --batch: every line of the file is a prompt, as plain text. Its custom_id is the number of "
      "the line." },
    { "keep", "", NULL, VERBS_MAKE, FLAG, F(keep), STORE, 0,
      "With --batch of a name that is in use: keep its jobs as they are, also where the options of the "
      "command line are other ones." },
    { "name", "", "NAME", VERBS_MAKE | VERBS_BRANCH, TEXT, F(name), STORE, 0,
      "Name of the batch or of the job: @NAME selects it. The jobs of --samples are @NAME/0, @NAME/1, ..",
      .shown = "a batch: the name of the file" },
    { "replace", "", NULL, VERBS_MAKE | VERBS_BRANCH, FLAG, F(replace), STORE, 0,
      "With --name: take the name from the text that has it. That text stays under its number." },
    { "shard", "", "I/N", VERBS_MAKE, TEXT, F(shard), STORE, 0,
      "Queue only part I of N of the lines of a batch." },
    { "grid", "", "NAME=A,B,..", VERB_SUBMIT, LIST, F(grid), STORE, 0,
      "Queue a text for every value of an option of sampling, drafting or length, or of the seed. A value "
      "that is a list has + for the comma: drafter=heads+ngram,none. Given several times: for every "
      "combination. The name of the jobs is --name, else grid-SEED; all have the same seed. Jobs of a grid "
      "over drafting options are written alone, as with --alone." },
    { "alone", "", NULL, VERBS_MAKE | VERB_FORK, FLAG, J(alone), STORE, STORED | CHANGES | WHEN_SET,
      "The worker writes no other text beside this one, so that speeds can be compared." },
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
    { "parallel", "-np", "auto|N", VERB_RUN | VERBS_QUEUE, TEXT, F(parallel), STORE, 0,
      "Write up to N texts at once (with run: of a batch), 1 to 64. The texts are the same for every N. "
      "auto begins with 4 and doubles their number as long as that raises the tokens per second of all texts "
      "together and memory has room.", .value = "auto" },
    { "max-memory", "", "SIZE", VERB_RUN | VERBS_QUEUE, BYTES, F(max_memory), STORE, 0,
      "Memory of this process in all (K, M, G, T). A text that does not fit beside those that are being "
      "written waits.", .min = 1, .shown = "what the machine has available, less a margin" },
    { "metrics", "", "FILE", VERB_WORK, TEXT, F(metrics), STORE, 0,
      "Write the figures of the worker to FILE every 5 s, in Prometheus' text format, with vLLM's names "
      "where vLLM has the metric. FILE appears whole. With several GPUs: one file for each, FILE.0 and so "
      "on." },
    { "max-attempts", "", "N", VERBS_QUEUE, SIZE, F(max_attempts), STORE, 0,
      "A job fails after N attempts in a row that produced neither a token nor a longer snapshot. 0: no "
      "limit.", .max = 1e6, .value = "10" },
    { "kv-snapshot", "", "auto|on|off", VERB_RUN | VERBS_QUEUE, CHOICE, F(kv_snapshot), STORE, 0,
      "Keep the KV cache in a file next to the store, so that a resumed job need not process its text "
      "again. auto: keep it when that would take more than 5 s.", .value = "auto" },
    { "kv-snapshot-max", "", "SIZE", VERB_RUN | VERBS_QUEUE, BYTES, F(kv_snapshot_max), STORE, 0,
      "Total size of the snapshots of a store, including one that is being replaced (K, M, G, T).",
      .shown = "no limit, but 256 MB of the disk stay free" },
    { "accept-numerics-change", "", NULL, VERBS_COMPUTE | VERB_RESUME | VERB_EXTEND | VERB_FORK, FLAG,
      F(accept_change), STORE, 0,
      "Continue a text that other arithmetic or another model began. The change is recorded." },
    { "rounds", "", NULL, VERB_RUN | VERB_WORK | VERB_REPORT, FLAG, F(rounds), STORE, 0,
      "Store every round.", OF({ VERB_REPORT, "include every round" }) },
    { "state", "", "STATE", VERBS_SELECT, TEXT, F(state), STORE, 0,
      "Select jobs that are queued, running, paused, done, failed or cancelled." },
    { "finish", "", "REASON", VERBS_SELECT, TEXT, F(finish), STORE, 0,
      "Select jobs whose text ended by length, stop or repetition." },
    { "loops", "", NULL, VERBS_SELECT, FLAG, F(loops), STORE, 0,
      "Select jobs whose text repeats itself: those of which report shows loops." },
    { "shorter-than", "", "N", VERBS_SELECT, SIZE, F(shorter), STORE, 0,
      "Select jobs whose text has fewer than N tokens.", .min = 1, .max = BIG },
    { "longer-than", "", "N", VERBS_SELECT, SIZE, F(longer), STORE, 0,
      "Select jobs whose text has more than N tokens.", .min = 1, .max = BIG },
    { "distinct-below", "", "N:X", VERBS_SELECT, TEXT, F(distinct_below), STORE, 0,
      "Select jobs whose text has a Distinct-N of its tokens below X, like 2:0.6." },
    { "repeats-above", "", "X", VERBS_SELECT, TEXT, F(repeats_above), STORE, 0,
      "Select jobs in whose text more than the share X of the words repeat: the 8 words that end with the "
      "word stand within the 2,000 words before, too." },
    { "all", "", NULL, VERBS_SELECT, FLAG, F(all), STORE, 0, "Select every job." },
    { "limit", "", "N", VERB_LIST, SIZE, F(limit), OUTPUT, 0, "Show N jobs, the first ones of the order.",
      .min = 1, .max = BIG, .shown = "all" },
    { "sort", "", "COLUMN", VERB_LIST, TEXT, F(sort), OUTPUT, 0, "Order the jobs by this column.",
      .shown = "job" },
    { "reverse", "", NULL, VERB_LIST, FLAG, F(reverse), OUTPUT, 0, "Turn the order round." },
    { "columns", "", "LIST", VERB_LIST, TEXT, F(columns), OUTPUT, 0,
      "The columns of the table, with --json the members of each job: job, state, tokens, rate, finish, age, "
      "model, name, prompt, custom_id, error, priority, seed, sample.",
      .shown = "the first nine; --json: more" },
    { "requests", "", NULL, VERB_LIST, FLAG, F(requests), OUTPUT, 0,
      "Show the jobs of requests to a server, too." },
    { "older-than", "", "AGE", VERB_REMOVE, TEXT, F(older_than), STORE, 0,
      "Of the selected jobs (default: all) only those that ended at least AGE ago: a number and s, m, h "
      "or d, like 30d." },
    { "force", "", NULL, VERB_REMOVE, FLAG, F(force), STORE, 0,
      "Also remove jobs that a worker is writing or that chapters wait for. Without it, nothing is removed "
      "if there is one." },
    { "force", "", NULL, VERB_BACKUP, FLAG, F(force), STORE, 0,
      "Replace the file that is there, also when it is not an earlier backup of this store." },
    { "force", "", NULL,
      VERBS_BRANCH | VERB_RUN | VERB_TRAIN | VERB_TEXT | VERB_REPORT | VERB_EXPORT | VERB_CONVERT |
          VERB_PLAN | VERB_WORK, FLAG, F(force), OUTPUT, 0,
      "Replace the files that are there, unless they are databases or inputs." },
    { "follow", "-f", NULL, VERB_TAIL, FLAG, F(follow), STORE, 0,
      "Follow the text as it grows, until it ends." },
    { "follow", "", NULL, VERB_FORK, FLAG, F(follow), STORE, 0,
      "Make a new book called --name: copies of the chapters before the job, the fork, and the chapters "
      "after it, queued again. Without --at the chapter is written again after its heading." },
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
      "the user wrote, in a chat with an empty line after it." },
    { "with-thinking", "", NULL, VERB_TEXT | VERB_EXPORT, FLAG, F(with_thinking), OUTPUT, 0,
      "Print the thoughts of a chat before its answer, too. run and tail print them always." },
    { "between", "", "TEXT", VERB_TEXT | VERB_EXPORT, TEXT, F(between), OUTPUT, 0,
      "Print TEXT between two texts. The escapes \\n, \\t, \\\" and \\\\ are supported.",
      .shown = "nothing; with --headings an empty line" },
    { "headings", "", NULL, VERB_TEXT | VERB_EXPORT, FLAG, F(headings), OUTPUT, 0,
      "Print a line \"# NAME\" before each text: its custom_id or name, else the number of the job." },
    { "dir", "", "DIR", VERB_EXPORT, TEXT, F(dir), OUTPUT, 0,
      "Write one file per job into DIR, named after the job's custom_id or name. No file is overwritten "
      "without --force." },
    { "after", "", "JOB", VERB_SUBMIT, TEXT, F(after), STORE, 0,
      "Queue a chapter: it begins when JOB is done, and reads the text of JOB after its own prompt; without "
      "a prompt, and without --carry, after the prompt of JOB. Without --tokens it has the length of JOB." },
    { "carry", "", "N", VERB_SUBMIT, SIZE, F(carry), STORE, 0,
      "With --after: read only the last N tokens of that text, from the start of a paragraph if one lies in "
      "the first quarter of them.", .max = 1e9, .shown = "the whole text" },
    { "append", "", "TEXT", VERBS_BRANCH | VERB_SUBMIT, TEXT, F(append), STORE, 0,
      "Add TEXT to the text before continuing.",
      OF({ VERB_SUBMIT, "With --after: begin the text with TEXT, such as a heading.", NULL }) },
    { "append-file", "", "FILE", VERBS_BRANCH | VERB_SUBMIT, TEXT, F(append_file), STORE, 0,
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
      "Write a page with plots, in one file that loads nothing.",
      OF({ VERB_TRAIN, "beside the result, the curves of loss and accuracy in FILE.html, and their numbers "
                       "in the file of --curves, else in FILE.csv" }) },
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
    { "host", "", "ADDRESS", VERB_SERVE, TEXT, F(host), SERVER, MAIN,
      "The address to bind to. One that other machines reach needs --api-key-file.", .value = "127.0.0.1" },
    { "port", "", "N", VERB_SERVE, SIZE, F(port), SERVER, MAIN,
      "The port. 0: a free one, which the first line on standard output names.", .max = 65535,
      .value = "8080" },
    { "api-key-file", "", "FILE", VERB_SERVE, TEXT, F(api_key_file), SERVER, MAIN,
      "The file with the key that every request needs, in its header Authorization. Only its owner may read "
      "it (mode 0600)." },
    { "max-connections", "", "N", VERB_SERVE, SIZE, F(max_connections), SERVER, 0,
      "Number of connections at once.", .min = 1, .max = 10000, .value = "256" },
    { "max-body", "", "SIZE", VERB_SERVE, BYTES, F(max_body), SERVER, 0,
      "The largest body of a request (K, M, G).", .min = 1, .value = "32M" },
    { "max-upload", "", "SIZE", VERB_SERVE, BYTES, F(max_upload), SERVER, 0,
      "The largest file of a batch (K, M, G).", .min = 1, .value = "200M" },
    { "allow-host", "", "NAME", VERB_SERVE, LIST, F(allow_host), SERVER, 0,
      "A further name of this server, as a request's header Host has it. May be given several times.",
      .shown = "the bound address and localhost" },
    { "cors", "--cors-origins", "ORIGIN", VERB_SERVE, LIST, F(cors), SERVER, 0,
      "Let the pages of this origin, like https://name.example, call the server. May be given several times, "
      "or once with commas. *: the pages of every origin.", .shown = "no other" },
    { "forget", "", NULL, VERB_SERVE, FLAG, F(forget), SERVER, 0,
      "Remove a request from the store when its answer was sent or it is cancelled, and one with an "
      "Idempotency-Key 24 hours after its end. Requests that earlier servers of the store have kept "
      "are removed, too." },
    { "help", "-h --usage", NULL, ~0ull, FLAG, F(help), OUTPUT, HIDDEN, "" },

    /* members of stored parameters that are no options of their own */
    { "chat", "", NULL, 0, CHAT_FORM, J(chat), TEXTS, HIDDEN | STORED, "" },
    { "tokenizer", "", NULL, 0, TEXT, J(tokenizer), MODELS, HIDDEN | STORED | LATER, "" },
    { "eos-token-ids", "", NULL, 0, IDS, J(eos_ids), TEXTS, HIDDEN | STORED | WHEN_SET, "",
      .max = INT32_MAX },
    { "thinking-start", "", NULL, 0, TEXT, J(thinking_start), TEXTS, HIDDEN | STORED | WHEN_SET, "" },
    { "order", "", NULL, 0, ORDER, J(sampling), SAMPLING, HIDDEN | STORED, "" },
    { "drafting", "", NULL, 0, DRAFTING_FORM, J(draft), DRAFTING, HIDDEN | STORED, "" },
    { "kv-fixed", "", NULL, 0, FLAG, J(draft.kv_fixed), DRAFTING, HIDDEN | STORED | DRAFT, "" },
    { "rows-max", "", NULL, 0, SIZE, J(draft.rows_max), DRAFTING, HIDDEN | STORED | DRAFT, "" },
    { NULL },
};
_Static_assert(sizeof options_table / sizeof *options_table <= OPTIONS_MAX, "each option has a place in "
                                                                            "`given`");

const struct verb verbs_table[] = {
    { "run", VERB_RUN,
      "--model DIR (--prompt TEXT | --prompt-file FILE) [--tokens N] [options], or --batch IN.jsonl -o "
      "OUT.jsonl",
      "Write a text that continues a prompt.", 0, 0 },
    { "submit", VERB_SUBMIT,
      "--model DIR (--prompt TEXT | --prompt-file FILE) [--tokens N] [options], or --batch FILE.jsonl",
      "Queue a text, or a batch of texts.", 0, 0 },
    { "work", VERB_WORK, "[options]", "Write the queued texts.", 0, 0 },
    { "serve", VERB_SERVE, "--model DIR [--port N] [options]",
      "Answer OpenAI's API over HTTP: every request is a job in the store.", 0, 0 },
    { "list", VERB_LIST, "[SEL...] [options]",
      "Show the queue: counts, speed, and the selected jobs (default: all).", 0, INT_MAX },
    { "show", VERB_SHOW, "SEL... [options]", "Show everything about jobs: parameters, progress, history.", 0,
      INT_MAX },
    { "text", VERB_TEXT, "SEL... [options]", "Print the texts of jobs, as far as they are written.", 0,
      INT_MAX },
    { "tail", VERB_TAIL, "SEL [options]", "Print the end of a text, or of the texts of a batch.", 1, 1 },
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
    { "redo", VERB_REDO, "SEL... [--seed S]",
      "Queue rejected texts again, each under the next sample number. The old texts stay.", 0, INT_MAX },
    { "extend", VERB_EXTEND, "JOB --tokens +N [--append TEXT]",
      "Continue a finished text, or queue what continues a text that is not done.", 1, 1 },
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
    { "score", VERB_SCORE, "JOB [--model DIR] | --model DIR FILE",
      "Measure how likely a text is to its own model or another: negative log-likelihood, perplexity.",
      1, 1 },
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
    const char *const groups[] = { TEXTS, SAMPLING, DRAFTING, MODELS, STORE, SERVER, TRAINING, OUTPUT };
    return i < sizeof groups / sizeof *groups ? groups[i] : NULL;
}
