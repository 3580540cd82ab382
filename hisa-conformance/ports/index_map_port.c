/* A port in C that needs nothing but the C library: `index_map` and `block_mask` (docs/SPEC.md 8
 * and 4) behind the port protocol (docs/PROTOCOL.md).
 *
 *     cc -std=c11 -O2 index_map_port.c -o index_map_port
 *     hisa run --port ./index_map_port
 *
 * To make it yours, replace the bodies of `index_map` and `block_mask`. All text that is parsed
 * ends with a zero byte, and every step over it looks at the byte before it moves on.
 */

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 1 << 20, PATH_BYTES = 4096, WHY_BYTES = 512, DEPTH_MAX = 64 };
static const int64_t FILE_MAX_BYTES = (int64_t)1 << 32;

/* How a case went, as the protocol says it; `why` goes with all but OK. */
enum status { OK, UNSUPPORTED, REFUSED, FAILED };
static const char *const STATUS[] = {"ok", "unsupported", "refused", "error"};
static char why[WHY_BYTES];

static enum status because(enum status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    return status;
}

/* JSON: a value is a pointer to its first byte; NULL stands for no value. */

static const char *blank(const char *p) {
    while (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r') p++;
    return p;
}

/* Behind the string that starts at p. */
static const char *past_string(const char *p) {
    for (p++; *p != '"'; p++) {
        if ((unsigned char)*p < ' ') return NULL; /* the end of the text is one of them */
        if (*p == '\\' && *++p == '\0') return NULL;
    }
    return p + 1;
}

/* Behind the value that starts at p. */
static const char *past(const char *p, int depth) {
    if (*p == '"') return past_string(p);
    if (*p != '{' && *p != '[') {
        const char *start = p;
        while (isalnum((unsigned char)*p) || *p == '-' || *p == '+' || *p == '.') p++;
        return p == start ? NULL : p;
    }
    const char close = *p == '{' ? '}' : ']';
    if (depth == DEPTH_MAX) return NULL;
    p = blank(p + 1);
    if (*p == close) return p + 1;
    for (;;) {
        if (close == '}') {
            if (*p != '"' || !(p = past_string(p)) || *(p = blank(p)) != ':') return NULL;
            p = blank(p + 1);
        }
        if (!(p = past(p, depth + 1))) return NULL;
        p = blank(p);
        if (*p == close) return p + 1;
        if (*p++ != ',') return NULL;
        p = blank(p);
    }
}

/* Whether the text is one object and nothing else; what follows relies on it. */
static bool is_object(const char *text) {
    text = blank(text);
    const char *end = *text == '{' ? past(text, 0) : NULL;
    return end && *blank(end) == '\0';
}

/* The first value of that name in a well-formed object. */
static const char *member(const char *object, const char *name) {
    if (!object || *(object = blank(object)) != '{') return NULL;
    const size_t length = strlen(name);
    for (const char *p = blank(object + 1); *p == '"';) {
        const char *end = past_string(p);
        const bool found = (size_t)(end - p) == length + 2 && !memcmp(p + 1, name, length);
        p = blank(blank(end) + 1);
        if (found) return p;
        p = blank(past(p, 0));
        if (*p == ',') p = blank(p + 1);
    }
    return NULL;
}

static bool integer(const char *value, int64_t *number) {
    if (!value) return false;
    const bool minus = *value == '-';
    if (minus) value++;
    if (!isdigit((unsigned char)*value)) return false;
    int64_t n = 0;
    for (; isdigit((unsigned char)*value); value++) {
        if (n > (INT64_MAX - 9) / 10) return false;
        n = n * 10 + (*value - '0');
    }
    *number = minus ? -n : n;
    return !isalnum((unsigned char)*value) && *value != '.' && *value != '+' && *value != '-';
}

/* A string without its escapes. Those beyond ASCII are not needed here and not taken. */
static bool string(const char *value, char *text, size_t room) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (!value || *value != '"') return false;
    size_t length = 0;
    for (value++; *value != '"'; value++) {
        char c = *value;
        if (c == '\\') {
            const char *escape = strchr(from, *++value);
            if (!escape || *escape == '\0') return false;
            c = to[escape - from];
        }
        if (length + 1 >= room) return false;
        text[length++] = c;
    }
    text[length] = '\0';
    return true;
}

static void print_string(const char *text) {
    putchar('"');
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') putchar('\\');
        if (c < ' ' || c > '~') putchar('?');
        else putchar(c);
    }
    putchar('"');
}

