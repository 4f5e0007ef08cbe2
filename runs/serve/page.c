/* The pages: the queue with a form, and a job with its text and the jobs of its book. Both are whole without
 * their script, which fetches the part `live` anew every two seconds and follows a text as it grows. Names,
 * prompts and texts come from outside: page_text escapes them here, and the script sets no markup but that of
 * this file. The policy (CSP) lets only this style and this script run, and loads nothing from elsewhere.
 * Start at answer_page and put_job_page. */
#include "runs/serve/http.h"
#include "runs/report/job_sheet.h"
#include "src/base/page.h"
#include "runs/store/selection.h"
#include "src/base/memory_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { ROWS_MAX = 500 };                 /* the newest jobs that do not run; the first ones of a book */

/* A text is followed while its page is seen: a browser has six connections for all of its tabs. */
static const char script[] =
    "const live=document.getElementById('live'),out=document.getElementById('out');let seen=0,stop=null;\n"
    "async function show(){if(document.hidden||live.contains(document.activeElement))return;"
    "const r=await fetch(location.pathname+'?live=1');if(!r.ok)return;"
    "const d=new DOMParser().parseFromString(await r.text(),'text/html').getElementById('live');"
    "if(d)live.replaceChildren(...d.childNodes)}\n"
    "async function follow(){if(!out||!out.dataset.grows||document.hidden||stop)return;"
    "stop=new AbortController();try{let skip=seen;"
    "const r=await fetch('/v1'+location.pathname+'/text?follow=1',{signal:stop.signal});if(!r.ok)return;"
    "const d=new TextDecoder(),s=r.body.getReader();for(;;){const x=await s.read();"
    "if(x.done){delete out.dataset.grows;break}const t=d.decode(x.value,{stream:true}),n=t.slice(skip);"
    "skip=Math.max(0,skip-t.length);if(!n)continue;if(!seen)out.textContent='';"
    "const end=out.scrollTop+out.clientHeight>out.scrollHeight-40;"
    "out.append(n);seen+=n.length;if(end)out.scrollTop=out.scrollHeight}}finally{stop=null}}\n"
    "const tick=()=>{for(const f of[show,follow])f().catch(()=>{})};setInterval(tick,2000);tick();\n"
    "document.addEventListener('visibilitychange',()=>{if(!document.hidden)tick();"
    "else if(stop)stop.abort()});";

/* ---- the frame of a page ---- */

/* live: only the part `live` is wanted, which the script of another page reads. */
struct page { struct call *c; FILE *f; char nonce[20]; bool live; };

static int page_open(struct page *p, struct call *c, const char *title, struct err *e)
{
    uint64_t random;
    *p = (struct page){ .c = c, .f = c->w.f, .live = call_argument(c, "live") != NULL };
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return err_set(e, ERR_FAILED, "the system gives no random numbers");
    snprintf(p->nonce, sizeof p->nonce, "%016" PRIx64, random);
    if (!p->live)
        page_begin(p->f, title, p->nonce);
    return 0;
}

static int page_close(struct page *p, const char *its_script)
{
    char policy[300];
    if (!p->live)
        page_end(p->f, p->nonce, its_script);
    snprintf(policy, sizeof policy, "default-src 'none'; style-src 'nonce-%s'; script-src 'nonce-%s'; "
             "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'", p->nonce,
             p->nonce);
    struct MHD_Response *r = call_text(p->c);
    if (r)
        MHD_add_response_header(r, "Content-Security-Policy", policy);
    return call_respond(p->c, r, HTML_TYPE);
}

void put_failed_page(struct call *c, const char *message)
{
    struct page p;
    struct err ignored;
    if (page_open(&p, c, "failed", &ignored))
        return;
    page_format(p.f, "<h1>longhand</h1><p role=\"alert\">@t</p><p><a href=\"/\">The queue</a></p>\n",
                message);
    page_close(&p, NULL);
}

/* What a button did not do: ?not=VERB&job=JOB. */
static void put_note(FILE *f, struct call *c)
{
    static const char *const verbs[] = { "pause", "resume", "cancel" };
    const char *verb = call_argument(c, "not"), *job = call_argument(c, "job");
    struct job_list jobs = {0};
    struct err ignored;
    long id;
    for (size_t i = 0; verb && job && i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(verb, verbs[i]) == 0 && parse_long(&id, "job", job, 1, LONG_MAX, &ignored) == 0 &&
            server_jobs(c->sv, &(int64_t){ id }, 1, &jobs, &ignored) == 0)
            page_format(f, "<p role=\"alert\">@t changed nothing: job @0 is @t.</p>\n", verb, (double)id,
                        jobs.n ? job_state_name(jobs.v->state) : "not in the store");
    job_list_free(&jobs);
}

