/* Where each name of a template lives, by the rules of jinja2's compiler.
 *
 * These blocks have names of their own: the template, the body, test and else part of a loop, a macro, a
 * block of set, filter, with and generation. When such a block begins, each of its names gets a first value:
 * that of the block around it, that of the render's variables, or none. So a name that a loop sets is gone
 * after the loop, and a name that is only set later in the block around is undefined in an inner block, even
 * if the caller gave a variable of that name. The branches of an if share the names of the block around them.
 */
#include "src/text/jinja/jinja_impl.h"

static struct jj_scope *new_scope(struct jinja *j, struct jj_scope *parent)
{
    struct jj_scope *s = jj_alloc(j, sizeof *s);
    *s = (struct jj_scope){ .parent = parent, .top = !parent };
    return s;
}

static struct jj_symbol *own(struct jinja *j, struct jj_scope *s, const struct jj_str *name)
{
    jj_work(j, 4 * s->n);
    for (size_t i = 0; i < s->n; i++)
        if (jj_same(s->v[i].name, name))
            return &s->v[i];
    return NULL;
}

/* The name in the scope or in one around it. */
static bool find(struct jinja *j, struct jj_scope *s, const struct jj_str *name, unsigned *hops,
                 unsigned *slot)
{
    for (*hops = 0; s; s = s->parent, ++*hops) {
        const struct jj_symbol *y = own(j, s, name);
        if (y) {
            *slot = (unsigned)(y - s->v);
            return true;
        }
    }
    return false;
}

static struct jj_symbol *define(struct jinja *j, struct jj_scope *s, const struct jj_str *name,
                                enum jj_load load)
{
    struct jj_symbol *y = own(j, s, name);
    if (!y) {
        s->v = jj_grow(j, s->v, s->n, &s->cap, sizeof *s->v);
        y = &s->v[s->n++];
        *y = (struct jj_symbol){ .name = name };
    }
    y->load = load;
    return y;
}

static void load_name(struct jinja *j, struct jj_scope *s, const struct jj_str *name)
{
    unsigned hops, slot;
    if (!find(j, s, name, &hops, &slot))
        define(j, s, name, LOAD_RESOLVE);
}

/* The first value of a name that the scope sets: that of the scopes around it, else `otherwise`. */
static void load_outer(struct jinja *j, struct jj_scope *s, struct jj_symbol *y, enum jj_load otherwise)
{
    unsigned hops, slot;
    y->load = otherwise;
    if (s->parent && find(j, s->parent, y->name, &hops, &slot)) {
        y->load = LOAD_OUTER;
        y->hops = hops;
        y->slot = slot;
    }
}

static void store_name(struct jinja *j, struct jj_scope *s, const struct jj_str *name)
{
    struct jj_symbol *y = own(j, s, name);
    if (!y) {
        y = define(j, s, name, LOAD_NOTHING);
        load_outer(j, s, y, LOAD_NOTHING);
    }
    y->stored = true;
}

static void declare(struct jinja *j, struct jj_scope *s, const struct jj_str *name)
{
    define(j, s, name, LOAD_PARAM)->stored = true;
}

/* ---- first walk: the names of one scope ---- */

static void collect(struct jinja *j, struct jj_scope *s, const struct jj_node *n);

static void collect_all(struct jinja *j, struct jj_scope *s, const struct jj_nodes *l)
{
    for (size_t i = 0; i < l->n; i++)
        collect(j, s, l->v[i]);
}

static void collect_target(struct jinja *j, struct jj_scope *s, const struct jj_node *n, bool param)
{
    if (n->kind == N_TUPLE)
        for (size_t i = 0; i < n->list.n; i++)
            collect_target(j, s, n->list.v[i], param);
    else if (n->kind == N_SPACE_REF)
        load_name(j, s, n->v.s);
    else if (param)
        declare(j, s, n->v.s);
    else
        store_name(j, s, n->v.s);
}

/* A name that some branch sets has its old value where the branch is not taken. */
static void collect_if(struct jinja *j, struct jj_scope *s, const struct jj_node *n)
{
    const size_t before = s->n;
    bool *stored = jj_alloc(j, before + 1);
    for (size_t i = 0; i < before; i++)
        stored[i] = s->v[i].stored;
    for (size_t i = 0; i < n->list.n; i++) {
        collect(j, s, n->list.v[i]);
        collect_all(j, s, &n->body.v[i]->body);
    }
    collect_all(j, s, &n->other);
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].stored && (i >= before || !stored[i]))
            load_outer(j, s, &s->v[i], LOAD_RESOLVE);
}

static void collect(struct jinja *j, struct jj_scope *s, const struct jj_node *n)
{
    if (!n)
        return;
    jj_step(j, 1);
    switch (n->kind) {
    case N_NAME: case N_SPACE_REF: load_name(j, s, n->v.s); return;
    case N_IF: collect_if(j, s, n); return;
    case N_MACRO: store_name(j, s, n->v.s); return;
    case N_SET: collect(j, s, n->b); collect_target(j, s, n->a, false); return;
    case N_SET_BLOCK: collect_target(j, s, n->a, false); return;
    case N_FOR: case N_FILTER_BLOCK: collect(j, s, n->b); return;
    case N_WITH: collect_all(j, s, &n->list); return;
    case N_GENERATION: return;
    default: break;
    }
    collect(j, s, n->a);
    collect(j, s, n->b);
    collect(j, s, n->c);
    collect_all(j, s, &n->list);
    for (size_t i = 0; i < n->n_args; i++)
        collect(j, s, n->args[i].value);
}

