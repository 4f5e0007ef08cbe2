/* The page. Its rows are made here and, alive, by its script from GET /v1/jobs. Names, prompts and texts come
 * from outside: page_text escapes them here, textContent there. The policy (CSP) lets only this style and
 * this script run, and loads nothing from elsewhere. Start at answer_page. */
#include "runs/serve/page.h"
#include "runs/report/job_json.h"
#include "runs/report/report_page.h"
#include "src/base/memory_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { ROWS_MAX = 500 };                 /* the newest jobs */

static const char style[] =
    ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;max-width:70rem;margin:1rem auto;"
    "padding:0 1rem}table{border-collapse:collapse;width:100%}th,td{text-align:left;"
    "padding:.2rem .6rem .2rem 0;"
    "border-bottom:1px solid #8884;vertical-align:top}.n{text-align:right}button{font:inherit}"
    "form{display:inline}pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid #8884;padding:1rem;"
    "max-height:60vh;overflow:auto;font:1.05rem/1.6 Georgia,serif}"
    "@media(max-width:40rem){thead{position:absolute;left:-99rem}tr{display:block;padding:.4rem 0}"
    "td{display:inline-block;border:0}}";

static const char script[] =
    "const rows=document.getElementById('jobs'),out=document.getElementById('out'),"
    "head=document.getElementById('of');let reader;\n"
    "function cell(tr,text,name){const td=tr.insertCell();td.textContent=text;if(name)td.className=name;"
    "return td}\n"
    "function button(td,job,verb){const b=document.createElement('button');b.textContent=verb;"
    "b.setAttribute('aria-label',verb+' job '+job);b.onclick=async()=>{"
    "await fetch('/v1/jobs/'+job+'/'+verb,{method:'POST'});b.blur();show()};td.append(b,' ')}\n"
    "function row(j){const tr=document.createElement('tr');const a=document.createElement('a');"
    "a.href='/v1/jobs/'+j.job+'/text';a.textContent=j.job;a.onclick=e=>{e.preventDefault();read(j.job)};"
    "cell(tr,'').append(a);cell(tr,(j.name?'@'+j.name:'')+(j.custom_id?'/'+j.custom_id:''));"
    "cell(tr,j.waits_for?j.state+', waits for '+j.waits_for:j.state);cell(tr,j.tokens+' of '+j.of,'n');"
    "cell(tr,j.tokens_per_second?j.tokens_per_second.toFixed(1):'','n');const td=cell(tr,'');"
    "if(j.state=='queued'||j.state=='running')button(td,j.job,'pause');"
    "if(j.state=='paused'||j.state=='failed')button(td,j.job,'resume');"
    "if(j.state!='done'&&j.state!='cancelled')button(td,j.job,'cancel');return tr}\n"
    "async function show(){if(document.hidden||rows.contains(document.activeElement))return;"
    "const r=await fetch('/v1/jobs?limit=500');if(!r.ok)return;const all=(await r.json()).jobs.reverse();"
    "rows.replaceChildren(...all.slice(0,500).map(row))}\n"
    "async function read(job){if(reader)reader.abort();reader=new AbortController();head.textContent="
    "'The text of job '+job;out.textContent='';try{const r=await fetch('/v1/jobs/'+job+'/text?follow=1',"
    "{signal:reader.signal});const d=new TextDecoder(),s=r.body.getReader();for(;;){const x=await s.read();"
    "if(x.done)break;const end=out.scrollTop+out.clientHeight>out.scrollHeight-40;"
    "out.append(d.decode(x.value,{stream:true}));if(end)out.scrollTop=out.scrollHeight}}catch(e){}}\n"
    "for(const a of rows.querySelectorAll('a'))a.onclick=e=>{e.preventDefault();read(+a.textContent)};\n"
    "setInterval(show,2000);";

static void put_form(FILE *f, int64_t job, const char *verb)
{
    fprintf(f, "<form method=\"post\" action=\"/v1/jobs/%" PRId64 "/%s?page=1\"><button aria-label=\"%s job %"
            PRId64 "\">%s</button></form> ", job, verb, verb, job, verb);
}

