/* What the files of the interpreter share: values, tokens, nodes, scopes and the state of a run.
 *
 *     value.c     arena, errors, texts, lists, dicts, iterators; comparison
 *     value_text.c    JSON to values; values to texts: str, repr, JSON
 *     lexer.c     text to tokens            parser.c    tokens to nodes
 *     scope.c     where each name lives     method.c    attributes, items, methods of lists and dicts
 *     operation.c arithmetic                text.c      methods of texts
 *     filter.c    filters and tests
 *     run.c       the walk over the nodes; jinja_open, jinja_render
 *
 * Everything lies in one arena, so an error can leave by longjmp: jj_fail never returns, and nothing has to
 * be freed on the way. Only jinja_open and jinja_render call setjmp. */
#pragma once
#include <setjmp.h>
#include <string.h>

#include "src/base/unicode.h"
#include "src/text/jinja/jinja.h"

/* A fuzzer reaches small limits often. It sees a read after the end of an allocation of the arena, too. */
#ifdef FUZZING
#include <sanitizer/asan_interface.h>
enum { JJ_ARENA = 1 << 18, JJ_OUTPUT = 1 << 16, JJ_STEPS = 20000, JJ_GAP = 16 };
#define jj_poison ASAN_POISON_MEMORY_REGION
#define jj_unpoison ASAN_UNPOISON_MEMORY_REGION
#else
enum { JJ_ARENA = 64 << 20, JJ_OUTPUT = 16 << 20, JJ_STEPS = 10000000, JJ_GAP = 0 };
#define jj_poison(p, n) ((void)(p), (void)(n))
#define jj_unpoison jj_poison
#endif
enum {
    JJ_RANGE = 100000,
    JJ_STEP = 64,                /* work of a step, in about nanoseconds */
    JJ_HEIGHT = 1000,            /* operations of an expression, one inside the other */
    JJ_DEPTH = 200,              /* brackets and blocks in a template, calls, printed lists, iterators */
    JJ_EVALS = 3000,             /* nested evaluations, of all calls together */
};

/* ---- values ---- */

enum jj_kind {
    JJ_MISSING,                  /* no value yet: a name before its assignment, an argument not given */
    JJ_UNDEFINED, JJ_NONE, JJ_BOOL, JJ_INT, JJ_FLOAT,
    JJ_BIG /* s: the digits of a whole number beyond 64 bits */, JJ_STR, JJ_LIST, JJ_TUPLE, JJ_DICT,
    JJ_VIEW,                     /* dict.keys(), values(), items() */
    JJ_RANGE_OF, JJ_ITER, JJ_SPACE /* namespace() */, JJ_LOOP, JJ_CALL,
};
/* Sets of kinds. */
#define JJ_KIND(name) (1 << JJ_##name)
enum {
    JJ_SEQUENCE = JJ_KIND(STR) | JJ_KIND(LIST) | JJ_KIND(TUPLE) | JJ_KIND(RANGE_OF),     /* has items */
    JJ_SIZED = JJ_SEQUENCE | JJ_KIND(UNDEFINED) | JJ_KIND(DICT) | JJ_KIND(VIEW),
    JJ_ITERABLE = JJ_SIZED | JJ_KIND(ITER) | JJ_KIND(LOOP),
};

/* UTF-8: n bytes, chars code points. safe: of the filter `safe`; only + looks at it. */
struct jj_str { const char *s; size_t n, chars; bool safe; };
struct jj_value {
    enum jj_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        const struct jj_str *s;                         /* JJ_UNDEFINED: its name, or NULL */
        struct jj_list *list;                           /* JJ_LIST, JJ_TUPLE */
        struct jj_dict *dict;                           /* JJ_DICT, JJ_SPACE */
        struct jj_view *view;
        struct jj_range *range;
        struct jj_iter *iter;
        struct jj_loop *loop;
        struct jj_call *call;
    };
};
typedef struct jj_value V;

