// The exchange with CORBA by omniORB: a call that returns its argument. Both ends convert between messages and the program's own struct.
#include <cstring>
#include <omniORB4/CORBA.h>
#include <string>

#include "harness.h"
#include "welcome.hh"

static const char *const KEY = "node";

static void to_message(const Welcome &welcome, overlay::WelcomeMessage &message) {
    message.id = welcome.id;
    message.time_sent = welcome.time_sent;
    message.rows.length(static_cast<CORBA::ULong>(welcome.row_count));
    for (int n = 0; n < welcome.row_count; n++) {
        overlay::RowMessage &row = message.rows[static_cast<CORBA::ULong>(n)];
        row.which_row = welcome.rows[n].which_row;
        memcpy(row.row, welcome.rows[n].row, sizeof row.row);
    }
    memcpy(message.leaves, welcome.leaves, sizeof message.leaves);
}

static Welcome from_message(const overlay::WelcomeMessage &message) {
    Welcome welcome;
    welcome.id = message.id;
    welcome.row_count = static_cast<int>(message.rows.length());
    welcome.time_sent = message.time_sent;
    welcome.rows = static_cast<Row *>(malloc(sizeof(Row) * message.rows.length()));
    for (int n = 0; n < welcome.row_count; n++) {
        const overlay::RowMessage &row = message.rows[static_cast<CORBA::ULong>(n)];
        welcome.rows[n].which_row = row.which_row;
        memcpy(welcome.rows[n].row, row.row, sizeof row.row);
    }
    memcpy(welcome.leaves, message.leaves, sizeof welcome.leaves);
    return welcome;
}

class Node : public POA_overlay::Node {
    overlay::WelcomeMessage *welcome(const overlay::WelcomeMessage &message) override {
        Welcome welcome = from_message(message);
        auto *reply = new overlay::WelcomeMessage;
        to_message(welcome, *reply);
        free(welcome.rows);
        return reply;
    }
};

static CORBA::ORB_ptr orb_with(const char *option, const char *value) {
    const char *options[][2] = {{option, value}, {nullptr, nullptr}};
    int argc = 0;
    return CORBA::ORB_init(argc, nullptr, "omniORB4", options);
}

// An endpoint is that of omniORB, such as giop:tcp:127.0.0.1:7803.
static int serve(const char *endpoint) {
    CORBA::ORB_var orb = orb_with("endPoint", endpoint);
    CORBA::Object_var object = orb->resolve_initial_references("omniINSPOA");
    PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
    Node node;
    PortableServer::ObjectId_var id = PortableServer::string_to_ObjectId(KEY);
    poa->activate_object_with_id(id, &node);
    PortableServer::POAManager_var manager = poa->the_POAManager();
    manager->activate();
    getchar();  // until the asking process is done
    orb->shutdown(true);
    return 0;
}

static void time_coding(const char *system, int rows, int count) {
    Welcome sent = make_welcome(rows);
    cdrMemoryStream stream;
    double start = seconds();
    for (int n = 0; n < count; n++) {
        overlay::WelcomeMessage message;
        to_message(sent, message);
        stream.rewindPtrs();
        message >>= stream;
    }
    print_measure(system, "encode", rows, (seconds() - start) / count * 1e6);
    start = seconds();
    for (int n = 0; n < count; n++) {
        overlay::WelcomeMessage message;
        stream.rewindInputPtr();
        message <<= stream;
        Welcome got = from_message(message);
        free(got.rows);
    }
    print_measure(system, "decode", rows, (seconds() - start) / count * 1e6);
    free(sent.rows);
}

static void ask(const char *system, int rows, overlay::Node_ptr node) {
    Welcome sent = make_welcome(rows);
    int count = repeats(rows);
    double start = seconds();
    for (int n = 0; n < count; n++) {
        overlay::WelcomeMessage message;
        to_message(sent, message);
        overlay::WelcomeMessage_var reply = node->welcome(message);
        Welcome got = from_message(reply);
        if (n == 0) must_equal(&got, &sent);
        free(got.rows);
    }
    print_measure(system, "round_trip", rows, (seconds() - start) / count * 1e6);
    time_coding(system, rows, count);
    free(sent.rows);
}

// Asks until the other process has started.
static overlay::Node_ptr connected(CORBA::ORB_ptr orb, const std::string &place) {
    CORBA::Object_var object = orb->string_to_object((place + "/" + KEY).c_str());
    for (int tries = 0; tries < 1000; tries++) {
        try {
            overlay::Node_ptr node = overlay::Node::_narrow(object);
            if (!CORBA::is_nil(node)) return node;
        } catch (const CORBA::SystemException &) {
        }
        struct timespec pause = {0, 10000000};
        nanosleep(&pause, nullptr);
    }
    fprintf(stderr, "no node at %s\n", place.c_str());
    exit(1);
}

int main(int, char **argv) {
    if (std::string(argv[2]) == "serve") return serve(argv[3]);
    CORBA::ORB_var orb = orb_with("clientCallTimeOutPeriod", "60000");
    overlay::Node_var node = connected(orb, argv[3]);
    for (int at = 0; at < 4; at++) ask(argv[1], ROW_COUNTS[at], node);
    orb->destroy();
    return 0;
}