/* safetensors: eight bytes with the length of the header, the header, the data. */

struct file {
    char *header;
    unsigned char *data;
    int64_t data_bytes;
};

static void close_file(struct file *file) {
    free(file->header);
    free(file->data);
}

static enum status open_file(const char *path, struct file *file) {
    unsigned char length[8];
    uint64_t header = 0;
    long size = 0;
    FILE *stream = fopen(path, "rb");
    if (!stream) return because(FAILED, "%.300s cannot be opened", path);
    bool good = fseek(stream, 0, SEEK_END) == 0 && (size = ftell(stream)) >= 8 &&
                size <= FILE_MAX_BYTES && fseek(stream, 0, SEEK_SET) == 0 &&
                fread(length, 1, 8, stream) == 8;
    for (int i = 7; good && i >= 0; i--) header = header << 8 | length[i];
    good = good && header <= (uint64_t)size - 8;
    if (good) {
        file->data_bytes = size - 8 - (long)header;
        file->header = malloc((size_t)header + 1);
        file->data = malloc((size_t)file->data_bytes + 1);
        good = file->header && file->data &&
               fread(file->header, 1, (size_t)header, stream) == header &&
               fread(file->data, 1, (size_t)file->data_bytes, stream) == (size_t)file->data_bytes;
    }
    fclose(stream);
    if (!good) return because(FAILED, "%.300s is damaged or too large", path);
    file->header[header] = '\0';
    return is_object(file->header) ? OK : because(FAILED, "the header of %.300s is damaged", path);
}

/* A matrix of 32-bit words; a vector has one column. */
struct tensor {
    int64_t rows, columns;
    uint32_t *words;
};

/* Numbers of an array: how many there are, or -1 where it is something else or has too many. */
static int numbers(const char *value, int64_t *into, int room) {
    int count = 0;
    if (!value || *value != '[') return -1;
    for (value = blank(value + 1); *value != ']'; value = blank(value)) {
        if (count == room || !integer(value, &into[count]) || into[count] < 0) return -1;
        count++;
        value = blank(past(value, 0));
        if (*value == ',') value++;
    }
    return count;
}

/* The tensor of that name, copied to where words may be read. */
static enum status read_tensor(const struct file *file, const char *name, const char *dtype,
                               int rank, struct tensor *tensor) {
    const char *entry = member(file->header, name);
    char found[16];
    int64_t shape[2] = {0, 1}, span[2];
    if (!entry) return because(FAILED, "tensor %s is missing", name);
    if (!string(member(entry, "dtype"), found, sizeof found) || strcmp(found, dtype) != 0)
        return because(FAILED, "tensor %s has not the type %s", name, dtype);
    if (numbers(member(entry, "shape"), shape, 2) != rank || shape[0] > INT32_MAX ||
        shape[1] > INT32_MAX)
        return because(FAILED, "tensor %s has not %d dimensions of 31 bits", name, rank);
    const int64_t bytes = shape[0] * shape[1]; /* in words so far, below 2^62 */
    if (numbers(member(entry, "data_offsets"), span, 2) != 2 || span[0] > span[1] ||
        span[1] > file->data_bytes || bytes > FILE_MAX_BYTES || span[1] - span[0] != bytes * 4)
        return because(FAILED, "tensor %s does not fit its bytes", name);
    tensor->words = malloc((size_t)bytes * 4 + 1);
    if (!tensor->words) return because(FAILED, "no memory for tensor %s", name);
    memcpy(tensor->words, file->data + span[0], (size_t)bytes * 4);
    tensor->rows = shape[0];
    tensor->columns = shape[1];
    return OK;
}

static enum status write_tensor(const char *path, const char *name, const char *dtype,
                                const struct tensor *tensor) {
    const int64_t bytes = tensor->rows * tensor->columns * 4;
    char header[256];
    int length = snprintf(header, sizeof header,
                          "{\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRId64 ",%" PRId64
                          "],\"data_offsets\":[0,%" PRId64 "]}}",
                          name, dtype, tensor->rows, tensor->columns, bytes);
    while (length % 8 != 0) header[length++] = ' ';
    const unsigned char prefix[8] = {(unsigned char)length};
    FILE *stream = fopen(path, "wb");
    if (!stream) return because(FAILED, "%.300s cannot be written", path);
    const bool good = fwrite(prefix, 1, 8, stream) == 8 &&
                      fwrite(header, 1, (size_t)length, stream) == (size_t)length &&
                      fwrite(tensor->words, 1, (size_t)bytes, stream) == (size_t)bytes;
    if (fclose(stream) != 0 || !good) return because(FAILED, "%.300s is not written", path);
    return OK;
}