struct jj_list { V *v; size_t n, cap; };
struct jj_entry { V key, value; uint64_t hash; };
struct jj_dict { struct jj_entry *v; size_t n, cap; uint32_t *index; size_t slots; };   /* insertion order */
enum jj_part { JJ_KEYS, JJ_VALUES, JJ_ITEMS };
struct jj_view { struct jj_dict *dict; enum jj_part part; };
struct jj_range { int64_t from, to, step; size_t n; };

/* An iterator. With `next` it makes its own values, else it walks over a value. */
struct jj_iter {
    V over;
    size_t at;                                          /* next element; of a text: next byte */
    struct jj_iter *from;
    bool (*next)(struct jinja *j, struct jj_iter *it, V *v);
    const void *what;                                   /* of `next` */
};

struct jj_loop {                                        /* LoopContext of jinja2 */
    struct jj_iter *it;
    V over;                                             /* its length, if it has one */
    int64_t index0;
    V before, now, after;                               /* after: peeked */
    V length, last_changed;
};

struct jj_args { struct jj_list list; struct jj_dict named; };              /* of a call */

/* What a builtin is called with. self: the object of a method, or the value before the bar of a filter. p: a
 * value or JJ_MISSING for each parameter. a: all arguments, for builtins that bind none. how: of the row. */
enum { JJ_PARAMS = 6 };
struct jj_in { V self, p[JJ_PARAMS]; const struct jj_args *a; int how; };
typedef const struct jj_in *In;

/* A builtin: name, the names of its parameters, how many must be given, the function, and which of those that
 * share the function it is. take: self becomes str(self), or may not be undefined. */
enum { LEFT = 1, RIGHT = 2 };                           /* values of `how`: the side of a text */
struct jj_builtin {
    const char *name, *params;                          /* params "*": all arguments, unbound, in `a` */
    int required;
    V (*f)(struct jinja *j, In x);
    int how;
    enum jj_take { AS_IS, TEXT, DEFINED } take;
};
struct jj_call {                                        /* a builtin with its object, or a macro */
    const struct jj_builtin *builtin; V self;
    const struct jj_node *macro; struct jj_frame *closure;
};

/* ---- the template ---- */

enum jj_token_kind {
    T_EOF, T_DATA, T_VAR_BEGIN, T_VAR_END, T_BLOCK_BEGIN, T_BLOCK_END, T_NAME, T_STRING, T_INT, T_FLOAT, T_OP,
};
#define JJ_OP2(a, b) ((a) | (b) << 8)
enum { JJ_IN = 1, JJ_NOT_IN };         /* operators that are names */
struct jj_token { enum jj_token_kind kind; unsigned line; int op; V v; };   /* v: data, name, constant */

enum jj_node_kind {
    /* expressions */
    N_CONST, N_NAME, N_SPACE_REF, N_TUPLE, N_LIST, N_DICT, N_ATTR, N_ITEM, N_SLICE, N_CALL, N_FILTER, N_TEST,
    N_COND, N_NOT, N_AND, N_OR, N_NEG, N_POS, N_BINARY, N_CONCAT, N_COMPARE,
    /* statements */
    N_OUTPUT, N_IF, N_FOR, N_SET, N_SET_BLOCK, N_MACRO, N_FILTER_BLOCK, N_WITH /* generation, too */,
    N_BREAK, N_CONTINUE,
};

/* Where the value of a name lies: frames outwards, and the slot in that frame. */
struct jj_place { unsigned hops, slot; };

