/* HTTP. Start at take_request, which libmicrohttpd calls for every request, and at refuse, which says who may
 * ask. */
#include "runs/serve/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory_file.h"
#include "src/base/output.h"
#include "src/base/progress.h"
#include "src/base/sha256.h"

/* Connections beyond --max-connections are for /health and for saying 429. At its own limit libmicrohttpd
 * resets a new connection: LEAVING is room for those that are being closed to make a place. The bodies of all
 * requests together have at most BODIES times --max-body. A stack holds the evaluation of a chat template of
 * the client (src/text/jinja). */
enum { SPARE = 8, LEAVING = 1024, BODIES = 16, STACK_BYTES = 4 << 20, KEY_BYTES_MAX = 4096,
       KEEPALIVE_SECONDS = 60, HEADER_SECONDS = 10 };

/* ---- answers ---- */

const char *call_argument(const struct call *c, const char *name)
{
    return MHD_lookup_connection_value(c->c, MHD_GET_ARGUMENT_KIND, name);
}

static int open_text(struct call *c)
{
    FILE *f = memory_file(&c->text, &c->n_text);
    c->w = (struct json_writer){ .f = f, .digits = 15, .style = JW_COMPACT };
    return f ? 0 : -1;
}

static void drop_text(struct call *c)
{
    if (c->w.f)
        stream_end(c->w.f);
    c->w.f = NULL;
    free(c->text);
    c->text = NULL;
}

struct MHD_Response *call_text(struct call *c)
{
    FILE *f = c->w.f;
    c->w.f = NULL;
    if (!f || stream_end(f))
        return NULL;                     /* drop_text frees the text */
    char *text = c->text;
    c->text = NULL;
    return MHD_create_response_from_buffer(c->n_text, text, MHD_RESPMEM_MUST_FREE);
}

int call_respond(struct call *c, struct MHD_Response *r, const char *type)
{
    c->response = r;
    c->type = type;
    return r ? 0 : CALL_CUT;
}

static struct MHD_Response *no_text(void)
{
    return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
}

int call_see(struct call *c, const char *path)
{
    struct MHD_Response *r = no_text();
    if (r)
        MHD_add_response_header(r, "Location", path);
    c->status = MHD_HTTP_SEE_OTHER;
    return call_respond(c, r, "text/plain");
}

int call_deleted(struct call *c, const char *object)
{
    sheet_object(&c->w, NULL, (struct row[]){ { "id", NULL, V_TEXT(c->id) },
                                              { "object", NULL, V_TEXT(object) },
                                              { "deleted", NULL, V_BOOL(true) }, { 0 } });
    return 0;
}

int call_fail(struct call *c, struct err *e, unsigned status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    *e = (struct err){ .code = ERR_INPUT };
    vsnprintf(e->msg, sizeof e->msg, format, args);
    va_end(args);
    c->status = status;
    return -1;
}

void put_error(struct json_writer *w, unsigned status, const char *message)
{
    const struct row error[] = {
        { "message", NULL, V_TEXT(message) },
        { "type", NULL, V_TEXT(status >= 500 ? "server_error" : "invalid_request_error") },
        { "param", NULL, V_TEXT(NULL) },
        { "code", NULL, V_UINT(status) },
        { 0 } };
    sheet_object(w, NULL, (struct row[]){ { "error", NULL, V_ROWS(error) }, { 0 } });
}

void err_for_client(const struct err *e, char *out, size_t size)
{
    err_words(e, out, size);
    if (err_exit_code(e) == ERR_FAILED)
        fprintf(stderr, "%s%s\n", log_time(), err_text(e));
}

