/* Nodes of a template, by recursive descent. The functions have the names and the order of jinja2's parser,
 * because precedence there has corners: `**` binds to the left, a filter applies to what unary operators
 * leave, a test takes one argument without brackets. */
#include "src/text/jinja/jinja_impl.h"

static struct jj_token *now(struct jinja *j) { return &j->tokens[j->at]; }
static bool is_op(struct jinja *j, int op) { return now(j)->kind == T_OP && now(j)->op == op; }
static bool name_at(struct jinja *j, size_t at, const char *word)
{
    return at < j->n_tokens && j->tokens[at].kind == T_NAME && jj_is(j->tokens[at].v.s, word);
}
static bool is_name(struct jinja *j, const char *word) { return name_at(j, j->at, word); }
static void advance(struct jinja *j)
{
    if (j->at + 1 < j->n_tokens)
        j->at++;
    j->line = now(j)->line;
}
static bool skip_op(struct jinja *j, int op) { return is_op(j, op) && (advance(j), true); }
static bool skip_name(struct jinja *j, const char *word) { return is_name(j, word) && (advance(j), true); }

_Noreturn static void unexpected(struct jinja *j, const char *wanted)
{
    const struct jj_token *t = now(j);
    static const char *const kinds[] = { "the end", "text",   "{{",       "}}",       "{%", "%}",
                                         "a name",  "a text", "a number", "a number", "" };
    if (t->kind == T_NAME)
        jj_fail(j, "expected %s, found '%.*s'", wanted, JJ_SHOWN(t->v.s));
    if (t->kind == T_OP)
        jj_fail(j, "expected %s, found '%c%c'", wanted, t->op & 255, t->op > 255 ? t->op >> 8 : ' ');
    jj_fail(j, "expected %s, found %s", wanted, kinds[t->kind]);
}

static void expect_op(struct jinja *j, int op)
{
    char word[8] = { '\'', (char)op, '\'', 0 };
    if (!skip_op(j, op))
        unexpected(j, word);
}
static void expect(struct jinja *j, enum jj_token_kind kind, const char *wanted)
{
    if (now(j)->kind != kind)
        unexpected(j, wanted);
    advance(j);
}
static V expect_name(struct jinja *j)
{
    const V name = now(j)->v;
    expect(j, T_NAME, "a name");
    if (name.s->s[0] >= '0' && name.s->s[0] <= '9')
        jj_fail(j, "'%.*s' is no name", JJ_SHOWN(name.s));
    return name;
}

/* Whether another element stands before `end`, or for 0 before the end of the tag, after n of them; skips the
 * comma between them. */
static bool another(struct jinja *j, size_t n, int end)
{
    if (end ? is_op(j, end) : now(j)->kind == T_BLOCK_END)
        return false;
    if (n)
        expect_op(j, ',');
    return true;
}
/* The same, where a comma may stand before `end`. */
static bool another_or_comma(struct jinja *j, size_t n, int end)
{
    return another(j, n, end) && !is_op(j, end);
}

static struct jj_node *node(struct jinja *j, enum jj_node_kind kind, struct jj_node *a, struct jj_node *b)
{
    struct jj_node *n = jj_alloc(j, sizeof *n);
    const unsigned height = 1 + MAX(a ? a->height : 0, b ? b->height : 0);
    if (height > JJ_HEIGHT)              /* x.a.a.a, x|f|f|f, 1+1+1: loops parse it, but calls evaluate it */
        jj_fail(j, "an expression of more than %d operations, one inside the other", JJ_HEIGHT);
    *n = (struct jj_node){ .kind = kind, .line = j->line, .height = height, .a = a, .b = b };
    return n;
}
/* A constant, or a node with a name. */
static struct jj_node *valued(struct jinja *j, enum jj_node_kind kind, struct jj_node *a, V v)
{
    struct jj_node *n = node(j, kind, a, NULL);
    n->v = v;
    return n;
}
static struct jj_node *constant(struct jinja *j, V v) { return valued(j, N_CONST, NULL, v); }
void jj_push(struct jinja *j, struct jj_nodes *l, struct jj_node *n)
{
    l->v = jj_grow(j, l->v, l->n, &l->cap, sizeof *l->v);
    l->v[l->n++] = n;
}

/* ---- what a template does with content ---- */

