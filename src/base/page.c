/* The style of pages, their escaping, the printer of sheets, and plots. It owns no data; start reading at
 * page_table and page_plot. */
#include "src/base/page.h"

#include <math.h>
#include <string.h>

#include "src/base/unicode.h"

/* Lines differ in their dashes, too, for readers who do not see the colours and for print in black and
 * white. */
static const char page_style[] =
"*{box-sizing:border-box}"
":root{color-scheme:light dark;--bg:#f7f6f2;--card:#fff;--fg:#1e2023;--dim:#62666d;--line:#dddad2;"
"--warn:#9a3412;--warnbg:#fff3e8;"
"--c0:#1f66b0;--c1:#bf4f0c;--c2:#2b7f3f;--c3:#8440b0;--c4:#a8324f;--c5:#5d6470}"
"@media (prefers-color-scheme:dark){:root{--bg:#15171a;--card:#1d2024;--fg:#e6e7e9;--dim:#9ba1aa;"
"--line:#343940;--warn:#ffb98a;--warnbg:#33231a;"
"--c0:#78b2f2;--c1:#f59a5f;--c2:#72cc86;--c3:#c79aee;--c4:#f2889f;--c5:#a9b0bb}}"
"body{margin:0;background:var(--bg);color:var(--fg);"
"font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
"main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}"
"h1{font-size:1.7rem;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}h2{font-size:1.15rem;"
"margin:34px 0 10px}h3{font-size:.95rem;margin:0 0 2px}"
"p{margin:.3em 0}.sub,.note,small{color:var(--dim)}.sub{overflow-wrap:anywhere}.note{font-size:.85rem;"
"margin:0 0 4px}"
"article:not(:first-child){margin-top:56px;border-top:3px solid var(--line);padding-top:28px}"
".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:20px 0}"
".tile,.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px}"
".tile span{display:block;color:var(--dim);font-size:.8rem}.tile b{display:block;font-size:1.35rem;"
"line-height:1.25;font-weight:650;overflow-wrap:anywhere}"
".tile small{display:block;font-size:.8rem;line-height:1.35;overflow-wrap:anywhere}"
".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:14px}"
".plots .card{display:flex;flex-direction:column}.plots svg{margin-top:auto}.card{break-inside:avoid}svg{"
"display:block;width:100%;height:auto}svg.strip{height:20px;margin:4px 0 8px;border-radius:4px}svg text{"
"font-size:11px;fill:var(--dim)}"
".grid{stroke:var(--line);stroke-width:1}.line{fill:none;stroke-width:1.8;stroke-linejoin:round}"
".s0{--c:var(--c0)}.s1{--c:var(--c1)}.s2{--c:var(--c2)}.s3{--c:var(--c3)}.s4{--c:var(--c4)}.s5{--c:var(--c5)}"
".line,.hollow,.error{stroke:var(--c)}.hollow,.error{fill:none}.dot,.bar{fill:var(--c)}"
".line.s1{stroke-dasharray:7 3}.line.s2{stroke-dasharray:2 3}.line.s3{stroke-dasharray:9 3 2 3}"
".line.s4{stroke-dasharray:4 4}.line.s5{stroke-dasharray:1 4}"
".legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:.82rem;margin:2px 0 4px}.legend i{"
"display:inline-block;width:22px;margin-right:5px;vertical-align:middle;border-top:3px solid var(--c)}"
".legend .s1 i{border-top-style:dashed}.legend .s2 i{border-top-style:dotted}.legend .s3 i,.legend .s4 i{"
"border-top-style:dashed}.legend .s5 i{border-top-style:dotted}"
".line.t{stroke-width:4;opacity:.5}.legend .t i{border-top-width:6px;opacity:.5}.more{margin-top:14px}"
".parts i{width:11px;height:11px;border:0;background:var(--c)}"
".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;width:100%}th,td{"
"padding:4px 10px 4px 0;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap;"
"vertical-align:top}th{color:var(--dim);font-weight:600;white-space:normal;vertical-align:bottom}"
"th:first-child,td:first-child,.l{text-align:left}td.name{white-space:normal;overflow-wrap:anywhere;"
"min-width:10em}td.w{white-space:normal}tr:last-child td{border:0}"
".par{columns:2 330px;column-gap:36px}.par div{display:flex;justify-content:space-between;gap:16px;"
"border-bottom:1px solid var(--line);padding:3px 0;font-size:.88rem;break-inside:avoid}"
".par span,.rows span{color:var(--dim)}.rows div{display:flex;gap:12px;padding:3px 0;font-size:.88rem;"
"border-top:1px solid var(--line)}.rows span{flex:0 0 7em}.rows b{font-weight:400;overflow-wrap:anywhere}"
".par b{font-weight:500;text-align:right;overflow-wrap:anywhere}"
".warn{border-color:var(--warn);background:var(--warnbg);margin:12px 0}.warn b{color:var(--warn)}"
"blockquote{margin:6px 0 0;padding-left:12px;border-left:3px solid var(--warn);overflow-wrap:anywhere;"
"white-space:pre-wrap;font-family:Georgia,'DejaVu Serif',serif}"
".two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:14px;"
"align-items:start}"
"a{color:var(--c0)}[role=alert]{color:var(--warn)}i{font-style:normal}.buttons form{display:inline}"
"button,input,textarea{font:inherit;color:inherit;background:var(--card);border:1px solid var(--line);"
"border-radius:6px;padding:2px 8px}button{cursor:pointer;color:var(--c0)}label{display:block;margin:8px 0}"
"textarea{width:100%;height:7em}input:not([type]){width:9em}pre{white-space:pre-wrap;overflow-wrap:anywhere;"
"max-height:60vh;overflow:auto;margin:0;font:1.05rem/1.6 Georgia,'DejaVu Serif',serif}"
"@media(max-width:40rem){.flow i{display:none}.flow thead{position:absolute;left:-99rem}"
".flow tr{display:block;padding:4px 0;border-bottom:1px solid var(--line)}.flow td{display:inline-block;"
"border:0;max-width:100%;white-space:normal}}"
"summary{cursor:pointer;color:var(--dim);margin:10px 0}footer{margin-top:48px;"
"color:var(--dim);font-size:.82rem}"
"@media print{:root{color-scheme:light;--bg:#fff;--card:#fff;--fg:#000;--dim:#444;--line:#bbb}body{"
"font-size:11pt}main{max-width:none;padding:0}.tile,.card{border-color:#999}"
"article:not(:first-child){break-before:page;border:0;margin:0}details:not([open]){display:none}h2{"
"break-after:avoid}.tiles{grid-template-columns:repeat(5,1fr)}.tile b{font-size:1.1rem}.plots,.two{"
"grid-template-columns:1fr 1fr}}";

