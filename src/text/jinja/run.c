/* The walk over the nodes of a template, and the interface of jinja.h. Start at jinja_render, statement and
 * evaluate. */
#include "src/text/jinja/jinja_impl.h"

#include <stdlib.h>

static V evaluate(struct jinja *j, struct jj_frame *f, const struct jj_node *n);

/* How a statement ended: `break` and `continue` leave all blocks up to their loop. */
enum flow { GO, BREAK, CONTINUE };
static enum flow block(struct jinja *j, struct jj_frame *f, const struct jj_nodes *l);

/* ---- names ---- */

static V resolve(struct jinja *j, V name)
{
    const V v = jj_get(j, j->globals, name);
    const struct jj_builtin *b = v.kind == JJ_MISSING ? jj_lookup(jj_functions, name.s) : NULL;
    return b ? JJ_BOX(j, JJ_CALL, struct jj_call, .builtin = b) : v;
}

static V *variable(struct jj_frame *f, struct jj_place at)
{
    while (at.hops-- > 0)
        f = f->parent;
    return &f->v[at.slot];
}

static struct jj_frame *new_frame(struct jinja *j, struct jj_frame *parent, const struct jj_scope *s)
{
    const size_t bytes = sizeof(struct jj_frame) + s->n * sizeof(V);
    struct jj_frame *f = memset(jj_alloc(j, bytes), 0, bytes);
    f->parent = parent;
    f->scope = s;
    return f;
}

/* Gives the names of a block their first values. Parameters stay as they are. */
static void enter(struct jinja *j, struct jj_frame *f)
{
    jj_work(j, 4 * f->scope->n);
    for (size_t i = 0; i < f->scope->n; i++) {
        const struct jj_symbol *y = &f->scope->v[i];
        if (y->load != LOAD_PARAM)
            f->v[i] = y->load == LOAD_OUTER     ? *variable(f->parent, y->outer)
                      : y->load == LOAD_RESOLVE ? resolve(j, y->name)
                                                : (V){0};
    }
}

static struct jj_frame *entered(struct jinja *j, struct jj_frame *parent, const struct jj_scope *s)
{
    struct jj_frame *f = new_frame(j, parent, s);
    enter(j, f);
    return f;
}

static void assign(struct jinja *j, struct jj_frame *f, const struct jj_node *target, V v)
{
    if (target->kind == N_NAME) {
        *variable(f, target->place) = v;
    } else if (target->kind == N_SPACE_REF) {
        V *space = variable(f, target->place);
        if (space->kind != JJ_SPACE)
            jj_fail(j, "'%.*s' is no namespace", JJ_SHOWN(target->v.s));
        if (target->name.s->s[0] == '_')
            jj_fail(j, "an attribute of a namespace cannot begin with an underscore");
        jj_set(j, space->dict, target->name, v);
    } else {
        const V list = jj_to_list(j, v);
        if (list.list->n != target->list.n)
            jj_fail(j, "%zu names for %zu values", target->list.n, list.list->n);
        for (size_t i = 0; i < target->list.n; i++)
            assign(j, f, target->list.v[i], list.list->v[i]);
    }
}

/* ---- comparisons ---- */

static bool compare(struct jinja *j, int op, V a, V b)
{
    if (op == JJ_OP2('=', '=') || op == JJ_OP2('!', '='))
        return jj_equal(j, a, b) == (op == JJ_OP2('=', '='));
    if (op == JJ_IN || op == JJ_NOT_IN)
        return jj_contains(j, b, a) == (op == JJ_IN);
    if (a.kind == JJ_UNDEFINED || b.kind == JJ_UNDEFINED)
        jj_no_operation(j, a, b, "<");
    const int order = jj_compare(j, a, b);
    const bool less = (op & 255) == '<', equal = op >> 8 == '=';
    return (order == 0 && equal) || order == (less ? -1 : 1);
}

static bool compare_chain(struct jinja *j, struct jj_frame *f, const struct jj_node *n)
{
    V left = evaluate(j, f, n->a), right;
    for (size_t i = 0; i < n->list.n; i++, left = right) {
        right = evaluate(j, f, n->list.v[i]->a);
        if (!compare(j, n->list.v[i]->op, left, right))
            return false;
    }
    return true;
}

/* ---- calls ---- */

static void name_argument(struct jinja *j, struct jj_dict *named, V name, V v)
{
    if (name.kind != JJ_STR)
        jj_fail(j, "the keys after ** are texts");
    if (!jj_set(j, named, name, v))
        jj_fail(j, "an argument is given twice");
}

