#!/bin/bash
# Token ids, and the negative log-likelihood of each token, of four texts of 1,500 tokens: prose, a manual, C,
# and lines of many languages and forms. tests/make/make_real_fixture.py made the expected numbers: ids of the
# tokenizers library, likelihoods of the file's decoded weights in float32. Likelihoods are those of the first
# 2,000 bytes, with LONG=1 those of all.
. tests/real/lib.inc
real_likelihoods smollm2 0.0015 2000
exit $failed
