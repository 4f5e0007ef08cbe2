/* Packing token ids and linking chunks to a hash chain. Start at chunk_pack and link_next. */
#include "runs/store/chunk.h"

#include <stdlib.h>
#include <zlib.h>

enum { ID_BYTES_MAX = 5 };               /* of a 32-bit number in LEB128 */

void link_next(struct chain_link *out, const struct chain_link *before, const int32_t *ids, size_t n)
{
    struct sha256 h;
    sha256_start(&h);
    if (before)
        sha256_add(&h, before->v, sizeof before->v);
    for (size_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)ids[i];
        uint8_t b[4] = { (uint8_t)u, (uint8_t)(u >> 8), (uint8_t)(u >> 16), (uint8_t)(u >> 24) };
        sha256_add(&h, b, sizeof b);
    }
    sha256_end(&h, out->v);
}

int zlib_pack(uint8_t **data, size_t *size, const void *raw, size_t n, bool small)
{
    z_stream z = { .next_in = (Bytef *)raw, .avail_in = (uInt)n };
    if (deflateInit2(&z, 6, Z_DEFLATED, small ? 12 : 15, small ? 5 : 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return -1;
    z.avail_out = (uInt)deflateBound(&z, (uLong)n);
    *data = z.next_out = malloc(z.avail_out);
    int rc = *data ? deflate(&z, Z_FINISH) : Z_MEM_ERROR;
    *size = z.total_out;
    deflateEnd(&z);
    if (rc == Z_STREAM_END)
        return 0;
    free(*data);
    *data = NULL;
    return -1;
}

int chunk_pack(uint8_t **data, size_t *size, uint32_t *crc, const int32_t *ids, size_t n, struct err *e)
{
    size_t raw_max, n_raw = 0;
    if (!mul_size(n, ID_BYTES_MAX, &raw_max) || raw_max > UINT32_MAX / 2)
        return err_set(e, ERR_INPUT, "%zu token ids are too many to store", n);
    uint8_t *raw = malloc(raw_max + 1);
    for (size_t i = 0; i < n && raw; i++) {
        assert(ids[i] >= 0);
        uint32_t u = (uint32_t)ids[i];
        for (; u >= 128; u >>= 7)
            raw[n_raw++] = (uint8_t)(u | 128);
        raw[n_raw++] = (uint8_t)u;
    }
    const int rc = raw ? zlib_pack(data, size, raw, n_raw, n_raw <= 4096) : -1;
    free(raw);
    if (rc)
        return err_set(e, ERR_FAILED, "out of memory while %zu tokens are packed", n);
    *crc = (uint32_t)crc32_z(0, *data, *size);
    return 0;
}

/* Decode raw[0..size), which must be exactly n ids. */
static int decode_ids(int32_t *ids, size_t n, const uint8_t *raw, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t u = 0;
        for (int shift = 0;; shift += 7) {
            if (at == size || shift == 7 * ID_BYTES_MAX)
                return -1;
            u |= (uint64_t)(raw[at] & 127) << shift;
            if (raw[at++] < 128)
                break;
        }
        if (u > INT32_MAX)
            return -1;
        ids[i] = (int32_t)u;
    }
    return at == size ? 0 : -1;
}

int chunk_unpack(int32_t *ids, size_t n, const void *data, size_t size, uint32_t crc, struct err *e)
{
    size_t raw_max;
    uint32_t found = (uint32_t)crc32_z(0, data, size);
    if (found != crc)
        return err_set(e, ERR_FAILED, "its checksum is %08x and should be %08x", found, crc);
    if (!mul_size(n, ID_BYTES_MAX, &raw_max) || raw_max > UINT32_MAX || size > UINT32_MAX)
        return err_set(e, ERR_FAILED, "it claims %zu tokens", n);
    uLong n_raw = (uLong)raw_max + 1;        /* zlib treats a size of 0 as 1 */
    uint8_t *raw = malloc(raw_max + 1);
    int z = raw ? uncompress(raw, &n_raw, data, (uLong)size) : Z_MEM_ERROR;
    int rc = z == Z_OK ? decode_ids(ids, n, raw, n_raw) : -1;
    free(raw);
    if (z == Z_MEM_ERROR)
        return err_set(e, ERR_FAILED, "out of memory while %zu tokens are unpacked", n);
    if (rc)
        return err_set(e, ERR_FAILED, "its %zu bytes are not %zu packed tokens", size, n);
    return 0;
}