/* ---- second walk: the place of every name ---- */

static void place(struct jinja *j, struct jj_scope *s, struct jj_node *n);

static void place_all(struct jinja *j, struct jj_scope *s, const struct jj_nodes *l)
{
    for (size_t i = 0; i < l->n; i++)
        place(j, s, l->v[i]);
}

static bool mentions(struct jinja *j, const struct jj_node *n, const char *name);
static bool any_mentions(struct jinja *j, const struct jj_nodes *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (mentions(j, l->v[i], name))
            return true;
    return false;
}
static bool mentions(struct jinja *j, const struct jj_node *n, const char *name)
{
    if (!n)
        return false;
    jj_step(j, 1);
    if (n->kind == N_NAME && jj_is(n->v.s, name))
        return true;
    for (size_t i = 0; i < n->n_args; i++)
        if (mentions(j, n->args[i].value, name))
            return true;
    return mentions(j, n->a, name) || mentions(j, n->b, name) || mentions(j, n->c, name) ||
           any_mentions(j, &n->list, name) || any_mentions(j, &n->body, name) ||
           any_mentions(j, &n->other, name) || any_mentions(j, &n->defaults, name);
}

static unsigned declare_if_used(struct jinja *j, struct jj_scope *s, const struct jj_node *macro,
                                const char *name)
{
    if (!any_mentions(j, &macro->body, name))
        return 0;
    const struct jj_str *y = jj_cstr(j, name).s;
    if (own(j, s, y) && own(j, s, y)->load == LOAD_PARAM)
        return 0;
    declare(j, s, y);
    return (unsigned)(own(j, s, y) - s->v) + 1;
}

static void place_macro(struct jinja *j, struct jj_scope *s, struct jj_node *n)
{
    struct jj_scope *own_scope = n->scope = new_scope(j, s);
    for (size_t i = 0; i < n->list.n; i++)
        declare(j, own_scope, n->list.v[i]->v.s);
    n->kwargs_slot = declare_if_used(j, own_scope, n, "kwargs");
    n->varargs_slot = declare_if_used(j, own_scope, n, "varargs");
    collect_all(j, own_scope, &n->defaults);
    collect_all(j, own_scope, &n->body);
    place_all(j, own_scope, &n->list);
    place_all(j, own_scope, &n->defaults);
    place_all(j, own_scope, &n->body);
}

static void place_for(struct jinja *j, struct jj_scope *s, struct jj_node *n)
{
    struct jj_scope *body = n->scope = new_scope(j, s);
    const struct jj_str *loop = jj_cstr(j, "loop").s;
    place(j, s, n->b);
    collect_target(j, body, n->a, true);         /* the targets have the same slots in body and test */
    declare(j, body, loop);
    n->self_slot = (unsigned)(own(j, body, loop) - body->v);
    collect_all(j, body, &n->body);
    place(j, body, n->a);
    place_all(j, body, &n->body);
    n->test_scope = new_scope(j, s);
    collect_target(j, n->test_scope, n->a, true);
    collect(j, n->test_scope, n->c);
    place(j, n->test_scope, n->c);
    n->else_scope = new_scope(j, s);
    collect_all(j, n->else_scope, &n->other);
    place_all(j, n->else_scope, &n->other);
}

/* set, filter, with and generation blocks */
static void place_block(struct jinja *j, struct jj_scope *s, struct jj_node *n)
{
    struct jj_scope *inner = n->scope = new_scope(j, s);
    for (size_t i = 0; i < n->defaults.n; i++)
        collect_target(j, inner, n->defaults.v[i], true);
    collect_all(j, inner, &n->body);
    if (n->kind == N_FILTER_BLOCK)
        collect(j, inner, n->b);
    place(j, s, n->a);
    place_all(j, s, &n->list);
    place_all(j, inner, &n->defaults);
    place_all(j, inner, &n->body);
    place(j, inner, n->b);
}

static void place(struct jinja *j, struct jj_scope *s, struct jj_node *n)
{
    if (!n)
        return;
    jj_step(j, 1);
    j->line = n->line;
    if ((n->kind == N_NAME || n->kind == N_SPACE_REF || n->kind == N_MACRO) &&
        !find(j, s, n->v.s, &n->hops, &n->slot))
        jj_fail(j, "the filter of a set block names '%.*s', which its block does not",
                JJ_SHOWN(n->v.s));
    switch (n->kind) {
    case N_FOR: place_for(j, s, n); return;
    case N_MACRO: place_macro(j, s, n); return;
    case N_SET_BLOCK: case N_FILTER_BLOCK: case N_GENERATION: case N_WITH: place_block(j, s, n); return;
    default: break;
    }
    place(j, s, n->a);
    place(j, s, n->b);
    place(j, s, n->c);
    place_all(j, s, &n->list);
    place_all(j, s, &n->body);
    place_all(j, s, &n->other);
    for (size_t i = 0; i < n->n_args; i++)
        place(j, s, n->args[i].value);
}

void jj_resolve(struct jinja *j)
{
    j->root = new_scope(j, NULL);
    collect_all(j, j->root, &j->body);
    place_all(j, j->root, &j->body);
}
