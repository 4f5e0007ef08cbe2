/* safetensors: accepted files and their data, refused files and their messages. */
#include "src/base/json.h"
#include "src/model/safetensors.h"
#include "tests/bad.h"
#include <fcntl.h>

static char folder[] = "/tmp/test_safetensors_XXXXXX";
static char *model;                    /* folder/model.safetensors */

static void put(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, n, f) == n && fclose(f) == 0, "%s", path);
}

/* A file with a header and `data_bytes` bytes 0, 1, 2, ..; the caller frees it. */
static char *make(const char *header, size_t data_bytes, size_t *n)
{
    uint64_t len = strlen(header);
    char *p = malloc(8 + len + data_bytes);
    for (int i = 0; i < 8; i++)
        p[i] = (char)(len >> 8 * i);
    memcpy(p + 8, header, len);
    for (size_t i = 0; i < data_bytes; i++)
        p[8 + len + i] = (char)i;
    *n = 8 + len + data_bytes;
    return p;
}

/* Opens a model that has no hole. */
static int open_whole(struct tensors *ts, const char *dir, struct err *e)
{
    if (safetensors_open(ts, dir, e))
        return -1;
    if (tensors_whole(ts, e) == 0)
        return 0;
    tensors_close(ts);
    return -1;
}

static void bad_file(const char *in, const char *file)
{
    char name[300], path[600], real[4096];
    struct tensors ts;
    struct stat st;
    struct err e = { 0 };
    snprintf(name, sizeof name, "safetensors/%s", file);
    snprintf(path, sizeof path, "%s/%s", in, file);
    /* Through a link, as in the cache of Hugging Face. */
    unlink(model);
    CHECK(realpath(path, real) && symlink(real, model) == 0 && stat(real, &st) == 0, "%s", path);
    size_t before = bad_allocated;
    int r = open_whole(&ts, folder, &e);
    bad_check(name, model, r, &e, bad_allocated - before, (size_t)st.st_size);
    if (!r)
        tensors_close(&ts);
    unlink(model);
}

static void bad_index(const char *in, const char *file)
{
    char name[300], path[600];
    struct tensors ts;
    struct err e = { 0 };
    snprintf(name, sizeof name, "index/%s", file);
    snprintf(path, sizeof path, "%s/%s", in, file);
    size_t before = bad_allocated;
    int r = open_whole(&ts, path, &e);
    bad_check(name, path, r, &e, bad_allocated - before, 0);
    if (!r)
        tensors_close(&ts);
}

static void refuses_files(void)
{
    bad_seen = 0;
    bad_each("build/data/bad/safetensors", bad_file);
    CHECK(bad_seen == bad_entries("safetensors/"), "%zu files, %zu expected", bad_seen,
          bad_entries("safetensors/"));
}

static void refuses_indexes(void)
{
    bad_seen = 0;
    bad_each("build/data/bad/index", bad_index);
    CHECK(bad_seen == bad_entries("index/"), "%zu folders, %zu expected", bad_seen, bad_entries("index/"));
}

/* Paths that are not files. */
static void refuses_no_file(void)
{
    struct tensors ts;
    struct err e = { 0 };
    char fifo[64];
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    bad_check("none/nothing", folder, open_whole(&ts, folder, &e), &e, 0, 0);
    bad_check("none/no_folder", fifo, open_whole(&ts, fifo, &e), &e, 0, 0);
    CHECK(mkdir(model, 0700) == 0);
    bad_check("none/folder", model, open_whole(&ts, folder, &e), &e, 0, 0);
    rmdir(model);
    CHECK(mkfifo(model, 0600) == 0);
    bad_check("none/fifo", model, open_whole(&ts, folder, &e), &e, 0, 0);
    unlink(model);
    CHECK(symlink("/dev/zero", model) == 0);
    bad_check("none/device", model, open_whole(&ts, folder, &e), &e, 0, 0);
    unlink(model);
    CHECK(symlink("nowhere", model) == 0);
    bad_check("none/broken_link", model, open_whole(&ts, folder, &e), &e, 0, 0);
    unlink(model);
}

static const char two[] = "{\"__metadata__\": {\"format\": \"pt\"}, \"a.weight\": "
                          "{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]}, "
                          "\"b\\u00e9\": {\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[12,20]}}";