static struct jj_args arguments(struct jinja *j, struct jj_frame *f, const struct jj_node *n)
{
    struct jj_args a = {0};
    V x;
    a.list.v = jj_alloc(j, (a.list.cap = n->list.n) * sizeof *a.list.v);
    for (size_t i = 0; i < n->list.n; i++) {
        const struct jj_node *g = n->list.v[i];
        const V v = evaluate(j, f, g);
        if (g->name.kind == JJ_STR && !a.named.cap)
            a.named.v = jj_alloc(j, (a.named.cap = n->list.n - i) * sizeof *a.named.v);
        if (g->name.kind == JJ_STR)
            name_argument(j, &a.named, g->name, v);
        else if (g->stars == 0)
            jj_append(j, &a.list, v);
        else if (g->stars == 1)
            for (struct jj_iter *it = jj_walk(j, v); jj_next(j, it, &x);)
                jj_append(j, &a.list, x);
        else if (v.kind != JJ_DICT)
            jj_fail(j, "** needs a dict");
        else
            for (size_t k = 0; k < v.dict->n; k++)
                name_argument(j, &a.named, v.dict->v[k].key, v.dict->v[k].value);
    }
    return a;
}

/* Binds the arguments of a macro, and takes the named ones out of `a`. Those not given stay MISSING. */
static void bind(struct jinja *j, struct jj_frame *f, const struct jj_node *m, struct jj_args *a)
{
    const size_t n = m->list.n;
    for (size_t i = 0; i < n; i++) {
        V *v = &f->v[m->list.v[i]->place.slot];
        if (i < a->list.n)
            *v = a->list.v[i];
        else if (a->named.n)
            *v = jj_or(jj_remove(j, &a->named, m->list.v[i]->v), *v);
    }
    if (a->list.n > n && !m->varargs_slot)
        jj_fail(j, "macro '%.*s' takes %zu arguments", JJ_SHOWN(m->v.s), n);
    if (a->named.n && !m->kwargs_slot)
        jj_fail(j, "macro '%.*s' has no argument '%.*s'", JJ_SHOWN(m->v.s), JJ_SHOWN(a->named.v[0].key.s));
    if (m->varargs_slot) {
        const V rest = f->v[m->varargs_slot - 1] = jj_list(j, JJ_TUPLE);
        for (size_t i = n; i < a->list.n; i++)
            jj_append(j, rest.list, a->list.v[i]);
    }
    if (m->kwargs_slot)
        *(f->v[m->kwargs_slot - 1] = jj_dict(j, JJ_DICT)).dict = a->named;
}

/* Runs the body and keeps its output. */
static enum flow capture(struct jinja *j, struct jj_frame *f, const struct jj_nodes *body, V *text)
{
    struct jj_text t = {0}, *out = j->out;
    j->out = &t;
    const enum flow flow = block(j, f, body);
    j->out = out;
    *text = jj_text(j, &t);
    return flow;
}

static V call_macro(struct jinja *j, const struct jj_call *c, struct jj_args *a)
{
    const struct jj_node *m = c->macro;
    struct jj_frame *f = entered(j, c->closure, m->scope);
    V text;
    if (++j->calls > JJ_DEPTH)
        jj_fail(j, "more than %d calls in each other", JJ_DEPTH);
    bind(j, f, m, a);
    for (size_t i = 0; i < m->list.n; i++) {
        V *v = &f->v[m->list.v[i]->place.slot];
        const size_t first = m->list.n - m->defaults.n;
        if (v->kind == JJ_MISSING)
            *v = i >= first ? evaluate(j, f, m->defaults.v[i - first]) : jj_undefined(m->list.v[i]->v.s);
    }
    capture(j, f, &m->body, &text);
    j->calls--;
    return text;
}

static V call(struct jinja *j, struct jj_frame *f, const struct jj_node *n)
{
    const V callee = evaluate(j, f, n->a);
    struct jj_args a = arguments(j, f, n);
    j->line = n->line;
    jj_need_defined(j, callee, "a undefined value cannot be called");
    if (callee.kind != JJ_CALL)
        jj_fail(j, "a %s cannot be called", jj_type(callee));
    return callee.call->macro ? call_macro(j, callee.call, &a)
                              : jj_call_builtin(j, callee.call->builtin, callee.call->self, &a);
}

