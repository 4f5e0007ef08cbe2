/* Token ids as the store keeps them: chunks of up to 512 ids, compressed, each with a checksum and a link
 * of a hash chain.
 *
 * A text is the chunks that start at tokens 0, 512, 1024, ... All chunks but the last are full. Each
 * commit replaces the last chunk, in the transaction that adds tokens, until it is full. So a text has one
 * row per 512 tokens, whatever the size of its commits.
 *
 * data: the ids as LEB128 (7 bits a byte, low bits first; the high bit says that more bytes follow),
 * compressed by zlib.
 *       English with a vocabulary of 4,096 takes 1.6 bytes a token. Plain 32-bit words take 2.0 after zlib.
 * crc:  CRC-32 (zlib) of data. Detects damage on the disk before data is unpacked. link: SHA-256 of the
 * previous link and the chunk's ids as 32-bit little-endian words. The link before the first chunk
 *       is the SHA-256 of the prompt's ids. Detects missing and exchanged chunks, and chunks of other
 * texts. */
#pragma once
#include "src/base/sha256.h"
#include "src/base/base.h"

enum { CHUNK_TOKENS = 512 };

struct chain_link { uint8_t v[SHA256_BYTES]; };

/* The link of a chunk. `out` may be `before`. before NULL: the link before the first chunk, of the prompt. */
void link_next(struct chain_link *out, const struct chain_link *before, const int32_t *ids, size_t n);
static inline void link_start(struct chain_link *out, const int32_t *prompt, size_t n)
{
    link_next(out, NULL, prompt, n);
}

/* Compress raw[0..n), below 2 GB: *data, malloc'ed; -1: out of memory. `small` uses a small window: zlib then
 * needs 20 KB of memory instead of 260 KB, which the C library would map and unmap for every chunk. */
int zlib_pack(uint8_t **data, size_t *size, const void *raw, size_t n, bool small);

/* Pack any number of ids (>= 0, asserted). *data is malloc'ed. Fails only without memory. */
int chunk_pack(uint8_t **data, size_t *size, uint32_t *crc, const int32_t *ids, size_t n, struct err *e);
/* Unpack the n ids of a chunk into ids[n]. Checks the checksum, the compression, and that data holds
 * exactly n ids. The message names the failed check. */
int chunk_unpack(int32_t *ids, size_t n, const void *data, size_t size, uint32_t crc, struct err *e);