/* A file cut at every byte: on disk up to the end of the header, and every prefix of the header in memory. */
static void refuses_every_prefix(void)
{
    size_t n, refused = 0;
    struct tensors ts;
    struct err e;
    char *file = make(two, 20, &n);
    for (size_t i = 0; i < n; i++) {
        put(model, file, i);
        int r = open_whole(&ts, folder, &e);
        refused += r == -1 && e.code == ERR_INPUT && strstr(e.msg, model) && !strchr(e.msg, '\n');
        if (!r)
            tensors_close(&ts);
    }
    CHECK(refused == n, "%zu of %zu prefixes", refused, n);
    refused = 0;
    for (size_t i = 0; i < strlen(two); i++)
        refused += tensors_parse(&ts, "x", two, i, 20, &e) == -1 && e.code == ERR_INPUT;
    CHECK(refused == strlen(two), "%zu of %zu prefixes", refused, strlen(two));
    CHECK(tensors_parse(&ts, "x", two, strlen(two), 20, &e) == 0);
    tensors_close(&ts);
    free(file);
    unlink(model);
}

/* Every prefix of the header of a real model. */
static void refuses_every_prefix_of_demo(void)
{
    char *header, *bytes;
    size_t n, size;
    struct tensors ts;
    struct err e;
    if (file_read(&bytes, &n, "models/demo/model.safetensors", 1 << 30, &e))
        SKIP("models/demo is not here");
    memcpy(&size, bytes, 8);
    header = bytes + 8;
    size_t refused = 0, end = size;
    while (end && header[end - 1] == ' ')      /* padding is optional */
        end--;
    for (size_t i = 0; i < end; i++)
        refused += tensors_parse(&ts, "x", header, i, n - 8 - size, &e) == -1 && e.code == ERR_INPUT;
    CHECK(refused == end, "%zu of %zu", refused, end);
    free(bytes);
}

/* Inputs too large to commit: nesting of 100,000, a header above its limit, a million tensors and one. */
static void refuses_large(void)
{
    struct tensors ts;
    struct err e = { 0 };
    size_t n = 100000, before;
    char *p = malloc(HEADER_BYTES_MAX), *to = p;
    memset(p, '[', n);
    memset(p + n, ']', n);
    before = bad_allocated;
    bad_check("large/nested", "x", tensors_parse(&ts, "x", p, 2 * n, 0, &e), &e, bad_allocated - before, 0);

    int fd = open(model, O_RDWR | O_CREAT | O_TRUNC, 0600);
    uint64_t length = HEADER_BYTES_MAX + 1;
    CHECK(fd >= 0 && pwrite(fd, &length, 8, 0) == 8 && ftruncate(fd, (off_t)(8 + length)) == 0);
    before = bad_allocated;
    bad_check("large/header", model, open_whole(&ts, folder, &e), &e, bad_allocated - before, 0);
    close(fd);
    unlink(model);

    *to++ = '{';
    for (size_t i = 0; i <= TENSORS_MAX; i++)
        to +=
            sprintf(to, "%s\"%zx\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? "," : "", i);
    *to++ = '}';
    before = bad_allocated;
    bad_check("large/tensors", "x", tensors_parse(&ts, "x", p, (size_t)(to - p), 0, &e), &e,
              bad_allocated - before, (size_t)(to - p));
    /* One fewer is accepted. */
    to = strstr(to - 100, ",\"f4240\"");
    *to++ = '}';
    double t = clock_seconds();
    CHECK(tensors_parse(&ts, "x", p, (size_t)(to - p), 0, &e) == 0 && ts.n == TENSORS_MAX, "%s", e.msg);
    CHECK(tensors_find(&ts, "f423f") && tensors_find(&ts, "0") && !tensors_find(&ts, "f4240"));
    printf("    a million tensors in %.2f s\n", clock_seconds() - t);
    tensors_close(&ts);
    free(p);
}

/* Layouts that must be accepted. */
static void accepts(void)
{
    static const struct { const char *header; size_t data, n; } good[] = {
        { "{}", 0, 0 }, { " \t\r\n {} \n ", 0, 0 }, { "{\"__metadata__\":{}}", 0, 0 },
        { "{\"__metadata__\":{\"a\":\"b\",\"c\":\"\"}}", 0, 0 },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1 },
        { "{\"a\":{\"data_offsets\":[0,4],\"shape\":[1],\"dtype\":\"F32\"}}", 4, 1 },
        { "{\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]},\"a\":{\"dtype\":\"F32\","
          "\"shape\":[1],\"data_offsets\":[0,4]}}", 8, 2 },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\"b\":{\"dtype\":\"U8\","
          "\"shape\":[3],\"data_offsets\":[0,3]},"
          "\"c\":{\"dtype\":\"F64\",\"shape\":[5,0],\"data_offsets\":[3,3]}}", 3, 3 },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"F6_E2M3\","
          "\"shape\":[2,2],\"data_offsets\":[2,5]}}", 5, 2 },
        { "{\"a\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,1,1,1,1,3],\"data_offsets\":[0,3]}}", 3, 1 },
        { "{\"\\ud83d\\ude00 \\u0416\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, 1 },
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct tensors ts;
        struct err e;
        int r = tensors_parse(&ts, "x", good[i].header, strlen(good[i].header), good[i].data, &e);
        CHECK(r == 0, "%s: %s", good[i].header, e.msg);
        if (r)
            continue;
        CHECK(ts.n == good[i].n, "%s", good[i].header);
        tensors_close(&ts);
        tensors_close(&ts);           /* twice is harmless */
    }
}