/* A test, or a chain of filters over `input`, the value of its innermost one. */
static V filtered(struct jinja *j, struct jj_frame *f, const struct jj_node *n, const V *input)
{
    if (n->kind != N_FILTER && n->kind != N_TEST)
        return evaluate(j, f, n);
    if (n->kind == N_TEST && !n->builtin)
        jj_fail(j, "no test '%.*s'", JJ_SHOWN(n->v.s));
    const V self = !n->a ? *input : n->kind == N_TEST ? evaluate(j, f, n->a) : filtered(j, f, n->a, input);
    if (!n->builtin)
        jj_fail(j, "no filter '%.*s'", JJ_SHOWN(n->v.s));
    const struct jj_args a = arguments(j, f, n);
    j->line = n->line;
    return jj_call_builtin(j, n->builtin, self, &a);
}

/* ---- expressions ---- */

static V elements(struct jinja *j, struct jj_frame *f, const struct jj_node *n)
{
    const bool dict = n->kind == N_DICT;
    const V all = dict ? jj_dict(j, JJ_DICT) : jj_list(j, n->kind == N_LIST ? JJ_LIST : JJ_TUPLE);
    for (size_t i = 0; i < n->list.n; i++) {
        const V v = evaluate(j, f, n->list.v[i]);
        if (dict)
            jj_set(j, all.dict, v, evaluate(j, f, n->list.v[++i]));
        else
            jj_append(j, all.list, v);
    }
    return all;
}

static V item(struct jinja *j, struct jj_frame *f, const struct jj_node *n)
{
    const V of = evaluate(j, f, n->a);
    if (n->b->kind != N_SLICE)
        return jj_item(j, of, evaluate(j, f, n->b));
    const V from = evaluate(j, f, n->b->a), to = evaluate(j, f, n->b->b), step = evaluate(j, f, n->b->c);
    return jj_slice_of(j, of, from, to, step);
}

static V sign(struct jinja *j, V v, bool negative)
{
    if (v.kind == JJ_FLOAT)
        return jj_float(negative ? -v.f : v.f);
    if (!jj_whole(v))
        jj_no_operation(j, v, v, negative ? "-" : "+");
    return negative ? jj_operation(j, '-', jj_int(0), v) : jj_int(jj_i(v));
}

static void put_all(struct jinja *j, struct jj_frame *f, const struct jj_nodes *l, struct jj_text *t)
{
    for (size_t i = 0; i < l->n; i++)
        jj_put_str(j, t, evaluate(j, f, l->v[i]));
}

static V evaluate_inner(struct jinja *j, struct jj_frame *f, const struct jj_node *n)
{
    struct jj_text t = {0};
    V v;
    switch (n->kind) {
    case N_CONST: return n->v;
    case N_NAME: return jj_or(*variable(f, n->place), jj_undefined(n->v.s));
    case N_TUPLE: case N_LIST: case N_DICT: return elements(j, f, n);
    case N_ATTR: return jj_attr(j, evaluate(j, f, n->a), n->v);
    case N_ITEM: return item(j, f, n);
    case N_CALL: return call(j, f, n);
    case N_FILTER: case N_TEST: return filtered(j, f, n, NULL);
    case N_COND:
        return jj_or(evaluate(j, f, jj_truth(evaluate(j, f, n->a)) ? n->b : n->c), jj_undefined(NULL));
    case N_NOT: return jj_bool(!jj_truth(evaluate(j, f, n->a)));
    case N_AND: v = evaluate(j, f, n->a); return jj_truth(v) ? evaluate(j, f, n->b) : v;
    case N_OR: v = evaluate(j, f, n->a); return jj_truth(v) ? v : evaluate(j, f, n->b);
    case N_NEG: case N_POS: return sign(j, evaluate(j, f, n->a), n->kind == N_NEG);
    case N_BINARY:
        v = evaluate(j, f, n->a);
        return jj_operation(j, n->op, v, evaluate(j, f, n->b));
    case N_CONCAT: put_all(j, f, &n->list, &t); return jj_text(j, &t);
    case N_COMPARE: return jj_bool(compare_chain(j, f, n));
    default: jj_fail(j, "a slice stands alone");
    }
}

/* MISSING if there is no node. */
static V evaluate(struct jinja *j, struct jj_frame *f, const struct jj_node *n)
{
    if (!n)
        return (V){0};
    jj_step(j, 1);
    j->line = n->line;
    if (++j->evals > JJ_EVALS)
        jj_fail(j, "expressions are nested more than %d times", JJ_EVALS);
    const V v = evaluate_inner(j, f, n);
    j->line = n->line;
    j->evals--;
    return v;
}

