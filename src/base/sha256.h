/* SHA-256 (FIPS 180-4), for fingerprints of models, the chain over token ids, and the bodies of requests.
 *
 * Own code, because a library hashes one input at a time. With the SHA instructions of a CPU the latency of
 * an instruction then bounds the rate: libcrypto 3 has 1.9 GB/s on a core of an EPYC 9004, sha256_pair 3.5
 * GB/s. Plain C has 0.5 GB/s. tests/runs/store/test_chunk.c checks the standard's test vectors, and plain C
 * against the instructions.
 *
 *     sha256_start(&h); sha256_add(&h, p, n); ... sha256_end(&h, digest); */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_HEX = 2 * SHA256_BYTES + 1 };

struct sha256 { uint32_t state[8]; uint64_t n; uint8_t part[64]; };

void sha256_start(struct sha256 *h);
void sha256_add(struct sha256 *h, const void *p, size_t n);
void sha256_end(struct sha256 *h, uint8_t out[SHA256_BYTES]);
/* The digest of p[0..n). */
void sha256_of(uint8_t out[SHA256_BYTES], const void *p, size_t n);
/* The digest of p[0..n) as hexadecimal digits and a NUL, or the digest that is given. */
void sha256_text(char out[SHA256_HEX], const void *p, size_t n);
void sha256_hex(char out[SHA256_HEX], const uint8_t digest[SHA256_BYTES]);
/* The digests of two inputs of n bytes each. */
void sha256_pair(uint8_t out[2][SHA256_BYTES], const void *x, const void *y, size_t n);
/* The compression function in plain C, for tests: adds whole blocks to a state. */
void sha256_plain(uint32_t state[8], const uint8_t *p, size_t blocks);
