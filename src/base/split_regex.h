/* The split patterns of byte-level tokenizers that longhand implements, as tokenizer.json writes them.
 * src/text/tokenizer_split.c matches them. */
#pragma once

#define SPLIT_REGEX_REST "|\\s+(?!\\S)|\\s+"
#define SPLIT_REGEX_MODERN(letters, marks, digits) \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?" letters "+|" digits \
    "| ?[^\\s\\p{L}" marks "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+" SPLIT_REGEX_REST
#define SPLIT_REGEX_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+" SPLIT_REGEX_REST
#define SPLIT_REGEX_LLAMA3 SPLIT_REGEX_MODERN("\\p{L}", "", "\\p{N}{1,3}")
#define SPLIT_REGEX_QWEN2 SPLIT_REGEX_MODERN("\\p{L}", "", "\\p{N}")
#define SPLIT_REGEX_QWEN35 SPLIT_REGEX_MODERN("[\\p{L}\\p{M}]", "\\p{M}", "\\p{N}")

/* Words in which upper case goes before lower case: capitals and letters without case, then small letters and
 * letters without case. `suffix` follows a word. */
#define SPLIT_REGEX_CASES(suffix, digits) \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" suffix \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" suffix \
    "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+" SPLIT_REGEX_REST
#define SPLIT_REGEX_TEKKEN SPLIT_REGEX_CASES("", "\\p{N}")
#define SPLIT_REGEX_GPT4O SPLIT_REGEX_CASES("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}{1,3}")
