#include "src/text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/sha256.h"
#include "src/base/json.h"
#include "src/base/memory_file.h"
#include "src/base/unicode.h"

enum role { SYSTEM, USER, ASSISTANT };
static const char *const role_names[] = { "system", "user", "assistant" };

struct span { const char *s; size_t n; };
struct turn { enum role role; struct span text; };

/* What a template sees, and where it writes. */
struct scene {
    const struct chat *c;
    const struct chat_options *o;
    const struct turn *m; size_t n;
    FILE *out;
};
typedef int write_fn(const struct scene *x, struct err *e);

struct chat_template {
    const char *name;
    write_fn *write;
    const char *system;              /* said where the chat has no system message of its own */
    bool bos, eos;                   /* it writes them */
    bool always;                     /* llama3: the assistant's turn is opened whether asked for or not */
    const char *open, *close;        /* mistral: around what the user says */
    const char *before, *after;      /* mistral: around what the assistant says, `after` behind EOS */
    bool system_first, strips;       /* mistral: the system message in the first user turn; answers are stripped */
};

/* ---- Python's strings ---- */

/* str.isspace */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

static struct span strip_right(struct span t)
{
    while (t.n > 0) {
        uint32_t c;
        size_t p = t.n - 1;
        while (p > 0 && ((unsigned char)t.s[p] & 0xc0) == 0x80)
            p--;
        utf8_get(t.s + p, &c);
        if (!is_space(c))
            break;
        t.n = p;
    }
    return t;
}

static struct span strip(struct span t)
{
    while (t.n > 0) {
        uint32_t c;
        size_t n = utf8_get(t.s, &c);
        if (!is_space(c))
            break;
        t.s += n, t.n -= n;
    }
    return strip_right(t);
}

static struct span strip_newlines(struct span t, bool left, bool right)
{
    while (left && t.n > 0 && t.s[0] == '\n')
        t.s++, t.n--;
    while (right && t.n > 0 && t.s[t.n - 1] == '\n')
        t.n--;
    return t;
}

static const char *find(struct span t, const char *what)
{
    return t.n ? memmem(t.s, t.n, what, strlen(what)) : NULL;
}

static const char *find_last(struct span t, const char *what)
{
    const char *at = NULL;
    for (const char *p; (p = find(t, what)) != NULL;) {
        at = p;
        t.n -= (size_t)(p + 1 - t.s);
        t.s = p + 1;
    }
    return at;
}

/* What stands before the first `mark`, behind the last one; all of it where there is none. */
static struct span before_first(struct span t, const char *mark)
{
    const char *p = find(t, mark);
    return p ? (struct span){ t.s, (size_t)(p - t.s) } : t;
}
static struct span behind_last(struct span t, const char *mark)
{
    const char *p = find_last(t, mark);
    return p ? (struct span){ p + strlen(mark), (size_t)(t.s + t.n - p) - strlen(mark) } : t;
}

/* ---- writing ---- */

static void put(const struct scene *x, const char *s) { fputs(s, x->out); }
static void put_text(const struct scene *x, struct span t) { fwrite(t.s, 1, t.n, x->out); }
static void put_bos(const struct scene *x) { put(x, x->c->bos); }
static void put_eos(const struct scene *x) { put(x, x->c->eos); }

static int refuse(const struct scene *x, const char *words, struct err *e)
{
    return err_set(e, ERR_INPUT, "chat template %s: %s", x->c->t->name, words);
}

/* A system message at the front, where it has a place of its own; *from: the message behind it. */
static const struct span *front_system(const struct scene *x, size_t *from)
{
    *from = x->m[0].role == SYSTEM;
    return *from ? &x->m[0].text : NULL;
}

/* User and assistant in turns, counted from message `from`. */
static bool in_turns(const struct scene *x, size_t i, size_t from)
{
    return (x->m[i].role == USER) == ((i - from) % 2 == 0);
}

static void put_chatml_turn(const struct scene *x, const char *role, struct span text)
{
    put(x, "<|im_start|>");
    put(x, role);
    put(x, "\n");
    put_text(x, text);
    put(x, "<|im_end|>\n");
}

/* ---- the templates ---- */

