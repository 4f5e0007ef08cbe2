#include "src/model/device_choice.h"
#include "src/request/options_impl.h"
#include "src/text/chat.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F(x) offsetof(struct options, x)
static const char TEXTS[] = "Text", SAMPLING[] = "Sampling", DRAFTING[] = "Drafting",
                  MODELS[] = "Model and machine", OUTPUT[] = "Output", TRAINING[] = "Training",
                  STORE[] = "Jobs";
static const double BIG = 1e9;

#define THE_MODELS "the model's own, else off"
static const struct option table[] = {
    { "model", "-m", "DIR", VERBS_MODEL | VERB_SUBMIT, TEXT, F(model), 0, 0, NULL, NULL,
      "Hugging Face directory, or org/name found in the local Hugging Face cache.", MODELS, MAIN },
    { "prompt", "-p", "TEXT", VERBS_MAKE, TEXT, F(prompt), 0, 0, NULL, NULL, "The text before.", TEXTS,
      MAIN },
    { "prompt-file", "-f --file", "FILE", VERBS_MAKE, TEXT, F(prompt_file), 0, 0, NULL, NULL,
      "The text before, from a file (without its byte order mark); - is standard input.", TEXTS, MAIN },
    { "chat", "", NULL, VERBS_MAKE, FLAG, F(chat), 0, 0, NULL, NULL,
      "The prompt is what a user says: it goes through the model's chat template.", TEXTS, MAIN },
    { "system", "", "TEXT", VERBS_MAKE, TEXT, F(system), 0, 0, NULL, NULL,
      "With --chat: the system message before it.", TEXTS, 0 },
    { "chat-template", "", "NAME", VERBS_MAKE, TEXT, F(chat_template), 0, 0, NULL,
      "the model's own, where it is a known one",
      "With --chat: " CHAT_NAMES ".", TEXTS, 0 },
    { "thinking", "", "on|off", VERBS_MAKE, CHOICE, F(thinking), 0, 0, "on", NULL,
      "With --chat and the template qwen3: off answers without thoughts.", TEXTS, 0 },
    { "chat-date", "", "DATE", VERBS_MAKE, TEXT, F(chat_date), 0, 0, NULL, "26 Jul 2024",
      "With --chat and the template llama3.1: the day that its system message names.", TEXTS, 0 },
    { "tokens", "-n --predict --n-predict --max-tokens", "N",
      VERBS_MAKE | VERB_INSPECT | VERB_BENCH | VERB_FORK, SIZE, F(tokens), 1, BIG, NULL,
          "fork: as the other job",
      "Tokens to generate (inspect: the length that memory is itemised for; fork: of the whole text).", TEXTS,
          MAIN },
    { "tokens", "-n --predict --n-predict --max-tokens", "+N", VERB_EXTEND, TEXT, F(more_tokens), 0, 0, NULL,
      NULL, "N tokens more.", TEXTS, 0 },
    { "min-tokens", "", "N", VERBS_MAKE, SIZE, F(min_tokens), 0, BIG, "0", NULL,
      "End-of-text tokens are banned until then.", TEXTS, 0 },
    { "ignore-eos", "", NULL, VERBS_MAKE, FLAG, F(ignore_eos), 0, 0, NULL, NULL,
      "End-of-text tokens are banned always, so that the text has its full length.", TEXTS, MAIN },
    { "stop", "", "TEXT", VERBS_MAKE, LIST, F(stop), 0, 0, NULL, NULL,
      "End the text before the first TEXT; may be given several times.", TEXTS, 0 },
    { "on-loop", "", "warn|stop|off", VERBS_MAKE, CHOICE, F(on_loop), 0, 0, "warn", NULL,
      "When the text has fallen into repetition: say so, end it, or do not look.", TEXTS, 0 },
    { "samples", "", "N", VERBS_MAKE, SIZE, F(samples), 1, 1e6, "1", NULL,
      "Texts to write; more than one need -o FILE and go to FILE.0, FILE.1, ... Text 0 is the one that 1 gives.", TEXTS, 0 },
    { "context-scaling", "--rope-scaling", "yarn:F[:ORIG]", VERBS_MAKE | VERB_SCORE | VERB_INSPECT, TEXT,
      F(context_scaling), 0, 0, NULL,
      "the model's own", "Stretch the context F times (ORIG: the length it was trained for); linear:F likewise.", MODELS, 0 },
    { "rope-scale", "", "F", VERBS_MAKE | VERB_SCORE | VERB_INSPECT, TEXT, F(rope_scale), 0, 0, NULL, NULL,
      "F of --context-scaling.", MODELS, HIDDEN },
    { "yarn-orig-ctx", "", "ORIG", VERBS_MAKE | VERB_SCORE | VERB_INSPECT, SIZE, F(yarn_orig_ctx), 1, BIG,
      NULL, NULL,
      "ORIG of --context-scaling.", MODELS, HIDDEN },
    { "allow-beyond-context", "", NULL, VERBS_MAKE, FLAG, F(allow_beyond_context), 0, 0, NULL, NULL,
      "Go on beyond the context that the model was made for.", MODELS, 0 },

    { "seed", "-s", "S", VERBS_MAKE | VERB_BENCH | VERB_TRAIN | VERB_FORK, U64, F(seed), 0, 0, NULL,
      "drawn, and printed; train: 42",
      "64 bits; the same seed writes the same text.", SAMPLING, MAIN },
    { "temperature", "--temp", "T", VERBS_MAKE | VERB_BENCH, REAL, F(temperature), 0, 1000, NULL,
      "the model's own, else 1", "0 is greedy.", SAMPLING, MAIN },
    { "top-k", "", "K", VERBS_MAKE, LONG, F(top_k), -1, BIG, NULL, THE_MODELS,
      "Keep the K most likely tokens; 0 or -1: all.", SAMPLING, 0 },
    { "top-p", "", "P", VERBS_MAKE | VERB_BENCH, REAL, F(top_p), 0, 1, NULL, THE_MODELS,
      "Keep the most likely tokens whose chances sum to P; 1: all.", SAMPLING, 0 },
    { "min-p", "", "P", VERBS_MAKE | VERB_BENCH, REAL, F(min_p), 0, 1, NULL, THE_MODELS,
      "Keep tokens with at least P times the chance of the most likely one.", SAMPLING, MAIN },
    { "eta", "", "E", VERBS_MAKE, REAL, F(eta), 0, 1, NULL, THE_MODELS,
      "Keep tokens above min(E, sqrt(E) exp(-entropy)).", SAMPLING, 0 },
    { "min-keep", "", "N", VERBS_MAKE, SIZE, F(min_keep), 1, BIG, "1", NULL,
      "Tokens that survive every filter.", SAMPLING, 0 },
    { "penalty", "--repeat-penalty --repetition-penalty", "T", VERBS_MAKE | VERB_BENCH, REAL, F(penalty),
      0.01, 100, NULL, THE_MODELS " (1)",
      "Divide the logits of recent tokens by T.", SAMPLING, MAIN },
    { "penalty-window", "--repeat-last-n", "W", VERBS_MAKE | VERB_BENCH, LONG, F(penalty_window), -1, BIG,
      "1024", NULL,
      "Last tokens of prompt and text that --penalty looks at; 0 none, -1 all.", SAMPLING, 0 },
    { "presence-penalty", "", "X", VERBS_MAKE, REAL, F(presence), -100, 100, "0", NULL,
      "Subtract X from the logits of tokens that the text already has.", SAMPLING, 0 },
    { "frequency-penalty", "", "X", VERBS_MAKE, REAL, F(frequency), -100, 100, "0", NULL,
      "Subtract X times the number of times that the text has the token.", SAMPLING, 0 },
    { "dry-multiplier", "", "X", VERBS_MAKE, REAL, F(dry_multiplier), 0, 1000, "0", NULL,
      "DRY: subtract X * B^(L-A) from the logit of a token that would continue a repetition of L >= A tokens; 0 is off.", SAMPLING, 0 },
    { "dry-base", "", "B", VERBS_MAKE, REAL, F(dry_base), 1, 100, "1.75", NULL,
      "How steeply DRY grows with the length of the repetition.", SAMPLING, 0 },
    { "dry-allowed-length", "", "A", VERBS_MAKE, SIZE, F(dry_allowed_length), 1, 65536, "2", NULL,
      "Repetitions of fewer tokens are free.", SAMPLING, 0 },
    { "dry-penalty-last-n", "", "N", VERBS_MAKE, LONG, F(dry_penalty_last_n), -1, BIG, "-1", NULL,
      "Last tokens of prompt and text in which DRY looks for repetitions; 0 none, -1 all.", SAMPLING, 0 },
    { "dry-sequence-breaker", "", "TEXT", VERBS_MAKE, LIST, F(dry_breakers), 0, 0, NULL,
      "newline, colon, double quote and asterisk",
      "A repetition never reaches back over TEXT (\\n, \\t, \\\" and \\\\ are understood); may be given several times, and replaces the default; none: no TEXT.",
      SAMPLING, 0 },
    { "logit-bias", "", "ID:BIAS", VERBS_MAKE, LIST, F(logit_bias), 0, 0, NULL, NULL,
      "Add BIAS to the logit of token ID, -inf bans it; several times, or a JSON object {\"ID\": BIAS, ..}.",
          SAMPLING, 0 },
    { "generation-config", "", "auto|none", VERBS_MAKE, CHOICE, F(generation_config), 0, 0, "auto", NULL,
      "Take the sampling settings of the model's generation_config.json, or the neutral ones.", SAMPLING, 0 },

    { "threads", "-t", "N", VERBS_MAKE | VERBS_COMPUTE | VERB_SCORE | VERB_INSPECT | VERB_BENCH | VERB_TRAIN,
      SIZE, F(threads), 1, 512, NULL, "physical cores allowed to the process",
      "Threads to compute with. Texts do not depend on it.", MODELS, MAIN },
    { "compute", "", "bf16|f32", VERBS_MAKE | VERB_SCORE | VERB_INSPECT | VERB_BENCH | VERB_TRAIN, CHOICE,
      F(compute), 0, 0, "bf16", NULL,
      "f32: cache and arithmetic in f32, for comparisons.", MODELS, 0 },
    { "kv-dtype", "", "auto|int16|bf16", VERBS_MAKE | VERB_SCORE | VERB_INSPECT | VERB_BENCH | VERB_TRAIN,
      CHOICE, F(kv_dtype), 0, 0, "auto", NULL,
      "What the KV cache holds. int16, with a scale for each row: nearer to f32 than bf16, and faster on CPUs; auto: int16 on the CPU, bf16 on a GPU. A text stays with what it began with.", MODELS, 0 },
    { "drafter", "", "auto|none|LIST", VERBS_MAKE | VERB_BENCH, TEXT, F(drafter), 0, 0, "auto", NULL,
      "How tokens are guessed before the model checks them; the text does not depend on it. LIST of heads[:FILE], partial, ngram, suffix; none: one token at a time.", DRAFTING, MAIN },
    { "preset", "", "NAME", VERBS_MAKE | VERB_BENCH, TEXT, F(preset), 0, 0, NULL, NULL,
      "tokenswift: the paper's drafting (and 20 tokens kept by filters, which changes the text); table11-MODEL: also its sampling.", DRAFTING, 0 },
    { "tree", "", "A,B,..", VERBS_MAKE | VERB_BENCH, TEXT, F(tree), 0, 0, NULL, "what pays",
      "Candidates at each depth, all of them checked.", DRAFTING, 0 },
    { "ngram-k", "", "K", VERBS_MAKE | VERB_BENCH, SIZE, F(ngram_k), 0, 32, NULL, "20",
      "Continuations taken from the table of 4-grams.", DRAFTING, 0 },
    { "ngram-lead", "", "first|all|root", VERBS_MAKE | VERB_BENCH, CHOICE, F(ngram_lead), 0, 0, "first", NULL,
      "The token that they begin with: the first choice behind the text, every choice, the last token of the text.", DRAFTING, 0 },
    { "ngram-delay", "", "N", VERBS_MAKE | VERB_BENCH, SIZE, F(ngram_delay), 0, BIG, NULL,
      "the penalty's window",
      "Tokens that a 4-gram waits before it enters the table.", DRAFTING, 0 },
    { "draft-passes", "", "N", VERBS_MAKE | VERB_BENCH, SIZE, F(draft_passes), 0, 16, NULL, "what pays",
      "Passes over the partial cache in a round.", DRAFTING, 0 },
    { "kv-budget", "", "N|prompt", VERBS_MAKE | VERB_BENCH, TEXT, F(kv_budget), 0, 0, NULL, "4096",
      "Keys of the partial cache.", DRAFTING, 0 },
    { "kv-sinks", "", "N", VERBS_MAKE | VERB_BENCH, SIZE, F(kv_sinks), 1, BIG, NULL, "16",
      "First tokens that always stay in it.", DRAFTING, 0 },
    { "kv-policy", "", "full|static|dynamic|window|mean", VERBS_MAKE | VERB_BENCH, CHOICE, F(kv_policy), 0, 0,
      NULL, "what pays; dynamic with --tree, --kv-budget or --preset",
      "What is in it: everything, what mattered at the start, what matters now, the most recent keys, these and means of those before (CPU).", DRAFTING, 0 },
    { "draft-weights", "", "int8|model", VERBS_MAKE | VERB_BENCH, CHOICE, F(draft_weights), 0, 0, "int8",
      NULL,
      "What drafts are made with: the model in 8 bits, if memory has room to spare for it (CPU, not with --verifier paper), or the model itself.", DRAFTING, 0 },
    { "verifier", "", "exact|paper", VERBS_MAKE, CHOICE, F(verifier), 0, 0, "exact", NULL,
      "paper: the published acceptance rule, for comparison; its text is not the model's own, and another one where a run was interrupted.", DRAFTING, 0 },
    { "device", "", "auto|cpu|cuda[:N|:all]",
      VERBS_MAKE | VERBS_COMPUTE | VERB_SCORE | VERB_BENCH | VERB_TRAIN, TEXT, F(device), 0, 0, "auto", NULL,
      "Where to compute; auto: the first GPU where there is one that holds the model, else the CPU (train: the CPU); cuda:all, for work: a worker for each GPU. A text stays with the arithmetic that began it.", MODELS, 0 },
    { "weights", "", "as-is", VERBS_MAKE, CHOICE, F(weights), 0, 0, "as-is", NULL, "", MODELS, HIDDEN },

    { "format", "", "text|ids", VERB_RUN | VERB_TEXT | VERB_TAIL, CHOICE, F(format), 0, 0, "text", NULL,
      "What goes to standard output; ids are one decimal number per line.", OUTPUT, 0 },
    { "output", "-o --out", "FILE", VERB_RUN | VERB_TRAIN | VERB_TEXT | VERB_REPORT | VERB_EXPORT, TEXT,
      F(output), 0, 0, NULL, "standard output; train: none, it is needed",
      "Write there: under a temporary name, renamed when all is done.", OUTPUT, MAIN },
    { "per-token", "", NULL, VERB_SCORE, FLAG, F(per_token), 0, 0, NULL, NULL,
      "Also every token with its negative log-likelihood.", OUTPUT, 0 },
    { "window", "", "N", VERB_SCORE | VERB_TRAIN, SIZE, F(window), 2, BIG, NULL,
      "the whole text at once; train: 8192", "Pieces of N tokens.", TEXTS, 0 },
    { "json-stats", "", "FILE", VERB_RUN, TEXT, F(json_stats), 0, 0, NULL, NULL,
      "Write there, as JSON, how the text was made: rounds, acceptance, times, windows of 1,000 tokens.",
          OUTPUT, 0 },
    { "jsonl", "", NULL, VERB_TOKENIZE, FLAG, F(jsonl), 0, 0, NULL, NULL,
      "One JSON string per input line, one JSON array of ids per output line.", OUTPUT, 0 },
    { "decode", "", NULL, VERB_TOKENIZE, FLAG, F(decode), 0, 0, NULL, NULL,
      "The reverse: ids in, text out, special tokens skipped.", OUTPUT, 0 },
    { "json", "", NULL, VERB_SCORE | VERB_INSPECT | VERB_DISTINCT | VERB_BENCH | VERB_LIST | VERB_SHOW | VERB_REPORT | VERB_VERIFY, FLAG, F(json), 0, 0, NULL, NULL,
      "One JSON value on standard output.", OUTPUT, 0 },
    { "points", "", "LIST", VERB_BENCH, TEXT, F(bench_points), 0, 0, NULL, NULL,
      "Only these points, separated by commas.", OUTPUT, 0 },
    { "repeat", "", "N", VERB_BENCH, SIZE, F(repeat), 1, 1000, NULL, NULL, "Interleaved runs of each point.",
      OUTPUT, 0 },
    { "progress", "", "auto|plain|json|none", VERB_RUN | VERB_SCORE | VERB_TRAIN | VERBS_COMPUTE, CHOICE,
      F(progress), 0, 0, "auto", NULL,
      "On standard error: a redrawn line on a terminal, otherwise a line every 10 s.", OUTPUT, 0 },
    { "quiet", "-q", NULL,
      VERB_RUN | VERB_SCORE | VERB_INSPECT | VERB_BENCH | VERB_TRAIN | VERB_SUBMIT | VERB_EXPORT | VERBS_COMPUTE | VERBS_CHANGE, FLAG, F(quiet), 0, 0, NULL, NULL,
      "Nothing on standard error but errors.", OUTPUT, 0 },
    { "data", "", "FILES...", VERB_TRAIN | VERB_BENCH, FILES, F(data), 0, 0, NULL, NULL,
      "Texts to train on, whole (bench: books whose beginnings are prompts of the spec points); all words up to the next option.", TRAINING, 0 },
    { "valid", "", "FILES...", VERB_TRAIN, FILES, F(valid), 0, 0, NULL, NULL,
      "Held-out texts: loss and accuracy are measured on them.", TRAINING, 0 },
    { "kind", "", "chained|independent|both", VERB_TRAIN, CHOICE, F(train_kind), 0, 0, "chained", NULL,
      "Whether a head reads the state before it or that of the model. both: in one run, the independent ones go to FILE-independent.", TRAINING, 0 },
    { "heads", "", "N", VERB_TRAIN, SIZE, F(heads), 1, 16, "3", NULL, "Heads: tokens that are guessed ahead.",
      TRAINING, 0 },
    { "from", "", "FILE", VERB_TRAIN, TEXT, F(train_from), 0, 0, NULL, NULL,
      "Begin with the heads of FILE (both: and of FILE-independent) instead of random ones.", TRAINING, 0 },
    { "steps", "", "N", VERB_TRAIN, SIZE, F(train_steps), 1, BIG, NULL, "one pass over the data",
      "Steps of the optimiser.", TRAINING, 0 },
    { "batch-windows", "", "N", VERB_TRAIN, SIZE, F(train_batch), 1, 1e6, "1", NULL, "Windows of a step.",
      TRAINING, 0 },
    { "learning-rate", "--lr", "R", VERB_TRAIN, REAL, F(train_rate), 0, 100, NULL,
      "0.005 x 4096 / the model's hidden size, at most 0.2",
      "Of AdamW after the warm-up; falls to 0 along a cosine.", TRAINING, 0 },
    { "warmup", "", "N", VERB_TRAIN, SIZE, F(train_warmup), 0, BIG, "50", NULL,
      "Steps in which the rate rises, at most a quarter of all.", TRAINING, 0 },
    { "weight-decay", "", "X", VERB_TRAIN, REAL, F(train_decay), 0, 100, NULL,
      "0.0005 / the learning rate, at most 0.1", "Of matrices.", TRAINING, 0 },
    { "clip", "", "X", VERB_TRAIN, REAL, F(train_clip), 0, 1e9, "1", NULL,
      "Largest norm of a gradient; 0: any.", TRAINING, 0 },
    { "valid-every", "", "N", VERB_TRAIN, SIZE, F(valid_every), 1, BIG, "100", NULL,
      "Steps between looks at held-out text.", TRAINING, 0 },
    { "valid-windows", "", "N", VERB_TRAIN, SIZE, F(valid_windows), 1, BIG, "8", NULL,
      "Windows of a look at held-out text, spread over it.", TRAINING, 0 },
    { "checkpoint-every", "", "S", VERB_TRAIN, REAL, F(checkpoint_seconds), 0, 1e9, "60", NULL,
      "Seconds between checkpoints (FILE.checkpoint), from which the same command goes on after an interruption.", TRAINING, 0 },
    { "curves", "", "FILE", VERB_TRAIN, TEXT, F(curves), 0, 0, NULL, NULL,
      "Loss and accuracy of every head as CSV.", TRAINING, 0 },
    { "all", "", NULL, VERB_HELP, FLAG, F(all), 0, 0, NULL, NULL, "Every verb and option.", OUTPUT, 0 },
    { "man", "", NULL, VERB_HELP, FLAG, F(man), 0, 0, NULL, NULL, "The man page, in troff's language.",
      OUTPUT, 0 },
    { "completion", "", "bash|zsh|fish", VERB_HELP, CHOICE, F(completion), 0, 0, NULL, NULL,
      "The script that completes verbs and options in this shell.", OUTPUT, 0 },

    { "db", "", "FILE", VERBS_STORE, LIST, F(db), 0, 0, NULL,
      "LONGHAND_DB, else longhand/longhand.db in XDG_STATE_HOME (~/.local/state)",
      "The store: where jobs, texts and figures are.", STORE, MAIN },
    { "shared-db", "", NULL, VERBS_STORE, FLAG, F(shared_db), 0, 0, NULL, NULL,
      "The store is on a network file system and several machines use it: its locks are honest.", STORE, 0 },
    { "resume", "", "JOB", VERB_RUN, TEXT, F(resume), 0, 0, NULL, NULL,
      "Go on with this job here, and print its text from the start.", STORE, 0 },
    { "from-here", "", NULL, VERB_RUN, FLAG, F(from_here), 0, 0, NULL, NULL,
      "With --resume: print only what is new.", STORE, 0 },
    { "batch", "", "FILE.jsonl", VERBS_MAKE, TEXT, F(batch), 0, 0, NULL, NULL,
      "Requests in the format of the OpenAI Batch API, one a line; options are the defaults of lines that lack a field.", STORE, 0 },
    { "name", "", "NAME", VERBS_MAKE, TEXT, F(name), 0, 0, NULL, "that of the file",
      "Of the batch: @NAME selects its jobs.", STORE, 0 },
    { "shard", "", "I/N", VERBS_MAKE, TEXT, F(shard), 0, 0, NULL, NULL,
      "Only the lines of a batch that fall to part I of N.", STORE, 0 },
    { "priority", "", "P", VERB_SUBMIT, LONG, F(priority), -1e6, 1e6, "0", NULL,
      "Jobs of a higher one come first.", STORE, 0 },
    { "until-empty", "", NULL, VERB_WORK, FLAG, F(until_empty), 0, 0, NULL, NULL,
      "Leave when the queue is empty; this is the default.", STORE, 0 },
    { "watch", "", NULL, VERB_WORK, FLAG, F(watch), 0, 0, NULL, NULL, "Wait for further jobs.", STORE, 0 },
    { "max-time", "", "S", VERB_WORK, REAL, F(max_time), 0, 1e9, NULL, "no limit",
      "Checkpoint and leave after S seconds; with work left the exit status is 75.", STORE, 0 },
    { "max-jobs", "", "N", VERB_WORK, SIZE, F(max_jobs), 1, BIG, NULL, "no limit", "Leave after N jobs.",
      STORE, 0 },
    { "max-attempts", "", "N", VERB_WORK, SIZE, F(max_attempts), 0, 1e6, "10", NULL,
      "A job fails when N attempts in a row ended without a token or a longer snapshot; 0: never.", STORE,
          0 },
    { "kv-snapshot", "", "auto|on|off", VERB_RUN | VERB_WORK, CHOICE, F(kv_snapshot), 0, 0, "auto", NULL,
      "Keep the KV cache in a file beside the store, so that going on with a job need not read its text again. auto: when that would take more than 5 s.", STORE, 0 },
    { "kv-snapshot-max", "", "SIZE", VERB_RUN | VERB_WORK, BYTES, F(kv_snapshot_max), 0, 0, NULL,
      "any, as long as 256 MB of the disk stay free",
      "Bytes that the snapshots of a store may take together, one that is being replaced included (K, M, G, T).", STORE, 0 },
    { "accept-numerics-change", "", NULL, VERBS_COMPUTE, FLAG, F(accept_change), 0, 0, NULL, NULL,
      "Go on with a text that other arithmetic or another model began. The change is recorded.", STORE, 0 },
    { "rounds", "", NULL, VERB_RUN | VERB_WORK | VERB_REPORT, FLAG, F(rounds), 0, 0, NULL, NULL,
      "Keep, or report, every single round.", STORE, 0 },
    { "state", "", "STATE", VERBS_SELECT, TEXT, F(state), 0, 0, NULL, NULL,
      "Jobs that are queued, running, paused, done, failed or cancelled.", STORE, 0 },
    { "all", "", NULL, VERBS_SELECT, FLAG, F(all), 0, 0, NULL, NULL, "Every job.", STORE, 0 },
    { "follow", "-f", NULL, VERB_TAIL, FLAG, F(follow), 0, 0, NULL, NULL,
      "Go on as the text grows, until it ends.", STORE, 0 },
    { "from", "", "TOKEN", VERB_TAIL, SIZE, F(from), 0, BIG, NULL, "about 100 tokens before the end",
      "Begin at this token of the text, counted from 0.", STORE, 0 },
    { "at", "", "TOKEN", VERB_FORK, SIZE, F(at), 0, BIG, NULL, NULL, "Share the text before this token.",
      STORE, 0 },
    { "append", "", "TEXT", VERB_EXTEND | VERB_FORK, TEXT, F(append), 0, 0, NULL, NULL,
      "Put this behind the text before it goes on.", STORE, 0 },
    { "format", "", "text|ids|jsonl|openai-batch", VERB_EXPORT, CHOICE, F(export_format), 0, 0, NULL, NULL,
      "The texts one after the other; their token ids, one decimal number per line; a flat JSON object per job; the output format of the OpenAI Batch API.", OUTPUT, 0 },
    { "partial", "", NULL, VERB_EXPORT, FLAG, F(partial), 0, 0, NULL, NULL,
      "Also texts that are not done, as far as they are.", OUTPUT, 0 },
    { "gzip", "", NULL, VERB_EXPORT, FLAG, F(gzip), 0, 0, NULL, NULL, "Compressed.", OUTPUT, 0 },
    { "csv", "", NULL, VERB_REPORT, FLAG, F(csv), 0, 0, NULL, NULL, "One line per job, comma-separated.",
      OUTPUT, 0 },
    { "html", "", NULL, VERB_REPORT, FLAG, F(html), 0, 0, NULL, NULL,
      "A page with plots, in one file that loads nothing.", OUTPUT, 0 },
    { "by", "", "PARAMETER", VERB_REPORT, TEXT, F(by), 0, 0, NULL, NULL,
      "Means and standard deviations over the jobs with one value of PARAMETER.", OUTPUT, 0 },
    { "sample", "", "N", VERB_VERIFY, SIZE, F(sample), 1, BIG, NULL, "all", "Only N tokens, at random.",
      STORE, 0 },
    { "help", "-h", NULL, ~0u, FLAG, F(help), 0, 0, NULL, NULL, "", OUTPUT, HIDDEN },
};
enum { N_OPTIONS = sizeof table / sizeof *table };
_Static_assert(N_OPTIONS <= sizeof ((struct options *)0)->given, "given[] has a place for every option");

