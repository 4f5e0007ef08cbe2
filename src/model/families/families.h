/* The families, one line each: src/model/families/NAME.c defines family_NAME (family.h). Lists of names in
 * messages have this order. Of families with one architecture in GGUF files the first reads them. */
#pragma once

#define FAMILIES(X)    \
    X(llama)           \
    X(mistral)         \
    X(ministral3)      \
    X(mixtral)         \
    X(qwen2)           \
    X(qwen3)           \
    X(qwen2_moe)       \
    X(qwen3_moe)       \
    X(qwen3_5)         \
    X(qwen3_5_moe)     \
    X(gemma3)          \
    X(gemma4)          \
    X(gemma4_assistant) \
    X(smollm3)         \
    X(exaone4)         \
    X(phi3)            \
    X(olmo3)           \
    X(granite)         \
    X(gpt_oss)

#define FAMILY_DECLARED(name) extern const struct family family_##name;
FAMILIES(FAMILY_DECLARED)
#undef FAMILY_DECLARED