/* ChatML, and Qwen2 and 2.5, which add a system message of their own. */
static int write_chatml(const struct scene *x, struct err *e)
{
    (void)e;
    const char *system = x->c->t->system;
    if (x->c->t->bos && x->m[0].role != ASSISTANT)
        put_bos(x);
    if (system && x->m[0].role != SYSTEM)
        put_chatml_turn(x, "system", (struct span){ system, strlen(system) });
    for (size_t i = 0; i < x->n; i++)
        put_chatml_turn(x, role_names[x->m[i].role], x->m[i].text);
    if (x->o->add_generation_prompt)
        put(x, "<|im_start|>assistant\n");
    else if (x->c->t->bos && x->m[x->n - 1].role == ASSISTANT)
        put_eos(x);
    return 0;
}

/* Qwen3: thoughts of the assistant are kept only behind the last question, and there they are set apart even when there are none. */
static void put_qwen3_answer(const struct scene *x, size_t i, bool behind_question)
{
    struct span text = x->m[i].text, thoughts = { "", 0 };
    if (find(text, "</think>")) {
        thoughts = strip_newlines(before_first(text, "</think>"), false, true);
        thoughts = strip_newlines(behind_last(thoughts, "<think>"), true, false);
        text = strip_newlines(behind_last(text, "</think>"), true, false);
    }
    put(x, "<|im_start|>assistant\n");
    if (behind_question && (i + 1 == x->n || thoughts.n > 0)) {
        put(x, "<think>\n");
        put_text(x, strip_newlines(thoughts, true, true));
        put(x, "\n</think>\n\n");
        text = strip_newlines(text, true, false);
    }
    put_text(x, text);
    put(x, "<|im_end|>\n");
}

static bool is_tool_response(struct span t)
{
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    const size_t n_open = sizeof open - 1, n_close = sizeof close - 1;
    return t.n >= n_open && t.n >= n_close && !memcmp(t.s, open, n_open) &&
           !memcmp(t.s + t.n - n_close, close, n_close);
}

static int write_qwen3(const struct scene *x, struct err *e)
{
    (void)e;
    size_t question = x->n - 1;
    for (size_t i = x->n; i-- > 0;)
        if (x->m[i].role == USER && !is_tool_response(x->m[i].text)) {
            question = i;
            break;
        }
    for (size_t i = 0; i < x->n; i++)
        if (x->m[i].role == ASSISTANT)
            put_qwen3_answer(x, i, i > question);
        else
            put_chatml_turn(x, role_names[x->m[i].role], x->m[i].text);
    if (x->o->add_generation_prompt)
        put(x,
            x->o->no_thinking ? "<|im_start|>assistant\n<think>\n\n</think>\n\n" : "<|im_start|>assistant\n");
    return 0;
}

/* Llama 2: the system message stands inside the first user turn. A later one says nothing, as in the original. */
static int write_llama2(const struct scene *x, struct err *e)
{
    size_t from;
    const struct span *system = front_system(x, &from);
    for (size_t i = from; i < x->n; i++) {
        struct span text = x->m[i].text;
        if (!in_turns(x, i, from))
            return refuse(x, "Conversation roles must alternate user/assistant/user/assistant/...", e);
        if (x->m[i].role == USER) {
            put_bos(x);
            put(x, "[INST] ");
            /* stripped together with what is before it, so only on the right */
            if (i == from && system) {
                text = strip_right(text);
                put(x, "<<SYS>>\n");
                put_text(x, *system);
                put(x, text.n > 0 ? "\n<</SYS>>\n\n" : "\n<</SYS>>");
            } else {
                text = strip(text);
            }
            put_text(x, text);
            put(x, " [/INST]");
        } else if (x->m[i].role == ASSISTANT) {
            put(x, " ");
            put_text(x, strip(text));
            put(x, " ");
            put_eos(x);
        }
    }
    return 0;
}

static void put_llama3_turn(const struct scene *x, const struct turn *t)
{
    put(x, "<|start_header_id|>");
    put(x, role_names[t->role]);
    put(x, "<|end_header_id|>\n\n");
    put_text(x, strip(t->text));
    put(x, "<|eot_id|>");
}

