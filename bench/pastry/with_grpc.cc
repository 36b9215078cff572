// The exchange with gRPC and protobuf: a call that returns what it was given, both ends turning messages into the
// program's own struct and back.
#include <grpcpp/grpcpp.h>

#include <cstring>
#include <string>

#include "harness.h"
#include "welcome.grpc.pb.h"

static overlay::WelcomeMessage to_message(const Welcome &welcome) {
    overlay::WelcomeMessage message;
    message.set_id(welcome.id);
    message.set_time_sent(welcome.time_sent);
    message.mutable_rows()->Reserve(welcome.row_count);
    for (int n = 0; n < welcome.row_count; n++) {
        overlay::Row *row = message.add_rows();
        row->set_which_row(welcome.rows[n].which_row);
        const int *cells = &welcome.rows[n].row[0][0];
        row->mutable_row()->Add(cells, cells + COLUMNS * ROUTES);
    }
    message.mutable_leaves()->Add(welcome.leaves, welcome.leaves + LEAVES);
    return message;
}

static Welcome from_message(const overlay::WelcomeMessage &message) {
    Welcome welcome;
    welcome.id = message.id();
    welcome.row_count = message.rows_size();
    welcome.time_sent = message.time_sent();
    welcome.rows = static_cast<Row *>(malloc(sizeof(Row) * static_cast<size_t>(message.rows_size())));
    for (int n = 0; n < message.rows_size(); n++) {
        welcome.rows[n].which_row = message.rows(n).which_row();
        memcpy(welcome.rows[n].row, message.rows(n).row().data(), sizeof welcome.rows[n].row);
    }
    memcpy(welcome.leaves, message.leaves().data(), sizeof welcome.leaves);
    return welcome;
}

class Node final : public overlay::Overlay::Service {
    grpc::Status Welcome(grpc::ServerContext *, const overlay::WelcomeMessage *request,
                         overlay::WelcomeMessage *reply) override {
        ::Welcome welcome = from_message(*request);
        *reply = to_message(welcome);
        free(welcome.rows);
        return grpc::Status::OK;
    }
};

static int serve(const std::string &address) {
    Node node;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(&node);
    auto server = builder.BuildAndStart();
    if (!server) return 1;
    getchar();  // until the asking process is done
    return 0;
}

static void time_coding(const char *system, int rows, int count) {
    Welcome sent = make_welcome(rows);
    std::string bytes;
    double start = seconds();
    for (int n = 0; n < count; n++) to_message(sent).SerializeToString(&bytes);
    print_measure(system, "encode", rows, (seconds() - start) / count * 1e6);
    start = seconds();
    for (int n = 0; n < count; n++) {
        overlay::WelcomeMessage message;
        message.ParseFromString(bytes);
        Welcome got = from_message(message);
        free(got.rows);
    }
    print_measure(system, "decode", rows, (seconds() - start) / count * 1e6);
    free(sent.rows);
}

static void ask(const char *system, int rows, overlay::Overlay::Stub &stub) {
    Welcome sent = make_welcome(rows);
    int count = fewer_repeats(rows);
    double start = seconds();
    for (int n = 0; n < count; n++) {
        grpc::ClientContext context;
        overlay::WelcomeMessage reply;
        grpc::Status status = stub.Welcome(&context, to_message(sent), &reply);
        if (!status.ok()) {
            fprintf(stderr, "%s\n", status.error_message().c_str());
            exit(1);
        }
        Welcome got = from_message(reply);
        if (n == 0) must_equal(&got, &sent);
        free(got.rows);
    }
    print_measure(system, "round_trip", rows, (seconds() - start) / count * 1e6);
    time_coding(system, rows, count);
    free(sent.rows);
}

int main(int, char **argv) {
    std::string address = argv[3];
    if (std::string(argv[2]) == "serve") return serve(address);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(20));
    auto stub = overlay::Overlay::NewStub(channel);
    for (int at = 0; at < 4; at++) ask(argv[1], ROW_COUNTS[at], *stub);
    return 0;
}
