/* Renders templates for scripts/check_templates.py and tests/make/jinja_random.py: reads lines
 * {"template": .., "vars": {..}}, writes a line {"out": ..} or {"error": ..} for each. The clock of
 * strftime_now is 2024-07-26. */
#include <stdlib.h>
#include <string.h>

#include "src/base/json_write.h"
#include "src/text/jinja/jinja.h"

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        struct json root, template, vars;
        struct err e = {0};
        struct jinja *t = NULL;
        char *text = NULL, *out = NULL;
        size_t n_out = 0;
        int rc = js_check_with_nul(&root, "stdin", line, (size_t)n, &e) ||
                 js_get(&root, "template", &template, &e) <= 0 || js_get(&root, "vars", &vars, &e) <= 0;
        if (rc == 0) {
            text = malloc((size_t)(template.end - template.s));
            rc = !text || jinja_open(&t, "template", text, js_unescape(&template, text), &e);
        }
        if (rc == 0)
            rc = jinja_render(t, &vars, &(struct jinja_run){ .now = 1721952000 }, &out, &n_out, &e);
        struct json_writer w = jw_begin(stdout, JW_LINE, 0);
        if (rc)
            jw_text(&w, "error", err_text(&e));
        else
            jw_bytes(&w, "out", out, n_out);
        jw_end(&w);
        jinja_close(t);
        free(text);
        free(out);
    }
    free(line);
    return 0;
}
