/* Opening and closing the buffers of rounds (buffers.h). */
#include "src/decode/buffers.h"
#include "kvmgr/partial.h"

int round_buffers_open(struct round_buffers *b, const struct model *m, size_t pass_rows, size_t verify_rows,
                       size_t n_max, struct err *e)
{
    *b = (struct round_buffers){ .model = m, .n_max = n_max, .pass_rows = MAX(pass_rows, verify_rows),
                                .verify_rows = verify_rows };
    b->logits_bytes = verify_rows * m->config.vocab * sizeof *b->logits;
    b->logits = m->dev->alloc(m->dev, b->logits_bytes);
    if (!b->logits)
        err_set(e, ERR_FAILED, "%s: logits of %zu rows: out of memory (%zu bytes)", m->dev->name, verify_rows,
                b->logits_bytes);
    else if (workspace_open(&b->work, m, b->pass_rows, n_max + PARTIAL_ROWS_MAX, e) == 0)
        return 0;
    round_buffers_close(b);
    return -1;
}

void round_buffers_close(struct round_buffers *b)
{
    if (b->work)
        workspace_close(b->work);
    if (b->model)
        b->model->dev->free(b->model->dev, b->logits, b->logits_bytes);
    *b = (struct round_buffers){ 0 };
}