/* Whether the expression is the member, or a variable among `contents` that was set from one. */
static bool has_member(struct jinja *j, const struct jj_node *n)
{
    const struct jj_list *contents = j->contents;
    if (!n)
        return false;
    jj_work(j, 8 + 4 * contents->n);
    const V *key = n->kind == N_NAME || n->kind == N_ATTR ? &n->v
                   : n->kind == N_ITEM && n->b->kind == N_CONST ? &n->b->v : NULL;
    for (size_t i = 0; key && key->kind == JJ_STR && i < contents->n; i++)
        if ((i == 0 || n->kind == N_NAME) && jj_same(key->s, contents->v[i].s))
            return true;
    if (n->kind == N_COND || n->kind == N_OR || n->kind == N_AND)
        return has_member(j, n->b) || has_member(j, n->kind == N_COND ? n->c : n->a);
    return (n->kind == N_FILTER || (n->kind == N_ITEM && n->b->kind == N_SLICE)) && has_member(j, n->a);
}

/* A loop over the expression, or an element of it. */
static void note_loop(struct jinja *j, const struct jj_node *n)
{
    j->loops = j->loops || has_member(j, n);
}

/* ---- expressions ---- */

static struct jj_node *parse_or(struct jinja *j);
static struct jj_node *parse_unary(struct jinja *j, bool with_filter);

static struct jj_node *parse_expression(struct jinja *j)
{
    jj_deeper(j);
    struct jj_node *n = parse_or(j);
    while (skip_name(j, "if")) {
        const bool soft = j->soft;
        struct jj_node *cond = node(j, N_COND, parse_or(j), n);
        if (skip_name(j, "else")) {
            j->soft = true;
            cond->c = parse_expression(j);
            j->soft = soft;
        }
        n = cond;
    }
    j->depth--;
    return n;
}

enum { PLAIN, NO_COND, TARGET, TARGET_SPACE };

static struct jj_node *parse_primary(struct jinja *j, int how);

/* Expressions with commas between them; a tuple if there is a comma. `end` may end them, too. */
static struct jj_node *parse_tuple(struct jinja *j, int how, const char *end)
{
    struct jj_node *tuple = node(j, N_TUPLE, NULL, NULL);
    bool commas = false;
    for (;;) {
        if (tuple->list.n)
            expect_op(j, ',');
        if (now(j)->kind == T_VAR_END || now(j)->kind == T_BLOCK_END || is_op(j, ')') ||
            (end && is_name(j, end)))
            break;
        jj_push(j, &tuple->list, how == PLAIN ? parse_expression(j) : how == NO_COND ? parse_or(j)
                                                                 : parse_primary(j, how));
        if (!is_op(j, ','))
            break;
        commas = true;
    }
    if (!tuple->list.n)
        unexpected(j, "an expression");
    return commas ? tuple : tuple->list.v[0];
}

static struct jj_node *parse_name(struct jinja *j, int how)
{
    static const char *const words[] = { "true", "True", "false", "False", "none", "None" };
    const V name = expect_name(j);
    for (size_t i = 0; i < 6; i++)
        if (jj_is(name.s, words[i]))
            return constant(j, i < 4 ? jj_bool(i < 2) : jj_none());
    j->names |= jj_is(name.s, "kwargs") ? NAMES_KWARGS : jj_is(name.s, "varargs") ? NAMES_VARARGS : 0;
    struct jj_node *n = valued(j, N_NAME, NULL, name);
    if (how == TARGET_SPACE && skip_op(j, '.')) {
        n->kind = N_SPACE_REF;
        n->name = expect_name(j);
    }
    return n;
}

static struct jj_node *parse_strings(struct jinja *j)
{
    struct jj_token *t = now(j);
    struct jj_text all = {0};
    advance(j);
    if (now(j)->kind != T_STRING)
        return constant(j, t->v);
    jj_put_str(j, &all, t->v);
    for (; now(j)->kind == T_STRING; advance(j))
        jj_put_str(j, &all, now(j)->v);
    return constant(j, jj_text(j, &all));
}