static const struct verb verbs[] = {
    { "run", VERB_RUN,
      "--model DIR (--prompt TEXT | --prompt-file FILE) --tokens N [options], or --batch IN.jsonl -o "
      "OUT.jsonl",
      "Write a text that continues a prompt.", 0, 0 },
    { "submit", VERB_SUBMIT,
      "--model DIR (--prompt TEXT | --prompt-file FILE) --tokens N [options], or --batch FILE.jsonl",
      "Queue a text, or a batch of them.", 0, 0 },
    { "work", VERB_WORK, "[options]", "Write the queued texts.", 0, 0 },
    { "list", VERB_LIST, "[SEL...] [options]", "The queue: counts, speed, and the selected jobs (all).", 0,
      INT_MAX },
    { "show", VERB_SHOW, "SEL... [options]", "All about jobs: parameters, progress, history.", 0, INT_MAX },
    { "text", VERB_TEXT, "SEL... [options]", "The text of jobs, as far as it is.", 0, INT_MAX },
    { "tail", VERB_TAIL, "JOB [options]", "The end of a text.", 1, 1 },
    { "export", VERB_EXPORT, "SEL... --format text|ids|jsonl|openai-batch [options]",
      "Texts as a file for other programs.", 0, INT_MAX },
    { "pause", VERB_PAUSE, "SEL... [options]", "Take jobs out of the queue; a worker stops within a second.",
      0, INT_MAX },
    { "resume", VERB_RESUME, "SEL... [options]", "Queue paused and failed jobs again, where they were.", 0,
      INT_MAX },
    { "retry", VERB_RESUME, "SEL... [options]", NULL, 0, INT_MAX },
    { "cancel", VERB_CANCEL, "SEL... [options]", "End jobs for good; what they wrote stays.", 0, INT_MAX },
    { "remove", VERB_REMOVE, "SEL... [options]", "Delete jobs with everything they wrote.", 0, INT_MAX },
    { "extend", VERB_EXTEND, "JOB --tokens +N [--append TEXT]", "Go on with a finished text.", 1, 1 },
    { "fork", VERB_FORK, "JOB --at TOKEN [options]", "A new job that shares the text before a token.", 1, 1 },
    { "report", VERB_REPORT, "SEL... [options]", "How texts were made, and how they read.", 0, INT_MAX },
    { "verify", VERB_VERIFY, "JOB [options]", "Derive a stored text again, token by token.", 1, 1 },
    { "score", VERB_SCORE, "--model DIR FILE [options]",
      "How likely a model finds a text: negative log-likelihood and perplexity.", 1, 1 },
    { "tokenize", VERB_TOKENIZE, "--model DIR [FILE] [options]", "Text to token ids, and back.", 0, 1 },
    { "inspect", VERB_INSPECT, "--model DIR [options]",
      "What a model is, what memory it needs, what is missing.", 0, 0 },
    { "distinct", VERB_DISTINCT, "FILE... [options]",
      "Distinct-n: the share of different words and word sequences in a text.", 1, INT_MAX },
    { "train", VERB_TRAIN, "heads --model DIR --data FILES... --out FILE [options]",
      "Train drafting heads for a model on texts.", 1, 1 },
    { "bench", VERB_BENCH, "[--model DIR] [options]", "Measure this machine and the engine on it.", 0,
      INT_MAX },
    { "version", VERB_VERSION, "", "What this program is and what it was built with.", 0, 0 },
    { "help", VERB_HELP, "[VERB | --all | --man | --completion SHELL]",
      "This, a verb's options, or everything.", 0, 1 },
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

const struct option *option_at(size_t i) { return i < N_OPTIONS ? &table[i] : NULL; }

const struct verb *verb_at(size_t i) { return i < N_VERBS ? &verbs[i] : NULL; }

const char *option_group_at(size_t i)
{
    const char *const groups[] = { TEXTS, SAMPLING, DRAFTING, MODELS, STORE, TRAINING, OUTPUT };
    return i < sizeof groups / sizeof *groups ? groups[i] : NULL;
}

const char *option_default(const struct option *opt)
{
    return opt->shown ? opt->shown : opt->kind == CHOICE ? NULL : opt->value;
}

void option_verbs(char *out, size_t size, const struct option *opt)
{
    *out = 0;
    for (size_t i = 0; i < N_VERBS; i++)
        if ((opt->verbs & verbs[i].bit) && verbs[i].help) {
            size_t n = strlen(out);
            snprintf(out + n, size - n, "%s%s", n ? ", " : "", verbs[i].name);
        }
}

/* ---- names ---- */

/* Edits (insert, delete, replace, swap neighbours) from a to b; names longer than 40 are far from all. */
static size_t edits(const char *a, const char *b)
{
    enum { MAX_NAME = 40 };
    size_t d[MAX_NAME + 1][MAX_NAME + 1], n = strlen(a), m = strlen(b);
    if (n > MAX_NAME || m > MAX_NAME)
        return SIZE_MAX;
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = MIN(best, MIN(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = MIN(best, d[i - 2][j - 2] + 1);
            d[i][j] = best;
        }
    return d[n][m];
}

/* Whether `name` ("--long" or "-s") is one of the words of `list`. */
static bool in_list(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, name, n) == 0)
            return true;
        p += len + (p[len] == ' ');
    }
    return false;
}

