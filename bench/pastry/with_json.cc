// The exchange with JSON over a stream socket.
#include <nlohmann/json.hpp>
#include <string>

#include "harness.h"
#include "stream.h"

using nlohmann::json;

static std::string to_text(const Welcome &welcome) {
    json rows = json::array();
    for (int n = 0; n < welcome.row_count; n++)
        rows.push_back({{"which_row", welcome.rows[n].which_row}, {"row", welcome.rows[n].row}});
    json message = {
        {"id", welcome.id}, {"time_sent", welcome.time_sent}, {"rows", std::move(rows)}, {"leaves", welcome.leaves}};
    return message.dump();
}

static Welcome from_text(const char *text, size_t size) {
    json message = json::parse(text, text + size);
    const json &rows = message["rows"];
    Welcome welcome;
    welcome.id = message["id"];
    welcome.row_count = static_cast<int>(rows.size());
    welcome.time_sent = message["time_sent"];
    welcome.rows = static_cast<Row *>(malloc(sizeof(Row) * rows.size()));
    for (int n = 0; n < welcome.row_count; n++) {
        welcome.rows[n].which_row = rows[n]["which_row"];
        for (int column = 0; column < COLUMNS; column++)
            for (int route = 0; route < ROUTES; route++)
                welcome.rows[n].row[column][route] = rows[n]["row"][column][route];
    }
    for (int leaf = 0; leaf < LEAVES; leaf++) welcome.leaves[leaf] = message["leaves"][leaf];
    return welcome;
}

static void send_welcome(int stream, const Welcome &welcome) {
    std::string text = to_text(welcome);
    send_bytes(stream, text.data(), text.size());
}

static void serve(int stream) {
    Buffer buffer = {};
    while (receive_bytes(stream, &buffer)) {
        Welcome welcome = from_text(buffer.bytes, buffer.size);
        send_welcome(stream, welcome);
        free(welcome.rows);
    }
}

static void time_coding(const char *system, int rows, int count) {
    Welcome sent = make_welcome(rows);
    std::string text;
    double start = seconds();
    for (int n = 0; n < count; n++) text = to_text(sent);
    print_measure(system, "encode", rows, (seconds() - start) / count * 1e6);
    start = seconds();
    for (int n = 0; n < count; n++) {
        Welcome got = from_text(text.data(), text.size());
        free(got.rows);
    }
    print_measure(system, "decode", rows, (seconds() - start) / count * 1e6);
    free(sent.rows);
}

static void ask(const char *system, int rows, int stream) {
    Welcome sent = make_welcome(rows);
    int count = fewer_repeats(rows);
    Buffer buffer = {};
    double start = seconds();
    for (int n = 0; n < count; n++) {
        send_welcome(stream, sent);
        must(receive_bytes(stream, &buffer), "read");
        Welcome got = from_text(buffer.bytes, buffer.size);
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