static struct jj_node *parse_primary(struct jinja *j, int how)
{
    struct jj_token *t = now(j);
    struct jj_node *n;
    if (t->kind == T_NAME)
        return parse_name(j, how);
    if (t->kind == T_STRING)
        return parse_strings(j);
    if (t->kind == T_INT || t->kind == T_FLOAT) {
        advance(j);
        return constant(j, t->v);
    }
    jj_deeper(j);
    if (skip_op(j, '(')) {
        n = is_op(j, ')') ? node(j, N_TUPLE, NULL, NULL) : parse_tuple(j, PLAIN, NULL);
        expect_op(j, ')');
    } else if (is_op(j, '[') || is_op(j, '{')) {
        const bool dict = is_op(j, '{');
        advance(j);
        n = node(j, dict ? N_DICT : N_LIST, NULL, NULL);
        while (another_or_comma(j, n->list.n, dict ? '}' : ']')) {
            jj_push(j, &n->list, parse_expression(j));
            if (dict) {
                expect_op(j, ':');
                jj_push(j, &n->list, parse_expression(j));
            }
        }
        expect_op(j, dict ? '}' : ']');
    } else {
        unexpected(j, "an expression");
    }
    j->depth--;
    return n;
}

static struct jj_node *parse_args(struct jinja *j, struct jj_node *call)
{
    int stage = 0;                       /* 0: values, 1: names, 2: after *, 3: after ** */
    expect_op(j, '(');
    while (another_or_comma(j, call->list.n, ')')) {
        V name = {0};
        const bool key = now(j)->kind == T_NAME && j->tokens[j->at + 1].kind == T_OP &&
                         j->tokens[j->at + 1].op == '=';
        const int stars = skip_op(j, '*') ? 1 : skip_op(j, JJ_OP2('*', '*')) ? 2 : 0;
        if (key) {
            name = expect_name(j);
            advance(j);
        }
        const int is = stars ? stars + 1 : key;
        if (stage == 3 || (stage == 2 && is == 2) || (stage > 0 && is == 0))
            jj_fail(j, "the arguments are in a wrong order");
        stage = MAX(stage, is);
        struct jj_node *value = parse_expression(j);
        value->name = name;
        value->stars = stars;
        jj_push(j, &call->list, value);
    }
    expect_op(j, ')');
    return call;
}

static bool slice_end(struct jinja *j) { return is_op(j, ']') || is_op(j, ','); }

static struct jj_node *parse_subscribed(struct jinja *j)
{
    struct jj_node *slice = node(j, N_SLICE, NULL, NULL);
    if (!is_op(j, ':')) {
        slice->a = parse_expression(j);
        if (!is_op(j, ':'))
            return slice->a;
    }
    expect_op(j, ':');
    if (!is_op(j, ':') && !slice_end(j))
        slice->b = parse_expression(j);
    if (skip_op(j, ':') && !slice_end(j))
        slice->c = parse_expression(j);
    return slice;
}

static struct jj_node *parse_subscript(struct jinja *j, struct jj_node *of)
{
    struct jj_node *key;
    if (skip_op(j, '.')) {
        const struct jj_token *t = now(j);
        if (t->kind != T_INT)
            return valued(j, N_ATTR, of, expect_name(j));
        advance(j);
        key = constant(j, t->v);
    } else {
        struct jj_node *tuple = node(j, N_TUPLE, NULL, NULL);
        expect_op(j, '[');
        while (another(j, tuple->list.n, ']'))
            jj_push(j, &tuple->list, parse_subscribed(j));
        expect_op(j, ']');
        key = tuple->list.n == 1 ? tuple->list.v[0] : tuple;
    }
    if (key->kind == N_CONST && key->v.kind == JJ_INT)
        note_loop(j, of);
    return node(j, N_ITEM, of, key);
}

static struct jj_node *parse_postfix(struct jinja *j, struct jj_node *n)
{
    for (;;)
        if (is_op(j, '.') || is_op(j, '['))
            n = parse_subscript(j, n);
        else if (is_op(j, '('))
            n = parse_args(j, node(j, N_CALL, n, NULL));
        else
            return n;
}