static void open_llama3_answer(const struct scene *x)
{
    if (x->o->add_generation_prompt || x->c->t->always)
        put(x, "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

static int write_llama3(const struct scene *x, struct err *e)
{
    (void)e;
    put_bos(x);
    for (size_t i = 0; i < x->n; i++)
        put_llama3_turn(x, &x->m[i]);
    open_llama3_answer(x);
    return 0;
}

static int write_llama31(const struct scene *x, struct err *e)
{
    (void)e;
    size_t from;
    const struct span *system = front_system(x, &from);
    put_bos(x);
    put(x,
        "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: ");
    put(x, x->o->date ? x->o->date : "26 Jul 2024");
    put(x, "\n\n");
    if (system)
        put_text(x, strip(*system));
    put(x, "<|eot_id|>");
    for (size_t i = from; i < x->n; i++)
        put_llama3_turn(x, &x->m[i]);
    open_llama3_answer(x);
    return 0;
}

/* Mistral before system messages (v0.1 and v0.2 of the 7B, Mixtral). */
static int write_mistral_plain(const struct scene *x, struct err *e)
{
    const struct chat_template *t = x->c->t;
    put_bos(x);
    for (size_t i = 0; i < x->n; i++) {
        if (!in_turns(x, i, 0))
            return refuse(x, "Conversation roles must alternate user/assistant/user/assistant/...", e);
        if (x->m[i].role == SYSTEM)
            return refuse(x, "Only user and assistant roles are supported!", e);
        put(x, x->m[i].role == USER ? t->open : t->before);
        put_text(x, x->m[i].text);
        if (x->m[i].role == ASSISTANT)
            put_eos(x);
        put(x, x->m[i].role == USER ? t->close : t->after);
    }
    return 0;
}

/* Mistral's v1 puts the system message into the first user turn; v3 and v3-tekken put it into the last message when that is the user's,
 * and else drop it. v1 finds fault with the messages one by one, the others with their order first. */
static int write_mistral(const struct scene *x, struct err *e)
{
    static const char order[] = "After the optional system message, conversation roles must alternate "
                                "user/assistant/user/assistant/...";
    const struct chat_template *t = x->c->t;
    size_t from;
    const struct span *system = front_system(x, &from);
    for (size_t i = from; i < x->n && !t->system_first; i++)
        if (!in_turns(x, i, from))
            return refuse(x, order, e);
    put_bos(x);
    for (size_t i = from; i < x->n; i++) {
        const bool user = x->m[i].role == USER;
        if (!in_turns(x, i, from))
            return refuse(x, order, e);
        if (x->m[i].role == SYSTEM)
            return refuse(x,
                          "Only user and assistant roles are supported, with the exception of an initial "
                          "optional system message!",
                          e);
        put(x, user ? t->open : t->before);
        if (user && system && i == (t->system_first ? from : x->n - 1)) {
            put_text(x, *system);
            put(x, "\n\n");
        }
        put_text(x, !user && t->strips ? strip(x->m[i].text) : x->m[i].text);
        if (user)
            put(x, t->close);
        else
            put_eos(x);
    }
    return 0;
}

/* Mistral's v7 has a turn for system messages, anywhere, and no order. */
static int write_mistral_v7(const struct scene *x, struct err *e)
{
    (void)e;
    const struct chat_template *t = x->c->t;
    put_bos(x);
    for (size_t i = 0; i < x->n; i++) {
        const enum role r = x->m[i].role;
        put(x, r == USER ? t->open : r == SYSTEM ? "[SYSTEM_PROMPT] " : t->before);
        put_text(x, x->m[i].text);
        if (r == ASSISTANT)
            put_eos(x);
        else
            put(x, r == USER ? t->close : "[/SYSTEM_PROMPT]");
    }
    return 0;
}

/* Vicuna v1.1 and later, as FastChat writes it (the models ship no template): one line, the turns in it set apart by spaces. */
static int write_vicuna(const struct scene *x, struct err *e)
{
    size_t from;
    const struct span *system = front_system(x, &from);
    put_bos(x);
    put_text(x, system ? *system : (struct span){ x->c->t->system, strlen(x->c->t->system) });
    put(x, " ");
    for (size_t i = from; i < x->n; i++) {
        if (!in_turns(x, i, from) || x->m[i].role == SYSTEM)
            return refuse(x, "Conversation roles must alternate user/assistant/user/assistant/...", e);
        put(x, x->m[i].role == USER ? "USER: " : "ASSISTANT: ");
        put_text(x, x->m[i].text);
        if (x->m[i].role == USER)
            put(x, " ");
        else
            put_eos(x);
    }
    if (x->o->add_generation_prompt)
        put(x, "ASSISTANT:");
    return 0;
}

/* Another template in use for Vicuna: each turn has a line of its own. A system message in the middle says nothing. */
static int write_vicuna_lines(const struct scene *x, struct err *e)
{
    size_t from;
    const struct span *system = front_system(x, &from);
    put_bos(x);
    if (system) {
        put_text(x, strip(*system));
        put(x, "\n\n");
    }
    for (size_t i = from; i < x->n; i++) {
        if (!in_turns(x, i, from))
            return refuse(x, "Conversation roles must alternate user/assistant/user/assistant/...", e);
        if (x->m[i].role == SYSTEM)
            continue;
        put(x, x->m[i].role == USER ? "USER: " : "ASSISTANT: ");
        put_text(x, strip(x->m[i].text));
        if (x->m[i].role == ASSISTANT)
            put_eos(x);
        put(x, "\n");
    }
    if (x->o->add_generation_prompt)
        put(x, "ASSISTANT:");
    return 0;
}

static int write_zephyr(const struct scene *x, struct err *e)
{
    (void)e;
    for (size_t i = 0; i < x->n; i++) {
        put(x, x->m[i].role == SYSTEM ? "<|system|>\n"
               : x->m[i].role == USER ? "<|user|>\n"
                                      : "<|assistant|>\n");
        put_text(x, x->m[i].text);
        put_eos(x);
        put(x, "\n");
    }
    if (x->o->add_generation_prompt)
        put(x, "<|assistant|>\n");
    return 0;
}

static const struct chat_template templates[] = {
    { .name = "chatml", .write = write_chatml },
    { .name = "chatml-bos", .write = write_chatml, .bos = true, .eos = true },
    { .name = "llama2", .write = write_llama2, .bos = true, .eos = true },
    { .name = "llama3", .write = write_llama3, .bos = true },
    { .name = "llama3-first", .write = write_llama3, .bos = true, .always = true },
    { .name = "llama3.1", .write = write_llama31, .bos = true },
    { .name = "mistral-v0.1", .write = write_mistral_plain, .bos = true, .eos = true, .open = "[INST] ",
      .close = " [/INST]", .before = "", .after = " " },
    { .name = "mistral-v0.2", .write = write_mistral_plain, .bos = true, .eos = true, .open = "[INST] ",
      .close = " [/INST]", .before = "", .after = "" },
    { .name = "mistral-v1", .write = write_mistral, .bos = true, .eos = true, .open = " [INST] ",
      .close = " [/INST]", .before = " ",
      .system_first = true },
    { .name = "mistral-v3", .write = write_mistral, .bos = true, .eos = true, .open = "[INST] ",
      .close = "[/INST]", .before = " ", .strips = true },
    { .name = "mistral-v3-tekken", .write = write_mistral, .bos = true, .eos = true, .open = "[INST]",
      .close = "[/INST]", .before = "" },
    { .name = "mistral-v7", .write = write_mistral_v7, .bos = true, .eos = true, .open = "[INST] ",
      .close = "[/INST]", .before = " " },
    { .name = "qwen1.5", .write = write_chatml, .system = "You are a helpful assistant" },
    { .name = "qwen2", .write = write_chatml, .system = "You are a helpful assistant." },
    { .name = "qwen2.5", .write = write_chatml,
      .system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant." },
    { .name = "qwen3", .write = write_qwen3 },
    { .name = "vicuna", .write = write_vicuna, .bos = true, .eos = true,
      .system = "A chat between a curious user and an artificial intelligence assistant. "
      "The assistant gives helpful, detailed, and polite answers to the user's questions." },
    { .name = "vicuna-lines", .write = write_vicuna_lines, .bos = true, .eos = true },
    { .name = "zephyr", .write = write_zephyr, .eos = true },
};

/* SHA-256 of the texts of real templates, each proven equal by scripts/make_chat_fixtures.py, which prints this table. */
static const struct { const char *sha256, *name; } known[] = {
    { "fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e", "chatml" },    /* openhermes-2.5 */
    { "153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3", "chatml" },    /* openhermes-2.5 */
    { "58c1a1f04baa7adaeaba1f90267c3d57d9396f0c1f0129bdde9e76d3c6784af7", "chatml" },    /* dolphin-2.5 */
    { "d7b5b8c7b58f7a6bf868aa46a5f73ee976d7292f40fcb9c3e7a1defd8d235cfb", "chatml" },    /* dolphin-2.5 */
    { "32bb7772d2f28c13716687fc6f8fe9c0bf5eacd7539a8165271516b2b70cd9d5", "chatml" },    /* own-chatml */
    { "3e3e4ccd01b95ae100e861475e34dd42d044d15858f876bb73fe2934fe1603db", "chatml" },    /* unsloth-chatml */
    { "27841847cf8aa3fa0c9c80b6ce881ce565015a4f01b2d8ea142e1442a70d3c94", "chatml" },    /* unsloth-chatml */
    { "64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326", "chatml" },    /* trl-qwen3_instruct_2507 */
    { "48e17aa3caf5bf20075b6e7366864ee943e00b6f0752aadfe8b670c2ab0291a5", "chatml" },    /* trl-qwen3_instruct_2507_training */
    { "3ce2fe9753f9a77a601f55dfcab7cd46fbc91324aae0f78ca38d194a4eaef8d5", "chatml-bos" },    /* internlm2-chat-7b */
    { "5031bbcbeaaa53528ac13612947642d82e9770b85caffed2835b4f129a91606a", "chatml-bos" },    /* internlm2-chat-7b */
    { "e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf", "llama2" },    /* llama-2-chat */
    { "9780fae5bfea3cfd7be37d328c6edfd296a8869be8131495bbe7eb37e780c88c", "llama2" },    /* llama-2-chat */
    { "ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122", "llama3" },    /* llama-3-instruct */
    { "4f46ecd43418f216df8c26936c60e5d04bcc81db47db5d86fbe889f64212dd4c", "llama3" },    /* llama-3-instruct */
    { "bc213ef03ac49e40c58b11933b109235e63d25f13e7cd4df966c577966d2345e", "llama3" },    /* trl-llama3_training */
    { "99195f2f7dc1344662663119562b46fc067034c0ea660cf1cab333617c7290c2", "llama3" },    /* unsloth-llama3 */
    { "e460249284c8bba3457f62eb73d5459096d5ff58d5ad75630e370bdf2cab0347", "llama3" },    /* unsloth-llama3 */
    { "b48c47f6443892716176eb200bf4ef108f64e06ca26ed0fa8ebc0a4b3992fcb2", "llama3-first" },    /* llama-3-instruct-first */
    { "b75e17085cfc511ead6d4fab84b86ab3c168ec7a332568a91d0889cdcba94394", "llama3-first" },    /* llama-3-instruct-first */
    { "93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7", "llama3.1" },    /* llama-3.1-instruct */
    { "d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f", "llama3.1" },    /* llama-3.2-instruct */
    { "7e995b379ec01747807246483647cd99030abf331653f1119e16d7ac041a3495", "mistral-v0.1" },    /* mistral-7b-instruct-v0.1 */
    { "26a59556925c987317ce5291811ba3b7f32ec4c647c400c6cc7e3a9993007ba7", "mistral-v0.2" },    /* mixtral-8x7b-instruct-v0.1 */
    { "bbc58aad99454df60138be9530c9601a0adfe3d8932cda975e1f10b2410ddc51", "mistral-v1" },    /* mistral-7b-instruct-v0.2 */
    { "cafb64e0e9e5fd2503054b3479593fae39cbdfd52338ce8af9bb4664a8eb05bd", "mistral-v3" },    /* mistral-large-instruct-2407 */
    { "e7deee034838db2bfc7487788a3013d8a307ab69f72f3c54a85f06fd76007d4e", "mistral-v3-tekken" },    /* mistral-nemo-instruct-2407 */
    { "3c4ad5fa60dd8c7ccdf82fa4225864c903e107728fcaf859fa6052cb80c92ee9", "mistral-v7" },    /* mistral-large-instruct-2411 */
    { "af9c0233881b083b52ff773580215222b5440ac3d0beeeca99b76329b048f8db", "qwen1.5" },    /* qwen1.5-chat */
    { "7c0cc400db493cfc546224cbd626ef46495c4b19103042eb5518f06bf7f1e26d", "qwen1.5" },    /* qwen1.5-chat */
    { "793202280c0910ab26bc6eb57c8212c2417324c6d8c4efd0d10d59092ab3e3eb", "qwen2" },    /* qwen2-instruct */
    { "f0206845c9ebc3abb4735d44f286eb81ce99238ad2accc710c6fc60e6cb8ccc8", "qwen2" },    /* qwen2-instruct */
    { "55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a", "qwen2.5" },    /* qwen2.5-instruct */
    { "f3714f7117c9d447db80ceb3fcb67a64ba08d149dd4434fe53add9c7f1dd344b", "qwen2.5" },    /* trl-qwen2_5_training */
    { "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8", "qwen3" },    /* trl-qwen3 */
    { "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5", "qwen3" },    /* qwen3-0.6b */
    { "483b4faebed5bad1da18c75a23ac02a60a94fb2e2ec572fc3de26f1d71509452", "qwen3" },    /* unsloth-qwen3 */
    { "aaf017523eaf83938ad0c0ccfdcf8c3dda8f49b364c5c96d1e4f116b4b462727", "vicuna" },    /* own-vicuna */
    { "7e790c457ea734e6ec959ad1d003e5f421bed352a5828d9fc4bbf61e7c1a980c", "vicuna-lines" },    /* vicuna-lines */
    { "e22b66ebe0ab8a983c5bdbd3dce03f8a7803ec4604df6a5232bcc6af1e17245d", "vicuna-lines" },    /* vicuna-lines */
    { "66291cf0045c2425a3a667cf3cbb7af2b11f09e025c02f97245323ab79119362", "zephyr" },    /* zephyr-7b-beta */
    { "5e2833b50f34f4581d09d801325bf4d7d8285bcad36be595a30a9904b7759f5d", "zephyr" },    /* unsloth-zephyr */
    { "d7b6c50818cef0dd51832d783d0b5cb469b5f678203f5b88c13042f635b83fb4", "zephyr" },    /* unsloth-zephyr */
};

/* ---- which template ---- */

static const struct chat_template *by_name(const char *name)
{
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++)
        if (strcmp(templates[i].name, name) == 0)
            return &templates[i];
    return NULL;
}

const char *chat_name(const struct chat *c) { return c->t->name; }
bool chat_has_thinking(const struct chat *c) { return c->t->write == write_qwen3; }
bool chat_has_date(const struct chat *c) { return c->t->write == write_llama31; }

const char *chat_template_name_of_hash(const char *sha256)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].sha256, sha256) == 0)
            return known[i].name;
    return NULL;
}

