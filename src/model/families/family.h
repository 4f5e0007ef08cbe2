/* A family of models. Its file NAME.c is the one place that describes the family: its names, its keys in
 * config.json and in GGUF files, the names of its tensors, and what is special about its layers. To add a
 * family, write its file and add a line to families.h (CONTRIBUTING.md).
 *
 * A description is a list of sections. A section is a table of keys and, where a table does not suffice, a
 * function for each of four ways:
 *
 *     read    config.json -> struct config
 *     get     GGUF file -> struct config, from which `write` makes the config.json of the same model
 *     write   struct config -> that config.json. Stores keep its bytes: no member may change or move
 *     put     struct config -> GGUF file (convert)
 *
 * The sections of Llama (llama.c) are those of every family that names no other. */
#pragma once
#include <stddef.h>

#include "src/base/json_write.h"
#include "src/model/config.h"
#include "src/model/config_keys.h"
#include "src/model/gguf.h"
#include "src/model/gguf_write.h"

enum { KEY_BYTES = 128 };

struct family;
/* What the functions of the four ways work on. */
struct reading { const struct family *f; struct config *c; const struct json *root, *outer;
                 struct err *e; };   /* outer: of the file; root: of its text model */
struct getting { const struct family *f; struct config *c; const struct gguf *g; size_t blocks;
                 struct err *e; };   /* blocks: layers of the file, those that only draft included */
struct writing { const struct family *f; const struct config *c; const struct gguf *g;
                 struct json_writer *w; };
struct putting { const struct family *f; const struct config *c; struct gguf_out *o;
                 bool drafts;        /* the file has a draft layer after the others */
                 float *divisor;     /* receives rope_freqs.weight [rotary / 2] */
                 bool *has_divisor; struct err *e; };

/* ---- keys ---- */

enum key_kind { KEY_SIZE, KEY_REAL, KEY_BOOL };
enum key_rule {
    NEEDED = 1,                          /* a GGUF file must have it; else a size is 0, a real `missing` */
    EACH = 2,                            /* a GGUF file may have a list of equal numbers, one a layer */
    NULLS = 4,                           /* null in config.json counts as missing, if `missing` is 0 */
    NULL_ZERO = 128,                     /* null in config.json is 0 */
    NONZERO = 8,                         /* may be 0 in a GGUF file, and is written only if it is not */
    UNREAD = 16,                         /* a function reads it from config.json, or nothing does */
    UNWRITTEN = 32,                      /* of config.json that is read only */
    KEEPS = 64,                          /* missing in config.json, it leaves the field as it is */
};
/* The value of hi that stands for the number of heads, and of experts. */
#define HI_HEADS (-1)
#define HI_EXPERTS (-2)
struct key {
    const char *hf, *gguf;               /* NULL: that form has none. The architecture comes before `gguf` */
    enum key_kind kind; size_t field;    /* SIZE(..), REAL(..), BOOL(..): of struct config */
    double lo, hi, missing;              /* allowed (sizes in config.json: from 0 or 1); of a missing key */
    unsigned rules;
};
#define SIZE(name) KEY_SIZE, offsetof(struct config, name)
#define REAL(name) KEY_REAL, offsetof(struct config, name)
#define BOOL(name) KEY_BOOL, offsetof(struct config, name)

/* The four ways of a table that ends with {0}; NULL is an empty one. Functions read and put the keys of GGUF
 * files that are in f->reads. */
int keys_read(const struct reading *r, const struct key *k);
int keys_get(const struct getting *m, const struct key *k);
void keys_write(const struct writing *w, const struct key *k);
void keys_put(const struct putting *p, const struct key *k);
/* Writes a number with the fewest digits that give the same float: 1e-05 is what config.json says, too. */
void write_float(struct json_writer *w, const char *key, double x);

/* One key of a GGUF file: ARCH.NAME. The getters are those of gguf.h; need_uint: from 1, and must exist. */
const char *gguf_key(char key[KEY_BYTES], const struct family *f, const char *name);
#define KEY(m, name) gguf_key((char[KEY_BYTES]){ 0 }, (m)->f, name)
/* Errors of `read` and `get`: "FILE: <what>", and "FILE: ARCH.NAME: <what>". what: a format and values. */
#define read_bad(r, ...) (err_set((r)->e, ERR_INPUT, __VA_ARGS__), err_while((r)->e, "%s", (r)->root->file))
#define get_bad(m, name, ...) gguf_bad((m)->g, KEY(m, name), (m)->e, __VA_ARGS__)
int read_uint(const struct getting *m, const char *name, size_t layers, size_t lo, size_t hi, size_t *x);
int need_uint(const struct getting *m, const char *name, size_t layers, size_t hi, size_t *x);
int read_real(const struct getting *m, const char *name, double lo, double hi, double *x);
void put_uint(const struct putting *p, const char *name, size_t x);
void put_real(const struct putting *p, const char *name, double x);
void put_text(const struct putting *p, const char *name, const char *s);
/* An error of `put`: GGUF has no key for a setting. */
int put_lacks(const struct putting *p, const char *what);