/* The row of an option as it is spelled, "--name" or "-x": the verb's own, else any verb's; NULL if there is none. */
static const struct option *find(const char *spelled, unsigned verb)
{
    const struct option *other = NULL;
    for (size_t i = 0; i < N_OPTIONS; i++)
        if ((spelled[0] == '-' && spelled[1] == '-' && strcmp(spelled + 2, table[i].name) == 0) ||
            in_list(table[i].also, spelled)) {
            if (table[i].verbs & verb)
                return &table[i];
            other = other ? other : &table[i];
        }
    return other;
}

static const char *nearest_option(const char *name, unsigned verb)
{
    const char *best = NULL;
    size_t best_d = MAX(strlen(name) / 3, (size_t)2) + 1;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        size_t d = edits(name, table[i].name);
        if ((table[i].verbs & verb) && d < best_d) {
            best = table[i].name;
            best_d = d;
        }
    }
    return best;
}

const struct verb *options_verb(const char *name)
{
    for (size_t i = 0; i < N_VERBS; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static int find_verb(const struct verb **out, const char *name, struct err *e)
{
    const char *best = NULL;
    size_t best_d = MAX(strlen(name) / 3, (size_t)2) + 1;
    if ((*out = options_verb(name)))
        return 0;
    for (size_t i = 0; i < N_VERBS; i++) {
        size_t d = edits(name, verbs[i].name);
        if (d < best_d) {
            best = verbs[i].name;
            best_d = d;
        }
    }
    if (best)
        return err_set(e, ERR_INPUT, "unknown verb '%s': did you mean '%s'?", name, best);
    return err_set(e, ERR_INPUT, "unknown verb '%s'; see longhand help", name);
}

bool options_given(const struct options *o, const char *name)
{
    bool known = false;
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (strcmp(table[i].name, name) == 0) {
            known = true;
            if (o->given[i])
                return true;
        }
    assert(known);
    return false;
}

const char *options_of_job(const struct options *o)
{
    static const char *const others[] = { "threads", "device", "db", "shared-db", "quiet" };
    for (size_t i = 0; i < N_OPTIONS; i++) {
        bool of_job = o->given[i] && (table[i].verbs & VERBS_MAKE) == VERBS_MAKE;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            of_job = of_job && strcmp(table[i].name, others[k]);
        if (of_job)
            return table[i].name;
    }
    return NULL;
}

/* ---- values ---- */

static bool only(const char *s, const char *allowed)
{
    return *s && strspn(s, allowed) == strlen(s);
}

static int parse_u64(uint64_t *out, const char *name, const char *s, uint64_t min, uint64_t max,
                     struct err *e)
{
    errno = 0;
    unsigned long long v = only(s, "0123456789") ? strtoull(s, NULL, 10) : (errno = EINVAL, 0);
    if (errno || v < min || v > max)
        return err_set(e, ERR_INPUT, "%s: '%s' is not a whole number from %llu to %llu", name, s,
                       (unsigned long long)min, (unsigned long long)max);
    *out = v;
    return 0;
}

int parse_size(size_t *out, const char *name, const char *s, size_t min, size_t max, struct err *e)
{
    uint64_t v;
    if (parse_u64(&v, name, s, min, max, e))
        return -1;
    *out = v;
    return 0;
}

/* A number, then nothing or K, M, G, T for powers of 1,024. */
static int parse_bytes(uint64_t *out, const char *name, const char *s, struct err *e)
{
    static const char units[] = "KMGT";
    char digits[24];
    size_t n = strspn(s, "0123456789");
    const char *u = s[n] ? strchr(units, s[n] & ~0x20) : NULL;
    if (n == 0 || n >= sizeof digits || (s[n] && (!u || s[n + 1])))
        return err_set(e, ERR_INPUT, "%s: '%s' is not a number of bytes, as 500M or 20G", name, s);
    memcpy(digits, s, n);
    digits[n] = 0;
    uint64_t v, scale = u ? (uint64_t)1 << 10 * (u - units + 1) : 1;
    if (parse_u64(&v, name, digits, 0, UINT64_MAX / scale, e))
        return -1;
    *out = v * scale;
    return 0;
}

int parse_long(long *out, const char *name, const char *s, long min, long max, struct err *e)
{
    errno = 0;
    long v = only(s + (*s == '-'), "0123456789") ? strtol(s, NULL, 10) : (errno = EINVAL, 0);
    if (errno || v < min || v > max)
        return err_set(e, ERR_INPUT, "%s: '%s' is not a whole number from %ld to %ld", name, s, min, max);
    *out = v;
    return 0;
}

int parse_real(double *out, const char *name, const char *s, double min, double max, struct err *e)
{
    char *end = NULL;
    double v = only(s, "0123456789.eE+-") ? strtod(s, &end) : NAN;
    if (!end || *end || end == s || !(v >= min && v <= max))
        return err_set(e, ERR_INPUT, "%s: '%s' is not a number from %g to %g", name, s, min, max);
    *out = v;
    return 0;
}

static int parse_choice(int *out, const struct option *opt, const char *spelled, const char *s, struct err *e)
{
    int i = 0;
    for (const char *p = opt->arg; *p; i++) {
        size_t len = strcspn(p, "|");
        if (strlen(s) == len && memcmp(p, s, len) == 0) {
            *out = i;
            return 0;
        }
        p += len + (p[len] == '|');
    }
    return err_set(e, ERR_INPUT, "%s: '%s' is not one of %s", spelled, s, opt->arg);
}

static int list_add(struct text_list *l, const char *s, struct err *e)
{
    const char **v = realloc(l->v, (l->n + 1) * sizeof *v);
    if (!v)
        return err_set(e, ERR_FAILED, "out of memory");
    l->v = v;
    v[l->n++] = s;
    return 0;
}

static int set(struct options *o, const struct option *opt, const char *spelled, const char *s, struct err *e)
{
    void *field = (char *)o + opt->field;
    switch (opt->kind) {
    case FLAG:   *(bool *)field = true; return 0;
    case SIZE:   return parse_size(field, spelled, s, (size_t)opt->min, (size_t)opt->max, e);
    case U64:    return parse_u64(field, spelled, s, 0, UINT64_MAX, e);
    case BYTES:  return parse_bytes(field, spelled, s, e);
    case LONG:   return parse_long(field, spelled, s, (long)opt->min, (long)opt->max, e);
    case REAL:   return parse_real(field, spelled, s, opt->min, opt->max, e);
    case TEXT:   *(const char **)field = s; return field == &o->device ? device_choice_check(spelled, s, e) : 0;
    case LIST: case FILES: return list_add(field, s, e);
    case CHOICE: return parse_choice(field, opt, spelled, s, e);
    }
    return 0;
}

int options_assign(struct options *o, const char *name, const char *spelled, const char *value, struct err *e)
{
    char word[64];
    snprintf(word, sizeof word, "--%s", name);
    const struct option *opt = find(word, o->verb->bit);
    assert(opt && (opt->verbs & o->verb->bit) && opt->kind != LIST && opt->kind != FILES);
    o->given[opt - table] = 1;
    if (opt->kind != FLAG)
        return set(o, opt, spelled, value, e);
    *(bool *)(void *)((char *)o + opt->field) = strcmp(value, "true") == 0;
    return 0;
}

/* ---- the command line ---- */

static int unknown_option(const struct options *o, const char *spelled, struct err *e)
{
    const char *best = strlen(spelled) > 3 ? nearest_option(spelled + 2, o->verb->bit) : NULL;
    if (best)
        return err_set(e, ERR_INPUT, "%s: unknown option '%s': did you mean '--%s'?", o->verb->name, spelled,
                       best);
    return err_set(e, ERR_INPUT, "%s: unknown option '%s'; see longhand help %s", o->verb->name, spelled,
                   o->verb->name);
}

static int wrong_verb(const struct options *o, const struct option *opt, const char *spelled, struct err *e)
{
    char list[256];
    option_verbs(list, sizeof list, opt);
    return err_set(e, ERR_INPUT, "%s: '%s' is an option of %s", o->verb->name, spelled, list);
}

/* One option at argv[*i]; takes its value from the same word or the next one. */
static int parse_option(struct options *o, int argc, char **argv, int *i, struct err *e)
{
    char name[64];
    const char *word = argv[*i], *value = NULL;
    size_t n = word[1] == '-' ? strcspn(word, "=") : 2;
    if (n >= sizeof name)
        return err_set(e, ERR_INPUT, "%s: unknown option '%.60s...'", o->verb->name, word);
    memcpy(name, word, n);
    name[n] = 0;
    for (size_t k = 0; k < n; k++)
        if (name[k] == '_')
            name[k] = '-';
    if (word[n])
        value = word + n + (word[1] == '-');

    const struct option *opt = find(name, o->verb->bit);
    if (!opt)
        return unknown_option(o, name, e);
    if (!(opt->verbs & o->verb->bit))
        return wrong_verb(o, opt, name, e);
    if (opt->kind == FLAG) {
        if (value)
            return err_set(e, ERR_INPUT, "%s takes no value", name);
    } else if (!value) {
        if (*i + 1 >= argc)
            return err_set(e, ERR_INPUT, "%s needs a value: %s", name, opt->arg);
        value = argv[++*i];
    }
    o->given[opt - table] = 1;
    if (set(o, opt, name, value, e))
        return -1;
    while (opt->kind == FILES && *i + 1 < argc && (argv[*i + 1][0] != '-' || !argv[*i + 1][1]))
        if (set(o, opt, name, argv[++*i], e))
            return -1;
    return 0;
}

/* --rope-scaling TYPE, --rope-scale F and --yarn-orig-ctx ORIG, as llama.cpp has them, become one text. */
static int join_scaling(struct options *o, struct err *e)
{
    const char *type = o->context_scaling ? o->context_scaling : "yarn";
    const char *factor = o->rope_scale;
    double f;
    if (strcmp(type, "none") == 0 && !factor && !o->yarn_orig_ctx) {
        o->context_scaling = NULL;
        return 0;
    }
    if (!factor && !o->yarn_orig_ctx)
        return 0;
    if (factor && strchr(factor, ':') && !o->context_scaling && !o->yarn_orig_ctx) {
        o->context_scaling = factor;
        return 0;
    }
    if (strcmp(type, "yarn") && strcmp(type, "linear"))
        return err_set(e, ERR_INPUT,
                       "--context-scaling: '%s' together with --rope-scale or --yarn-orig-ctx; yarn or "
                       "linear is allowed",
                       type);
    if (!factor)
        return err_set(e, ERR_INPUT, "--yarn-orig-ctx needs --rope-scale F beside it");
    if (parse_real(&f, "--rope-scale", factor, 1, 1e6, e))
        return -1;
    if (o->yarn_orig_ctx)
        snprintf(o->scaling_text, sizeof o->scaling_text, "%s:%s:%zu", type, factor, o->yarn_orig_ctx);
    else
        snprintf(o->scaling_text, sizeof o->scaling_text, "%s:%s", type, factor);
    o->context_scaling = o->scaling_text;
    return 0;
}

static int parse_words(struct options *o, int argc, char **argv, struct err *e)
{
    bool only_words = false;
    for (int i = 2; i < argc; i++) {
        const char *w = argv[i];
        if (!only_words && strcmp(w, "--") == 0) {
            only_words = true;
        } else if (!only_words && w[0] == '-' && w[1]) {
            if (parse_option(o, argc, argv, &i, e))
                return -1;
        } else {
            o->arg[o->n_args++] = w;
        }
    }
    if (o->help)
        return 0;
    if (o->n_args > (size_t)o->verb->max_args)
        return err_set(e, ERR_INPUT, "%s: '%s' is one word too many; usage: longhand %s %s", o->verb->name,
                       o->arg[o->verb->max_args], o->verb->name, o->verb->args);
    if (o->n_args < (size_t)o->verb->min_args)
        return err_set(e, ERR_INPUT, "%s: a word is missing; usage: longhand %s %s", o->verb->name,
                       o->verb->name, o->verb->args);
    return join_scaling(o, e);
}

int options_parse(struct options *o, int argc, char **argv, struct err *e)
{
    const char *name = argc > 1 ? argv[1] : "help";
    *o = (struct options){0};
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (table[i].value && set(o, &table[i], table[i].name, table[i].value, e))
            assert(!"a default is outside its own range");
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    else if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (name[0] == '-')
        return err_set(e, ERR_INPUT, "'%s' where a verb must stand; see longhand help", name);
    if (find_verb(&o->verb, name, e))
        return -1;
    o->arg = calloc((size_t)argc + 1, sizeof *o->arg);
    if (!o->arg)
        return err_set(e, ERR_FAILED, "out of memory");
    if (parse_words(o, argc, argv, e)) {
        options_free(o);
        return -1;
    }
    return 0;
}

void options_free(struct options *o)
{
    free(o->arg);
    free(o->stop.v);
    free(o->data.v);
    free(o->valid.v);
    free(o->logit_bias.v);
    free(o->dry_breakers.v);
    free(o->db.v);
    *o = (struct options){0};
}
