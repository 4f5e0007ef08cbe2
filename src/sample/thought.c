/* Decides where the end mark of a thought is given. Start at thought_token. */
#include "src/sample/thought.h"

/* The tokens of the mark stand at position i of the history, before its end. */
static bool stands(const struct history *h, size_t i, const struct mark *m)
{
    bool equal = i + m->n <= h->n + h->n_path;
    for (size_t k = 0; k < m->n && equal; k++)
        equal = history_token(h, i + k) == m->ids[k];
    return equal;
}

/* Whether the prompt ends within a thought. */
static bool open_in_prompt(const struct sampling *p, const struct history *h)
{
    for (size_t i = h->n_prompt; i-- > 0;) {
        if (i + p->thought_end.n <= h->n_prompt && stands(h, i, &p->thought_end))
            return false;
        if (i + p->thought_start.n <= h->n_prompt && stands(h, i, &p->thought_start))
            return true;
    }
    return false;
}

int32_t thought_token(const struct sampling *p, const struct history *h)
{
    const size_t n = h->n + h->n_path, budget = (size_t)p->thought_budget, end = p->thought_end.n,
                 most = THOUGHT_REACH + p->thought_start.n;
    const size_t made = n - h->n_prompt;
    if (!end || p->thought_budget < 0 || made < budget || made >= budget + end + most)
        return -1;
    size_t begin = h->n_prompt;
    if (p->thought_start.n && !open_in_prompt(p, h)) {
        while (begin < h->n_prompt + THOUGHT_REACH && !stands(h, begin, &p->thought_start))
            begin++;
        if (begin == h->n_prompt + THOUGHT_REACH)
            return -1;
        begin += p->thought_start.n;
    }
    const size_t due = begin + budget;               /* the position of the end mark's first token */
    if (n < due || n >= due + end)
        return -1;
    for (size_t i = begin; i + end <= n; i++)
        if (stands(h, i, &p->thought_end))
            return -1;
    return p->thought_end.ids[n - due];
}
