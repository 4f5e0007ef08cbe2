/* For tests: the number of places that a query about this text visits. Only suffix.c knows its chains, so it
 * is a part of the tests that include this file. */
#pragma once
#include "ngram/suffix.c"

static size_t suffix_places(const struct suffix *s, const int32_t *tokens, size_t n, const int32_t *path,
                            size_t n_path)
{
    const struct text x = { tokens, n, path, n + n_path };
    size_t places = 0;
    FOR_PLACES(p, s, x)
        places++;
    return places;
}
