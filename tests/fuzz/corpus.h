/* Replays a corpus: calls a fuzz target with every file of a folder. */
#pragma once
#include <dirent.h>

#include "src/base/base.h"
#include "tests/test.h"

static inline void replay_corpus(const char *folder, int (*target)(const uint8_t *data, size_t n))
{
    DIR *d = opendir(folder);
    struct dirent *entry;
    char path[600], *data;
    struct err e;
    size_t n, files = 0;
    CHECK(d, "%s", folder);
    while (d && (entry = readdir(d))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (file_read(&data, &n, path, 1 << 26, &e)) {
            CHECK(0, "%s", e.msg);
            continue;
        }
        /* An allocation of exactly n bytes lets a sanitizer see a read after its end. */
        uint8_t *exact = malloc(n ? n : 1);
        memcpy(exact, data, n);
        free(data);
        target(exact, n);
        free(exact);
        files++;
    }
    if (d)
        closedir(d);
    CHECK(files > 0, "%s: %zu files", folder, files);
    printf("    %s: %zu inputs\n", folder, files);
}