const char *chat_template_name(const char *text, size_t n)
{
    struct sha256 h;
    uint8_t digest[SHA256_BYTES];
    char hex[2 * SHA256_BYTES + 1];
    if (n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n -= 1 + (n > 1 && text[n - 1] == '\n' && text[n - 2] == '\r');
    sha256_start(&h);
    for (size_t i = 0; i < n;) {                 /* lines with \n between them, whatever ended them */
        size_t end = i;
        while (end < n && text[end] != '\r')
            end++;
        sha256_add(&h, text + i, end - i);
        if (end < n)
            sha256_add(&h, "\n", 1);
        i = end + 1 + (end + 1 < n && text[end] == '\r' && text[end + 1] == '\n');
    }
    sha256_end(&h, digest);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return chat_template_name_of_hash(hex);
}

enum { FILE_BYTES_MAX = 1 << 26 };

/* A JSON file of the directory; *data is NULL where there is none. */
static int read_json(char **data, struct json *root, char *path, size_t size, const char *dir,
                     const char *name, struct err *e)
{
    size_t n;
    *data = NULL;
    snprintf(path, size, "%s/%s", dir, name);
    if (access(path, F_OK))
        return 0;
    if (file_read(data, &n, path, FILE_BYTES_MAX, e))
        return -1;
    if (js_check(root, path, *data, n, e) == 0 &&
        (js_kind(root) == JS_OBJECT || js_bad(root, e, "an object is needed")))
        return 0;
    free(*data);
    *data = NULL;
    return -1;
}

static int copy_string(char **out, const struct json *v, struct err *e)
{
    bool control;
    free(*out);
    *out = calloc(js_length(v, &control) + 1, 1);
    if (!*out)
        return err_set(e, ERR_FAILED, "%s: no memory for a string", v->file);
    js_unescape(v, *out);
    return 0;
}

/* bos_token and eos_token: a string, or an added token with its content, or null. */
static int read_token(char **out, const struct json *root, const char *key, struct err *e)
{
    struct json v, content;
    int found = js_get(root, key, &v, e);
    if (found > 0 && js_kind(&v) == JS_OBJECT) {
        found = js_get(&v, "content", &content, e);
        v = content;
    }
    if (found <= 0 || js_kind(&v) == JS_NULL)
        return found < 0 ? -1 : 0;
    if (js_kind(&v) != JS_STRING)
        return js_bad(&v, e, "a token's text is needed");
    return copy_string(out, &v, e);
}

/* tokenizer_config.json has them; special_tokens_map.json is what older tools wrote. */
static int read_tokens(struct chat *c, const char *dir, struct err *e)
{
    static const char *const files[] = { "special_tokens_map.json", "tokenizer_config.json" };
    for (size_t i = 0; i < 2; i++) {
        char path[4096], *data;
        struct json root;
        if (read_json(&data, &root, path, sizeof path, dir, files[i], e))
            return -1;
        int rc =
            data ? read_token(&c->bos, &root, "bos_token", e) || read_token(&c->eos, &root, "eos_token", e)
                 : 0;
        free(data);
        if (rc)
            return -1;
    }
    return 0;
}

/* chat_template of a JSON file as text: a string, or the one of a list that is called "default". NULL where there is none. */
static int template_of_json(char **text, const struct json *root, struct err *e)
{
    struct json v, one, name;
    int found = js_get(root, "chat_template", &v, e);
    if (found <= 0)
        return found;
    if (js_kind(&v) == JS_STRING)
        return copy_string(text, &v, e);
    if (js_kind(&v) != JS_ARRAY)
        return js_kind(&v) == JS_NULL
                   ? 0
                   : js_bad(&v, e, "a text is needed, or a list of objects with name and template");
    for (struct js_walk w = js_walk(&v); js_next(&w, NULL, &one);) {
        if (js_kind(&one) != JS_OBJECT)
            return js_bad(&one, e, "an object with name and template is needed");
        if ((found = js_get(&one, "name", &name, e)) < 0)
            return -1;
        if (!found || js_kind(&name) != JS_STRING || !js_is(&name, "default"))
            continue;
        if ((found = js_get(&one, "template", &v, e)) <= 0 || js_kind(&v) != JS_STRING)
            return found < 0 ? -1 : js_bad(&one, e, "template is missing or no text");
        return copy_string(text, &v, e);
    }
    return 0;
}

/* The model's template as text and the file that it stands in; *text is NULL when there is none. */
static int read_template(char **text, char *path, size_t size, const char *dir, struct err *e)
{
    static const char *const files[] = { "tokenizer_config.json", "chat_template.json" };
    size_t n;
    *text = NULL;
    snprintf(path, size, "%s/chat_template.jinja", dir);
    if (access(path, F_OK) == 0)
        return file_read(text, &n, path, FILE_BYTES_MAX, e);
    for (size_t i = 0; i < 2 && !*text; i++) {
        char *data;
        struct json root;
        if (read_json(&data, &root, path, size, dir, files[i], e))
            return -1;
        int rc = data ? template_of_json(text, &root, e) : 0;
        free(data);
        if (rc)
            return -1;
    }
    return 0;
}

static int recognise(struct chat *c, const char *dir, struct err *e)
{
    char path[4096], *text;
    if (read_template(&text, path, sizeof path, dir, e))
        return -1;
    if (!text)
        return err_set(e, ERR_INPUT,
                       "%s: the model has no chat template; --chat-template NAME chooses one of %s", dir,
                       CHAT_NAMES);
    const char *name = chat_template_name(text, strlen(text));
    free(text);
    if (!name)
        return err_set(e, ERR_INPUT,
                       "%s: this version does not know the model's chat template; --chat-template NAME "
                       "chooses one of %s",
                       path, CHAT_NAMES);
    c->t = by_name(name);
    assert(c->t);
    return 0;
}

int chat_open(struct chat *c, const char *dir, const char *name, struct err *e)
{
    *c = (struct chat){ .t = name ? by_name(name) : NULL };
    if (name && !c->t)
        return err_set(e, ERR_INPUT, "--chat-template '%s': unknown, allowed are %s", name, CHAT_NAMES);
    if (!name && recognise(c, dir, e))
        return -1;
    if (read_tokens(c, dir, e) == 0)
        return 0;
    chat_close(c);
    return -1;
}

void chat_close(struct chat *c)
{
    free(c->bos);
    free(c->eos);
    *c = (struct chat){0};
}

/* ---- messages ---- */

static int read_turns(struct turn *t, const struct chat_message *m, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        size_t r = 0, valid = utf8_valid_prefix(m[i].content, m[i].n_content);
        while (r < 3 && strcmp(m[i].role, role_names[r]) != 0)
            r++;
        if (r == 3)
            return err_set(e, ERR_INPUT,
                           "message %zu: role '%s', allowed are system, user and assistant (no tools)", i + 1,
                           m[i].role);
        if (valid < m[i].n_content)
            return err_set(e, ERR_INPUT, "message %zu: byte 0x%02x at offset %zu is not UTF-8", i + 1,
                           (unsigned char)m[i].content[valid], valid);
        t[i] = (struct turn){ (enum role)r, { m[i].content, m[i].n_content } };
    }
    return 0;
}

