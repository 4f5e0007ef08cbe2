/* Unicode: classes of code points, single UTF-8 characters, case folding, and normalisation form C. Classes
 * and forms equal those of Hugging Face `tokenizers`, from which src/base/unicode_tables.h was generated.
 * Texts must be valid UTF-8. */
#pragma once
#include "src/base/base.h"

/* \p{L}, \p{N}, \s and \p{M} in the patterns of `tokenizers` (a code point has at most one of them), and \w
 * in the rules for added tokens. Of letters: UPPER is [\p{Lu}\p{Lt}], LOWER is \p{Ll}. */
enum { UNI_LETTER = 1, UNI_NUMBER = 2, UNI_SPACE = 4, UNI_WORD = 8, UNI_MARK = 16, UNI_UPPER = 32,
       UNI_LOWER = 64 };
unsigned unicode_class(uint32_t c);

/* Reads the code point at `text`; returns its length in bytes, 1..4. */
static inline size_t utf8_get(const char *text, uint32_t *c)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80)
        return *c = s[0], 1;
    if (s[0] < 0xe0)
        return *c = (uint32_t)(s[0] & 0x1f) << 6 | (s[1] & 0x3f), 2;
    if (s[0] < 0xf0)
        return *c = (uint32_t)(s[0] & 0xf) << 12 | (uint32_t)(s[1] & 0x3f) << 6 | (s[2] & 0x3f), 3;
    *c = (uint32_t)(s[0] & 7) << 18 | (uint32_t)(s[1] & 0x3f) << 12 | (uint32_t)(s[2] & 0x3f) << 6 |
         (s[3] & 0x3f);
    return 4;
}
/* str.isspace of Python. The length of s[0..n) without the white space at its end, and that of the white
 * space at its start. */
bool unicode_is_space(uint32_t c);
/* Simple case folding: the code point that stands for all forms of a letter. */
uint32_t unicode_fold(uint32_t c);
size_t unicode_rstrip(const char *s, size_t n);
size_t unicode_lstrip(const char *s, size_t n);
/* Writes c as UTF-8; returns the number of bytes. */
size_t utf8_put(char *out, uint32_t c);
/* The length in bytes of the code point that begins with `first`. */
static inline size_t utf8_length(unsigned char first)
{
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* The number of rows of a sorted table whose first member, a uint32_t, is below c. size: of a row. */
static inline size_t rows_below(const void *table, size_t n, size_t size, uint32_t c)
{
    size_t lo = 0;
    while (lo < n) {
        const size_t mid = lo + (n - lo) / 2;
        if (*(const uint32_t *)(const void *)((const char *)table + mid * size) < c)
            lo = mid + 1;
        else
            n = mid;
    }
    return lo;
}

/* Normalisation form C of s[0..n); free(*out). Time is linear in n for every text. -1: out of memory. */
int unicode_nfc(char **out, size_t *n_out, const char *s, size_t n);
