/* A stdio stream into memory whose writes fail where memory ends. open_memstream's do not: it drops what it cannot keep, without a word,
 * and hands out NULL or a shorter text as if all had gone well.
 *
 *     FILE *f = memory_file(&text, &n);        NULL: out of memory
 *     ... fprintf(f, ...)
 *     if (stream_end(f)) ...                   out of memory
 *     free(text)                               in both cases
 *
 * After fflush or fclose *text is what was written, a NUL behind it that *n does not count; the caller frees it. */
#pragma once
#include <stddef.h>
#include <stdio.h>

FILE *memory_file(char **text, size_t *n);
