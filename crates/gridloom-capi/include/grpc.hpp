/* GridRPC for C++: the functions of grpc.h as objects with destructors, and errors as exceptions. C++11.
 *
 *   #include <grpc.hpp>
 *
 *   gridrpc::grid grid("grid.toml");
 *   gridrpc::function dot("docs/dot");
 *   std::vector<double> x(3, 1.0), y(3, 2.0);
 *   double sum;
 *   dot(3, x, y, gridrpc::out(sum));
 *   gridrpc::call begun = dot.async(3, x, y, gridrpc::out(sum));
 *   begun.wait();
 *
 * Arguments are those of grpc_call, and are not checked against the function's signature either. Only numbers,
 * pointers, strings, and objects with data(), such as vectors and arrays, are accepted. String views are not, because
 * they need not end in a NUL. Results are written as by grpc_call: the arguments of async() must outlive the wait. */
#ifndef GRIDLOOM_GRPC_HPP
#define GRIDLOOM_GRPC_HPP

#include "grpc.h"

#include <stdexcept>
#include <string>
#if __cplusplus >= 201703L
#include <string_view>
#endif
#include <type_traits>
#include <utility>

namespace gridrpc {

/* An error code of grpc.h, with its text. */
class error : public std::runtime_error {
public:
    error(grpc_error_t code, const std::string &text)
        : std::runtime_error(std::string(grpc_error_string(code)) + ": " + text), code_(code) {}
    grpc_error_t code() const noexcept { return code_; }

private:
    grpc_error_t code_;
};

/* Throws any code other than success. */
inline void check(grpc_error_t code) {
    if (code != GRPC_NO_ERROR) throw error(code, grpc_last_error_text_np());
}

/* Marks a scalar that the call sets or changes. */
template <typename Number> Number *out(Number &number) {
    static_assert(std::is_arithmetic<Number>::value, "a result is a number; pass an array as it is");
    return &number;
}

/* Calls grpc_initialize and grpc_finalize; one object at a time. */
class grid {
public:
    explicit grid(const std::string &config_file_name = "") { check(grpc_initialize(config_file_name.c_str())); }
    ~grid() { grpc_finalize(); }
    grid(const grid &) = delete;
    grid &operator=(const grid &) = delete;
};

/* A session. If it was not waited for, its destructor cancels it and waits for it, because its results are written to
 * memory of the program. */
class call {
public:
    explicit call(grpc_sessionid_t id) noexcept : id_(id) {}
    call(call &&other) noexcept : id_(other.id_) { other.id_ = GRPC_SESSIONID_VOID; }
    call &operator=(call &&other) noexcept {
        std::swap(id_, other.id_);
        return *this;
    }
    call(const call &) = delete;
    call &operator=(const call &) = delete;
    ~call() {
        if (id_ == GRPC_SESSIONID_VOID) return;
        grpc_cancel(id_);
        grpc_wait(id_);
    }

    grpc_sessionid_t id() const noexcept { return id_; }
    /* Reports whether it has ended; if it has ended successfully, its results are available. */
    bool is_done() const {
        grpc_error_t probed = grpc_probe(id_);
        if (probed == GRPC_NOT_COMPLETED) return false;
        check(probed);
        return true;
    }
    void cancel() { check(grpc_cancel(id_)); }
    /* Throws the session's own error if it failed. Waiting again is an error. */
    void wait() {
        grpc_sessionid_t id = id_;
        grpc_error_t waited = grpc_wait(id);
        id_ = GRPC_SESSIONID_VOID;
        if (waited == GRPC_SESSION_FAILED) throw error(grpc_get_error(id), grpc_session_error_text_np(id));
        check(waited);
    }

private:
    grpc_sessionid_t id_;
};

/* A handle for data that stay on servers. */
class remote {
public:
    explicit remote(const std::string &name = "") {
        check(grpc_remote_new_np(&remote_, name.empty() ? nullptr : name.c_str()));
    }
    remote(remote &&other) noexcept : remote_(other.remote_) { other.remote_ = nullptr; }
    remote(const remote &) = delete;
    remote &operator=(const remote &) = delete;
    ~remote() {
        if (remote_ != nullptr) grpc_remote_free_np(remote_);
    }

