// The exchange with JSON: a text behind its length, over a stream socket.
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness.h"

using nlohmann::json;

static std::string to_text(const Welcome &welcome) {
    json rows = json::array();
    for (int n = 0; n < welcome.row_count; n++)
        rows.push_back({{"which_row", welcome.rows[n].which_row}, {"row", welcome.rows[n].row}});
    json message = {
        {"id", welcome.id}, {"time_sent", welcome.time_sent}, {"rows", std::move(rows)}, {"leaves", welcome.leaves}};
    return message.dump();
}

static Welcome from_text(const std::string &text) {
    json message = json::parse(text);
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

static void must(bool ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static void write_all(int stream, const std::string &text) {
    uint32_t length = static_cast<uint32_t>(text.size());
    std::string frame(reinterpret_cast<char *>(&length), sizeof length);
    frame += text;
    for (size_t at = 0; at < frame.size();) {
        ssize_t wrote = write(stream, frame.data() + at, frame.size() - at);
        must(wrote > 0, "write");
        at += static_cast<size_t>(wrote);
    }
}

static bool read_exactly(int stream, char *bytes, size_t length) {
    for (size_t at = 0; at < length;) {
        ssize_t got = read(stream, bytes + at, length - at);
        if (got <= 0) return false;
        at += static_cast<size_t>(got);
    }
    return true;
}

static bool read_text(int stream, std::string &text) {
    uint32_t length;
    if (!read_exactly(stream, reinterpret_cast<char *>(&length), sizeof length)) return false;
    text.resize(length);
    return read_exactly(stream, text.data(), length);
}

// Where to listen or connect.
struct Address {
    sockaddr_storage name = {};
    socklen_t size = 0;
};

// An address is HOST:PORT, or the path of a Unix socket.
static Address address_of(const std::string &text) {
    Address address;
    if (text[0] == '/') {
        auto *path = reinterpret_cast<sockaddr_un *>(&address.name);
        path->sun_family = AF_UNIX;
        strncpy(path->sun_path, text.c_str(), sizeof path->sun_path - 1);
        address.size = sizeof *path;
        return address;
    }
    addrinfo hints = {}, *found = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    size_t colon = text.rfind(':');
    must(getaddrinfo(text.substr(0, colon).c_str(), text.substr(colon + 1).c_str(), &hints, &found) == 0, "getaddrinfo");
    memcpy(&address.name, found->ai_addr, found->ai_addrlen);
    address.size = found->ai_addrlen;
    freeaddrinfo(found);
    return address;
}

static int connected(const std::string &text, bool serving) {
    Address address = address_of(text);
    auto *name = reinterpret_cast<sockaddr *>(&address.name);
    int stream = socket(name->sa_family, SOCK_STREAM, 0);
    must(stream >= 0, "socket");
    int one = 1;
    if (serving) {
        setsockopt(stream, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        must(bind(stream, name, address.size) == 0 && listen(stream, 1) == 0, "listen");
        stream = accept(stream, nullptr, nullptr);
        must(stream >= 0, "accept");
    } else {
        int tries = 0;
        while (connect(stream, name, address.size) != 0) {
            must(++tries < 1000, "connect");
            usleep(10000);
        }
    }
    if (name->sa_family == AF_INET) setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return stream;
}

static void serve(int stream) {
    std::string text;
    while (read_text(stream, text)) {
        Welcome welcome = from_text(text);
        write_all(stream, to_text(welcome));
        free(welcome.rows);
    }
}

static void ask(const char *system, int rows, int stream) {
    Welcome sent = make_welcome(rows);
    int count = fewer_repeats(rows);
    std::string text;
    double start = seconds();
    for (int n = 0; n < count; n++) {
        write_all(stream, to_text(sent));
        must(read_text(stream, text), "read");
        Welcome got = from_text(text);
        if (n == 0) must_equal(&got, &sent);
        free(got.rows);
    }
    print_measure(system, "round_trip", rows, (seconds() - start) / count * 1e6);
    start = seconds();
    for (int n = 0; n < count; n++) text = to_text(sent);
    print_measure(system, "encode", rows, (seconds() - start) / count * 1e6);
    start = seconds();
    for (int n = 0; n < count; n++) {
        Welcome got = from_text(text);
        free(got.rows);
    }
    print_measure(system, "decode", rows, (seconds() - start) / count * 1e6);
    free(sent.rows);
}

int main(int, char **argv) {
    bool serving = std::string(argv[2]) == "serve";
    int stream = connected(argv[3], serving);
    if (serving) {
        serve(stream);
        return 0;
    }
    for (int at = 0; at < 4; at++) ask(argv[1], ROW_COUNTS[at], stream);
    return 0;
}