/* ---- sections ---- */

/* In the order of GGUF files; gguf_config.c has that of config.json. Functions return 0 or -1. */
enum section_of { OF_SIZES, OF_EXPERTS, OF_STATES, OF_HEADS, OF_NORMS, OF_FACTORS, OF_VOCAB, OF_WINDOW,
                  OF_LAYERS, OF_ROPE, SECTIONS };
#define SECTION(...) &(const struct section){ __VA_ARGS__ }
#define LIST(...) (const char *const[]){ __VA_ARGS__, NULL }
#define MISSING(...) (const struct missing[]){ __VA_ARGS__, { 0 } }
struct section {
    const struct key *keys;
    int (*read)(const struct reading *r);
    int (*get)(struct getting *m);
    void (*write)(const struct writing *w);
    int (*put)(const struct putting *p);
};

/* Of Gemma 3 and 4. */
#define GEMMA_MISSING(vocab, layers)                                                                        \
    MISSING({ "vocab_size", vocab }, { "hidden_size", 2304 }, { "intermediate_size", 9216 },                \
            { "num_hidden_layers", layers }, { "num_attention_heads", 8 }, { "num_key_value_heads", 4 },    \
            { "head_dim", 256 }, { "max_position_embeddings", 131072 }, { "rope_theta", 1e6 },              \
            { "rope_local_base_freq", 10000 }, { "tie_word_embeddings", 1 }, { "bos_token_id", 2 },         \
            { "eos_token_id", 1 })

/* ---- tensors ---- */

/* GGUF's name and Hugging Face's: after "blk.N." and "model.layers.N.", or whole. The first row of a name
 * counts. hf NULL: a name of Llama that the family does not have. DRAFTS: of the layer that only drafts, with
 * the whole name of Hugging Face. */
struct tensor_name { const char *gguf, *hf; enum { IN_LAYER, OUTSIDE, DRAFTS } place; };

/* ---- windows ---- */

/* What a family says about windows (windows.c). */
struct windows {
    /* sliding_window in config.json: not read; null; a number, or null for none; a number; and a number or
     * null that counts only with use_sliding_window. */
    enum { WINDOW_UNREAD, WINDOW_NULL, WINDOW_GIVEN, WINDOW_NEEDED, WINDOW_SWITCHED } given;
    size_t missing;                      /* of a missing key; 0: no window then */
    /* The layers that have the window: all, and layer_types must agree; or all but every n-th, if layer_types
     * names no others. */
    size_t pattern;
    /* Another rule, given windowed[n_layers] by that one. Returns 1: layer_types must agree; 0; or -1. */
    int (*rule)(const struct reading *r, bool windowed[]);
    bool rest_local;                     /* beside a window, the other layers have the local frequencies */
    /* GGUF files have no window; a window in the layers that the rule says; or name the layers, too. */
    enum { FILES_NONE, FILES_WINDOW, FILES_LAYERS } files;
    bool writes_null;                    /* config.json of a file without a window says null */
};

/* ---- families ---- */

struct family {
    const char *type;                    /* the model_type that messages and struct config have */
    const char *const *types;            /* others that it has in files; each list ends with NULL */
    const char *const *names;            /* architectures; the first is that of a causal model */
    const char *text_type;               /* model_type of text_config in a wrapper; NULL: no wrapper */
    const char *wrapper_type;            /* of a wrapper of several families */
    const char *gguf;                    /* general.architecture */
    /* Values of missing keys where they are not Llama's. Ids of tokens, if the family has some. */
    const struct missing { const char *key; double value; } *missing;
    const char *const *reads;            /* keys of either form that functions of the family read */
    const struct section *section[SECTIONS];     /* NULL: that of Llama */
    const struct tensor_name *tensors;   /* before those of Llama; ends with {0} */
    struct layer_spec layer;             /* what all layers share; Llama's is {0} */
    bool qkv_bias;                       /* has them without a key */
    bool attention_bias, mlp_bias, qkv_bias_key;         /* reads the key */
    bool hidden_multiple;                /* of the heads, even if head_dim is given */
    bool experts;                        /* its layers may have experts */
    /* In GGUF files as architecture llama: rows of q and k lie in pairs, and biases are those of the first
     * layer. */
    bool as_llama;
    bool joined;                         /* q, k and v lie joined in GGUF files, gate and up, too */
    bool draft_layer;                    /* a file may have a layer more, which only drafts */
    bool drafter;                        /* a file drafts for another model with all of its layers */
    struct windows windows;
    bool local;                          /* windowed layers have frequencies of their own */
    double partial;                      /* part of a head that turns if no key says so; 0: always all */
    bool freqs, writes_freqs;            /* a file may have rope_freqs.weight; llama3 becomes that in one */
    /* More keys of the settings of RoPE, and keys of GGUF files for yarn alone. */
    const char *const *rope_keys; const struct key *yarn_keys;
    const struct rope_name { const char *name; enum rope_type type; } *ropes;    /* NULL: Llama's */
    /* Reads what is special about RoPE. settings: the object with the keys; NULL: there is none. */
    int (*rope)(const struct reading *r, const struct json *settings);
    /* The model_type of a GGUF file, where others share its architecture. */
    const char *(*file_type)(const struct config *c);
};