/* The stages. Tensors by name in the order of `inputs` below. */

struct window {
    int64_t ks, ke;
};

/* The window of a row, (0, 0) where it is empty (SPEC W.1); it may end at key n (W.2). */
static enum status window_of(const struct tensor *ks, const struct tensor *ke, int64_t row,
                             int64_t n, struct window *window) {
    window->ks = (int32_t)ks->words[row];
    window->ke = (int32_t)ke->words[row];
    if (window->ks >= window->ke) {
        window->ks = window->ke = 0;
    } else if (window->ks < 0 || window->ke > n) {
        return because(REFUSED, "row %" PRId64 ": window [%" PRId64 ", %" PRId64
                       ") is not within the keys", row, window->ks, window->ke);
    }
    return OK;
}

static int by_value(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Block ids of a row (SPEC 6.3): -1 or blocks of keys that int32 can name, none of them twice.
 * `sorted` has room for them. */
static enum status check_ids(const int32_t *ids, int64_t count, int64_t b, int64_t row,
                             int32_t *sorted) {
    if (count == 0) return OK;
    memcpy(sorted, ids, (size_t)count * 4);
    qsort(sorted, (size_t)count, 4, by_value);
    if (sorted[0] < -1 || sorted[count - 1] > (INT32_MAX - 1) / b)
        return because(REFUSED, "block_ids of row %" PRId64 " hold %" PRId32 " and %" PRId32, row,
                       sorted[0], sorted[count - 1]);
    for (int64_t i = 1; i < count; i++) {
        if (sorted[i] >= 0 && sorted[i] == sorted[i - 1])
            return because(REFUSED, "block_ids of row %" PRId64 " repeat block %" PRId32, row,
                           sorted[i]);
    }
    return OK;
}

/* SPEC 8: slots[M, K], block_ids[M, m], ks[M], ke[M] -> indices[M, K]. */
static enum status index_map(const struct tensor *in, int64_t b, struct tensor *out) {
    const int64_t m = in[1].columns, columns = in[0].columns;
    const int32_t *slots = (const int32_t *)in[0].words, *ids = (const int32_t *)in[1].words;
    if (m * b > INT32_MAX) return because(REFUSED, "block_topk * block_size is %" PRId64, m * b);
    int32_t *sorted = malloc((size_t)m * 4 + 1);
    enum status status = sorted ? OK : because(FAILED, "no memory for a row");
    for (int64_t row = 0; status == OK && row < in[0].rows; row++, ids += m, slots += columns) {
        struct window window;
        status = window_of(&in[2], &in[3], row, INT32_MAX, &window);
        if (status == OK) status = check_ids(ids, m, b, row, sorted);
        for (int64_t i = 0; status == OK && i < columns; i++) {
            const int64_t slot = slots[i];
            int64_t index = -1;
            if (slot < -1 || slot >= m * b) {
                status = because(REFUSED, "slots[%" PRId64 ", %" PRId64 "] is %" PRId64, row, i,
                                 slot);
            } else if (slot >= 0) {
                const int64_t key = ids[slot / b] * b + slot % b;
                if (ids[slot / b] < 0 || key < window.ks || key >= window.ke)
                    status = because(REFUSED, "slots[%" PRId64 ", %" PRId64 "] is %" PRId64
                                     ", no key of the window", row, i, slot);
                index = key - window.ks;
            }
            if (status == OK) out->words[row * columns + i] = (uint32_t)(int32_t)index;
        }
    }
    free(sorted);
    return status;
}

/* SPEC 4: block_scores[M, Nb], ks[M], ke[M] -> block_mask[M, Nb]. Bits, not floats, are moved: a
 * NaN keeps its payload. */
static enum status block_mask(const struct tensor *in, int64_t b, struct tensor *out) {
    const int64_t blocks = in[0].columns;
    for (int64_t row = 0; row < in[0].rows; row++) {
        struct window window;
        /* blocks * b may pass 63 bits; a window that fits into int32 does not. */
        const int64_t n = blocks > INT32_MAX / b ? INT32_MAX : blocks * b;
        const enum status status = window_of(&in[1], &in[2], row, n, &window);
        if (status != OK) return status;
        const int64_t first = window.ks / b, end = (window.ke + b - 1) / b;
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t at = row * blocks + block;
            if (block < first || block >= end) out->words[at] = 0xFF800000;
            else if (block == first || block == end - 1) out->words[at] = 0x7F800000;
            else out->words[at] = in[0].words[at];
        }
    }
    return OK;
}