static void reads(void)
{
    struct tensors ts;
    struct err e = { 0 };
    unsigned char b[8];
    size_t n;
    char *file = make(two, 20, &n);
    put(model, file, n);
    CHECK(open_whole(&ts, folder, &e) == 0, "%s", e.msg);
    const struct tensor *a = tensors_find(&ts, "a.weight"), *t = tensors_find(&ts, "b\xc3\xa9");
    CHECK(a && t && a == &ts.t[0] && !tensors_find(&ts, "a") && !tensors_find(&ts, "a.weight2") &&
          !tensors_find(&ts, ""));
    CHECK(a->dtype == DT_BF16 && a->n_dims == 2 && a->dim[0] == 2 && a->dim[1] == 3 && a->n_elements == 6 &&
          a->bytes == 12);
    CHECK(t->dtype == DT_OTHER && strcmp(t->dtype_name, "I64") == 0 && t->n_dims == 0 && t->n_elements == 1 &&
          t->bytes == 8);
    CHECK(ts.data_bytes == 20 && a->offset == 8 + strlen(two));
    CHECK(tensors_read(&ts, a, b, 3, 5, &e) == 0 && memcmp(b, "\3\4\5\6\7", 5) == 0);
    CHECK(tensors_read(&ts, t, b, 0, 8, &e) == 0 && b[0] == 12 && b[7] == 19);
    CHECK(tensors_need(&ts, "a.weight", 2, 3, &e) == a);
    CHECK(!tensors_need(&ts, "a.weight", 3, 2, &e) &&
              strstr(e.msg, "tensor \"a.weight\": shape [2, 3], config.json needs [3, 2]"),
          "%s", e.msg);
    CHECK(!tensors_need(&ts, "a.weight", 6, 0, &e) && strstr(e.msg, "needs [6]"), "%s", e.msg);
    CHECK(!tensors_need(&ts, "b\xc3\xa9", 1, 0, &e) &&
              strstr(e.msg, "dtype I64, allowed are BF16, F16 and F32"),
          "%s", e.msg);
    CHECK(!tensors_need(&ts, "c", 1, 0, &e) &&
              strstr(e.msg, "model.safetensors: tensor \"c\" is missing, needed with shape [1]"),
          "%s", e.msg);
    /* A file that shrinks while it is open is an error, not a signal. */
    CHECK(truncate(model, (off_t)n - 4) == 0);
    CHECK(tensors_read(&ts, t, b, 0, 8, &e) == -1 && e.code == ERR_INPUT &&
              strstr(e.msg, "the file ends at offset"),
          "%s", e.msg);
    CHECK(tensors_read(&ts, a, b, 0, 8, &e) == 0);
    tensors_close(&ts);
    unlink(model);
    free(file);
}