/* ---- jobs ---- */

/* from: the page that follows, "queue" or "job". */
static void put_actions(FILE *f, const struct job *j, const char *from)
{
    const bool open = j->state == JOB_QUEUED || j->state == JOB_RUNNING;
    const char *const verbs[] = { open ? "pause" : NULL,
                                  j->state == JOB_PAUSED || j->state == JOB_FAILED ? "resume" : NULL,
                                  j->state != JOB_DONE && j->state != JOB_CANCELLED ? "cancel" : NULL };
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (verbs[i])
            page_format(f, "<form method=\"post\" action=\"/v1/jobs/@0/@t?page=@t\">"
                        "<button aria-label=\"@t job @0\">@t</button></form> ", (double)j->id, verbs[i],
                        from, verbs[i], (double)j->id, verbs[i]);
}

/* What a job is called: its name, or how its prompt begins. */
static const char *name_of(char out[700], const struct job *j)
{
    job_label(out, 700, j);
    return *out || !j->opening ? out : j->opening;
}

/* The line of a job or, with `head`, that of the heads. */
static void put_row(FILE *f, const struct job *j, bool head)
{
    const double speed = job_speed(j);
    char link[40], name[700], state[400], count[24], of[40];
    snprintf(link, sizeof link, "/jobs/%" PRId64, j->id);
    snprintf(state, sizeof state, "%s%s%.300s", job_state_name(j->state), j->waits ? ", waits for " : "",
             j->waits ? j->after_name : "");
    number_text(count, sizeof count, (double)j->wanted, ',');
    snprintf(of, sizeof of, "@, of %s", count);
    fputs("<tr>", f);
    page_cells(f, (struct row[]){
        { NULL, "job", V_INT(j->id), .link = link },
        { NULL, "name", V_TEXT(name_of(name, j)) },
        { NULL, "state", V_TEXT(state) },
        { NULL, "tokens", V_UINT(j->tokens), of },
        { NULL, "speed", V_REAL(speed > 0 ? speed : NAN), "@1/s" },
        { NULL, "time left", V_REAL(j->state == JOB_RUNNING && speed > 0
                                        ? (double)(j->wanted - j->tokens) / speed : NAN), "@D" },
        { 0 } }, head);
    fputs(head ? "<th scope=\"col\" class=\"l\">actions</th>" : "<td class=\"l buttons\">", f);
    if (!head)
        put_actions(f, j, "queue");
    fputs("</tr>\n", f);
}

/* `others`: after them those of this list that do not run, the last one first; NULL: none. */
static void put_table(FILE *f, const char *caption, const struct job_list *jobs,
                      const struct job_list *others)
{
    page_format(f, "<h2>@t</h2><div class=\"card scroll\"><table class=\"flow\"><thead>", caption);
    put_row(f, &(struct job){ 0 }, true);
    fputs("</thead><tbody>\n", f);
    for (size_t i = 0; i < jobs->n; i++)
        put_row(f, &jobs->v[i], false);
    for (size_t i = others ? others->n : 0; i-- > 0;)
        if (others->v[i].state != JOB_RUNNING)
            put_row(f, &others->v[i], false);
    fputs("</tbody></table></div>\n", f);
}

/* The jobs that are no requests: those that run, then the newest others; counts of all. */
static int put_queue(FILE *f, struct store *s, struct err *e)
{
    static const struct selection every = { .no_requests = true },
                                  running = { .no_requests = true, .by_state = true, .state = JOB_RUNNING };
    struct job_list run = {0}, jobs = {0};
    struct store_counts n;
    const int rc = store_counts(s, NULL, &n, e) || server_select(s, &running, SIZE_MAX, &run, e) ||
                   server_select(s, &every, ROWS_MAX, &jobs, e) ? -1 : 0;
    if (rc == 0) {
        page_format(f, "<div id=\"live\"><p>All jobs: @c running, @c queued, @c paused, @c done, @c failed",
                    (double)n.jobs[JOB_RUNNING], (double)n.jobs[JOB_QUEUED], (double)n.jobs[JOB_PAUSED],
                    (double)n.jobs[JOB_DONE], (double)n.jobs[JOB_FAILED]);
        if (n.rate > 0)
            page_format(f, "; @1 tokens/s, @d left", n.rate, (double)n.open_tokens / n.rate);
        fputs("</p>\n", f);
        put_table(f, "What is written now, then the newest first", &run, &jobs);
        fputs("</div>\n", f);
    }
    job_list_free(&run);
    job_list_free(&jobs);
    return rc;
}