/* A failure becomes the text of the answer. */
static int put_failure(struct call *c, const struct err *e)
{
    char message[sizeof e->msg];
    static const char body[] = BATCH_BODY ": ";
    err_for_client(e, message, sizeof message);
    const size_t skip = strncmp(message, body, sizeof body - 1) == 0 ? sizeof body - 1 : 0;
    c->status = c->status                ? c->status
                : e->code == ERR_INPUT ? MHD_HTTP_BAD_REQUEST
                : e->code == ERR_AGAIN ? MHD_HTTP_SERVICE_UNAVAILABLE
                                       : MHD_HTTP_INTERNAL_SERVER_ERROR;
    drop_text(c);
    c->type = NULL;
    if (open_text(c))
        return -1;
    if (c->route && c->route->failed && (strncmp(c->route->path, "/v1/", 4) || call_argument(c, "page")))
        c->route->failed(c, message + skip);
    else
        put_error(&c->w, c->status, message + skip);
    return 0;
}

static const char *header(const struct call *c, const char *name)
{
    return MHD_lookup_connection_value(c->c, MHD_HEADER_KIND, name);
}

/* The header Origin if --cors names it, where / and the port that the scheme has anyway may follow. */
static const char *cors_origin(const struct call *c)
{
    const char *origin = header(c, "Origin"), *port = origin && strncmp(origin, "https:", 6) ? ":80" : ":443";
    const struct text_list *l = &c->sv->o->cors;
    for (size_t i = 0; origin && i < l->n; i++)
        for (const char *p = l->v[i]; *p; p += strcspn(p, ","), p += strspn(p, ", ")) {
            const bool same = strncasecmp(p, origin, strlen(origin)) == 0;
            const char *rest = p + (same ? strlen(origin) : 0);
            rest += strncmp(rest, port, strlen(port)) ? 0 : strlen(port);
            rest += *rest == '/';
            if (*p == '*' || (same && strchr(", ", *rest)))
                return origin;
        }
    return NULL;
}

/* Sends what a route has answered. */
static enum MHD_Result answer(struct call *c, int rc, const struct err *e)
{
    const char *cors = cors_origin(c), *asked = header(c, "Access-Control-Request-Headers");
    if (rc == CALL_CUT || (rc < 0 && put_failure(c, e)))
        return MHD_NO;
    struct MHD_Response *r = c->response ? c->response : call_text(c);
    if (!r)
        return MHD_NO;
    const unsigned status = c->status ? c->status : MHD_HTTP_OK;
    const bool busy = status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE;
    const struct { const char *name, *value; } headers[] = {
        { "Content-Type", c->type ? c->type : "application/json" },
        { "Cache-Control", "no-store" },
        { "X-Content-Type-Options", "nosniff" },
        { "Access-Control-Allow-Origin", cors },
        { "Access-Control-Allow-Headers",
          !cors ? NULL : asked ? asked : "authorization, content-type, idempotency-key" },
        { "Access-Control-Allow-Methods", cors ? "GET, POST, DELETE" : NULL },
        { "Vary", c->sv->o->cors.n ? "Origin" : NULL },
        { "Connection", c->close ? "close" : NULL },
        { "Allow", status == MHD_HTTP_METHOD_NOT_ALLOWED ? c->allow : NULL },
        { "WWW-Authenticate", status == MHD_HTTP_UNAUTHORIZED ? "Basic realm=\"longhand\"" : NULL },
        { "Retry-After", busy ? "1" : NULL } };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (headers[i].value)
            MHD_add_response_header(r, headers[i].name, headers[i].value);
    rc = MHD_queue_response(c->c, status, r);
    MHD_destroy_response(r);
    c->response = NULL;
    return (enum MHD_Result)rc;
}

int call_object(const struct call *c, struct json *body, struct err *e)
{
    if (js_check(body, BATCH_BODY, c->body ? c->body : "", c->n_body, e))
        return -1;
    return js_kind(body) == JS_OBJECT ? 0 : js_bad(body, e, "allowed is an object");
}

