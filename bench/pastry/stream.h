/* Messages over a stream socket, each after its length in bytes: for libraries that encode messages but do not send them. */
#ifndef STREAM_H
#define STREAM_H

#include <netdb.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/* Where to listen or connect. */
struct Address {
    struct sockaddr_storage name;
    socklen_t size;
};

static inline void must(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

/* An address is HOST:PORT, or the path of a Unix socket. */
static inline struct Address address_of(const char *text) {
    struct Address address;
    memset(&address, 0, sizeof address);
    if (text[0] == '/') {
        struct sockaddr_un *path = (struct sockaddr_un *)&address.name;
        path->sun_family = AF_UNIX;
        snprintf(path->sun_path, sizeof path->sun_path, "%s", text);
        address.size = sizeof *path;
        return address;
    }
    char host[256];
    const char *colon = strrchr(text, ':');
    must(colon != NULL, text);
    snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    struct addrinfo hints, *found;
    memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    must(getaddrinfo(host, colon + 1, &hints, &found) == 0, "getaddrinfo");
    memcpy(&address.name, found->ai_addr, found->ai_addrlen);
    address.size = found->ai_addrlen;
    freeaddrinfo(found);
    return address;
}

static inline int connected(const char *text, int is_server) {
    struct Address address = address_of(text);
    struct sockaddr *name = (struct sockaddr *)&address.name;
    int one = 1, stream = socket(name->sa_family, SOCK_STREAM, 0);
    must(stream >= 0, "socket");
    if (is_server) {
        setsockopt(stream, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        must(bind(stream, name, address.size) == 0 && listen(stream, 1) == 0, "listen");
        stream = accept(stream, NULL, NULL);
        must(stream >= 0, "accept");
    } else {
        for (int tries = 0; connect(stream, name, address.size) != 0; tries++) {
            must(tries < 1000, "connect");
            usleep(10000);
        }
    }
    if (name->sa_family == AF_INET) setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return stream;
}

static inline void send_bytes(int stream, const void *bytes, size_t size) {
    uint32_t length = (uint32_t)size;
    struct iovec parts[2] = {{&length, sizeof length}, {(void *)bytes, size}};
    for (int part = 0; part < 2;) {
        ssize_t wrote = writev(stream, parts + part, 2 - part);
        must(wrote > 0, "writev");
        for (; part < 2 && (size_t)wrote >= parts[part].iov_len; part++) wrote -= (ssize_t)parts[part].iov_len;
        if (part < 2) {
            parts[part].iov_base = (char *)parts[part].iov_base + wrote;
            parts[part].iov_len -= (size_t)wrote;
        }
    }
}

static inline int read_exactly(int stream, void *bytes, size_t length) {
    for (size_t at = 0; at < length;) {
        ssize_t got = read(stream, (char *)bytes + at, length - at);
        if (got <= 0) return 0;
        at += (size_t)got;
    }
    return 1;
}

/* A buffer that grows and is used again. */
struct Buffer {
    char *bytes;
    size_t size, room;
};

static inline void reserve(struct Buffer *buffer, size_t room) {
    if (room <= buffer->room) return;
    buffer->room = room > 2 * buffer->room ? room : 2 * buffer->room;
    buffer->bytes = (char *)realloc(buffer->bytes, buffer->room);
    must(buffer->bytes != NULL, "realloc");
}

/* Returns 0 at the end of the stream. */
static inline int receive_bytes(int stream, struct Buffer *buffer) {
    uint32_t length;
    if (!read_exactly(stream, &length, sizeof length)) return 0;
    reserve(buffer, length);
    buffer->size = length;
    return read_exactly(stream, buffer->bytes, length);
}

#endif
