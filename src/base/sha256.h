/* SHA-256 (FIPS 180-4), for the chain over token ids and for the bodies of requests.
 *
 * These 60 lines replace a library because the inputs are small: a text of 100,000 tokens is 400 KB and
 * takes 2 ms. tests/test_chunk.c checks the standard's test vectors.
 *
 *     sha256_start(&h); sha256_add(&h, p, n); ... sha256_end(&h, digest); */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

struct sha256 { uint32_t state[8]; uint64_t n; uint8_t part[64]; };

void sha256_start(struct sha256 *h);
void sha256_add(struct sha256 *h, const void *p, size_t n);
void sha256_end(struct sha256 *h, uint8_t out[SHA256_BYTES]);