/* A filter or a test of n: its name and its arguments. A test may have one argument without brackets. */
static struct jj_node *parse_builtin(struct jinja *j, enum jj_node_kind kind, struct jj_node *n)
{
    const V name = expect_name(j);
    const enum jj_token_kind k = now(j)->kind;
    if (is_op(j, '.'))
        jj_fail(j, "no filter or test has a dot in its name");
    struct jj_node *b = valued(j, kind, n, name);
    if (is_op(j, '(')) {
        parse_args(j, b);
    } else if (kind == N_TEST && ((k >= T_NAME && k <= T_FLOAT) || is_op(j, '[') || is_op(j, '{')) &&
               !is_name(j, "else") && !is_name(j, "or") && !is_name(j, "and")) {
        if (is_name(j, "is"))
            jj_fail(j, "tests cannot be chained with 'is'");
        jj_push(j, &b->list, parse_postfix(j, parse_primary(j, PLAIN)));
    }
    b->builtin = jj_lookup(kind == N_FILTER ? jj_filters : jj_tests, b->v.s);
    if (!b->builtin && !j->soft)
        jj_fail(j, "no %s '%.*s'", kind == N_FILTER ? "filter" : "test", JJ_SHOWN(b->v.s));
    return b;
}

static struct jj_node *parse_filters(struct jinja *j, struct jj_node *n)
{
    while (skip_op(j, '|'))
        n = parse_builtin(j, N_FILTER, n);
    return n;
}

static struct jj_node *parse_unary(struct jinja *j, bool with_filter)
{
    struct jj_node *n;
    jj_deeper(j);
    if (skip_op(j, '-'))
        n = node(j, N_NEG, parse_unary(j, false), NULL);
    else if (skip_op(j, '+'))
        n = node(j, N_POS, parse_unary(j, false), NULL);
    else
        n = parse_primary(j, PLAIN);
    n = parse_postfix(j, n);
    while (with_filter)
        if (is_op(j, '|'))
            n = parse_filters(j, n);
        else if (skip_name(j, "is"))
            n = skip_name(j, "not") ? node(j, N_NOT, parse_builtin(j, N_TEST, n), NULL)
                                    : parse_builtin(j, N_TEST, n);
        else if (is_op(j, '('))
            n = parse_args(j, node(j, N_CALL, n, NULL));
        else
            break;
    j->depth--;
    return n;
}

/* Binary operators of one precedence, from the left; the weakest first. */
enum { SUM, CONCAT, PRODUCT, POWER, OPERAND };
static struct jj_node *parse_binary(struct jinja *j, int level)
{
    static const int ops[OPERAND][5] = { [SUM] = { '+', '-' }, [CONCAT] = { '~' },
                                         [PRODUCT] = { '*', '/', JJ_OP2('/', '/'), '%' },
                                         [POWER] = { JJ_OP2('*', '*') } };
    if (level == OPERAND)
        return parse_unary(j, true);
    struct jj_node *n = parse_binary(j, level + 1), *concat = NULL;
    for (const int *op = ops[level]; *op;)
        if (!skip_op(j, *op)) {
            op++;
        } else if (level == CONCAT) {
            if (!concat) {
                concat = node(j, N_CONCAT, NULL, NULL);
                jj_push(j, &concat->list, n);
            }
            n = concat;
            jj_push(j, &concat->list, parse_binary(j, level + 1));
        } else {
            n = node(j, N_BINARY, n, parse_binary(j, level + 1));
            n->op = *op;
            op = ops[level];
        }
    return n;
}

static int comparison(struct jinja *j)
{
    static const int ops[] = { JJ_OP2('=', '='), JJ_OP2('!', '='), '<', JJ_OP2('<', '='), '>',
                               JJ_OP2('>', '=') };
    for (size_t i = 0; i < 6; i++)
        if (skip_op(j, ops[i]))
            return ops[i];
    if (skip_name(j, "in"))
        return JJ_IN;
    if (!is_name(j, "not") || !name_at(j, j->at + 1, "in"))
        return 0;
    advance(j);
    advance(j);
    return JJ_NOT_IN;
}

/* The operator of each operand but the first stands in the `op` of a node around the operand. */
static struct jj_node *parse_compare(struct jinja *j)
{
    struct jj_node *first = parse_binary(j, SUM), *n = NULL;
    for (int op; (op = comparison(j)) != 0;) {
        if (!n)
            n = node(j, N_COMPARE, first, NULL);
        struct jj_node *operand = node(j, N_COMPARE, parse_binary(j, SUM), NULL);
        operand->op = op;
        jj_push(j, &n->list, operand);
    }
    return n ? n : first;
}

