#!/bin/bash
# Peak memory of run is within 64 MiB of the items of inspect.
. tests/real/lib.inc
LONGHAND=$L scripts/check_rss.sh "$MODEL" 1200 ${LONG:+8000} | sed "s|$MODEL|real_memory|"
exit "${PIPESTATUS[0]}"
