/* Packed tokens and the chain over them: SHA-256 against the vectors of the standard, unpacking returns
 * the packed ids, damage is detected. */
#include "runs/store/chunk.h"
#include "tests/test.h"

#include <zlib.h>

static const char *hex(const uint8_t d[SHA256_BYTES])
{
    static char s[2 * SHA256_BYTES + 1];
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(s + 2 * i, 3, "%02x", d[i]);
    return s;
}

/* The digest of `text` repeated n times, added in pieces of `step` bytes. */
static const char *digest(const char *text, size_t n, size_t step)
{
    static uint8_t d[SHA256_BYTES];
    size_t len = strlen(text), all = len * n;
    char *p = malloc(all + 1);
    struct sha256 h;
    for (size_t i = 0; i < n; i++)
        memcpy(p + i * len, text, len);
    sha256_start(&h);
    for (size_t i = 0; i < all; i += step)
        sha256_add(&h, p + i, MIN(step, all - i));
    sha256_end(&h, d);
    free(p);
    return hex(d);
}

static void sha256_matches_the_vectors_of_the_standard(void)
{
    static const struct { const char *text; size_t n; const char *want;
    } v[] = {
        { "", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
        { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmn"
          "opqrstnopqrstu",
          1, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
        { "a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0" },
    };
    static const size_t steps[] = { 1, 3, 55, 63, 64, 65, 1 << 20 };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            const char *got = digest(v[i].text, v[i].n, steps[k]);
            CHECK(strcmp(got, v[i].want) == 0, "vector %zu in steps of %zu: %s", i, steps[k], got);
        }
}

/* FIPS 180-4 with plain C: the digest of n bytes. */
static void plain_digest(uint8_t out[SHA256_BYTES], const uint8_t *p, size_t n)
{
    struct sha256 h;
    uint8_t end[128] = { 0 };
    const size_t rest = n % 64, last = rest < 56 ? 64 : 128;
    sha256_start(&h);
    sha256_plain(h.state, p, n / 64);
    memcpy(end, p + n - rest, rest);
    end[rest] = 0x80;
    for (size_t i = 0; i < 8; i++)
        end[last - 1 - i] = (uint8_t)(8 * n >> 8 * i);
    sha256_plain(h.state, end, last / 64);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        out[i] = (uint8_t)(h.state[i / 4] >> (24 - 8 * (i % 4)));
}

static void two_inputs_at_once_and_plain_c_give_the_same_digests(void)
{
    enum { MOST = 1000 };
    uint8_t x[2][MOST], pair[2][SHA256_BYTES], plain[SHA256_BYTES], one[SHA256_BYTES];
    for (size_t i = 0; i < sizeof x; i++)
        ((uint8_t *)x)[i] = (uint8_t)(hash64(HASH64_INIT, &i, sizeof i) >> 13);
    for (size_t n = 0; n <= MOST; n++) {
        sha256_pair(pair, x[0], x[1], n);
        for (size_t k = 0; k < 2; k++) {
            struct sha256 h;
            sha256_start(&h);
            sha256_add(&h, x[k], n);
            sha256_end(&h, one);
            plain_digest(plain, x[k], n);
            CHECK(memcmp(one, plain, sizeof one) == 0, "%zu bytes: instructions and plain C differ", n);
            CHECK(memcmp(pair[k], plain, sizeof one) == 0, "%zu bytes: input %zu of a pair", n, k);
        }
    }
}

static void unpacking_returns_the_packed_ids(void)
{
    /* 819 ids of 5 bytes: the largest input with a small window */
    static const size_t sizes[] = { 0, 1, 2, 127, 512, 819, 820, 1023, 1024, 1025, 100000 };
    static const int32_t edges[] = { 0, 127, 128, 16383, 16384, 2097151, 2097152, 268435455, 268435456,
                                     INT32_MAX };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t n = sizes[k], size;
        int32_t *ids = malloc((n + 1) * sizeof *ids), *back = malloc((n + 1) * sizeof *back);
        uint8_t *data;
        uint32_t crc;
        struct err e;
        for (size_t i = 0; i < n; i++)           /* even sizes hardly compress */
            ids[i] = n % 2 == 0 ? (int32_t)(hash64(HASH64_INIT, &i, sizeof i) >> 33)
                     : i % 3    ? (int32_t)(i * 7919 % 128000)
                                : edges[i / 3 % (sizeof edges / sizeof *edges)];
        back[n] = -7;
        CHECK(chunk_pack(&data, &size, &crc, ids, n, &e) == 0);
        CHECK(chunk_unpack(back, n, data, size, crc, &e) == 0, "%zu: %s", n, e.msg);
        CHECK(memcmp(ids, back, n * sizeof *ids) == 0 && back[n] == -7);
        CHECK(chunk_unpack(back, n + 1, data, size, crc, &e) == -1);
        CHECK(n == 0 || chunk_unpack(back, n - 1, data, size, crc, &e) == -1);
        free(data);
        free(ids);
        free(back);
    }
}