static const char form[] =
    "<h2>A new text</h2><form class=\"card\" method=\"post\" action=\"/jobs\"><label>Prompt<textarea "
    "name=\"prompt\" required></textarea></label><label><input type=\"checkbox\" name=\"chat\" value=\"1\"> "
    "as a message to a chat model</label><label>Tokens <input name=\"max_tokens\" inputmode=\"numeric\" "
    "value=\"1000\">"
    "</label><label>"
    "Temperature <input name=\"temperature\" inputmode=\"decimal\"></label><label>Seed <input name=\"seed\" "
    "inputmode=\"numeric\"></label><label>Name <input name=\"name\"></label><button>queue</button></form>\n";

int answer_page(struct call *c, struct err *e)
{
    struct store *s = NULL;
    struct page p;
    if (page_open(&p, c, "queue", e))
        return -1;
    page_format(p.f, "<h1>longhand: @t</h1>\n", c->sv->model);
    put_note(p.f, c);
    const int rc = server_connect(c->sv, &s, e) || put_queue(p.f, s, e) ? -1 : 0;
    store_close(s);
    fputs(form, p.f);
    return rc ? -1 : page_close(&p, script);
}

/* ---- a job ---- */

/* The text as far as it is written; a NUL in it ends it here. */
static void put_text(FILE *f, struct server *sv, const struct job *j)
{
    const bool open = j->state == JOB_QUEUED || j->state == JOB_RUNNING || j->state == JOB_PAUSED;
    struct growing g = {0};
    struct err e = {0};
    struct grown_answer x;
    char message[sizeof e.msg];
    /* HTML drops a newline after <pre>, and the text may begin with one */
    page_format(f, "<h2 id=\"of\">Text</h2>\n<pre id=\"out\" class=\"card\" tabindex=\"0\" "
                "aria-labelledby=\"of\"@t>\n", open ? " data-grows=1" : "");
    if (growing_text(sv, &g, j, &x, &e) == 0) {
        page_text(f, x.thought);
        page_text(f, x.text);
    } else {
        err_for_client(&e, message, sizeof message);
        page_format(f, "The text cannot be read: @t", message);
    }
    fputs("</pre>\n", f);
    growing_close(sv, &g);
    grown_answer_free(&x);
}

int put_job_page(struct call *c, struct store *s, const struct job *j, struct err *e)
{
    struct job_list book = {0};
    struct selection_term term;
    struct page p;
    char name[700];
    const struct selection sel = server_book(&term, j->batch ? j->batch : "");
    snprintf(name, sizeof name, "job %" PRId64, j->id);
    if (page_open(&p, c, name, e) || (j->batch && server_select(s, &sel, ROWS_MAX, &book, e)))
        return -1;
    page_format(p.f, "<p><a href=\"/\">The queue</a></p><h1>Job @0: <bdi>@t</bdi></h1>\n", (double)j->id,
                name_of(name, j));
    put_note(p.f, c);
    page_format(p.f, "<div id=\"live\"><p>@t@t@t, @c of @c tokens", job_state_name(j->state),
                j->waits ? ", waits for " : "", j->waits ? j->after_name : "", (double)j->tokens,
                (double)j->wanted);
    if (j->error)
        page_format(p.f, ": @t", j->error);
    fputs("</p>\n<div class=\"buttons\">", p.f);
    put_actions(p.f, j, "job");
    page_format(p.f, "<a href=\"/jobs/@0/report\">report</a> <a href=\"/v1/jobs/@0/text\">text</a></div>\n",
                (double)j->id, (double)j->id);
    if (book.n > 1)
        put_table(p.f, "Chapters and other texts of this name", &book, NULL);
    job_list_free(&book);
    fputs("</div>\n", p.f);
    if (!p.live)
        put_text(p.f, c->sv, j);
    return page_close(&p, script);
}

/* ---- the form ---- */

