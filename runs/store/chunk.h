/* Token ids as the store keeps them: chunks of up to 512 ids, compressed, each with a checksum and a link of a hash chain.
 *
 * A text is the chunks at tokens 0, 512, 1024, ...; all but the last are full. The last one is replaced, in the transaction
 * that adds its tokens, until it is full: a text written at any speed has one row per 512 tokens.
 *
 * data: the ids as LEB128 (7 bits a byte, low bits first, the high bit says that more follow), compressed by zlib. 1.6
 *       bytes a token for English of a vocabulary of 4,096; plain 32-bit words take 2.0 behind the same zlib.
 * crc:  CRC-32 (zlib's) of data. Says that a chunk was damaged on disk, before it is unpacked.
 * link: SHA-256 of the link before and the chunk's ids as 32-bit little-endian words; before the first chunk stands the
 *       SHA-256 of the prompt's ids. Says that no chunk is missing, exchanged or from another text. */
#pragma once
#include "src/base/sha256.h"
#include "src/base/base.h"

enum { CHUNK_TOKENS = 512 };

struct chain_link { uint8_t v[SHA256_BYTES]; };

/* The link before the first chunk. */
void link_start(struct chain_link *out, const int32_t *prompt, size_t n);
/* The link of a chunk. `out` may be `before`. */
void link_next(struct chain_link *out, const struct chain_link *before, const int32_t *ids, size_t n);

/* Pack any number of ids (>= 0, asserted). *data is malloc'ed. Fails only without memory. */
int chunk_pack(uint8_t **data, size_t *size, uint32_t *crc, const int32_t *ids, size_t n, struct err *e);
/* The n ids of a packed chunk into ids[n]; checks the sum, the compression and that it is n ids and no byte more.
 * The message says which of these is wrong. */
int chunk_unpack(int32_t *ids, size_t n, const void *data, size_t size, uint32_t crc, struct err *e);
