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
    *s = (struct jj_scope){ .parent = parent };
    return s;
}

static struct jj_symbol *own(struct jinja *j, struct jj_scope *s, V name)
{
    jj_work(j, 4 * s->n);
    for (size_t i = 0; i < s->n; i++)
        if (jj_same(s->v[i].name.s, name.s))
            return &s->v[i];
    return NULL;
}

/* The name in the scope or in one around it. */
static bool find(struct jinja *j, struct jj_scope *s, V name, struct jj_place *at)
{
    for (at->hops = 0; s; s = s->parent, at->hops++) {
        const struct jj_symbol *y = own(j, s, name);
        if (y) {
            at->slot = (unsigned)(y - s->v);
            return true;
        }
    }
    return false;
}

static struct jj_symbol *add(struct jinja *j, struct jj_scope *s, V name,
                             enum jj_load load)
{
    s->v = jj_grow(j, s->v, s->n, &s->cap, sizeof *s->v);
    s->v[s->n] = (struct jj_symbol){ .name = name, .load = load };
    return &s->v[s->n++];
}

/* The first value of a name that the scope sets: that of the scopes around it, else `otherwise`. */
static void load_outer(struct jinja *j, struct jj_scope *s, struct jj_symbol *y, enum jj_load otherwise)
{
    y->load = find(j, s->parent, y->name, &y->outer) ? LOAD_OUTER : otherwise;
}

/* A name that the scope sets, or that gets its value before the block begins (`param`); returns its slot. */
static unsigned store(struct jinja *j, struct jj_scope *s, V name, bool param)
{
    struct jj_symbol *y = own(j, s, name);
    if (!y) {
        y = add(j, s, name, LOAD_PARAM);
        if (!param)
            load_outer(j, s, y, LOAD_NOTHING);
    }
    if (!y->stored)
        y->stored = ++s->stored;
    return (unsigned)(y - s->v);
}

/* ---- the names of one scope, in the order of the text ---- */

static void collect(struct jinja *j, struct jj_scope *s, struct jj_node *n);

static void collect_all(struct jinja *j, struct jj_scope *s, const struct jj_nodes *l)
{
    for (size_t i = 0; i < l->n; i++)
        collect(j, s, l->v[i]);
}

static void collect_target(struct jinja *j, struct jj_scope *s, struct jj_node *n, bool param)
{
    if (n->kind == N_TUPLE) {
        for (size_t i = 0; i < n->list.n; i++)
            collect_target(j, s, n->list.v[i], param);
        return;
    }
    if (n->kind != N_SPACE_REF)
        store(j, s, n->v, param);
    collect(j, s, n);
}

/* A name that some branch sets has its old value where the branch is not taken. */
static void collect_if(struct jinja *j, struct jj_scope *s, const struct jj_node *n)
{
    const size_t before = s->stored;
    for (size_t i = 0; i < n->list.n; i++) {
        collect(j, s, n->list.v[i]);
        collect_all(j, s, &n->body.v[i]->body);
    }
    collect_all(j, s, &n->other);
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].stored > before)
            load_outer(j, s, &s->v[i], LOAD_RESOLVE);
}

static void collect(struct jinja *j, struct jj_scope *s, struct jj_node *n)
{
    if (!n)
        return;
    jj_step(j, 1);
    switch (n->kind) {
    case N_NAME: case N_SPACE_REF:
        jj_push(j, &s->uses, n);
        if (!find(j, s, n->v, &n->place))
            add(j, s, n->v, LOAD_RESOLVE);
        return;
    case N_IF: collect_if(j, s, n); return;
    case N_MACRO:
        store(j, s, n->v, false);
        jj_push(j, &s->uses, n);
        break;
    case N_SET: collect(j, s, n->b); collect_target(j, s, n->a, false); return;
    case N_SET_BLOCK: collect_target(j, s, n->a, false); break;
    case N_FOR: case N_FILTER_BLOCK: collect(j, s, n->b); break;
    case N_WITH: collect_all(j, s, &n->defaults); break;
    default:
        collect(j, s, n->a);
        collect(j, s, n->b);
        collect(j, s, n->c);
        collect_all(j, s, &n->list);
        return;
    }
    jj_push(j, &s->blocks, n);
}

/* ---- the scopes of the blocks in a scope ---- */

static void open_block(struct jinja *j, struct jj_scope *outer, struct jj_node *n);

/* The scope has all its names: finds the place of each use, and opens the blocks in it. */
static void finish(struct jinja *j, struct jj_scope *s)
{
    for (size_t i = 0; i < s->uses.n; i++)
        find(j, s, s->uses.v[i]->v, &s->uses.v[i]->place);
    for (size_t i = 0; i < s->blocks.n; i++)
        open_block(j, s, s->blocks.v[i]);
}

/* The filter of a set block may only use the names that the block has, as in jinja2. */
static void finish_set_filter(struct jinja *j, struct jj_scope *s, struct jj_node *filter)
{
    const size_t names = s->n;
    s->uses.n = s->blocks.n = 0;                 /* those of the block are done */
    collect(j, s, filter);
    if (s->n > names) {
        j->line = filter->line;
        jj_fail(j, "the filter of a set block names '%.*s', which its block does not",
                JJ_SHOWN(s->v[names].name.s));
    }
    finish(j, s);
}

static void open_test_and_else(struct jinja *j, struct jj_scope *outer, struct jj_node *n)
{
    n->test_scope = new_scope(j, outer);
    collect_target(j, n->test_scope, n->a, true);        /* the slots that the targets have in the body */
    collect(j, n->test_scope, n->c);
    finish(j, n->test_scope);
    n->else_scope = new_scope(j, outer);
    collect_all(j, n->else_scope, &n->other);
    finish(j, n->else_scope);
}

/* The slot + 1 of the arguments that no parameter takes; 0: the body does not name them, or a parameter has
 * their name. */
static unsigned rest_slot(struct jinja *j, struct jj_node *macro, int bit, const char *name)
{
    const V y = jj_cstr(j, name);
    return !(macro->op & bit) || own(j, macro->scope, y) ? 0 : store(j, macro->scope, y, true) + 1;
}

static void open_block(struct jinja *j, struct jj_scope *outer, struct jj_node *n)
{
    struct jj_scope *s = n->scope = new_scope(j, outer);
    if (n->kind == N_FOR) {
        collect_target(j, s, n->a, true);
        n->place.slot = store(j, s, jj_cstr(j, "loop"), true);
    }
    for (size_t i = 0; i < n->list.n; i++)
        collect_target(j, s, n->list.v[i], true);
    if (n->kind == N_MACRO) {
        n->kwargs_slot = rest_slot(j, n, NAMES_KWARGS, "kwargs");
        n->varargs_slot = rest_slot(j, n, NAMES_VARARGS, "varargs");
        collect_all(j, s, &n->defaults);
    }
    collect_all(j, s, &n->body);
    if (n->kind == N_FILTER_BLOCK)
        collect(j, s, n->b);
    finish(j, s);
    if (n->kind == N_SET_BLOCK)
        finish_set_filter(j, s, n->b);
    if (n->kind == N_FOR)
        open_test_and_else(j, outer, n);
}

void jj_resolve(struct jinja *j)
{
    j->root = new_scope(j, NULL);
    collect_all(j, j->root, &j->body);
    finish(j, j->root);
}