    grpc_remote_t handle() const noexcept { return remote_; }
    template <typename Container> void put(const Container &values) {
        check(grpc_remote_put_np(remote_, values.data(), values.size() * sizeof *values.data()));
    }
    template <typename Container> void get(Container &values) const {
        check(grpc_remote_get_np(remote_, values.data(), values.size() * sizeof *values.data()));
    }

private:
    grpc_remote_t remote_;
};

/* How an argument is passed: numbers and pointers unchanged, strings and containers by their first element. */
namespace passing {
template <typename Number>
typename std::enable_if<std::is_arithmetic<Number>::value, Number>::type as(Number number, int) {
    return number;
}
template <typename Target> Target *as(Target *pointer, int) { return pointer; }
inline const char *as(const std::string &text, int) { return text.c_str(); }
#if __cplusplus >= 201703L
template <typename Letter> void as(std::basic_string_view<Letter>, int) = delete; // It need not end in a NUL.
#endif
template <typename Container> auto as(Container &container, int) -> decltype(container.data()) {
    static_assert(std::is_trivially_copyable<typename std::remove_pointer<decltype(container.data())>::type>::value,
                  "the elements of an array are numbers");
    return container.data();
}
inline grpc_remote_t as(const remote &data, int) { return data.handle(); }
inline grpc_remote_t as(remote &data, int) { return data.handle(); }
inline void *as(std::nullptr_t, int) { return nullptr; }
} // namespace passing

/* A handle of a function: on any server, or on the named one. */
class function {
public:
    explicit function(const std::string &name) : owns_(true) {
        check(grpc_function_handle_default(&handle_, name.c_str()));
    }
    function(const std::string &server, const std::string &name) : owns_(true) {
        check(grpc_function_handle_init(&handle_, server.c_str(), name.c_str()));
    }
    function(function &&other) noexcept : handle_(other.handle_), owns_(other.owns_) { other.owns_ = false; }
    function(const function &) = delete;
    function &operator=(const function &) = delete;
    ~function() {
        if (owns_) grpc_function_handle_destruct(&handle_);
    }

    /* Calls it and waits for its end. */
    template <typename... Arguments> void operator()(Arguments &&...arguments) {
        check(grpc_call(&handle_, passing::as(arguments, 0)...));
    }
    /* Starts a call. */
    template <typename... Arguments> call async(Arguments &&...arguments) {
        grpc_sessionid_t id = GRPC_SESSIONID_VOID;
        check(grpc_call_async(&handle_, &id, passing::as(arguments, 0)...));
        return call(id);
    }
    /* Seconds that a call may take; 0 for no limit. */
    void set_timeout(double seconds) { check(grpc_function_handle_set_timeout_np(&handle_, seconds)); }
    void set_priority(int priority) { check(grpc_function_handle_set_priority_np(&handle_, priority)); }
    grpc_function_handle_t *handle() noexcept { return &handle_; }

private:
    grpc_function_handle_t handle_;
    bool owns_;
};

/* An object of a class: on the server with the most room, or on the named one. Its destructor waits for its calls. */
class object {
public:
    explicit object(const std::string &class_name) : owns_(true) {
        check(grpc_object_handle_default_np(&handle_, class_name.c_str()));
    }
    object(const std::string &server, const std::string &class_name) : owns_(true) {
        check(grpc_object_handle_init_np(&handle_, server.c_str(), class_name.c_str()));
    }
    object(object &&other) noexcept : handle_(other.handle_), owns_(other.owns_) { other.owns_ = false; }
    object(const object &) = delete;
    object &operator=(const object &) = delete;
    ~object() {
        if (owns_) grpc_object_handle_destruct_np(&handle_);
    }

    /* Calls a method and waits for its end. */
    template <typename... Arguments> void invoke(const std::string &method, Arguments &&...arguments) {
        check(grpc_invoke_np(&handle_, method.c_str(), passing::as(arguments, 0)...));
    }
    /* Starts a call of a method, which runs after the previous ones. */
    template <typename... Arguments> call async(const std::string &method, Arguments &&...arguments) {
        grpc_sessionid_t id = GRPC_SESSIONID_VOID;
        check(grpc_invoke_async_np(&handle_, method.c_str(), &id, passing::as(arguments, 0)...));
        return call(id);
    }
    /* Ends it now, and throws an exception if there is an error. */
    void end() {
        owns_ = false;
        check(grpc_object_handle_destruct_np(&handle_));
    }
    grpc_object_handle_t_np *handle() noexcept { return &handle_; }

private:
    grpc_object_handle_t_np handle_;
    bool owns_;
};

/* Waits for the sessions of all threads. */
inline void wait_all() { check(grpc_wait_all()); }

} // namespace gridrpc

#endif