static void put_row(FILE *f, const struct job *j)
{
    const bool open = j->state == JOB_QUEUED || j->state == JOB_RUNNING;
    const double speed = job_speed(j);
    fprintf(f, "<tr><td><a href=\"/v1/jobs/%" PRId64 "/text\">%" PRId64 "</a></td><td>", j->id, j->id);
    if (j->batch) {
        fputs("@", f);
        page_text(f, j->batch);
    }
    if (j->custom_id) {
        fputs("/", f);
        page_text(f, j->custom_id);
    }
    fprintf(f, "</td><td>%s", job_state_name(j->state));
    if (j->waits) {
        fputs(", waits for ", f);
        page_text(f, j->after_name);
    }
    fprintf(f, "</td><td class=\"n\">%zu of %zu</td><td class=\"n\">", j->tokens, j->wanted);
    if (speed > 0)
        fprintf(f, "%.1f", speed);
    fputs("</td><td>", f);
    if (open)
        put_form(f, j->id, "pause");
    if (j->state == JOB_PAUSED || j->state == JOB_FAILED)
        put_form(f, j->id, "resume");
    if (j->state != JOB_DONE && j->state != JOB_CANCELLED)
        put_form(f, j->id, "cancel");
    fputs("</td></tr>\n", f);
}

static void put_page(FILE *f, const struct server *sv, const struct job_list *jobs, const char *nonce)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>longhand</title>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n", f);
    fprintf(f, "<style nonce=\"%s\">%s</style></head>\n<body><main><h1>longhand: ", nonce, style);
    page_text(f, sv->model);
    fputs("</h1>\n<table><caption>The queue</caption><thead><tr><th scope=\"col\">job</th>"
          "<th scope=\"col\">name</th><th scope=\"col\">state</th><th scope=\"col\" class=\"n\">tokens</th>"
          "<th scope=\"col\" class=\"n\">tokens/s</th><th scope=\"col\">actions</th></tr></thead>\n"
          "<tbody id=\"jobs\">\n", f);
    for (size_t i = jobs->n; i-- > 0;)
        put_row(f, &jobs->v[i]);
    fputs("</tbody></table>\n<section aria-labelledby=\"of\"><h2 id=\"of\">The number of a job shows its "
          "text</h2>\n<pre id=\"out\" tabindex=\"0\"></pre></section></main>\n", f);
    fprintf(f, "<script nonce=\"%s\">%s</script></body></html>\n", nonce, script);
}

enum MHD_Result answer_page(struct call *c)
{
    static const struct selection every = { .no_requests = true };
    struct server *sv = c->sv;
    struct err e = {0};
    struct job_list jobs = {0};
    struct MHD_Response *r = NULL;
    int64_t *ids = NULL;
    size_t n = 0, size = 0;
    uint64_t random;
    char nonce[20], policy[300], *text = NULL;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return MHD_NO;
    snprintf(nonce, sizeof nonce, "%016" PRIx64, random);
    snprintf(policy, sizeof policy, "default-src 'none'; style-src 'nonce-%s'; script-src 'nonce-%s'; "
             "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'", nonce, nonce);
    pthread_mutex_lock(&sv->reading);
    int rc = store_select(sv->reader, &every, &ids, &n, &e);
    const size_t from = n - MIN(n, (size_t)ROWS_MAX);
    rc = rc ? rc : store_jobs(sv->reader, ids + from, n - from, &jobs, &e);
    pthread_mutex_unlock(&sv->reading);
    free(ids);
    FILE *f = rc ? NULL : memory_file(&text, &size);
    if (f)
        put_page(f, sv, &jobs, nonce);
    job_list_free(&jobs);
    if (rc)
        return answer_err(c, &e);
    if (f && stream_end(f) == 0)
        r = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
    else
        free(text);
    if (r)
        MHD_add_response_header(r, "Content-Security-Policy", policy);
    return answer(c, MHD_HTTP_OK, r, "text/html; charset=utf-8");
}
