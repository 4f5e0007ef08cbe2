/* Unicode for tokenizers: classes of code points, UTF-8, and normalisation form C. The data are the sorted
 * tables of unicode_tables.h. Start at unicode_class and unicode_nfc. */
#include "src/base/unicode.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/unicode_tables.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Index of the last row of a sorted table whose first member is <= c. */
#define LAST_ROW(table, c) (rows_below(table, COUNT(table), sizeof *(table), (c) + 1) - 1)

unsigned unicode_class(uint32_t c)
{
    if (c < 0x80) {
        if ((c | 32) - 'a' < 26)
            return UNI_LETTER | UNI_WORD | (c & 32 ? UNI_LOWER : UNI_UPPER);
        if (c - '0' < 10)
            return UNI_NUMBER | UNI_WORD;
        return c == ' ' || c - 9 < 5 ? UNI_SPACE : c == '_' ? UNI_WORD : 0;
    }
    return class_runs[LAST_ROW(class_runs, c)].bits;
}

bool unicode_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

uint32_t unicode_fold(uint32_t c)
{
    const size_t at = rows_below(folds, COUNT(folds), sizeof *folds, c + 1);
    const bool folds_c = at && c <= folds[at - 1].last && (c - folds[at - 1].first) % folds[at - 1].step == 0;
    return folds_c ? c + (uint32_t)folds[at - 1].delta : c;
}

size_t unicode_rstrip(const char *s, size_t n)
{
    while (n > 0) {
        size_t p = n - 1;
        uint32_t c;
        while (p > 0 && ((unsigned char)s[p] & 0xc0) == 0x80)
            p--;
        utf8_get(s + p, &c);
        if (!unicode_is_space(c))
            break;
        n = p;
    }
    return n;
}

size_t unicode_lstrip(const char *s, size_t n)
{
    size_t p = 0;
    while (p < n) {
        uint32_t c;
        const size_t length = utf8_get(s + p, &c);
        if (!unicode_is_space(c))
            break;
        p += length;
    }
    return p;
}

size_t utf8_put(char *out, uint32_t c)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    return n;
}

/* ---- normalisation form C ---- */

/* Code points below FIRST_MARK have no combining class, and do not compose with a code point before them. */
enum { FIRST_MARK = 0x300 };
/* Hangul syllables are composed by arithmetic (Unicode standard, section 3.12). */
enum { S_BASE = 0xac00, L_BASE = 0x1100, V_BASE = 0x1161, T_BASE = 0x11a7, L_COUNT = 19, V_COUNT = 21,
       T_COUNT = 28, S_COUNT = L_COUNT * V_COUNT * T_COUNT };

struct point { uint32_t c; uint32_t ccc; };

static uint32_t combining_class(uint32_t c)
{
    if (c < FIRST_MARK)
        return 0;
    return ccc_runs[LAST_ROW(ccc_runs, c)].ccc;
}

/* Writes the full canonical decomposition of c; returns the number of code points, 1..4. */
static size_t decompose(uint32_t c, uint32_t to[4])
{
    if (c - S_BASE < S_COUNT) {
        uint32_t s = c - S_BASE, t = s % T_COUNT;
        to[0] = L_BASE + s / (V_COUNT * T_COUNT);
        to[1] = V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT;
        to[2] = T_BASE + t;
        return t ? 3 : 2;
    }
    size_t n = 0;
    const size_t at = rows_below(decompositions, COUNT(decompositions), sizeof *decompositions, c);
    if (at == COUNT(decompositions) || decompositions[at].from != c) {
        to[0] = c;
        return 1;
    }
    while (n < 4 && decompositions[at].to[n]) {
        to[n] = decompositions[at].to[n];
        n++;
    }
    return n;
}

/* The primary composite of a and b, or 0. */
static uint32_t compose(uint32_t a, uint32_t b)
{
    if (b < FIRST_MARK)
        return 0;
    if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT)
        return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
    if (a - S_BASE < S_COUNT && (a - S_BASE) % T_COUNT == 0 && b - T_BASE - 1 < T_COUNT - 1)
        return a + (b - T_BASE);
    size_t lo = 0, hi = COUNT(compositions);
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (compositions[mid].first < a || (compositions[mid].first == a && compositions[mid].second < b))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < COUNT(compositions) && compositions[lo].first == a && compositions[lo].second == b
               ? compositions[lo].whole
               : 0;
}

/* Sorts p[0..n) by class, stably. Long runs of marks take a counting sort, so no text takes quadratic
 * time. */
static void sort_marks(struct point *p, size_t n, struct point *work)
{
    if (n <= 16) {
        for (size_t i = 1; i < n; i++)
            for (size_t j = i; j > 0 && p[j - 1].ccc > p[j].ccc; j--) {
                struct point x = p[j];
                p[j] = p[j - 1];
                p[j - 1] = x;
            }
        return;
    }
    size_t start[257] = { 0 };
    for (size_t i = 0; i < n; i++)
        start[p[i].ccc + 1]++;
    for (size_t i = 1; i < 257; i++)
        start[i] += start[i - 1];
    memcpy(work, p, n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[start[work[i].ccc]++] = work[i];
}

/* Puts p[0..n) into canonical order and composes them; returns the number of code points that remain. */
static size_t recompose(struct point *p, size_t n, struct point *work)
{
    for (size_t i = 0; i < n; i++) {
        size_t end = i;
        while (end < n && p[end].ccc)
            end++;
        if (end > i + 1)
            sort_marks(p + i, end - i, work);
        i = end;
    }
    size_t w = 0, starter = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        /* A code point composes if it follows the starter, or marks of lower classes only. */
        if (starter != SIZE_MAX && (w - 1 == starter || p[w - 1].ccc < p[i].ccc)) {
            uint32_t whole = compose(p[starter].c, p[i].c);
            if (whole) {
                p[starter].c = whole;
                continue;
            }
        }
        if (p[i].ccc == 0)
            starter = w;
        p[w++] = p[i];
    }
    return w;
}

int unicode_nfc(char **out, size_t *n_out, const char *s, size_t n)
{
    size_t n_points = 0;
    uint32_t c, to[4];
    for (size_t i = 0; i < n;) {
        i += utf8_get(s + i, &c);
        n_points += c < 0x80 ? 1 : decompose(c, to);
    }
    /* Composition never lengthens the list, and 4 bytes hold any code point. */
    size_t bytes, points_bytes;
    if (!mul_size(n_points + 1, 4, &bytes) ||
        !mul_size(n_points + 1, 2 * sizeof(struct point), &points_bytes))
        return -1;
    struct point *p = malloc(points_bytes);
    char *o = malloc(bytes);
    if (!p || !o) {
        free(p);
        free(o);
        return -1;
    }
    size_t k = 0, w = 0;
    for (size_t i = 0; i < n;) {
        i += utf8_get(s + i, &c);
        size_t m = 1;
        if (c < 0x80)
            to[0] = c;
        else
            m = decompose(c, to);
        for (size_t j = 0; j < m; j++)
            p[k++] = (struct point){ to[j], combining_class(to[j]) };
    }
    k = recompose(p, k, p + n_points);
    for (size_t i = 0; i < k; i++)
        w += utf8_put(o + w, p[i].c);
    free(p);
    *out = o;
    *n_out = w;
    return 0;
}
