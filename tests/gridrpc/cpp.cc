// The C++ header: calls, results, errors, remote data, objects, and a group that is left by return.
//
//   cpp CONFIGURATION
#include <grpc.hpp>

#include <array>
#include <cstdio>
#include <vector>

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            std::printf("not so, line %d: %s\n", __LINE__, #what);                                                     \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static double total(gridrpc::function &sum, std::vector<double> &x) {
    double found = 0;
    grpc_map("auto") {
        sum(static_cast<long>(x.size()), x, gridrpc::out(found));
        grpc_fetch(&found);
        return found;
    }
    return -1;
}

static int errors() {
    gridrpc::function bad("gridrpc/exit"), loop("gridrpc/loop");
    { gridrpc::call given_up = loop.async(0); }
    try {
        bad(1);
    } catch (const gridrpc::error &error) {
        CHECK(error.code() == GRPC_COMMUNICATION_FAILED);
        return 0;
    }
    CHECK(!"the call failed and said so");
    return 0;
}

static int objects() {
    gridrpc::object account("account");
    long sum = 0, count = 0;
    account.invoke("add", 5, gridrpc::out(sum), gridrpc::out(count));
    CHECK(sum == 105 && count == 1);
    gridrpc::call begun = account.async("add", -5, gridrpc::out(sum), gridrpc::out(count));
    begun.wait();
    CHECK(sum == 100 && count == 2);
    account.end();
    try {
        gridrpc::object none("acount");
    } catch (const gridrpc::error &error) {
        CHECK(error.code() == GRPC_CLASS_NOT_FOUND_NP);
        return 0;
    }
    CHECK(!"there is no such class");
    return 0;
}

static int run() {
    gridrpc::function add("gridrpc/add"), axpy("gridrpc/axpy"), upper("gridrpc/upper"), sum("gridrpc/sum");
    std::vector<double> x(3, 1.0);
    std::array<double, 3> y{{1, 2, 3}};
    std::vector<signed char> letters(8);
    double raw[3] = {7, 7, 7};
    int one = 0, other = 0, length = 0;
    add(41, gridrpc::out(one));
    CHECK(one == 42);
    gridrpc::call begun = add.async(1, gridrpc::out(other));
    begun.wait();
    CHECK(other == 2);
    axpy(3, 2.0, x, y);
    axpy(3, 1.0, y, raw);
    CHECK(y[2] == 5 && raw[2] == 12);
    upper(std::string("grid"), 8, letters, gridrpc::out(length));
    CHECK(length == 4 && letters[3] == 'D');
    gridrpc::remote stays("stays");
    stays.put(x);
    axpy(3, 1.0, y, stays);
    stays.get(x);
    CHECK(x[0] == 4);
    CHECK(total(sum, x) == 15);
    double all = 0;
    sum(3L, y, gridrpc::out(all));
    CHECK(all == 12);
    if (objects() != 0) return 1;
    return errors();
}

int main(int argc, char **argv) {
    gridrpc::grid grid(argc > 1 ? argv[1] : "");
    return run();
}