static int check(const struct chat *c, size_t n, const struct chat_options *o, struct err *e)
{
    if (n == 0)
        return err_set(e, ERR_INPUT, "a chat needs at least one message");
    if (o->continue_final_message && o->add_generation_prompt)
        return err_set(e, ERR_INPUT, "continue_final_message and add_generation_prompt exclude each other");
    if (c->t->bos && !c->bos)
        return err_set(
            e, ERR_INPUT,
            "chat template %s: it begins with a BOS token, and the model's tokenizer_config.json names none",
            c->t->name);
    if (c->t->eos && !c->eos)
        return err_set(e, ERR_INPUT,
                       "chat template %s: it ends answers with an EOS token, and the model's "
                       "tokenizer_config.json names none",
                       c->t->name);
    return 0;
}

static int render(const struct scene *in, char **text, size_t *size, struct err *e)
{
    struct scene x = *in;
    *text = NULL;
    x.out = memory_file(text, size);
    if (!x.out)
        return err_set(e, ERR_FAILED, "no memory for a chat");
    int rc = x.c->t->write(&x, e);
    if (ferror(x.out) | fclose(x.out))
        rc = err_set(e, ERR_FAILED, "no memory for a chat");
    if (rc == 0)
        return 0;
    free(*text);
    *text = NULL;
    return -1;
}

