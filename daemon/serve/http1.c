#include "serve/http1.h"

#include <string.h>
#include <strings.h>

#define REFUSE(code, why) return (*out_why = (why), (code))

/* RFC 9110 token characters. */
static bool is_token(char c)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    unsigned char u = (unsigned char)c;

    return (u >= '0' && u <= '9') || ((u | 32) >= 'a' && (u | 32) <= 'z') ||
           (u != 0 && memchr(marks, u, sizeof(marks) - 1) != NULL);
}

/* "Foo" against "foo"; ASCII. */
static bool word_is(struct slice slice, const char *text)
{
    return slice.size == strlen(text) && strncasecmp(slice.data, text, slice.size) == 0;
}

static bool parse_digits(struct slice text, uint64_t *out_value)
{
    uint64_t value = 0;

    if (text.size == 0 || text.size > 18)
        return false;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text.data[i] - '0');
    }
    *out_value = value;
    return true;
}

/* The next element of a comma-separated list, trimmed; false at its end. */
static bool next_element(struct slice *list, struct slice *out_element)
{
    const char *comma;
    struct slice element;

    if (list->size == 0)
        return false;
    comma = memchr(list->data, ',', list->size);
    element = (struct slice){list->data, comma ? (size_t)(comma - list->data) : list->size};
    list->data += element.size + (comma != NULL);
    list->size -= element.size + (comma != NULL);
    while (element.size > 0 && (*element.data == ' ' || *element.data == '\t'))
        element.data++, element.size--;
    while (element.size > 0 &&
           (element.data[element.size - 1] == ' ' || element.data[element.size - 1] == '\t'))
        element.size--;
    *out_element = element;
    return true;
}

static void read_connection(struct http1_head *head, struct slice value)
{
    struct slice element;

    while (next_element(&value, &element)) {
        if (word_is(element, "close"))
            head->keep_alive = false;
        else if (word_is(element, "keep-alive"))
            head->keep_alive = true;
    }
}

static bool has_zero_weight(struct slice parameters)
{
    const char *q = memmem(parameters.data, parameters.size, "q=", 2);
    const char *end = parameters.data + parameters.size;

    if (q == NULL)
        return false;
    for (q += 2; q < end; q++)
        if (*q != '0' && *q != '.')
            return false;
    return true;
}

static void read_accept_encoding(struct http1_head *head, struct slice value)
{
    struct slice element;

    while (next_element(&value, &element)) {
        const char *mark = memchr(element.data, ';', element.size);
        struct slice name = {element.data, mark ? (size_t)(mark - element.data) : element.size};
        struct slice parameters = {name.data + name.size, element.size - name.size};

        while (name.size > 0 && name.data[name.size - 1] == ' ')
            name.size--;
        if (has_zero_weight(parameters))
            continue;
        if (word_is(name, "gzip"))
            head->accepts_gzip = true;
        else if (word_is(name, "deflate"))
            head->accepts_deflate = true;
    }
}

static enum coding read_coding(struct slice value)
{
    if (value.size == 0 || word_is(value, "identity"))
        return CODING_IDENTITY;
    if (word_is(value, "gzip") || word_is(value, "x-gzip"))
        return CODING_GZIP;
    return word_is(value, "deflate") ? CODING_DEFLATE : CODING_UNKNOWN;
}

struct seen { /* fields that may stand only once */
    bool length, transfer, host;
};

/* The fields that mean something to us; by first letter, for most heads hold many that do not. */
static int read_field(struct http1_head *head, struct seen *seen, struct slice name,
                      struct slice value, const char **out_why)
{
    switch (name.data[0] | 32) {
    case 'a':
        if (word_is(name, "accept-encoding"))
            read_accept_encoding(head, value);
        return 0;
    case 'c':
        if (word_is(name, "content-length")) {
            if (seen->length || !parse_digits(value, &head->content_length))
                REFUSE(400, "bad Content-Length");
            seen->length = true;
        } else if (word_is(name, "connection")) {
            read_connection(head, value);
        } else if (word_is(name, "content-encoding")) {
            head->coding = read_coding(value);
        }
        return 0;
    case 'e':
        if (word_is(name, "expect")) {
            if (!word_is(value, "100-continue"))
                REFUSE(417, "unknown expectation");
            head->expects_continue = true;
        }
        return 0;
    case 'h':
        if (word_is(name, "host")) {
            if (seen->host)
                REFUSE(400, "two Host fields");
            seen->host = true;
        }
        return 0;
    case 'i':
        if (word_is(name, "inference-header-content-length")) {
            if (head->has_json_length || !parse_digits(value, &head->json_length))
                REFUSE(400, "bad Inference-Header-Content-Length");
            head->has_json_length = true;
        }
        return 0;
    case 't':
        if (word_is(name, "transfer-encoding")) {
            if (seen->transfer || !word_is(value, "chunked"))
                REFUSE(501, "Transfer-Encoding other than chunked");
            seen->transfer = head->chunked = true;
        }
        return 0;
    default:
        return 0;
    }
}

/* "http://host/path", as clients say it to proxies, means "/path" (RFC 9112 3.2.2). */
static void skip_authority(struct slice *target)
{
    const char *end = target->data + target->size, *path;

    if (target->size < 7 || strncasecmp(target->data, "http://", 7) != 0)
        return;
    path = memchr(target->data + 7, '/', target->size - 7);
    if (path != NULL)
        *target = (struct slice){path, (size_t)(end - path)};
}

