/* The built-in chat templates, for models that have none. Each makes the prompts of the model's own template
 * for texts of system, user and assistant (tests/data/chat); vicuna those of FastChat's vicuna_v1.1. */

#define ROLES_ALTERNATE "onversation roles must alternate user/assistant/user/assistant/..."
/* Checks that user and assistant alternate from message `first` on. */
#define ALTERNATE(words) \
    "{%- for m in messages[first:] %}" \
        "{%- if (m.role == 'user') != loop.index0 is even %}{{ raise_exception(\"" words "\") }}{% endif %}" \
    "{%- endfor %}"
#define SYSTEM_FIRST "{%- set first = 1 if messages[0].role == 'system' else 0 %}"

static const struct { const char *name, *text;
} chat_builtin[] = {
    { "chatml", "{%- for m in messages %}"
                "{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}"
                "{%- endfor %}"
                "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}" },
    { "llama2",
      SYSTEM_FIRST ALTERNATE(
          "C" ROLES_ALTERNATE) "{%- for m in messages[first:] %}"
                               "{%- set system = '<<SYS>>\\n' ~ messages[0].content ~ '\\n<</SYS>>\\n\\n' if "
                               "first and loop.first else '' %}"
                               "{%- if m.role == 'user' %}"
                               "{{ bos_token ~ '[INST] ' ~ (system ~ m.content).strip() ~ ' [/INST]' }}"
                               "{%- elif m.role == 'assistant' %}"
                               "{{ ' ' ~ m.content.strip() ~ ' ' ~ eos_token }}"
                               "{%- endif %}"
                               "{%- endfor %}" },
    { "llama3",
      "{{ bos_token }}"
      "{%- for m in messages %}"
      "{{ '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' ~ m.content.strip() ~ '<|eot_id|>' }}"
      "{%- endfor %}"
      "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif "
      "%}" },
    /* of the 7B Instruct v0.3 and of Mistral Large 2407 */
    { "mistral",
      SYSTEM_FIRST ALTERNATE(
          "After the optional system message, c" ROLES_ALTERNATE) "{{ bos_token }}"
                                                                  "{%- for m in messages[first:] %}"
                                                                  "{%- if m.role == 'user' %}"
                                                                  "{%- set system = messages[0].content ~ "
                                                                  "'\\n\\n' if first and loop.last else '' %}"
                                                                  "{{ '[INST] ' ~ system ~ m.content ~ "
                                                                  "'[/INST]' }}"
                                                                  "{%- elif m.role == 'assistant' %}"
                                                                  "{{ ' ' ~ m.content.strip() ~ eos_token }}"
                                                                  "{%- else %}"
                                                                  "{{ raise_exception('Only user and "
                                                                  "assistant roles are supported, with the "
                                                                  "exception of an initial "
                                                                  "optional system message!') }}"
                                                                  "{%- endif %}"
                                                                  "{%- endfor %}" },
    /* of Gemma 3; Gemma 1 and 2 have no system message */
    { "gemma",
      SYSTEM_FIRST ALTERNATE(
          "C" ROLES_ALTERNATE) "{{ bos_token }}"
                               "{%- for m in messages[first:] %}"
                               "{%- set system = messages[0].content ~ '\\n\\n' if first and loop.first else "
                               "'' %}"
                               "{{ '<start_of_turn>' ~ ('model' if m.role == 'assistant' else m.role) ~ "
                               "'\\n' ~ system ~ m.content.strip() }}"
                               "{{ '<end_of_turn>\\n' }}"
                               "{%- endfor %}"
                               "{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}" },
    { "vicuna", SYSTEM_FIRST
      "{{ bos_token }}"
      "{{- messages[0].content ~ ' ' if first else 'A chat between a curious user and an artificial "
      "intelligence "
      "assistant. The assistant gives helpful, detailed, and polite answers to the user\\'s questions. ' }}"
      "{%- for m in messages[first:] %}"
      "{%- if m.role != ('assistant' if loop.index0 % 2 else 'user') %}"
      "{{ raise_exception('C" ROLES_ALTERNATE "') }}"
      "{%- endif %}"
      "{{ 'USER: ' ~ m.content ~ ' ' if m.role == 'user' else 'ASSISTANT: ' ~ m.content ~ eos_token }}"
      "{%- endfor %}"
      "{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}" },
    { "zephyr", "{%- for m in messages %}"
                "{{ '<|' ~ m.role ~ '|>\\n' ~ m.content ~ eos_token ~ '\\n' }}"
                "{%- endfor %}"
                "{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}" },
};

/* Names of older versions. */
static const char *const chat_gone[] = {
    "chatml-bos", "llama3-first",      "llama3.1",      "mistral-v0.1", "mistral-v0.2", "mistral-v1",
    "mistral-v3", "mistral-v3-tekken", "mistral-v7",    "qwen1.5",      "qwen2",        "qwen2.5",
    "qwen3",      "qwen3.5",           "qwen3.5-small", "qwen3.8",      "vicuna-lines",
};