/* As transformers: a mark is put behind the last message, and the prompt is cut where it comes out. */
static int render_open(struct scene *x, struct turn *last, char **text, size_t *size, struct err *e)
{
    static const char mark[] = "CONTINUE_FINAL_MESSAGE_TAG ";
    const size_t n_mark = sizeof mark - 1;
    const struct span message = last->text, words = strip(message);
    char *marked = malloc(message.n + n_mark);
    if (!marked)
        return err_set(e, ERR_FAILED, "no memory for a chat");
    memcpy(marked, message.s, message.n);
    memcpy(marked + message.n, mark, n_mark);
    last->text = (struct span){ marked, message.n + n_mark };
    int rc = render(x, text, size, e);
    last->text = message;
    free(marked);
    if (rc)
        return -1;
    struct span all = { *text, *size };
    const char *at = find_last(all, "CONTINUE_FINAL_MESSAGE_TAG");
    if (!at || (words.n && !memmem(all.s, all.n, words.s, words.n))) {
        free(*text);
        *text = NULL;
        return err_set(e, ERR_INPUT,
                       "continue_final_message: chat template %s leaves out or changes the final message",
                       x->c->t->name);
    }
    struct span head = { all.s, (size_t)(at - all.s) };
    if (at[n_mark - 1] != ' ')                   /* its space was stripped, so those of the message are too */
        head = strip_right(head);
    *size = head.n;
    (*text)[head.n] = 0;
    return 0;
}