/* ---- loops ---- */

/* The elements for which the loop's test is true. */
struct tested { const struct jj_node *node; struct jj_frame *frame; };
static bool next_tested(struct jinja *j, struct jj_iter *it, V *v)
{
    const struct tested *t = it->what;
    while (jj_next(j, it->from, v)) {
        struct jj_frame *f = entered(j, t->frame, t->node->test_scope);
        assign(j, f, t->node->a, *v);
        if (jj_truth(evaluate(j, f, t->node->c)))
            return true;
    }
    return false;
}

static enum flow loop(struct jinja *j, struct jj_frame *outer, const struct jj_node *n)
{
    const V over = evaluate(j, outer, n->b);
    struct jj_loop *l = jj_alloc(j, sizeof *l);
    *l = (struct jj_loop){ .over = over, .it = jj_walk(j, over), .index0 = -1 };
    if (n->c) {
        const struct tested t = { n, outer };
        l->over = jj_lazily(j, l->it, next_tested, &t, sizeof t);
        l->it = l->over.iter;
    }
    struct jj_frame *f = new_frame(j, outer, n->scope);
    bool completed = false; /* some round reached its end: as in jinja2, else depends on it */
    while (jj_peek(j, l).kind != JJ_MISSING) {
        l->before = l->now;
        l->now = l->after;
        l->after.kind = JJ_MISSING;
        l->index0++;
        assign(j, f, n->a, l->now);
        f->v[n->place.slot] = (V){ .kind = JJ_LOOP, .loop = l };
        enter(j, f);
        const enum flow flow = block(j, f, &n->body);
        completed |= flow == GO;
        if (flow == BREAK)
            break;
    }
    return completed || !n->other.n ? GO : block(j, entered(j, outer, n->else_scope), &n->other);
}

/* ---- statements ---- */

static enum flow conditional(struct jinja *j, struct jj_frame *f, const struct jj_node *n)
{
    for (size_t i = 0; i < n->list.n; i++)
        if (jj_truth(evaluate(j, f, n->list.v[i])))
            return block(j, f, &n->body.v[i]->body);
    return block(j, f, &n->other);
}

static void check_space_refs(struct jinja *j, struct jj_frame *f, const struct jj_node *n)
{
    if (n->kind == N_SPACE_REF && variable(f, n->place)->kind != JJ_SPACE)
        jj_fail(j, "'%.*s' is no namespace", JJ_SHOWN(n->v.s));
    for (size_t i = 0; n->kind == N_TUPLE && i < n->list.n; i++)
        check_space_refs(j, f, n->list.v[i]);
}

static enum flow captured_statement(struct jinja *j, struct jj_frame *f, const struct jj_node *n)
{
    V text;
    struct jj_frame *inner = entered(j, f, n->scope);
    if (n->kind == N_WITH) {
        for (size_t i = 0; i < n->list.n; i++)
            assign(j, inner, n->list.v[i], evaluate(j, f, n->defaults.v[i]));
        return block(j, inner, &n->body);
    }
    const enum flow flow = capture(j, inner, &n->body, &text);
    if (flow != GO)
        return flow;
    if (n->b)
        text = filtered(j, inner, n->b, &text);
    if (n->kind == N_SET_BLOCK)
        assign(j, f, n->a, text);
    else if (text.kind != JJ_STR)
        jj_fail(j, "a filter block makes a %s, not a text", jj_type(text));
    else
        jj_put_str(j, j->out, text);
    return GO;
}

static enum flow statement(struct jinja *j, struct jj_frame *f, const struct jj_node *n)
{
    jj_step(j, 1);
    j->line = n->line;
    switch (n->kind) {
    case N_OUTPUT: put_all(j, f, &n->list, j->out); return GO;
    case N_IF: return conditional(j, f, n);
    case N_FOR: return loop(j, f, n);
    case N_SET:
        check_space_refs(j, f, n->a);
        assign(j, f, n->a, evaluate(j, f, n->b));
        return GO;
    case N_MACRO:
        *variable(f, n->place) = JJ_BOX(j, JJ_CALL, struct jj_call, .macro = n, .closure = f);
        return GO;
    case N_BREAK: return BREAK;
    case N_CONTINUE: return CONTINUE;
    default: return captured_statement(j, f, n);
    }
}