/* Whether a reader does not see the character, or sees other characters in another order because of it. */
static bool unseen(uint32_t c)
{
    return (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c ||
           (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) ||
           c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c < 0xe0080);
}

void page_text(FILE *f, const char *s)
{
    uint32_t c;
    for (size_t n = s ? strlen(s) : 0, len; n > 0; s += len, n -= len) {
        if (!utf8_valid_prefix(s, MIN(n, (size_t)4)) && !((unsigned char)*s < 0x80)) {
            fprintf(f, "\\x%02x", (unsigned)(unsigned char)*s);
            len = 1;
            continue;
        }
        len = utf8_get(s, &c);
        if (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'')
            fprintf(f, "&#%u;", (unsigned)c);
        else if (unseen(c))
            fprintf(f, "\\u{%x}", (unsigned)c);
        else
            fwrite(s, 1, len, f);
    }
}

void page_format(FILE *f, const char *format, ...)
{
    char text[40];
    va_list ap;
    va_start(ap, format);
    for (const char *p = format; *p; p++) {
        if (*p != '@') {
            fputc(*p, f);
        } else if (*++p == 't') {
            page_text(f, va_arg(ap, const char *));
        } else {
            const double x = va_arg(ap, double);
            number_text(text, sizeof text, x, *p == 'c' ? ',' : *p == 'd' ? 'D' : *p);
            fputs(isfinite(x) ? text : "&ndash;", f);
        }
    }
    va_end(ap);
}

/* ---- the frame ---- */

void page_begin(FILE *f, const char *title, const char *nonce)
{
    page_format(f, "<!DOCTYPE html><!-- longhand -->\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
                "<meta name=\"color-scheme\" content=\"light "
                "dark\"><title>@t &ndash; longhand</title>", title);
    if (nonce)
        page_format(f, "<style nonce=\"@t\">", nonce);
    else
        fputs("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
              "'unsafe-inline'; base-uri 'none'; form-action 'none'\"><style>", f);
    fprintf(f, "%s</style></head>\n<body><main>\n", page_style);
}