/* Two shards through links, with unordered tensors; then model.safetensors next to them, which wins. */
static void reads_shards(void)
{
    static const char h1[] = "{\"m\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{"
                             "\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]}}";
    static const char h2[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]},\"z\":{"
                             "\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[6,6]}}";
    static const char index[] =
        "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"lm_head.weight\":\"s1.safetensors\","
        "\"a\":\"s2.safetensors\",\"b\":\"s1.safetensors\","
        "\"z\":\"s2.safetensors\",\"m\":\"s1.safetensors\"}}";
    char blobs[60], path[2][80], link[2][80], index_path[80];
    struct tensors ts;
    struct err e = { 0 };
    size_t n;
    snprintf(blobs, sizeof blobs, "%s/blobs", folder);
    snprintf(index_path, sizeof index_path, "%s/model.safetensors.index.json", folder);
    CHECK(mkdir(blobs, 0700) == 0);
    for (int i = 0; i < 2; i++) {
        char *file = make(i ? h2 : h1, i ? 6 : 8, &n);
        snprintf(path[i], sizeof path[i], "%s/blob%d", blobs, i);
        snprintf(link[i], sizeof link[i], "%s/s%d.safetensors", folder, i + 1);
        put(path[i], file, n);
        CHECK(symlink(i ? "blobs/blob1" : "blobs/blob0", link[i]) == 0);
        free(file);
    }
    put(index_path, index, strlen(index));
    CHECK(open_whole(&ts, folder, &e) == 0, "%s", e.msg);
    CHECK(ts.n == 4 && ts.n_shards == 2 && ts.data_bytes == 14);
    unsigned char b[6];
    const struct tensor *t = tensors_find(&ts, "b");
    CHECK(t && t->shard == 0 && tensors_read(&ts, t, b, 0, 4, &e) == 0 && memcmp(b, "\4\5\6\7", 4) == 0);
    t = tensors_find(&ts, "a");
    CHECK(t && t->shard == 1 && tensors_read(&ts, t, b, 0, 6, &e) == 0 && memcmp(b, "\0\1\2\3\4\5", 6) == 0);
    CHECK(!tensors_need(&ts, "q", 4, 5, &e) &&
              strstr(e.msg, "s1.safetensors and 1 more: tensor \"q\" is missing, needed with shape [4, 5]"),
          "%s", e.msg);
    tensors_close(&ts);
    char *file = make(two, 20, &n);
    put(model, file, n);
    CHECK(open_whole(&ts, folder, &e) == 0 && ts.n == 2 && ts.n_shards == 1, "%s", e.msg);
    tensors_close(&ts);
    free(file);
    for (int i = 0; i < 2; i++) {
        unlink(link[i]);
        unlink(path[i]);
    }
    unlink(index_path);
    unlink(model);
    rmdir(blobs);
}

/* Every allocation fails once: an error results, or the C library tolerates the failure. */
static void out_of_memory(void)
{
    static const char h[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]}}",
                      index[] = "{\"weight_map\":{\"a\":\"s.safetensors\"}}";
    char shard[80], index_path[80];
    size_t n;
    if (!BAD_CAN_FAIL)
        SKIP("the allocator is the sanitizer's");
    snprintf(shard, sizeof shard, "%s/s.safetensors", folder);
    snprintf(index_path, sizeof index_path, "%s/model.safetensors.index.json", folder);
    char *file = make(h, 6, &n);
    put(shard, file, n);
    put(index_path, index, strlen(index));
    for (int k = 0; k < 2; k++) {
        long i = 0, errors = 0;
        bool reached = true;
        if (k)
            put(model, file, n);
        for (; reached; i++) {
            struct tensors ts;
            struct err e = { 0 };
            bad_fail_at = i;
            int r = open_whole(&ts, folder, &e);
            reached = bad_fail_at < 0;
            bad_fail_at = -1;
            errors += r != 0;
            CHECK(r == 0 || (e.code == ERR_FAILED && strstr(e.msg, "out of memory")), "allocation %ld: %s", i,
                  e.msg);
            if (!r)
                tensors_close(&ts);
        }
        CHECK(errors >= 7, "%ld allocations, %ld errors", i, errors);
    }
    free(file);
    unlink(shard);
    unlink(index_path);
    unlink(model);
}

