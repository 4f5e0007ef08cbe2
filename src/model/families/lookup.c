/* The list of families: found by their names, and asked in the order of their sections. */
#include <stdio.h>
#include <string.h>

#include "src/model/families/family.h"

#define FAMILY_ADDRESS(name) &family_##name,
static const struct family *const families[] = { FAMILIES(FAMILY_ADDRESS) };
enum { N_FAMILIES = sizeof families / sizeof *families };

const struct family *family_at(size_t i) { return i < N_FAMILIES ? families[i] : NULL; }

const struct section *family_section(const struct family *f, enum section_of i)
{
    return f->section[i] ? f->section[i] : &llama_sections[i];
}

/* Appends a name that the list does not have yet. */
static void append(char *text, size_t size, const char *name)
{
    const size_t n = strlen(text);
    char whole[64], rest[1024];
    snprintf(whole, sizeof whole, ", %s,", name);
    snprintf(rest, sizeof rest, ", %s,", text);
    if (!strstr(rest, whole))
        snprintf(text + n, size - n, "%s%s", n ? ", " : "", name);
}

char *family_list(char *text, size_t size, enum family_names which)
{
    *text = 0;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const struct family *f = families[i];
        const char *const *more = which == TYPE_NAMES ? f->types : which == GGUF_NAMES ? NULL : f->names;
        if (which == GGUF_NAMES || (which == TYPE_NAMES && f->names))
            append(text, size, which == GGUF_NAMES ? f->gguf : f->type);
        if (which == TYPE_NAMES && f->wrapper_type)
            append(text, size, f->wrapper_type);
        for (; more && *more; more++)
            append(text, size, *more);
    }
    return text;
}
