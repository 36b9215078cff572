/* The exchange with XML over a stream socket: written by snprintf, read by expat. */
#include <expat.h>

#include "harness.h"
#include "stream.h"

static void add_int(struct Buffer *text, const char *tag, int value) {
    reserve(text, text->size + 64);
    text->size += (size_t)snprintf(text->bytes + text->size, 64, "<%s>%d</%s>", tag, value, tag);
}

static void add(struct Buffer *text, const char *tag) {
    reserve(text, text->size + 64);
    text->size += (size_t)snprintf(text->bytes + text->size, 64, "<%s>", tag);
}

static void to_text(const struct Welcome *welcome, struct Buffer *text) {
    text->size = 0;
    add(text, "welcome");
    add_int(text, "id", welcome->id);
    add_int(text, "row_count", welcome->row_count);
    reserve(text, text->size + 64);
    text->size += (size_t)snprintf(text->bytes + text->size, 64, "<time>%.17g</time>", welcome->time_sent);
    for (int n = 0; n < welcome->row_count; n++) {
        add(text, "row");
        add_int(text, "which", welcome->rows[n].which_row);
        for (int column = 0; column < COLUMNS; column++)
            for (int route = 0; route < ROUTES; route++) add_int(text, "route", welcome->rows[n].row[column][route]);
        add(text, "/row");
    }
    for (int leaf = 0; leaf < LEAVES; leaf++) add_int(text, "leaf", welcome->leaves[leaf]);
    add(text, "/welcome");
}

/* The message as far as it is read. */
struct Reader {
    struct Welcome welcome;
    int rows, routes, leaves, is_valid;
    char digits[32];
    int length;
};

static void on_start(void *data, const XML_Char *tag, const XML_Char **attributes) {
    struct Reader *reader = (struct Reader *)data;
    (void)attributes;
    reader->length = 0;
    if (strcmp(tag, "row") == 0) {
        reader->is_valid &= ++reader->rows <= reader->welcome.row_count;
        reader->routes = 0;
    }
}

static void on_text(void *data, const XML_Char *text, int length) {
    struct Reader *reader = (struct Reader *)data;
    reader->is_valid &= reader->length + length < (int)sizeof reader->digits;
    if (!reader->is_valid) return;
    memcpy(reader->digits + reader->length, text, (size_t)length);
    reader->length += length;
}

static void on_row_count(struct Reader *reader, int count) {
    reader->is_valid &= count >= 0 && reader->welcome.rows == NULL;
    if (!reader->is_valid) return;
    reader->welcome.row_count = count;
    reader->welcome.rows = (struct Row *)malloc((size_t)count * sizeof(struct Row) + 1);
}

static void on_end(void *data, const XML_Char *tag) {
    struct Reader *reader = (struct Reader *)data;
    struct Welcome *welcome = &reader->welcome;
    if (!reader->is_valid) return;
    reader->digits[reader->length] = '\0';
    struct Row *row = reader->rows > 0 ? &welcome->rows[reader->rows - 1] : NULL;
    if (strcmp(tag, "route") == 0 && row && reader->routes < COLUMNS * ROUTES) {
        row->row[reader->routes / ROUTES][reader->routes % ROUTES] = atoi(reader->digits);
        reader->routes++;
    } else if (strcmp(tag, "which") == 0 && row)
        row->which_row = atoi(reader->digits);
    else if (strcmp(tag, "leaf") == 0 && reader->leaves < LEAVES)
        welcome->leaves[reader->leaves++] = atoi(reader->digits);
    else if (strcmp(tag, "id") == 0)
        welcome->id = atoi(reader->digits);
    else if (strcmp(tag, "time") == 0)
        welcome->time_sent = atof(reader->digits);
    else if (strcmp(tag, "row_count") == 0)
        on_row_count(reader, atoi(reader->digits));
    else
        reader->is_valid &= strcmp(tag, "row") == 0 || strcmp(tag, "welcome") == 0;
}

static struct Welcome from_text(const struct Buffer *text, XML_Parser parser) {
    struct Reader reader = {.is_valid = 1};
    XML_ParserReset(parser, NULL);
    XML_SetUserData(parser, &reader);
    XML_SetElementHandler(parser, on_start, on_end);
    XML_SetCharacterDataHandler(parser, on_text);
    int is_read = XML_Parse(parser, text->bytes, (int)text->size, 1) == XML_STATUS_OK;
    if (!is_read || !reader.is_valid || reader.rows != reader.welcome.row_count) {
        fprintf(stderr, "not a welcome: %s\n", XML_ErrorString(XML_GetErrorCode(parser)));
        exit(1);
    }
    return reader.welcome;
}

static void serve(int stream, XML_Parser parser) {
    struct Buffer buffer = {0};
    while (receive_bytes(stream, &buffer)) {
        struct Welcome welcome = from_text(&buffer, parser);
        to_text(&welcome, &buffer);
        send_bytes(stream, buffer.bytes, buffer.size);
        free(welcome.rows);
    }
}

static void time_coding(const char *system, int rows, int count, XML_Parser parser) {
    struct Welcome sent = make_welcome(rows);
    struct Buffer buffer = {0};
    double start = seconds();
    for (int n = 0; n < count; n++) to_text(&sent, &buffer);
    print_measure(system, "encode", rows, (seconds() - start) / count * 1e6);
    start = seconds();
    for (int n = 0; n < count; n++) {
        struct Welcome got = from_text(&buffer, parser);
        free(got.rows);
    }
    print_measure(system, "decode", rows, (seconds() - start) / count * 1e6);
    free(buffer.bytes);
    free(sent.rows);
}

static void ask(const char *system, int rows, int stream, XML_Parser parser) {
    struct Welcome sent = make_welcome(rows);
    int count = fewer_repeats(rows);
    struct Buffer buffer = {0};
    double start = seconds();
    for (int n = 0; n < count; n++) {
        to_text(&sent, &buffer);
        send_bytes(stream, buffer.bytes, buffer.size);
        must(receive_bytes(stream, &buffer), "read");
        struct Welcome got = from_text(&buffer, parser);
        if (n == 0) must_equal(&got, &sent);
        free(got.rows);
    }
    print_measure(system, "round_trip", rows, (seconds() - start) / count * 1e6);
    time_coding(system, rows, count, parser);
    free(buffer.bytes);
    free(sent.rows);
}

int main(int argc, char **argv) {
    (void)argc;
    int is_server = strcmp(argv[2], "serve") == 0, stream = connected(argv[3], is_server);
    XML_Parser parser = XML_ParserCreate("US-ASCII");
    if (is_server)
        serve(stream, parser);
    else
        for (int at = 0; at < 4; at++) ask(argv[1], ROW_COUNTS[at], stream, parser);
    XML_ParserFree(parser);
    return 0;
}