void page_end(FILE *f, const char *nonce, const char *script)
{
    fputs("</main>", f);
    if (script)
        fprintf(f, "<script nonce=\"%s\">%s</script>", nonce, script);
    fputs("</body></html>\n", f);
}

/* ---- sheets ---- */

static void put_shown(FILE *f, const struct row *r)
{
    char text[SHEET_TEXT];
    row_text(text, r, true);
    if (r->link)
        page_format(f, "<a href=\"@t\">", r->link);
    page_format(f, !*text ? "<i>&ndash;</i>" : value_is_text(r->value.kind) ? "<bdi>@t</bdi>" : "@t",
                value_is_text(r->value.kind) && !r->unit ? r->value.s : text);
    if (r->link)
        fputs("</a>", f);
}

static void put_pair(FILE *f, const char *name, const struct row *value)
{
    page_format(f, "<div><span>@t</span><b>", name);
    put_shown(f, value);
    fputs("</b></div>", f);
}

void page_rows(FILE *f, const struct row *rows)
{
    struct sheet_lines l = { .n = 0 };
    char text[SHEET_TEXT];
    fputs("<div class=\"rows\">", f);
    sheet_lines(&l, rows, false);
    for (size_t i = 0; i < l.n; i++)
        if (l.v[i]->value.kind < VALUE_ROWS && line_text(text, &l, i, 0, true))
            put_pair(f, l.v[i]->label, &(struct row){ .value = V_TEXT(text) });
    fputs("</div>\n", f);
}

void page_pairs(FILE *f, const struct table *t)
{
    fputs("<div class=\"par\">", f);
    for (size_t i = 0; i < t->n; i++) {
        struct row cells[SHEET_COLUMNS_MAX + 1] = { 0 };
        t->cells(t->ctx, i, cells);
        put_pair(f, cells->value.s, &cells[1]);
    }
    fputs("</div>\n", f);
}

void page_cells(FILE *f, const struct row *cells, bool head)
{
    struct sheet_lines l = { .n = 0 };
    sheet_lines(&l, cells, true);
    for (size_t i = 0; i < l.n; i++) {
        const struct row *r = l.v[i];
        const bool left = value_is_text(r->value.kind), wide = !head && left && r->value.s;
        const bool spread = !head && r->unit && strstr(r->unit, "\xc2\xb1");      /* on a second line */
        fprintf(f, "<t%s%s>", head ? "h scope=\"col\"" : "d",
                wide && strlen(r->value.s) > 20 ? " class=\"l name\"" : left ? " class=\"l\""
                : spread ? " class=\"w\"" : "");
        if (head)
            page_text(f, r->label);
        else
            put_shown(f, r);
        fprintf(f, "</t%c>", "dh"[head]);
    }
}

void page_table(FILE *f, const struct table *t)
{
    fputs("<div class=\"card scroll\"><table>", f);
    for (size_t i = 0; i < t->n; i++) {
        struct row cells[SHEET_COLUMNS_MAX + 1] = { 0 };
        struct row *first = cells;
        t->cells(t->ctx, i, cells);
        while (!first->label)
            first++;
        for (int head = i == 0 && *first->label; head >= 0; head--) {
            fputs("<tr>", f);
            page_cells(f, cells, head);
            fputs("</tr>\n", f);
        }
    }
    fputs("</table></div>\n", f);
}

/* ---- plots ---- */

enum { WIDE = 420, HIGH = 210, LEFT = 44, RIGHT = 12, TOP = 8, BOTTOM = 26 };

/* The step, 1, 2 or 5 times a power of ten, that cuts `range` into at most `n` parts. */
static double nice_step(double range, double n)
{
    double raw = range / n, p = pow(10, floor(log10(raw)));
    return (raw <= p * 1.0001 ? 1 : raw <= 2.0001 * p ? 2 : raw <= 5.0001 * p ? 5 : 10) * p;
}

static void tick(FILE *f, double v, double step, bool shares)
{
    if (shares)
        step *= 100;
    int digits = step >= 1 ? 0 : (int)ceil(-log10(step) - 1e-9);
    if (shares)
        fprintf(f, "%.*f %%", digits, 100 * v);
    else if (step >= 1000)
        fprintf(f, "%gk", v / 1000);
    else
        fprintf(f, "%.*f", digits, v);
}