static struct jj_node *parse_not(struct jinja *j)
{
    if (!skip_name(j, "not"))
        return parse_compare(j);
    jj_deeper(j);
    struct jj_node *n = node(j, N_NOT, parse_not(j), NULL);
    j->depth--;
    return n;
}
static struct jj_node *parse_and_or(struct jinja *j, enum jj_node_kind kind)
{
    struct jj_node *n = kind == N_OR ? parse_and_or(j, N_AND) : parse_not(j);
    while (skip_name(j, kind == N_OR ? "or" : "and"))
        n = node(j, kind, n, kind == N_OR ? parse_and_or(j, N_AND) : parse_not(j));
    return n;
}
static struct jj_node *parse_or(struct jinja *j) { return parse_and_or(j, N_OR); }

/* ---- statements ---- */

static struct jj_nodes subparse(struct jinja *j, const char *const *ends);

/* The statements up to one of the names, which stays the current token. */
static struct jj_nodes parse_block(struct jinja *j, const char *const *ends, bool soft, bool in_loop)
{
    const bool outer_soft = j->soft, outer_loop = j->in_loop;
    skip_op(j, ':');
    expect(j, T_BLOCK_END, "%}");
    j->soft = soft;
    j->in_loop = in_loop;
    struct jj_nodes l = subparse(j, ends);
    if (now(j)->kind == T_EOF)
        jj_fail(j, "the template ends, and '%s' is missing", ends[0]);
    j->soft = outer_soft;
    j->in_loop = outer_loop;
    return l;
}

/* Names, attributes of namespaces, and tuples of them; in a loop not `loop`. */
static void check_target(struct jinja *j, const struct jj_node *n, bool in_for)
{
    if (n->kind != N_TUPLE && n->kind != N_NAME && n->kind != N_SPACE_REF)
        jj_fail(j, "the value cannot be assigned to");
    for (size_t i = 0; n->kind == N_TUPLE && i < n->list.n; i++)
        check_target(j, n->list.v[i], in_for);
    if (in_for && n->kind == N_NAME && jj_is(n->v.s, "loop"))
        jj_fail(j, "a loop cannot assign to 'loop'");
}

/* Each of these reads a statement after its name, up to the end of the tag, or of a block with branches. */
static void parse_set(struct jinja *j, struct jj_node *n)
{
    n->a = parse_tuple(j, TARGET_SPACE, NULL);
    check_target(j, n->a, false);
    if (!skip_op(j, '=')) {
        n->kind = N_SET_BLOCK;
        n->b = parse_filters(j, NULL);
        return;
    }
    n->b = parse_tuple(j, PLAIN, NULL);
    if (n->a->kind == N_NAME && has_member(j, n->b))
        jj_append(j, j->contents, n->a->v);
}

static void parse_for(struct jinja *j, struct jj_node *n)
{
    n->a = parse_tuple(j, TARGET, "in");
    check_target(j, n->a, true);
    if (!skip_name(j, "in"))
        unexpected(j, "'in'");
    n->b = parse_tuple(j, NO_COND, "recursive");
    note_loop(j, n->b);
    if (skip_name(j, "if"))
        n->c = parse_expression(j);
    if (is_name(j, "recursive"))
        jj_fail(j, "recursive loops are not supported");
    n->body = parse_block(j, (const char *const[]){ "endfor", "else", NULL }, false, true);
    if (skip_name(j, "else"))
        n->other = parse_block(j, (const char *const[]){ "endfor", NULL }, false, j->in_loop);
    advance(j);
}

/* list: the tests; body: for each test a node whose body is the branch; other: the branch of else. */
static void parse_if(struct jinja *j, struct jj_node *n)
{
    static const char *const ends[] = { "endif", "elif", "else", NULL };
    const bool soft = j->soft;
    do {
        jj_push(j, &n->list, parse_tuple(j, NO_COND, NULL));
        j->soft = true;
        struct jj_node *branch = node(j, N_OUTPUT, NULL, NULL);
        branch->body = parse_block(j, ends, true, j->in_loop);
        jj_push(j, &n->body, branch);
    } while (skip_name(j, "elif"));
    if (skip_name(j, "else")) {
        n->other = parse_block(j, ends, true, j->in_loop);
        if (!is_name(j, "endif"))
            unexpected(j, "'endif'");
    }
    advance(j);
    j->soft = soft;
}

static struct jj_node *parse_param(struct jinja *j)
{
    struct jj_node *n = parse_name(j, PLAIN);
    check_target(j, n, false);
    return n;
}