#include "src/model/families/families.h"

double family_missing(const struct family *f, const char *key, double otherwise);
/* Whether a table has a key of either form, and whether a family reads it. */
bool has_key(const struct key *k, const char *key);
bool family_reads(const struct family *f, const char *key);
bool family_has_rope(const struct family *f, enum rope_type type);
bool in_list(const char *const *list, const char *word);

/* ---- what several families share ---- */

/* The keys of experts of Qwen. norm: more rules of norm_topk_prob. */
#define QWEN_EXPERTS(norm)                                                                                  \
    { "num_local_experts", NULL, SIZE(n_experts), 1, EXPERTS_MAX, 128, UNWRITTEN },                         \
    { "num_experts", "expert_count", SIZE(n_experts), 1, EXPERTS_MAX, 0, NONZERO | KEEPS },                 \
    { "num_experts_per_tok", "expert_used_count", SIZE(experts_used), 1, HI_EXPERTS, 8, NONZERO },          \
    { "moe_intermediate_size", "expert_feed_forward_length", SIZE(expert_ffn), 1, EXPERT_FFN_MAX, 768,      \
      NONZERO },                                                                                            \
    { "norm_topk_prob", NULL, BOOL(experts_normalised), 0, 1, 0, norm }
#define SHARED_EXPERT                                                                                       \
    { "shared_expert_intermediate_size", "expert_shared_feed_forward_length", SIZE(shared_ffn), 1,          \
      EXPERT_FFN_MAX, 5632, NEEDED }

extern const struct section llama_sections[SECTIONS];
extern const struct key size_keys[], mixtral_keys[], head_keys[], window_keys[];

int read_rope(const struct reading *r);
int get_rope(struct getting *m);
void write_rope(const struct writing *w);
int put_rope(const struct putting *p);
int need_yarn(const struct reading *r);
/* A key that is missing: an error. Reads a required number. */
int missing_key(const struct json *in, const char *key, struct err *e);
int need_real(const struct json *in, const char *key, double lo, double hi, double *x, struct err *e);

int read_mixtral(const struct reading *r);
/* Gives all layers experts, and checks how many of them a row uses. */
int read_experts(const struct reading *r);
bool some_are_dense(const struct config *c);
/* Checks that a file has experts, and says how many of them a row uses. */
int get_experts(struct getting *m);
int put_experts(const struct putting *p);
int read_heads(const struct reading *r);
int get_heads(struct getting *m);
int read_gemma(const struct reading *r);
/* Of norms after each part, as Gemma 3 names them. */
extern const struct tensor_name norms_after[];

/* Windows (windows.c). The rule of families with a key sliding_window_pattern. */
int pattern_rule(const struct reading *r, bool windowed[]);
int read_window(const struct reading *r);
int get_windows(struct getting *m);
void write_no_window(const struct writing *w);
void write_windows(const struct writing *w);
int put_windows(const struct putting *p);
/* Reads a list of layers, the names `special` and "full_attention", into is[n_layers]. Returns 1; 0: there is
 * no such key, and is[] stays; -1. *v receives the value. */
int read_layer_types(const struct reading *r, const char *key, struct json *v, const char *special,
                     bool is[]);
/* Writes layer_types, `special` for layers with a window or a state, and an array of n booleans. */
void write_layer_types(const struct writing *w, const char *special);
void put_layers(const struct putting *p, const char *name, size_t n);

/* ---- the list (lookup.c) ---- */

/* The i-th family; NULL: there are fewer. */
const struct family *family_at(size_t i);
/* A section of a family: its own, or Llama's. */
const struct section *family_section(const struct family *f, enum section_of i);
/* Writes the names of all families, for messages, and returns text. */
enum family_names { TYPE_NAMES, ARCHITECTURE_NAMES, GGUF_NAMES };
char *family_list(char *text, size_t size, enum family_names which);

/* ---- names of tensors (names.c) ---- */

/* The layer of a name "blk.N.REST", and *rest. SIZE_MAX for any other name. */
size_t gguf_layer_of(const char *name, const char **rest);
/* The name that Hugging Face gives to a tensor of a GGUF file; false if it has none. */
bool family_hf_name(char *to, size_t size, const char *name, const struct config *c);
/* GGUF's name of a tensor of a Hugging Face model with n_layers; `to` stays as it is if there is none. An
 * expert has the name of the tensor with all experts. */
void family_gguf_name(char *to, size_t size, const char *name, const struct family *f, size_t n_layers);