/* The fields of the form as the body of a request. */
struct form { bool chat; FILE *f[5]; char *field[5]; size_t n[5]; };
static const char *const fields[] = { "prompt", "name", "max_tokens", "temperature", "seed" };
enum { PROMPT, NAME, FIELDS = sizeof fields / sizeof *fields };

static enum MHD_Result take_field(void *ctx, enum MHD_ValueKind kind, const char *key, const char *file,
                                  const char *type, const char *encoding, const char *bytes, uint64_t at,
                                  size_t n)
{
    struct form *x = ctx;
    (void)kind, (void)file, (void)type, (void)encoding, (void)at;
    x->chat |= key && strcmp(key, "chat") == 0;
    for (size_t i = 0; key && i < FIELDS; i++)
        if (strcmp(key, fields[i]) == 0)
            fwrite(bytes, 1, n, x->f[i]);
    return MHD_YES;
}

/* Browsers send the line ends of a field as CR LF. */
static size_t drop_cr(char *text, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (text[i] != '\r' || i + 1 == n || text[i + 1] != '\n')
            text[kept++] = text[i];
    return kept;
}

/* {"prompt": .., "max_tokens": ..}. Values that look like numbers are such; others are refused as texts. */
static void put_body(struct json_writer *w, const struct form *x)
{
    jw_open(w, NULL, '{');
    if (x->chat) {
        jw_open(w, "messages", '[');
        jw_open(w, NULL, '{');
        jw_text(w, "role", "user");
        jw_bytes(w, "content", x->field[PROMPT], x->n[PROMPT]);
        jw_close(w, '}');
        jw_close(w, ']');
    } else {
        jw_bytes(w, "prompt", x->field[PROMPT], x->n[PROMPT]);
    }
    for (size_t i = NAME + 1; i < FIELDS; i++) {
        struct json number;
        struct err ignored;
        if (!x->n[i])
            continue;
        if (js_check(&number, fields[i], x->field[i], x->n[i], &ignored) == 0 &&
            js_kind(&number) == JS_NUMBER)
            jw_value(w, fields[i], &number);
        else
            jw_bytes(w, fields[i], x->field[i], x->n[i]);
    }
    jw_close(w, '}');
}

static int read_fields(struct call *c, struct form *x, struct err *e)
{
    bool bad = false;
    for (size_t i = 0; i < FIELDS; i++)
        bad |= !(x->f[i] = memory_file(&x->field[i], &x->n[i]));
    struct MHD_PostProcessor *parts = bad ? NULL : MHD_create_post_processor(c->c, 1024, take_field, x);
    const bool is_form = parts != NULL;
    bad |= is_form && MHD_post_process(parts, c->body ? c->body : "", c->n_body) != MHD_YES;
    bad |= is_form && MHD_destroy_post_processor(parts) != MHD_YES;
    for (size_t i = 0; i < FIELDS; i++)
        bad |= x->f[i] && stream_end(x->f[i]);
    return !is_form ? err_set(e, ERR_INPUT, "the fields of a form are needed")
           : bad ? err_set(e, ERR_INPUT, "the form is damaged") : 0;
}

/* *body: JSON; free. */
static int read_form(struct call *c, struct form *x, char **body, size_t *n, struct err *e)
{
    if (read_fields(c, x, e))
        return -1;
    if (!x->n[PROMPT])
        return err_set(e, ERR_INPUT, "the prompt is missing");
    x->n[PROMPT] = drop_cr(x->field[PROMPT], x->n[PROMPT]);
    if (x->n[NAME] && batch_name_check("name", x->field[NAME], e))
        return -1;
    FILE *f = memory_file(body, n);
    if (f)
        put_body(&(struct json_writer){ .f = f, .digits = 15, .style = JW_COMPACT }, x);
    return f && stream_end(f) == 0 ? 0 : err_set(e, ERR_FAILED, "out of memory");
}

int answer_form(struct call *c, struct err *e)
{
    struct form x = {0};
    char path[40], *body = NULL;
    int64_t id = 0;
    size_t n;
    int rc = read_form(c, &x, &body, &n, e);
    rc = rc ? rc : queue_body(c->sv, body, n, x.chat, x.n[NAME] ? x.field[NAME] : NULL, &id, e);
    free(body);
    for (size_t i = 0; i < FIELDS; i++)
        free(x.field[i]);
    snprintf(path, sizeof path, "/jobs/%" PRId64, id);
    return rc ? err_while(e, "The text was not queued") : call_see(c, path);
}