static void parse_macro(struct jinja *j, struct jj_node *n)
{
    n->v = parse_param(j)->v;
    expect_op(j, '(');
    while (another(j, n->list.n, ')')) {
        jj_push(j, &n->list, parse_param(j));
        if (skip_op(j, '='))
            jj_push(j, &n->defaults, parse_expression(j));
        else if (n->defaults.n)
            jj_fail(j, "an argument without a value stands after one with a value");
    }
    advance(j);
}

static void parse_with(struct jinja *j, struct jj_node *n)
{
    while (another(j, n->list.n, 0)) {
        jj_push(j, &n->list, parse_param(j));
        expect_op(j, '=');
        jj_push(j, &n->defaults, parse_expression(j));
    }
}

static void parse_filter_block(struct jinja *j, struct jj_node *n)
{
    n->b = parse_filters(j, parse_builtin(j, N_FILTER, NULL));
}

static void parse_print(struct jinja *j, struct jj_node *n)
{
    while (another(j, n->list.n, 0))
        jj_push(j, &n->list, parse_expression(j));
}

static struct jj_node *parse_statement(struct jinja *j)
{
    /* end: of a block with one end, which is no branch; breaks: a break may leave it. Without a kind: not
     * supported. */
    static const struct {
        const char *name; enum jj_node_kind kind; void (*parse)(struct jinja *j, struct jj_node *n);
        const char *end; bool breaks;
    } rows[] = {
        { "if", N_IF, parse_if }, { "for", N_FOR, parse_for }, { "set", N_SET, parse_set, "endset", true },
        { "macro", N_MACRO, parse_macro, "endmacro" }, { "with", N_WITH, parse_with, "endwith", true },
        { "filter", N_FILTER_BLOCK, parse_filter_block, "endfilter", true },
        { "generation", N_WITH, NULL, "endgeneration" }, { "print", N_OUTPUT, parse_print },
        { "break", N_BREAK }, { "continue", N_CONTINUE },
        { "include" }, { "import" }, { "from" }, { "extends" }, { "block" }, { "call" }, { "do" },
        { "autoescape" },
    };
    size_t i = 0;
    while (i < sizeof rows / sizeof *rows && !is_name(j, rows[i].name))
        i++;
    if (i == sizeof rows / sizeof *rows)
        unexpected(j, "a statement");
    struct jj_node *n = node(j, rows[i].kind, NULL, NULL);
    if (!n->kind)
        jj_fail(j, "the statement '%s' is not supported", rows[i].name);
    if (!j->in_loop && (n->kind == N_BREAK || n->kind == N_CONTINUE))
        jj_fail(j, "'%s' outside of a loop", rows[i].name);
    advance(j);
    if (rows[i].parse)
        rows[i].parse(j, n);
    if (rows[i].end && n->kind != N_SET) {
        const int names = j->names;
        j->names = 0;
        n->body = parse_block(j, (const char *const[]){ rows[i].end, NULL }, false,
                              j->in_loop && rows[i].breaks);
        advance(j);
        n->op = j->names;                /* of a macro: which of its arguments the body names */
        j->names |= names;
    }
    return n;
}

static struct jj_nodes subparse(struct jinja *j, const char *const *ends)
{
    struct jj_nodes l = {0};
    jj_deeper(j);
    while (now(j)->kind != T_EOF) {
        struct jj_token *t = now(j);
        struct jj_node *n;
        advance(j);
        if (t->kind == T_BLOCK_BEGIN) {
            for (size_t i = 0; ends && ends[i]; i++)
                if (is_name(j, ends[i])) {
                    j->depth--;
                    return l;
                }
            n = parse_statement(j);
            expect(j, T_BLOCK_END, "%}");
        } else {
            n = node(j, N_OUTPUT, NULL, NULL);
            jj_push(j, &n->list, t->kind == T_DATA ? constant(j, t->v) : parse_tuple(j, PLAIN, NULL));
            if (t->kind != T_DATA)
                expect(j, T_VAR_END, "}}");
        }
        jj_push(j, &l, n);
    }
    j->depth--;
    return l;
}

void jj_parse(struct jinja *j)
{
    j->at = 0;
    j->line = 1;
    j->contents = jj_list(j, JJ_LIST).list;
    jj_append(j, j->contents, jj_cstr(j, "content"));
    j->body = subparse(j, NULL);
}