static enum flow block(struct jinja *j, struct jj_frame *f, const struct jj_nodes *l)
{
    enum flow flow = GO;
    if (++j->evals > JJ_EVALS)
        jj_fail(j, "blocks are nested more than %d times", JJ_EVALS);
    for (size_t i = 0; i < l->n && flow == GO; i++)
        flow = statement(j, f, l->v[i]);
    j->evals--;
    return flow;
}

/* ---- the interface ---- */

static void begin(struct jinja *j, struct err *e)
{
    j->e = e;
    j->work = j->look = j->depth = j->calls = j->evals = 0;
    j->deadline = clock_seconds() + 1.0;
}

int jinja_open(struct jinja **t, const char *name, const char *text, size_t n, struct err *e)
{
    const size_t valid = utf8_valid_prefix(text, n);
    *t = NULL;
    if (valid < n)
        return err_set(e, ERR_INPUT, "%s: byte 0x%02x at offset %zu is not UTF-8", name,
                       (unsigned char)text[valid], valid);
    if (n > JJ_OUTPUT)
        return err_set(e, ERR_INPUT, "%s: a template has at most %d MiB", name, JJ_OUTPUT >> 20);
    struct jinja *j = calloc(1, sizeof *j);
    if (j)
        j->arena = malloc(JJ_ARENA);
    if (!j || !j->arena) {
        free(j);
        return err_set(e, ERR_FAILED, "%s: no memory for a template", name);
    }
    j->name = name;
    begin(j, e);
    if (setjmp(j->failed)) {
        jinja_close(j);
        return -1;
    }
    jj_lex(j, text, n);
    jj_parse(j);
    jj_resolve(j);
    *t = j;
    return 0;
}

void jinja_close(struct jinja *j)
{
    if (!j)
        return;
    jj_unpoison(j->arena, JJ_ARENA);
    free(j->arena);
    free(j);
}

static void render(struct jinja *j, const struct json *variables)
{
    j->globals = jj_from_json(j, variables).dict;
    block(j, entered(j, NULL, j->root), &j->body);
}

int jinja_render(const struct jinja *t, const struct json *variables, const struct jinja_run *run,
                 char **out, size_t *n_out, struct err *e)
{
    struct jinja j = *t;                 /* with memory of its own, because threads share the template */
    struct jj_text text = { .s = malloc(JJ_OUTPUT), .cap = JJ_OUTPUT };
    int rc = 0;
    *out = NULL;
    j.arena = malloc(JJ_ARENA);
    j.line = 1;
    j.now = run->now;
    j.out = j.main_out = &text;
    begin(&j, e);
    if (!text.s || !j.arena)
        rc = err_set(e, ERR_FAILED, "%s: no memory for a prompt", t->name);
    else if (setjmp(j.failed))
        rc = -1;
    else
        render(&j, variables);
    jj_unpoison(j.arena, JJ_ARENA);
    free(j.arena);
    if (rc == 0 && !(*out = malloc(text.n + 1)))
        rc = err_set(e, ERR_FAILED, "%s: no memory for a prompt", t->name);
    if (rc == 0) {
        memcpy(*out, text.s, text.n);
        (*out)[text.n] = 0;
        *n_out = text.n;
    }
    free(text.s);
    return rc;
}

/* The word's value in `words`, true: a variable; MISSING: the template has no such name or text. */
static V word_of(const struct jinja *t, const char *word)
{
    struct jinja j = *t;
    const struct jj_str s = { .s = word, .n = strlen(word) };
    j.look = UINT64_MAX;                 /* no limit: nothing could take its error */
    return jj_get(&j, t->words, (V){ .kind = JJ_STR, .s = &s });
}

bool jinja_names(const struct jinja *j, const char *variable_name) { return word_of(j, variable_name).b; }
bool jinja_mentions(const struct jinja *j, const char *word) { return word_of(j, word).kind != JJ_MISSING; }
bool jinja_loops_over_content(const struct jinja *j) { return j->loops; }

void jinja_texts(const struct jinja *j, void (*take)(void *ctx, const char *text, size_t n), void *ctx)
{
    for (size_t i = 0; i < j->n_tokens; i++)
        if (j->tokens[i].kind == T_DATA || j->tokens[i].kind == T_STRING)
            take(ctx, j->tokens[i].v.s->s, j->tokens[i].v.s->n);
}