int chat_render(const struct chat *c, const struct chat_message *m, size_t n, const struct chat_options *o,
                char **text, size_t *size, struct err *e)
{
    *text = NULL;
    if (check(c, n, o, e))
        return -1;
    struct turn *t = calloc(n, sizeof *t);
    if (!t)
        return err_set(e, ERR_FAILED, "no memory for %zu messages", n);
    struct scene x = { .c = c, .o = o, .m = t, .n = n };
    int rc = read_turns(t, m, n, e);
    if (rc == 0)
        rc =
            o->continue_final_message ? render_open(&x, &t[n - 1], text, size, e) : render(&x, text, size, e);
    free(t);
    return rc;
}

int chat_encode(const struct chat *c, const struct tokenizer *t, const struct chat_message *m, size_t n,
                const struct chat_options *o, int32_t **ids, size_t *n_ids, struct err *e)
{
    char *text;
    size_t size;
    if (chat_render(c, m, n, o, &text, &size, e))
        return -1;
    int rc = tokenizer_encode(t, ids, n_ids, text, size, false, e);
    free(text);
    if (rc == 0 && *n_ids == 0) {
        free(*ids);
        *ids = NULL;
        rc = err_set(e, ERR_INPUT, "chat template %s: the messages make an empty prompt", c->t->name);
    }
    return rc;
}