/* The JSON reader: RFC 8259, and the limits. */
static void json_grammar(void)
{
    static const char *const good[] = { "0", "-0", "1e5", "1E+5", "-1.25e-3", "\"\"", "\"\\u00e9\\n\\/\"",
                                        "[]", "[[],{}]", "{\"\":null}", " [ 1 , true , false ] ",
        "\"\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00\"", "{\"a\":{\"b\":[{}]}}", "\"\x7f\"",
                                        ("\xef\xbb\xbf" "1") };
    static const char *const bad[] = { "", " ", "[", "]", "{", "}", "[1,]", "[,1]", "[1 2]", "{\"a\"}",
                                       "{\"a\":}", "{\"a\":1,}", "{a:1}", "{1:1}", "01", "-", "+1", "1.",
        ".5", "1e", "1e+", "0x1", "NaN", "Infinity", "-Infinity", "nul", "nulL", "tru", "True", "\"", "\"a",
            "\"\\x\"", "\"\\u12g4\"", "\"\\u123\"", "\"\\ud800\"",
        "\"\\ud800x\"", "\"\\ud800\\u0041\"", "\"\\udc00\"", "\"\\u0000\"", "\"\t\"", "\"\n\"", "1 1", "[1]]",
            "{}{}", "'a'", "[1;2]", "/**/1", "\"\x80\"", "\"\xed\xa0\x80\"",
        ("1" "\xef\xbb\xbf"), "\xc0\x80", "[\"a\":1]", "{\"a\",1}", "\f1", "-01", "1.e1", "--1" };
    char deep[2 * (JS_DEPTH_MAX + 1) + 1];
    struct json v;
    struct err e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(js_check(&v, "x", good[i], strlen(good[i]), &e) == 0, "%s: %s", good[i], e.msg);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(js_check(&v, "x", bad[i], strlen(bad[i]), &e) == -1 && e.code == ERR_INPUT, "%s is accepted",
              bad[i]);
    CHECK(js_check(&v, "x", "1\0", 2, &e) == -1);
    for (size_t d = JS_DEPTH_MAX; d <= JS_DEPTH_MAX + 1; d++) {
        memset(deep, '[', d);
        memset(deep + d, ']', d);
        CHECK(js_check(&v, "x", deep, 2 * d, &e) == (d > JS_DEPTH_MAX ? -1 : 0), "depth %zu", d);
    }
}

/* Walking, strings and numbers. */
static void json_values(void)
{
    static const char text[] = "{\"a\":[1,{\"x\":\"]}\\\"\"},[]],\"\\u0062\":-1.5e1,\"s\":"
                               "\"\\u00e9\\ud83d\\ude00\\n\",\"n\":18446744073709551615,"
                               "\"m\":18446744073709551616,\"t\":true,\"z\":null,\"h\":1e400}";
    struct json root, v, x;
    struct err e;
    char s[64];
    uint64_t u;
    double d;
    size_t n = 0, size;
    CHECK(js_check(&root, "x", text, strlen(text), &e) == 0, "%s", e.msg);
    for (struct js_walk w = js_walk(&root); js_next(&w, NULL, &v);)
        n++;
    CHECK(n == 8, "%zu members", n);
    CHECK(js_get(&root, "a", &v, &e) == 1 && js_kind(&v) == JS_ARRAY);
    n = 0;
    for (struct js_walk w = js_walk(&v); js_next(&w, NULL, &x); n++)
        CHECK(js_kind(&x) == (n == 0 ? JS_NUMBER : n == 1 ? JS_OBJECT : JS_ARRAY), "element %zu", n);
    CHECK(n == 3);
    CHECK(js_get(&root, "b", &v, &e) == 1 && js_double(&v, &d) && d == -15 && !js_u64(&v, &u));
    CHECK(js_get(&root, "s", &v, &e) == 1 && js_unescape(&v, s) == 7 &&
          memcmp(s, "\xc3\xa9\xf0\x9f\x98\x80\n", 7) == 0);
    CHECK(js_is(&v, "\xc3\xa9\xf0\x9f\x98\x80\n") && !js_is(&v, "\xc3\xa9") &&
          !js_is(&v, "\xc3\xa9\xf0\x9f\x98\x80\n!") && !js_is(&v, ""));
    CHECK(js_get(&root, "n", &v, &e) == 1 && js_u64(&v, &u) && u == UINT64_MAX);
    CHECK(js_get(&root, "m", &v, &e) == 1 && !js_u64(&v, &u) && js_size(&v, 1, 9, &size, &e) == -1);
    CHECK(strcmp(e.msg,
                 "x: m (offset 97): found 18446744073709551616, allowed are whole numbers from 1 to 9") == 0,
          "%s", e.msg);
    CHECK(js_get(&root, "h", &v, &e) == 1 && !js_double(&v, &d));
    CHECK(js_get(&root, "q", &v, &e) == 0 && js_get(&root, "z", &v, &e) == 1 && js_kind(&v) == JS_NULL);
}

int main(void)
{
    char path[80];
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    model = path;
    RUN(json_grammar);
    RUN(json_values);
    RUN(accepts);
    RUN(reads);
    RUN(reads_shards);
    RUN(refuses_files);
    RUN(refuses_indexes);
    RUN(refuses_no_file);
    RUN(refuses_every_prefix);
    RUN(refuses_every_prefix_of_demo);
    RUN(refuses_large);
    RUN(out_of_memory);
    free(bad_table);
    rmdir(folder);
    return test_end();
}