static double at_x(double x, double last) { return LEFT + x / last * (WIDE - LEFT - RIGHT); }
static double at_y(double y, double low, double high)
{
    return TOP + (high - y) / (high - low) * (HIGH - TOP - BOTTOM);
}

/* Begins a plot: its card, its picture, and the lines of the axis of y. */
static void begin_plot(FILE *f, const char *title, const char *note, const struct series *legend, size_t n,
                       double low, double high, double step, bool shares)
{
    page_format(f, "<div class=\"card\"><h3>@t</h3><p class=\"note\">@t</p>", title, note);
    if (n)
        page_legend(f, legend, n);
    page_format(f, "<svg viewBox=\"0 0 @0 @0\" role=\"img\" aria-label=\"@t\">", (double)WIDE, (double)HIGH,
                title);
    for (double y = low; y <= high + step / 100; y += step) {
        const double at = at_y(y, low, high);
        fprintf(f, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" "
                "y=\"%.1f\" text-anchor=\"end\">", LEFT, WIDE - RIGHT, at, at, LEFT - 6, at + 4);
        tick(f, y, step, shares);
        fputs("</text>", f);
    }
}

static void axis_of_x(FILE *f, double last)
{
    const double step = nice_step(last, 5);
    for (double x = 0; x <= last * 1.0001; x += step) {
        const char *anchor = at_x(x, last) > WIDE - RIGHT - 14 ? "end" : x > 0 ? "middle" : "start";
        page_format(f, "<text x=\"@1\" y=\"@0\" text-anchor=\"@t\">@c</text>", at_x(x, last), HIGH - 8.0,
                    anchor, x);
    }
}

/* Ends an attribute and begins one with the values. */
static void draw_values(FILE *f, const char *name, const double *y, size_t n)
{
    fprintf(f, "\" %s=\"", name);
    for (size_t i = 0; i < n; i++)
        if (isfinite(y[i]))
            fprintf(f, "%s%.6g", i ? " " : "", y[i]);
        else
            fprintf(f, "%s-", i ? " " : "");
}

static void draw_line(FILE *f, const struct series *s, size_t k, const double *x, size_t n, double last,
                      double low, double high)
{
    const size_t full = n - s->shorter;
    bool down = false;
    fprintf(f, "<path class=\"line s%zu%s\" data-name=\"", k % 6, k < 6 ? "" : " t");
    page_text(f, s->name);
    draw_values(f, "data-y", s->y, n);
    if (s->half)
        draw_values(f, "data-half", s->half, n);
    fputs("\" d=\"", f);
    for (size_t i = 0; i < full; i++) {
        if (isfinite(s->y[i]))
            fprintf(f, "%s%.1f %.1f", down ? "L" : "M", at_x(x[i], last),
                    at_y(MIN(s->y[i], high), low, high));
        down = isfinite(s->y[i]);
    }
    fputs("\"/>", f);
    for (size_t i = 0; i < n && s->half; i++) {
        const double at = at_x(x[i], last), from = at_y(MAX(s->y[i] - s->half[i], low), low, high),
                     to = at_y(MIN(s->y[i] + s->half[i], high), low, high);
        if (isfinite(s->y[i]) && isfinite(s->half[i]))
            fprintf(f, "<path class=\"error s%zu\" d=\"M%.1f %.1fV%.1fM%.1f %.1fh6M%.1f %.1fh6\"/>", k % 6,
                    at, from, to, at - 3, from, at - 3, to);
    }
    for (size_t i = 0; i < n; i++) {             /* a point without neighbours has no line */
        const bool before = i > 0 && isfinite(s->y[i - 1]), after = i + 1 < full && isfinite(s->y[i + 1]);
        if (isfinite(s->y[i]) && (i >= full || (!before && !after)))
            fprintf(f, "<circle class=\"%s s%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>",
                    i < full ? "dot" : "hollow", k % 6, at_x(x[i], last),
                    at_y(MIN(s->y[i], high), low, high));
    }
}

void page_legend(FILE *f, const struct series *v, size_t n)
{
    fputs("<div class=\"legend\">", f);
    for (size_t k = 0; k < n && n > 1; k++)
        page_format(f, "<span class=\"s@0@t\"><i></i>@t</span>", (double)(k % 6), k < 6 ? "" : " t",
                    v[k].name);
    fputs("</div>", f);
}