struct jj_nodes { struct jj_node **v; size_t n, cap; };
struct jj_node {
    enum jj_node_kind kind;
    unsigned line, height;       /* height: of the operands below it */
    int op;                      /* N_BINARY; a node around an operand of N_COMPARE; N_MACRO: NAMES_.. */
    V v;                         /* N_CONST; N_NAME, N_ATTR, N_FILTER, N_TEST, N_MACRO, N_SPACE_REF: a name */
    struct jj_node *a, *b, *c;   /* operands; N_FOR: target, iterable, test; N_SET: target, value */
    struct jj_nodes list;        /* elements, operands, arguments, parameters; N_IF: tests; N_WITH: targets */
    struct jj_nodes body, other; /* blocks; N_IF: one node of kind N_OUTPUT for each body */
    struct jj_nodes defaults;    /* N_MACRO; N_WITH: values */
    const struct jj_builtin *builtin;        /* N_FILTER, N_TEST; NULL: unknown */
    V name;                                  /* N_SPACE_REF: its attribute; an argument: its name, if any */
    int stars;                               /* before an argument */
    struct jj_place place;                   /* N_NAME, N_SPACE_REF, N_MACRO; N_FOR: of `loop` */
    struct jj_scope *scope, *test_scope, *else_scope;
    unsigned kwargs_slot, varargs_slot;      /* N_MACRO: slot + 1; 0: the macro does not name it */
};

/* The names of a block that has its own. `load` says where a name's value comes from when the block begins;
 * `stored` of a name is the number of names stored up to it, or 0. */
enum jj_load { LOAD_PARAM, LOAD_RESOLVE, LOAD_OUTER, LOAD_NOTHING };
struct jj_symbol { V name; enum jj_load load; size_t stored; struct jj_place outer; };
struct jj_scope {
    struct jj_scope *parent;
    struct jj_symbol *v; size_t n, cap, stored;
    struct jj_nodes uses, blocks;            /* names, and blocks with scopes of their own */
};
/* The arguments that no parameter takes; which of them the body of a macro names. */
enum { NAMES_KWARGS = 1, NAMES_VARARGS = 2 };
struct jj_frame { struct jj_frame *parent; const struct jj_scope *scope; V v[]; };

struct jj_text { char *s; size_t n, cap; };             /* a text that grows, in the arena */

struct jinja {
    char *arena; size_t used;
    jmp_buf failed; struct err *e;
    const char *name; unsigned line;
    uint64_t work, look; unsigned depth, calls, evals; double deadline;  /* look: when jj_look looks next */
    /* lexer and parser */
    struct jj_token *tokens; size_t n_tokens, at;
    struct jj_dict *words;                              /* names and texts; true: a variable */
    bool soft, in_loop;                                 /* in a branch of an if; in the body of a loop */
    int names;                                          /* NAMES_.. of the macro that is parsed */
    struct jj_list *contents; bool loops;               /* names of content; jinja_loops_over_content */
    struct jj_nodes body; struct jj_scope *root;
    /* a run */
    struct jj_dict *globals;                            /* variables given */
    struct jj_text *out, *main_out;                     /* now; that of the whole template, JJ_OUTPUT bytes */
    time_t now;
};

/* ---- value.c ---- */

