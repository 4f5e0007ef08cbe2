/* Models in the caches of other programs: Hugging Face's tools, llama.cpp, LM Studio and Ollama. longhand
 * reads these caches; it downloads and writes nothing. */
#pragma once
#include "src/base/base.h"

/* What a name can mean. {0} is empty. */
struct model_fits {
    size_t n;
    char path[PATH_BYTES];           /* of the first fit: a Hugging Face directory, or a GGUF file */
    char where[PATH_BYTES];          /* the folder that holds the fits */
    char list[600];                  /* the names of all fits in that folder, separated by commas */
};

/* Adds the models that a folder holds: itself if it has weights in safetensors, else its GGUF files. A split
 * file counts once. Projectors, adapters and importance matrices do not count: general.type decides. */
void model_fits_folder(struct model_fits *f, const char *folder);

/* Adds the models of the first cache that has `name`: org/name or name, which may end in :QUANT or :TAG.
 *
 *   Hugging Face  the snapshot that refs/main names, else any other; of its GGUF files those with the word
 *                 QUANT
 *   llama.cpp     the same, or files org_name_*.gguf
 *   LM Studio     the folder org/name
 *   Ollama        the file that the manifest of name:TAG names; without TAG the one of `latest`, else any
 *                 other
 *
 * searched: the caches that exist, separated by commas. ERR_INPUT when a manifest cannot be read, or names no
 * file that is a whole model. */
int model_fits_caches(struct model_fits *f, const char *name, char searched[600], struct err *e);

/* The name of a model for people: org/name of a snapshot in the hub cache, name:tag of a file of Ollama, else
 * the last name of the path. */
void model_name(char *out, size_t size, const char *path);