static int parse_request_line(const char *line, size_t size, struct http1_head *head,
                              bool *out_is_old, const char **out_why)
{
    const char *end = line + size;
    const char *space = memchr(line, ' ', size);
    const char *second = space ? memchr(space + 1, ' ', (size_t)(end - space - 1)) : NULL;
    struct slice method, target;
    const char *mark;

    if (second == NULL || space == line || second == space + 1 || end - second != 9 ||
        memcmp(second, " HTTP/1.", 8) != 0 || (second[8] != '0' && second[8] != '1'))
        REFUSE(400, "bad request line");
    method = (struct slice){line, (size_t)(space - line)};
    target = (struct slice){space + 1, (size_t)(second - space - 1)};
    for (size_t i = 0; i < method.size; i++)
        if (!is_token(method.data[i]))
            REFUSE(400, "bad request line");
    for (size_t i = 0; i < target.size; i++)
        if ((unsigned char)target.data[i] <= ' ' || target.data[i] == 127)
            REFUSE(400, "bad request line");
    if (method.size == 3 && memcmp(method.data, "GET", 3) == 0)
        head->method = HTTP1_GET;
    else if (method.size == 4 && memcmp(method.data, "POST", 4) == 0)
        head->method = HTTP1_POST;
    else if (method.size == 4 && memcmp(method.data, "HEAD", 4) == 0)
        head->method = HTTP1_HEAD_ONLY;
    else
        head->method = HTTP1_OTHER;
    skip_authority(&target);
    mark = memchr(target.data, '?', target.size);
    head->path = target;
    head->query = (struct slice){target.data + target.size, 0};
    if (mark != NULL) {
        head->path.size = (size_t)(mark - target.data);
        head->query = (struct slice){mark + 1, target.size - head->path.size - 1};
    }
    *out_is_old = second[8] == '0';
    return 0;
}

/* One field line without its CRLF; refuses obs-fold (a line beginning with a space) as a bad name.
 */
static int split_field(const char *line, size_t size, struct slice *out_name,
                       struct slice *out_value, const char **out_why)
{
    size_t name = 0;
    const char *value, *end = line + size;

    while (name < size && is_token(line[name]))
        name++;
    if (name == 0 || name == size || line[name] != ':')
        REFUSE(400, "bad field name");
    value = line + name + 1;
    for (const char *c = value; c < end; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 127)
            REFUSE(400, "bad field value");
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *out_name = (struct slice){line, name};
    *out_value = (struct slice){value, (size_t)(end - value)};
    return 0;
}

int http1_parse_head(const char *bytes, size_t size, struct http1_head *out_head,
                     const char **out_why)
{
    const char *end = bytes + size - 2; /* of the last field line */
    const char *eol = memmem(bytes, size, "\r\n", 2);
    struct http1_head head = {.keep_alive = true};
    struct seen seen = {0};
    bool is_old = false;
    unsigned fields = 0;
    int refusal;

    if (eol == NULL || size < 4)
        REFUSE(400, "bad request line");
    refusal = parse_request_line(bytes, (size_t)(eol - bytes), &head, &is_old, out_why);
    if (refusal != 0)
        return refusal;
    head.keep_alive = !is_old;
    for (const char *line = eol + 2; line < end; line = eol + 2) {
        struct slice name, value;

        eol = memmem(line, (size_t)(end + 2 - line), "\r\n", 2);
        if (eol == NULL)
            REFUSE(400, "bad field");
        if (++fields > HTTP1_FIELDS_MAX)
            REFUSE(431, "too many fields");
        refusal = split_field(line, (size_t)(eol - line), &name, &value, out_why);
        if (refusal == 0)
            refusal = read_field(&head, &seen, name, value, out_why);
        if (refusal != 0)
            return refusal;
    }
    if (!is_old && !seen.host)
        REFUSE(400, "no Host field");
    if (head.chunked && (seen.length || is_old))
        REFUSE(400, "Transfer-Encoding beside Content-Length or in HTTP/1.0");
    if (is_old)
        head.expects_continue =
            false; /* RFC 9110 10.1.1: such a client could not read the answer */
    *out_head = head;
    return 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

const char *http1_find_hopeless(const char *bytes, size_t size)
{
    const char *line = bytes, *end = bytes + size, *feed;

    if (*bytes == 0x16) /* the record type of a handshake, RFC 8446 5.1 */
        return "this socket speaks plain HTTP, no TLS";
    if (!is_token(*bytes) && *bytes != '\r')
        return "not an HTTP request";
    for (; (feed = memchr(line, '\n', (size_t)(end - line))) != NULL; line = feed + 1)
        if (feed == bytes || feed[-1] != '\r')
            return "a line of the head ends in LF without CR";
    return NULL;
}

bool http1_parse_chunk_size(const char *line, size_t size, uint64_t *out_size)
{
    uint64_t value = 0;
    size_t digits = 0;

    while (digits < size && digits < 8 && hex_value(line[digits]) >= 0)
        value = value * 16 + (uint64_t)hex_value(line[digits++]);
    if (digits == 0)
        return false;
    while (digits < size && (line[digits] == ' ' || line[digits] == '\t'))
        digits++;
    if (digits < size && line[digits] != ';')
        return false;
    *out_size = value;
    return true;
}
