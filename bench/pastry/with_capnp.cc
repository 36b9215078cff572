// The exchange with Cap'n Proto over a stream socket.
#include <capnp/message.h>
#include <capnp/serialize.h>

#include <string>

#include "harness.h"
#include "stream.h"
#include "welcome.capnp.h"

static void to_message(const Welcome &welcome, capnp::MessageBuilder &message) {
    overlay::WelcomeMessage::Builder root = message.initRoot<overlay::WelcomeMessage>();
    root.setId(welcome.id);
    root.setTimeSent(welcome.time_sent);
    auto rows = root.initRows(static_cast<unsigned>(welcome.row_count));
    for (int n = 0; n < welcome.row_count; n++) {
        const int *cells = &welcome.rows[n].row[0][0];
        rows[n].setWhichRow(welcome.rows[n].which_row);
        rows[n].setRow(kj::arrayPtr(cells, COLUMNS * ROUTES));
    }
    root.setLeaves(kj::arrayPtr(welcome.leaves, LEAVES));
}

static Welcome from_bytes(const char *bytes, size_t size) {
    capnp::ReaderOptions options;
    options.traversalLimitInWords = 1 << 26;
    auto words = kj::arrayPtr(reinterpret_cast<const capnp::word *>(bytes), size / sizeof(capnp::word));
    capnp::FlatArrayMessageReader message(words, options);
    overlay::WelcomeMessage::Reader root = message.getRoot<overlay::WelcomeMessage>();
    auto rows = root.getRows();
    Welcome welcome;
    welcome.id = root.getId();
    welcome.row_count = static_cast<int>(rows.size());
    welcome.time_sent = root.getTimeSent();
    welcome.rows = static_cast<Row *>(malloc(sizeof(Row) * rows.size()));
    for (int n = 0; n < welcome.row_count; n++) {
        welcome.rows[n].which_row = rows[n].getWhichRow();
        int cell = 0;
        for (int value : rows[n].getRow()) {
            if (cell == COLUMNS * ROUTES) break;
            welcome.rows[n].row[cell / ROUTES][cell % ROUTES] = value;
            cell++;
        }
    }
    int leaf = 0;
    for (int value : root.getLeaves()) {
        if (leaf == LEAVES) break;
        welcome.leaves[leaf++] = value;
    }
    return welcome;
}

static kj::Array<capnp::word> to_words(const Welcome &welcome) {
    capnp::MallocMessageBuilder message;
    to_message(welcome, message);
    return capnp::messageToFlatArray(message);
}

static void send_welcome(int stream, const Welcome &welcome) {
    kj::Array<capnp::word> words = to_words(welcome);
    send_bytes(stream, words.begin(), words.asBytes().size());
}

static void serve(int stream) {
    Buffer buffer = {};
    while (receive_bytes(stream, &buffer)) {
        Welcome welcome = from_bytes(buffer.bytes, buffer.size);
        send_welcome(stream, welcome);
        free(welcome.rows);
    }
}

static void time_coding(const char *system, int rows, int count) {
    Welcome sent = make_welcome(rows);
    kj::Array<capnp::word> words;
    double start = seconds();
    for (int n = 0; n < count; n++) words = to_words(sent);
    print_measure(system, "encode", rows, (seconds() - start) / count * 1e6);
    start = seconds();
    for (int n = 0; n < count; n++) {
        Welcome got = from_bytes(words.asChars().begin(), words.asBytes().size());
        free(got.rows);
    }
    print_measure(system, "decode", rows, (seconds() - start) / count * 1e6);
    free(sent.rows);
}

static void ask(const char *system, int rows, int stream) {
    Welcome sent = make_welcome(rows);
    int count = repeats(rows);
    Buffer buffer = {};
    double start = seconds();
    for (int n = 0; n < count; n++) {
        send_welcome(stream, sent);
        must(receive_bytes(stream, &buffer), "read");
        Welcome got = from_bytes(buffer.bytes, buffer.size);
        if (n == 0) must_equal(&got, &sent);
        free(got.rows);
    }
    print_measure(system, "round_trip", rows, (seconds() - start) / count * 1e6);
    time_coding(system, rows, count);
    free(buffer.bytes);
    free(sent.rows);
}

int main(int, char **argv) {
    bool is_server = std::string(argv[2]) == "serve";
    int stream = connected(argv[3], is_server);
    if (is_server) {
        serve(stream);
        return 0;
    }
    for (int at = 0; at < 4; at++) ask(argv[1], ROW_COUNTS[at], stream);
    return 0;
}