bool call_is_gone(const struct call *c)
{
    char byte;
    struct pollfd p = { .events = POLLIN | POLLRDHUP };
    p.fd = MHD_get_connection_info(c->c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    if (poll(&p, 1, 0) <= 0)
        return false;
    return (p.revents & (POLLERR | POLLHUP | POLLNVAL | POLLRDHUP)) ||
           recv(p.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* ---- who may ask ---- */

/* The address on this side of the connection, as a number. */
static void local_address(const struct call *c, char *out, size_t size)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    const int fd = MHD_get_connection_info(c->c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    if (getsockname(fd, (struct sockaddr *)&a, &n) ||
        getnameinfo((struct sockaddr *)&a, n, out, (socklen_t)size, NULL, 0, NI_NUMERICHOST))
        *out = 0;
}

/* A page of another site may not reach the server under a name of its own (DNS rebinding). */
static bool host_is_allowed(const struct call *c)
{
    const char *host = header(c, "Host");
    char name[256], local[64];
    if (!host)
        return false;
    const char *end = *host == '[' ? strchr(host, ']') : strrchr(host, ':');
    host += *host == '[';
    snprintf(name, sizeof name, "%.*s", (int)MIN(end ? (size_t)(end - host) : strlen(host), sizeof name - 1),
             host);
    local_address(c, local, sizeof local);
    bool allowed = strcasecmp(name, "localhost") == 0 || strcasecmp(name, c->sv->o->host) == 0 ||
                   (*local && strcasecmp(name, local) == 0);
    for (size_t i = 0; i < c->sv->o->allow_host.n; i++)
        allowed |= strcasecmp(name, c->sv->o->allow_host.v[i]) == 0;
    return allowed;
}

/* Whether the request comes from no page, or from a page of this server or of --cors. */
static bool origin_is_allowed(const struct call *c)
{
    const char *origin = header(c, "Origin"), *site = header(c, "Sec-Fetch-Site");
    const char *name = origin ? strstr(origin, "://") : NULL;
    if (cors_origin(c))
        return true;
    if (origin && !(name && strcasecmp(name + 3, header(c, "Host")) == 0))
        return false;
    return !site || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0;
}

static bool is_key(const struct server *sv, const char *key)
{
    uint8_t sha[SHA256_BYTES], differs = 0;
    sha256_of(sha, key, strlen(key));
    for (size_t i = 0; i < sizeof sha; i++)
        differs |= sha[i] ^ sv->key[i];
    return !differs;
}

/* Authorization: Bearer KEY, or Basic with the key as password. */
static bool key_is_right(const struct call *c)
{
    const char *given = header(c, "Authorization");
    char *password = NULL;
    if (!c->sv->has_key)
        return true;
    if (given && strncasecmp(given, "Bearer ", 7) == 0)
        return is_key(c->sv, given + 7);
    char *user = MHD_basic_auth_get_username_password(c->c, &password);
    const bool right = password && is_key(c->sv, password);
    MHD_free(user);
    MHD_free(password);
    return right;
}

/* ---- routes ---- */

/* Whether the path of a route is this one; what stands for * goes to id[size]. */
static bool path_is(const char *path, const char *url, char *id, size_t size)
{
    const size_t n = strcspn(path, "*");
    *id = 0;
    if (!path[n])
        return strcmp(path, url) == 0;
    const size_t one = strncmp(path, url, n) ? 0 : strcspn(url + n, "/");
    if (!one || one >= size || strcmp(path + n + 1, url + n + one))
        return false;
    memcpy(id, url + n, one);
    id[one] = 0;
    return true;
}

/* Finds the route, or returns the status that says why there is none. c->allow gets the path's methods. */
static unsigned find_route(struct call *c, const char *method, const char *url)
{
    unsigned status = MHD_HTTP_NOT_FOUND;
    for (const struct route *r = c->sv->routes; r->method && !c->route; r++)
        if (path_is(r->path, url, c->id, sizeof c->id)) {
            const size_t n = strlen(c->allow);
            snprintf(c->allow + n, sizeof c->allow - n, "%s%s", n ? ", " : "", r->method);
            status = MHD_HTTP_METHOD_NOT_ALLOWED;
            if (strcmp(r->method, strcmp(method, "HEAD") ? method : "GET") == 0)
                c->route = r;
        }
    return status;
}

/* lengths: of Content-Length and Transfer-Encoding together */
struct framing { size_t lengths, hosts; bool bad; };

static enum MHD_Result see_header(void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct framing *f = ctx;
    const bool length = strcasecmp(name, "Content-Length") == 0,
               encoding = strcasecmp(name, "Transfer-Encoding") == 0;
    (void)kind;
    f->lengths += length || encoding;
    f->hosts += strcasecmp(name, "Host") == 0;
    f->bad |= f->lengths > 1 || f->hosts > 1 || strpbrk(name, " \t\r\n") ||
              (length && value[strspn(value, "0123456789")]) || (encoding && strcasecmp(value, "chunked"));
    return MHD_YES;
}

/* What is answered before the body is read: as an answer_fn, without a response if the request may go on. */
static int begin(struct call *c, const char *method, const char *url, struct err *e)
{
    struct server *sv = c->sv;
    const char *length = header(c, "Content-Length");
    /* a proxy that sees another end of the request would take the rest for that of another client;
     * libmicrohttpd goes by the first of two lengths */
    struct framing f = {0};
    MHD_get_connection_values(c->c, MHD_HEADER_KIND, see_header, &f);
    c->close = f.bad;
    if (f.bad)
        return call_fail(c, e, MHD_HTTP_BAD_REQUEST, "the headers do not say once where the request ends: "
                         "allowed is one Content-Length, or Transfer-Encoding: chunked, and one Host");
    if (!host_is_allowed(c))
        return call_fail(c, e, MHD_HTTP_FORBIDDEN, "this server has another name than the header Host says; "
                         "--allow-host NAME adds one");
    if (!origin_is_allowed(c))
        return call_fail(c, e, MHD_HTTP_FORBIDDEN, "requests from pages of other origins are not allowed; "
                         "--cors ORIGIN allows one");
    if (strcmp(method, "OPTIONS") == 0 && sv->o->cors.n) {
        c->status = MHD_HTTP_NO_CONTENT;
        return call_respond(c, no_text(), "text/plain");
    }
    const unsigned status = find_route(c, method, url);
    if (!(c->route && c->route->open) && !key_is_right(c))
        return call_fail(c, e, MHD_HTTP_UNAUTHORIZED,
                         "the key is missing or wrong: Authorization: Bearer KEY");
    if (!c->route)
        return call_fail(c, e, status, "%s: %s", status == MHD_HTTP_NOT_FOUND
                         ? "there is no such route" : "this route has another method", url);
    const bool upload = c->route->take != NULL;
    const uint64_t most = upload ? sv->o->max_upload : sv->o->max_body;
    if (length && strtoull(length, NULL, 10) > most)
        return call_fail(c, e, MHD_HTTP_CONTENT_TOO_LARGE, "a body of %s bytes; --max-%s allows %" PRIu64,
                         length, upload ? "upload" : "body", most);
    return 0;
}

/* ---- places ---- */

/* A connection. waits: for a complete request, so it may be sent away, which sets fd to -1. */
struct seat { TAILQ_ENTRY(seat) at; int fd; bool waits; };

/* The connection waits from now on, or no more. Under seating. */
static void seat_waits(struct server *sv, struct seat *s, bool waits)
{
    if (!s)                              /* there was no memory for it */
        return;
    if (s->waits)
        TAILQ_REMOVE(&sv->seats, s, at);
    s->waits = waits && s->fd >= 0;
    if (s->waits)
        TAILQ_INSERT_TAIL(&sv->seats, s, at);
}

/* A connection begins or ends. When all places are taken, the one that has waited longest goes. */
static void mind_connection(void *ctx, struct MHD_Connection *c, void **seat,
                            enum MHD_ConnectionNotificationCode code)
{
    struct server *sv = ctx;
    struct seat *s = *seat;
    pthread_mutex_lock(&sv->seating);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        struct seat *oldest = TAILQ_FIRST(&sv->seats);
        if (++sv->n_seats > sv->o->max_connections + SPARE && oldest) {
            seat_waits(sv, oldest, false);
            shutdown(oldest->fd, SHUT_RDWR);     /* its thread closes it, and calls this function */
            oldest->fd = -1;
            sv->n_seats--;
        }
        if ((s = *seat = calloc(1, sizeof *s))) {
            s->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
            seat_waits(sv, s, true);
        }
    } else {
        sv->n_seats -= !s || s->fd >= 0;
        seat_waits(sv, s, false);
        free(s);
    }
    pthread_mutex_unlock(&sv->seating);
}

static void mind_request(struct call *c, bool waits)
{
    struct seat *s = MHD_get_connection_info(c->c, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    pthread_mutex_lock(&c->sv->seating);
    seat_waits(c->sv, s, waits);
    pthread_mutex_unlock(&c->sv->seating);
}

/* ---- requests ---- */

static void take_body(struct call *c, const char *bytes, size_t n)
{
    if (n > c->sv->o->max_body - c->n_body) {
        call_fail(c, &c->why, MHD_HTTP_CONTENT_TOO_LARGE, "--max-body allows %zu bytes",
                  (size_t)c->sv->o->max_body);
        return;
    }
    if (c->n_body + n >= c->room) {
        const size_t room = MAX(2 * c->room, c->n_body + n + 1), added = room - c->room;
        char *more = NULL;
        if (atomic_fetch_add(&c->sv->bodies, added) + added <= BODIES * c->sv->o->max_body)
            more = realloc(c->body, room);
        if (!more) {
            c->sv->bodies -= added;
            call_fail(c, &c->why, MHD_HTTP_SERVICE_UNAVAILABLE, "the bodies of all requests together are too "
                      "large; try again");
            return;
        }
        c->body = more;
        c->room = room;
    }
    memcpy(c->body + c->n_body, bytes, n);
    c->n_body += n;
    c->body[c->n_body] = 0;
}

static enum MHD_Result take_request(void *ctx, struct MHD_Connection *connection, const char *url,
                                    const char *method, const char *version, const char *bytes, size_t *n,
                                    void **state)
{
    struct call *c = *state;
    struct err e = {0};
    (void)version;
    if (!c) {
        if (!(c = calloc(1, sizeof *c)))
            return MHD_NO;
        c->sv = ctx;
        c->c = connection;
        *state = c;
        MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)HTTP_IDLE_SECONDS);
        const int rc = begin(c, method, url, &e);
        return rc || c->response ? answer(c, rc, &e) : MHD_YES;
    }
    if (*n) {
        mind_request(c, true);           /* from now on: who sends is not the one that waits longest */
        if (!c->why.code)
            (c->route->take ? c->route->take : take_body)(c, bytes, *n);
        *n = 0;
        return MHD_YES;
    }
    mind_request(c, false);
    if (open_text(c))
        return MHD_NO;
    return c->why.code ? answer(c, -1, &c->why) : answer(c, c->route->answer(c, &e), &e);
}

static void end_request(void *ctx, struct MHD_Connection *connection, void **state,
                        enum MHD_RequestTerminationCode why)
{
    struct call *c = *state;
    (void)ctx, (void)connection, (void)why;
    *state = NULL;
    if (!c)
        return;
    if (c->route && c->route->drop)
        c->route->drop(c);
    mind_request(c, true);
    c->sv->bodies -= c->room;
    free(c->body);
    drop_text(c);
    free(c);
}

/* ---- the port ---- */

/* The bytes of a file that only its owner may read, without the newline at its end. */
static int read_key(struct server *sv, const char *path, struct err *e)
{
    struct stat st;
    char *text = NULL;
    size_t n;
    if (stat(path, &st) == 0 && st.st_mode & 077)
        return err_set(e, ERR_INPUT, "--api-key-file: %s has mode %04o, and 0600 is needed", path,
                       (unsigned)st.st_mode & 07777);
    if (file_read(&text, &n, path, KEY_BYTES_MAX, e))
        return err_while(e, "--api-key-file");
    while (n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    bool good = n > 0;
    for (size_t i = 0; i < n; i++)
        good &= text[i] > ' ' && text[i] <= '~';
    sha256_of(sv->key, text, n);
    explicit_bzero(text, n);
    free(text);
    sv->has_key = good;
    return good ? 0 : err_set(e, ERR_INPUT, "--api-key-file: %s: one line of printable ASCII without spaces "
                              "is needed", path);
}

/* Whether every text of an option has this form, a regular expression. */
static int check_forms(const struct text_list *l, const char *option, const char *form, const char *allowed,
                       struct err *e)
{
    regex_t r;
    size_t i = 0;
    if (regcomp(&r, form, REG_EXTENDED | REG_ICASE | REG_NOSUB))
        return err_set(e, ERR_FAILED, "out of memory");
    while (i < l->n && regexec(&r, l->v[i], 0, NULL, 0) == 0)
        i++;
    regfree(&r);
    return i == l->n ? 0 : err_set(e, ERR_INPUT, "%s: '%s' is not %s", option, l->v[i], allowed);
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static int bind_to(struct server *sv, const struct addrinfo *a, struct err *e)
{
    const int on = 1, idle = KEEPALIVE_SECONDS;
    struct sockaddr_storage bound;
    socklen_t n = sizeof bound;
    char host[48] = "", port[8] = "";
    sv->listener = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* SO_REUSEADDR: the port of a server that was killed is free at once */
    if (sv->listener < 0 || setsockopt(sv->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        /* for the connections: a follower whose machine has vanished is found */
        setsockopt(sv->listener, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) ||
        setsockopt(sv->listener, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) ||
        bind(sv->listener, a->ai_addr, a->ai_addrlen) || listen(sv->listener, SOMAXCONN) ||
        getsockname(sv->listener, (struct sockaddr *)&bound, &n) ||
        getnameinfo((struct sockaddr *)&bound, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        return err_set(e, ERR_INPUT, "--host %s --port %zu: %s", sv->o->host, sv->o->port, strerror(errno));
    sv->port = strtoul(port, NULL, 10);
    snprintf(sv->address, sizeof sv->address, a->ai_family == AF_INET6 ? "[%s]" : "%s", host);
    return 0;
}

int http_open(struct server *sv, struct err *e)
{
    const struct options *o = sv->o;
    const struct addrinfo hint = { .ai_flags = AI_NUMERICSERV, .ai_socktype = SOCK_STREAM };
    struct addrinfo *a = NULL;
    char port[8];
    snprintf(port, sizeof port, "%zu", o->port);
    if (check_forms(&o->cors, "--cors", "^((\\*|null|[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\\[[0-9a-f:.]+\\])"
                                        "(:[0-9]{1,5})?/?)(, *|$))+$",
                    "an origin, which has a scheme and no path, like http://localhost:3000; * is all", e) ||
        check_forms(&o->allow_host, "--allow-host", "^([a-z0-9._-]+|[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*)$",
                    "the name of a host, without scheme, port and brackets", e) ||
        (o->api_key_file && read_key(sv, o->api_key_file, e)))
        return -1;
    struct rlimit files;                 /* each connection is one */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    const int rc = getaddrinfo(o->host, port, &hint, &a);
    if (rc)
        return err_set(e, ERR_INPUT, "--host %s: %s", o->host, gai_strerror(rc));
    const int bad = sv->has_key || is_loopback(a->ai_addr)
                        ? bind_to(sv, a, e)
                        : err_set(e, ERR_INPUT, "--host %s: other machines reach this address, so it needs "
                                  "--api-key-file FILE", o->host);
    freeaddrinfo(a);
    return bad;
}

int http_start(struct server *sv, struct err *e)
{
    sv->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0, NULL,
        NULL, take_request, sv, MHD_OPTION_LISTEN_SOCKET, sv->listener, MHD_OPTION_NOTIFY_COMPLETED,
        end_request, NULL, MHD_OPTION_NOTIFY_CONNECTION, mind_connection, sv, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(sv->o->max_connections + SPARE + LEAVING), MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)HEADER_SECONDS, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
    if (!sv->daemon)
        return err_set(e, ERR_FAILED, "the threads of the server cannot be started: %s", strerror(errno));
    sv->listener = -1;                           /* the daemon closes it */
    printf("http://%s:%zu/v1 (model %s)\n", sv->address, sv->port, sv->model);
    return stdout_finish(e);
}

void http_stop(struct server *sv)
{
    if (sv->daemon)
        MHD_stop_daemon(sv->daemon);
    if (sv->listener >= 0)
        close(sv->listener);
}
