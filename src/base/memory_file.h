/* A stdio stream into memory whose writes fail when memory runs out. open_memstream drops bytes silently
 * instead, and returns NULL or a shorter text without an error.
 *
 *     FILE *f = memory_file(&text, &n);        NULL: out of memory
 *     ... fprintf(f, ...)
 *     if (stream_end(f)) ...                   out of memory
 *     free(text)                               in both cases
 *
 * After fflush or fclose *text holds the n bytes that were written, and a NUL after them. The caller frees
 * it. */
#pragma once
#include <stddef.h>
#include <stdio.h>

FILE *memory_file(char **text, size_t *n);