/* The checksum detects every changed bit. With a checksum that fits the damage, nothing reads or writes
 * out of bounds. */
static void damage_is_detected(void)
{
    int32_t ids[200], back[200];
    uint8_t *data;
    size_t size;
    uint32_t crc;
    struct err e;
    for (int i = 0; i < 200; i++)
        ids[i] = i * i;
    CHECK(chunk_pack(&data, &size, &crc, ids, 200, &e) == 0);
    int seen = 0, refused = 0;
    for (size_t bit = 0; bit < 8 * size; bit++) {
        struct chain_link a, b, before = {{0}};
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        seen += chunk_unpack(back, 200, data, size, crc, &e) == -1 && strstr(e.msg, "checksum");
        uint8_t *copy = malloc(size);                /* of the exact size, for the sanitizers */
        memcpy(copy, data, size);
        if (chunk_unpack(back, 200, copy, size, (uint32_t)crc32_z(0, copy, size), &e) == -1) {
            refused++;
        } else {
            link_next(&a, &before, ids, 200);
            link_next(&b, &before, back, 200);
            refused += memcmp(ids, back, sizeof ids) == 0 || memcmp(&a, &b, sizeof a) != 0;
        }
        free(copy);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CHECK((size_t)seen == 8 * size, "%d of %zu", seen, 8 * size);
    CHECK((size_t)refused == 8 * size, "%d of %zu", refused, 8 * size);
    for (size_t n = 0; n < size; n++)
        CHECK(chunk_unpack(back, 200, data, n, crc, &e) == -1);
    free(data);
}

static void the_chain_depends_on_every_id_and_its_position(void)
{
    int32_t prompt[3] = { 1, 2, 3 }, ids[4] = { 10, 20, 30, 40 }, other[4] = { 20, 10, 30, 40 };
    struct chain_link start, start2, a, b, c;
    link_start(&start, prompt, 3);
    link_start(&start2, prompt, 2);
    CHECK(memcmp(&start, &start2, sizeof start) != 0);
    link_next(&a, &start, ids, 4);
    link_next(&b, &start, other, 4);
    CHECK(memcmp(&a, &b, sizeof a) != 0);
    link_next(&b, &start2, ids, 4);
    CHECK(memcmp(&a, &b, sizeof a) != 0);
    link_next(&b, &start, ids, 2);
    link_next(&c, &b, ids + 2, 2);
    CHECK(memcmp(&a, &c, sizeof a) != 0);
    /* Computed by: python3 -c 'import hashlib,struct; h=lambda b: hashlib.sha256(b).digest();
     * print(h(h(struct.pack("<3i",1,2,3))+struct.pack("<4i",10,20,30,40)).hex())' */
    CHECK(strcmp(hex(a.v), "56810696d80352eb2ce362f2786e83257ec603a6fd8f815ecad0ca11dd57d0df") == 0, "%s",
          hex(a.v));
}

int main(void)
{
    RUN(sha256_matches_the_vectors_of_the_standard);
    RUN(two_inputs_at_once_and_plain_c_give_the_same_digests);
    RUN(unpacking_returns_the_packed_ids);
    RUN(damage_is_detected);
    RUN(the_chain_depends_on_every_id_and_its_position);
    return test_end();
}