/* The highest place that point i draws on, with its error bar; a bar counts up to twice its value. */
static double top_of(const struct series *s, size_t i)
{
    const double half = s->half && isfinite(s->half[i]) ? s->half[i] : 0;
    return s->y[i] + MIN(half, s->y[i]);
}

void page_plot(FILE *f, const struct page_plot *p, const struct series *v, size_t n_series)
{
    double high = NAN, low = p->low, last = MAX(p->length, 1);
    for (size_t k = 0; k < n_series; k++)
        for (size_t i = 0; i < p->n; i++)
            if (isfinite(v[k].y[i]) && !(top_of(&v[k], i) <= high))
                high = top_of(&v[k], i);
    if (!isfinite(high))
        return;                                  /* nothing was measured */
    if (p->shares)
        high = MIN(high, 1.0);                   /* error bars go beyond it */
    high = low > 0 ? MAX(high, 1.5 * low) : high > 0 ? high : 1;   /* so that small differences look small */
    double step = nice_step(high - low, 5);
    if (low > 0 && step >= 1) {                  /* whole numbers from 0 are easier to read */
        low = 0;
        step = nice_step(high, 5);
    }
    high = low + ceil((high - low) / step - 1e-9) * step;
    begin_plot(f, p->title, p->note, v, p->no_legend ? 0 : n_series, low, high, step, p->shares);
    axis_of_x(f, last);
    for (size_t i = 0; i < p->n_marks; i++) {
        fprintf(f, "<line class=\"grid\" stroke-dasharray=\"3 3\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" "
                "y2=\"%d\">", at_x(p->mark[i].x, last), at_x(p->mark[i].x, last), TOP, HIGH - BOTTOM);
        page_format(f, "<title>@t</title></line>", p->mark[i].name);
    }
    for (size_t k = 0; k < n_series; k++)
        draw_line(f, &v[k], k, p->x, p->n, last, low, high);
    fputs("</svg></div>\n", f);
}

void page_bars(FILE *f, const char *title, const char *note, const double *v, size_t n, size_t from)
{
    double high = 0, sum = 0, room = (double)(WIDE - LEFT - RIGHT) / (double)(n ? n : 1),
           wide = MIN(room * 0.8, 48);
    for (size_t i = 0; i < n; i++) {
        high = MAX(high, v[i]);
        sum += v[i];
    }
    if (high <= 0)
        return;
    double step = nice_step(high / sum, 5), top = ceil(high / sum / step - 1e-9) * step;
    begin_plot(f, title, note, NULL, 0, 0, top, step, true);
    for (size_t i = 0; i < n; i++) {
        double x = LEFT + room * ((double)i + 0.5), y = at_y(v[i] / sum, 0, top);
        page_format(f, "<rect class=\"bar s0\" x=\"@1\" y=\"@1\" width=\"@1\" height=\"@1\"><title>@0: @c"
                    "</title></rect><text x=\"@1\" y=\"@0\" text-anchor=\"middle\">@0</text>",
                    x - wide / 2, y, wide, at_y(0, 0, top) - y, (double)(i + from), v[i], x, HIGH - 8.0,
                    (double)(i + from));
    }
    fputs("</svg></div>\n", f);
}

void page_parts(FILE *f, const struct part *v, size_t n)
{
    double sum = 0, x = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i].value;
    if (!(sum > 0))
        return;
    fputs("<svg class=\"strip\" viewBox=\"0 0 420 22\" preserveAspectRatio=\"none\" role=\"img\" "
          "aria-label=\"shares of the time\">",
          f);
    for (size_t i = 0; i < n; i++) {
        double w = 420 * v[i].value / sum;
        fprintf(f, "<rect class=\"bar s%zu\" x=\"%.2f\" y=\"0\" width=\"%.2f\" height=\"22\"/>", i % 6, x, w);
        x += w;
    }
    fputs("</svg><div class=\"legend parts\">", f);
    for (size_t i = 0; i < n; i++) {
        page_format(f, "<span class=\"s@0\"><i></i>@t @d, @1 %</span>", (double)(i % 6), v[i].name,
                    v[i].value, 100 * v[i].value / sum);
    }
    fputs("</div>\n", f);
}