struct stage {
    const char *name;
    enum status (*run)(const struct tensor *in, int64_t b, struct tensor *out);
    const char *output, *dtype; /* in the shape of the first input */
    struct { const char *name, *dtype; int rank; } inputs[4];
};

static const struct stage STAGES[] = {
    {"index_map", index_map, "indices", "I32",
     {{"slots", "I32", 2}, {"block_ids", "I32", 2}, {"ks", "I32", 1}, {"ke", "I32", 1}}},
    {"block_mask", block_mask, "block_mask", "F32",
     {{"block_scores", "F32", 2}, {"ks", "I32", 1}, {"ke", "I32", 1}, {NULL, NULL, 0}}},
};

/* Reads what the stage needs, runs it, writes what it made. */
static enum status run_files(const struct stage *stage, int64_t b, const char *from,
                             const char *to, uint32_t fill) {
    struct file file = {NULL, NULL, 0};
    struct tensor in[4] = {{0, 0, NULL}}, out = {0, 0, NULL};
    enum status status = open_file(from, &file);
    for (int i = 0; status == OK && i < 4 && stage->inputs[i].name; i++) {
        status = read_tensor(&file, stage->inputs[i].name, stage->inputs[i].dtype,
                             stage->inputs[i].rank, &in[i]);
        if (status == OK && in[i].rows != in[0].rows)
            status = because(REFUSED, "%s has another number of rows", stage->inputs[i].name);
    }
    if (status == OK) {
        const size_t words = (size_t)(in[0].rows * in[0].columns);
        out = in[0];
        out.words = malloc(words * 4 + 1);
        if (!out.words) status = because(FAILED, "no memory for the output");
        for (size_t i = 0; status == OK && i < words; i++) out.words[i] = fill;
    }
    if (status == OK) status = stage->run(in, b, &out);
    if (status == OK) status = write_tensor(to, stage->output, stage->dtype, &out);
    for (int i = 0; i < 4; i++) free(in[i].words);
    free(out.words);
    close_file(&file);
    return status;
}

static enum status run_case(const char *request) {
    static char from[PATH_BYTES], to[PATH_BYTES];
    char name[64], fill[16] = "zeros";
    int64_t b;
    if (!string(member(request, "stage"), name, sizeof name) ||
        !string(member(request, "in"), from, sizeof from) ||
        !string(member(request, "out"), to, sizeof to))
        return because(FAILED, "stage, in and out have to be strings");
    if (member(request, "fill") && !string(member(request, "fill"), fill, sizeof fill))
        return because(FAILED, "fill is no short string");
    for (size_t i = 0; i < sizeof STAGES / sizeof *STAGES; i++) {
        if (strcmp(STAGES[i].name, name) != 0) continue;
        if (!integer(member(member(request, "params"), "block_size"), &b))
            return because(FAILED, "block_size is no integer");
        if (b < 1 || b > INT32_MAX) return because(REFUSED, "block_size is %" PRId64, b);
        return run_files(&STAGES[i], b, from, to, strcmp(fill, "ones") ? 0 : 0x7FFFFFFF);
    }
    return because(UNSUPPORTED, "%.60s is not offered", name);
}

/* One line in, one line out. */
static void answer(const char *line) {
    int64_t id;
    if (!is_object(line)) {
        printf("{\"id\":null,\"status\":\"error\",\"why\":\"the request is no JSON object\"}\n");
    } else if (member(line, "hello")) {
        printf("{\"hello\":1,\"name\":\"index_map in C\","
               "\"stages\":[\"index_map\",\"block_mask\"]}\n");
    } else if (!integer(member(line, "id"), &id)) {
        printf("{\"id\":null,\"status\":\"error\",\"why\":\"the request has no id\"}\n");
    } else {
        const enum status status = run_case(line);
        printf("{\"id\":%" PRId64 ",\"status\":\"%s\"", id, STATUS[status]);
        if (status != OK) {
            printf(",\"why\":");
            print_string(why);
        }
        printf("}\n");
    }
    fflush(stdout);
}

int main(void) {
    static char line[LINE_MAX_BYTES];
    while (fgets(line, sizeof line, stdin)) {
        if (!strchr(line, '\n') && !feof(stdin)) {
            fprintf(stderr, "a request takes more than %d bytes\n", LINE_MAX_BYTES);
            return 1;
        }
        if (*blank(line) != '\0') answer(line);
    }
    return 0;
}