_Noreturn void jj_fail(struct jinja *j, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *jj_alloc(struct jinja *j, size_t bytes);
/* A value whose struct is a copy of what[0..size). */
static inline V jj_box(struct jinja *j, enum jj_kind kind, const void *what, size_t size)
{
    return (V){ .kind = kind, .call = memcpy(jj_alloc(j, size), what, size) };
}
#define JJ_BOX(j, kind, type, ...) jj_box(j, kind, &(type){ __VA_ARGS__ }, sizeof(type))
/* The arguments of %.*s for a name in a message. */
#define JJ_SHOWN(name) (int)MIN((name)->n, 60u), (name)->s
V jj_need_defined(struct jinja *j, V v, const char *unnamed);    /* v; the error of a value without a name */
/* The array v of *cap elements of `size` bytes with room for n + 1. */
void *jj_grow(struct jinja *j, void *v, size_t n, size_t *cap, size_t size);
void jj_deeper(struct jinja *j);                        /* ++depth, or the limit's error */
/* Work is counted where texts and lists are walked over, searched, compared, hashed or made: by jj_char
 * (utf8_get), jj_find, jj_equal, jj_get, jj_next, jj_alloc, jj_put, and for each call of a builtin. So a new
 * builtin need not count. A loop without one of these counts its own rounds. */
void jj_look(struct jinja *j);                          /* the limits of steps and of time */
static inline void jj_work(struct jinja *j, size_t n)
{
    j->work += n;
    if (j->work >= j->look)
        jj_look(j);
}
static inline void jj_step(struct jinja *j, size_t n) { jj_work(j, n * JJ_STEP); }
static inline size_t jj_char(struct jinja *j, const struct jj_str *s, size_t at, uint32_t *c)
{
    jj_work(j, (unsigned char)s->s[at] < 0x80 ? 2 : 8);
    return utf8_get(s->s + at, c);
}
/* The place of `word` in s from byte `from` <= n on, or SIZE_MAX. */
size_t jj_find(struct jinja *j, const struct jj_str *s, const struct jj_str *word, size_t from);

void jj_put(struct jinja *j, struct jj_text *t, const char *s, size_t n);
void jj_puts(struct jinja *j, struct jj_text *t, const char *s);
V jj_text(struct jinja *j, const struct jj_text *t);    /* shares the bytes */
V jj_str(struct jinja *j, const char *s, size_t n);     /* shares the bytes */
V jj_cstr(struct jinja *j, const char *s);
V jj_slice(struct jinja *j, const struct jj_str *s, size_t from, size_t to);        /* in code points */
bool jj_is(const struct jj_str *s, const char *text);
bool jj_same(const struct jj_str *a, const struct jj_str *b);
static inline bool jj_is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool jj_says(V v, const char *text) { return v.kind == JJ_STR && jj_is(v.s, text); }

static inline V jj_undefined(const struct jj_str *name) { return (V){ .kind = JJ_UNDEFINED, .s = name }; }
static inline V jj_none(void) { return (V){ .kind = JJ_NONE }; }
static inline V jj_bool(bool b) { return (V){ .kind = JJ_BOOL, .b = b }; }
static inline V jj_int(int64_t i) { return (V){ .kind = JJ_INT, .i = i }; }
static inline V jj_float(double f) { return (V){ .kind = JJ_FLOAT, .f = f }; }
static inline bool jj_given(V v) { return v.kind != JJ_MISSING && v.kind != JJ_NONE; }
static inline V jj_or(V v, V otherwise) { return v.kind == JJ_MISSING ? otherwise : v; }
static inline bool jj_whole(V v) { return v.kind == JJ_INT || v.kind == JJ_BOOL; }
static inline int64_t jj_i(V v) { return v.kind == JJ_BOOL ? v.b : v.i; }
static inline bool jj_number(V v) { return jj_whole(v) || v.kind == JJ_FLOAT; }
static inline double jj_f(V v) { return v.kind == JJ_FLOAT ? v.f : (double)jj_i(v); }

V jj_list(struct jinja *j, enum jj_kind kind);          /* empty */
void jj_append(struct jinja *j, struct jj_list *l, V v);
V jj_tuple(struct jinja *j, const V *v, size_t n);
V jj_dict(struct jinja *j, enum jj_kind kind);
bool jj_set(struct jinja *j, struct jj_dict *d, V key, V value);             /* whether the key is new */
V jj_get(struct jinja *j, const struct jj_dict *d, V key);                  /* MISSING: not there */
V jj_remove(struct jinja *j, struct jj_dict *d, V key);                     /* its value, or MISSING */

const char *jj_type(V v);                               /* Python's name of the type */
bool jj_truth(V v);
bool jj_equal(struct jinja *j, V a, V b);
int  jj_compare(struct jinja *j, V a, V b);             /* -1, 0, 1; 2: a NaN; an error for other types */
/* Sorts n > 0 elements of `size` bytes by their keys, stable; `reverse` keeps the order of equal keys. */
void jj_sort(struct jinja *j, void *v, size_t size, const V *keys, size_t n, bool reverse);
bool jj_contains(struct jinja *j, V box, V v);
const struct jj_str *jj_need_text(struct jinja *j, V v, const char *what);   /* an error for another kind */
int64_t jj_need_whole(struct jinja *j, V v, int64_t otherwise, const char *what);
static inline bool jj_has_length(V v) { return JJ_SIZED >> v.kind & 1; }
size_t jj_length(struct jinja *j, V v);                 /* an error without a length */
struct jj_iter *jj_walk(struct jinja *j, V v);          /* an error if it is no iterable */
bool jj_next(struct jinja *j, struct jj_iter *it, V *v);
/* An iterator over what `next` makes of the elements of `from`; keeps a copy of what[0..size). */
V jj_lazily(struct jinja *j, struct jj_iter *from, bool (*next)(struct jinja *, struct jj_iter *, V *),
            const void *what, size_t size);
V jj_to_list(struct jinja *j, V v);
V jj_element(V v, size_t i);                            /* of list, tuple or range */

/* ---- value_text.c ---- */

V jj_from_json(struct jinja *j, const struct json *v);
V jj_parse_json(struct jinja *j, In x);
void jj_put_str(struct jinja *j, struct jj_text *t, V v);   /* str(v) */
void jj_put_repr(struct jinja *j, struct jj_text *t, V v);
V jj_to_str(struct jinja *j, V v);
V jj_to_json(struct jinja *j, In x);                    /* p: ascii, indent, separators, sorted */

/* ---- lexer.c, parser.c, scope.c ---- */

void jj_lex(struct jinja *j, const char *text, size_t n);
void jj_parse(struct jinja *j);
void jj_push(struct jinja *j, struct jj_nodes *l, struct jj_node *n);
void jj_resolve(struct jinja *j);                       /* the place or the scope of every node */

/* ---- method.c ---- */

/* Binds arguments to the parameters of a builtin, and calls it. */
V jj_call_builtin(struct jinja *j, const struct jj_builtin *b, V self, const struct jj_args *a);
V jj_peek(struct jinja *j, struct jj_loop *l);                              /* l->after; MISSING at the end */
V jj_attr(struct jinja *j, V v, V name);                                    /* v.name */
V jj_item(struct jinja *j, V v, V key);                                     /* v[key] */
V jj_slice_of(struct jinja *j, V v, V from, V to, V step);
const struct jj_builtin *jj_lookup(const struct jj_builtin *b, const struct jj_str *name);
/* All builtins; a table ends with a row without a name. */
extern const struct jj_builtin jj_filters[], jj_tests[], jj_functions[], jj_str_methods[], jj_dict_methods[],
    jj_list_methods[], jj_tuple_methods[], jj_loop_methods[];
V jj_view(struct jinja *j, In x);                                           /* how: enum jj_part */
V jj_copy(struct jinja *j, In x);                                           /* a list */

/* ---- text.c ---- */

/* A bound of a slice or a search: counted from the end if negative; kept in 0..n, `back` in -1..n-1. */
int64_t jj_bound(struct jinja *j, V v, int64_t n, bool back, int64_t otherwise, const char *what);
void jj_reverse(struct jj_list *l);
/* how: 'l' lower, 'u' upper, 'c' only the first letter upper, 't' the first letter of each word, 'w' what
 * follows white space, a hyphen or an opening bracket. */
V jj_change_case(struct jinja *j, In x);
V jj_all_are(struct jinja *j, In x);                    /* how: 'l', 'u', 'd' digits, 'a' letters, 'n', ' ' */
V jj_strip(struct jinja *j, In x);
V jj_split(struct jinja *j, In x);                      /* how: RIGHT or not */
V jj_split_lines(struct jinja *j, In x);
V jj_join(struct jinja *j, V texts, V separator);        /* separator: a text, or missing */
V jj_replace(struct jinja *j, const struct jj_str *s, const struct jj_str *from, const struct jj_str *to,
             int64_t count);

/* ---- operation.c ---- */

V jj_operation(struct jinja *j, int op, V a, V b);                          /* a op b, of numbers and texts */
_Noreturn void jj_no_operation(struct jinja *j, V a, V b, const char *op);   /* the error of such types */
