/* Bodies on several ranks: the server's function writes its call into a file and starts the ranks. The first rank reads the call
   and writes the results. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mpi.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRIDLOOM_STATIC static __attribute__((unused))

GRIDLOOM_STATIC int ng_stub_rank;

/* Bytes of a shared file next to that of the call: whether a rank polls for cancellation, whether the server's function has noticed
   that, and whether the call was cancelled. The server's function answers the ranks on its machine through these. */
enum { GRIDLOOM_POLLED, GRIDLOOM_POLL_SEEN, GRIDLOOM_CANCELED, GRIDLOOM_BOARD_BYTES };

GRIDLOOM_STATIC volatile unsigned char *gridloom_board(const char *path, int flags, char name[PATH_MAX]) {
    void *board = MAP_FAILED;
    int fd;
    if (snprintf(name, PATH_MAX, "%s-poll", path) >= PATH_MAX || (fd = open(name, flags | O_CLOEXEC, 0600)) < 0) return NULL;
    if ((flags & O_CREAT) == 0 || ftruncate(fd, GRIDLOOM_BOARD_BYTES) == 0)
        board = mmap(NULL, GRIDLOOM_BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return board == MAP_FAILED ? NULL : (volatile unsigned char *)board;
}

/* For the server's function. */

GRIDLOOM_STATIC void gridloom_wrong(const char *what) {
    fprintf(stderr, "gridloom: ranks: %s: %s\n", what, strerror(errno));
    _exit(1);
}

GRIDLOOM_STATIC FILE *gridloom_write(char path[PATH_MAX]) {
    const char *folder = getenv("TMPDIR");
    FILE *file;
    int fd;
    if (snprintf(path, PATH_MAX, "%s/gridloom-ranks-XXXXXX", folder != NULL ? folder : "/tmp") >= PATH_MAX)
        gridloom_wrong("TMPDIR is too long");
    fd = mkstemp(path);
    file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (file == NULL) gridloom_wrong(path);
    return file;
}

GRIDLOOM_STATIC void gridloom_put(FILE *file, const void *from, size_t size) {
    if (size > 0 && fwrite(from, 1, size, file) != size) gridloom_wrong("cannot write the arguments of the call");
}

GRIDLOOM_STATIC void gridloom_put_text(FILE *file, const char *text) {
    size_t size = text == NULL ? 0 : strlen(text) + 1;
    gridloom_put(file, &size, sizeof size);
    gridloom_put(file, text, size);
}

GRIDLOOM_STATIC void gridloom_take(FILE *file, void *into, size_t size) {
    if (size > 0 && fread(into, 1, size, file) != size) gridloom_wrong("cannot read the results of the call");
}

GRIDLOOM_STATIC void gridloom_put_texts(FILE *file, char *const *texts, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) gridloom_put_text(file, texts[i]);
}

/* Replaces a string by a new one, which the caller passes to free(). */
GRIDLOOM_STATIC void gridloom_take_text(FILE *file, char **text) {
    size_t size = 0;
    free(*text);
    *text = NULL;
    gridloom_take(file, &size, sizeof size);
    if (size == 0) return;
    if ((*text = (char *)malloc(size)) == NULL) gridloom_wrong("cannot allocate a result of the call");
    gridloom_take(file, *text, size);
}

GRIDLOOM_STATIC void gridloom_take_texts(FILE *file, char **texts, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) gridloom_take_text(file, &texts[i]);
}

/* The number of ranks that the call wants, 0 for the server's default: set by the worker when it loads the library. */
#ifdef __cplusplus
extern "C" {
#endif
__attribute__((weak)) int (*gridloom_ranks_np)(void) = 0;
#ifdef __cplusplus
}
#endif

/* The number of ranks, as text. */
GRIDLOOM_STATIC void gridloom_count(char count[24]) {
    const char *own = getenv("GRIDLOOM_MPI_RANKS");
    const int wanted = gridloom_ranks_np != 0 ? gridloom_ranks_np() : 0;
    long most = own != NULL && *own != 0 ? atol(own) : 1; /* The server has set it. */
    if (wanted > most) {
        fprintf(stderr, "gridloom: ranks: the call wants %d, and this server has at most %ld (GRIDLOOM_MPI_RANKS)\n", wanted, most);
        _exit(1);
    }
    snprintf(count, 24, "%ld", wanted > 0 ? (long)wanted : most);
}

/* Waits for the ranks, and answers their polls meanwhile. */
GRIDLOOM_STATIC int gridloom_await(pid_t child, volatile unsigned char *board) {
    enum { ANSWERS_MS = 10 };
    int status = 0;
    pid_t ended;
#ifdef SYS_pidfd_open
    struct pollfd end = {(int)syscall(SYS_pidfd_open, child, 0), POLLIN, 0};
#else
    struct pollfd end = {-1, POLLIN, 0};
#endif
    while ((ended = waitpid(child, &status, board == NULL ? 0 : WNOHANG)) <= 0) {
        if (ended < 0 && errno != EINTR) gridloom_wrong("waitpid");
        if (board == NULL) continue;
        if (board[GRIDLOOM_POLLED]) {
            if (gridloom_is_canceled_np != 0 && gridloom_is_canceled_np()) board[GRIDLOOM_CANCELED] = 1;
            board[GRIDLOOM_POLL_SEEN] = 1;
        }
        poll(&end, 1, ANSWERS_MS);
    }
    if (end.fd >= 0) close(end.fd);
    return status;
}

/* Splits a command into words, in place: blanks separate them, except between quotation marks and after a backslash. The name
   of an existing file is one word, whatever it contains. Returns their number, or -1. */
GRIDLOOM_STATIC int gridloom_words(char *text, char **words, int most) {
    char *to, quote = 0;
    int number = 0;
    if (access(text, X_OK) == 0) {
        words[0] = text;
        return 1;
    }
    for (;;) {
        while (*text == ' ' || *text == '\t') text++;
        if (*text == 0) return number;
        if (number == most) return -1;
        words[number++] = to = text;
        for (; *text != 0 && (quote != 0 || (*text != ' ' && *text != '\t')); text++) {
            if (quote != 0 && *text == quote) quote = 0;
            else if (quote == 0 && (*text == '"' || *text == '\'')) quote = *text;
            else if (*text == '\\' && quote != '\'' && text[1] != 0) *to++ = *++text;
            else *to++ = *text;
        }
        if (quote != 0) return -1;
        if (*text != 0) text++;
        *to = 0;
    }
}

/* Runs the function `symbol` of the library that contains `here` on the ranks: GRIDLOOM_MPIRUN -n RANKS. */
GRIDLOOM_STATIC FILE *gridloom_run(FILE *file, char *path, const char *symbol, void *here) {
    enum { WORDS_MAX = 64 };
    static char count[24], program[PATH_MAX], copy[4096], asks[PATH_MAX];
    volatile unsigned char *board;
    const char *command = getenv("GRIDLOOM_MPIRUN");
    char *words[WORDS_MAX + 16];
    int at, status = 0, i;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    Dl_info library;
    pid_t child;
    const pid_t own = getpid();
    if (fclose(file) != 0) gridloom_wrong("cannot write the arguments of the call");
    if (length < 0 || dladdr(here, &library) == 0) gridloom_wrong("cannot find the library with the function");
    program[length] = 0;
    snprintf(copy, sizeof copy, "%s", command != NULL && *command != 0 ? command : "mpirun");
    at = gridloom_words(copy, words, WORDS_MAX);
    if (at <= 0 || (command != NULL && strlen(command) >= sizeof copy)) {
        fprintf(stderr, "gridloom: ranks: GRIDLOOM_MPIRUN is no command of at most %d words and %d bytes with closed quotation marks: %s\n",
                (int)WORDS_MAX, (int)sizeof copy - 1, command);
        _exit(1);
    }
    gridloom_count(count);
    {
        const char *last[] = {"-n", count, program, "worker", "--rank", library.dli_fname, symbol, path, NULL};
        for (i = 0; i < 9; i++) words[at + i] = (char *)last[i];
    }
    /* The ranks also run without it. */
    board = gridloom_board(path, O_RDWR | O_CREAT | O_EXCL, asks);
    fflush(NULL);
    child = fork();
    if (child < 0) gridloom_wrong("fork");
    if (child == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        /* A call that is cancelled ends its ranks. */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != own) _exit(1);
        if (freopen("/dev/null", "r", stdin) == NULL) _exit(1);
        execvp(words[0], words);
        gridloom_wrong(words[0]);
    }
    status = gridloom_await(child, board);
    if (board != NULL) {
        munmap((void *)board, GRIDLOOM_BOARD_BYTES);
        unlink(asks);
    }
    if (status != 0) {
        if (WIFEXITED(status)) fprintf(stderr, "gridloom: ranks: %s ended with %d\n", words[0], WEXITSTATUS(status));
        else fprintf(stderr, "gridloom: ranks: %s ended by signal %d\n", words[0], WTERMSIG(status));
        unlink(path);
        _exit(1);
    }
    file = fopen(path, "rb");
    if (file == NULL) gridloom_wrong(path);
    unlink(path);
    return file;
}

/* For the ranks. */

GRIDLOOM_STATIC void gridloom_rank_wrong(const char *what) {
    fprintf(stderr, "gridloom: rank %d: %s\n", ng_stub_rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

GRIDLOOM_STATIC volatile unsigned char *gridloom_own_board;

/* A function that has polled is not killed at once when its call is cancelled, so its first poll must be noticed by the server. */
GRIDLOOM_STATIC int gridloom_rank_polls(void) {
    enum { WAITS_MAX = 1000 };
    int waits;
    gridloom_own_board[GRIDLOOM_POLLED] = 1;
    for (waits = 0; !gridloom_own_board[GRIDLOOM_POLL_SEEN] && waits < WAITS_MAX; waits++) usleep(1000);
    return gridloom_own_board[GRIDLOOM_CANCELED];
}

GRIDLOOM_STATIC FILE *gridloom_rank_begin(const char *path) {
    FILE *file = NULL;
    char asks[PATH_MAX];
    /* Ranks of other machines have no such file. */
    if ((gridloom_own_board = gridloom_board(path, O_RDWR, asks)) != NULL) gridloom_is_canceled_np = gridloom_rank_polls;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &ng_stub_rank);
    if (ng_stub_rank == 0 && (file = fopen(path, "rb")) == NULL) gridloom_rank_wrong("its call cannot be read");
    return file;
}

GRIDLOOM_STATIC void gridloom_rank_read(FILE *file, void *into, size_t size) {
    if (file != NULL && size > 0 && fread(into, 1, size, file) != size) gridloom_rank_wrong("its call is too short");
}

GRIDLOOM_STATIC void gridloom_rank_share(void *from, size_t size) {
    char *at = (char *)from;
    while (size > 0) {
        const size_t part = size < (size_t)1 << 30 ? size : (size_t)1 << 30;
        MPI_Bcast(at, (int)part, MPI_BYTE, 0, MPI_COMM_WORLD);
        at += part;
        size -= part;
    }
}

GRIDLOOM_STATIC void gridloom_rank_scalar(FILE *file, void *into, size_t size) {
    gridloom_rank_read(file, into, size);
    gridloom_rank_share(into, size);
}

GRIDLOOM_STATIC char *gridloom_rank_text(FILE *file) {
    size_t size = 0;
    char *text = NULL;
    gridloom_rank_scalar(file, &size, sizeof size);
    if (size == 0) return NULL;
    if ((text = (char *)malloc(size)) == NULL) gridloom_rank_wrong("out of memory");
    gridloom_rank_scalar(file, text, size);
    return text;
}

/* Memory of that size, on this rank, or NULL. Its content is read by the first rank, and shared if the others receive it. */
GRIDLOOM_STATIC void *gridloom_rank_array(FILE *file, size_t size, int is_read, int is_everywhere, int is_shared) {
    void *memory = NULL;
    if (size == 0 || (ng_stub_rank != 0 && !is_everywhere)) return NULL;
    if ((memory = calloc(1, size)) == NULL) gridloom_rank_wrong("out of memory");
    if (is_read) gridloom_rank_read(file, memory, size);
    if (is_read && is_shared) gridloom_rank_share(memory, size);
    return memory;
}

/* As for other arrays; each string is one that free() takes. */
GRIDLOOM_STATIC char **gridloom_rank_texts(FILE *file, size_t count, int is_read, int is_everywhere, int is_shared) {
    char **texts;
    size_t i, size = 0;
    if (count == 0 || (ng_stub_rank != 0 && !is_everywhere)) return NULL;
    if ((texts = (char **)calloc(count, sizeof *texts)) == NULL) gridloom_rank_wrong("out of memory");
    for (i = 0; is_read && i < count; i++) {
        if (is_shared) {
            texts[i] = gridloom_rank_text(file);
            continue;
        }
        if (file == NULL) break;
        gridloom_rank_read(file, &size, sizeof size);
        if (size == 0) continue;
        if ((texts[i] = (char *)malloc(size)) == NULL) gridloom_rank_wrong("out of memory");
        gridloom_rank_read(file, texts[i], size);
    }
    return texts;
}

/* A string in the memory that FORTRAN gets for it, padded with blanks. */
GRIDLOOM_STATIC char *gridloom_fortran_text(const char *old, size_t *length) {
    enum { ROOM_BYTES = 65536 };
    const size_t used = old == NULL ? 0 : strlen(old);
    char *room;
    *length = used > ROOM_BYTES ? used : ROOM_BYTES;
    if ((room = (char *)malloc(*length + 1)) == NULL) gridloom_rank_wrong("out of memory");
    memset(room, ' ', *length);
    if (used > 0) memcpy(room, old, used);
    return room;
}

/* Replaces a string by the one that FORTRAN left, without trailing blanks. */
GRIDLOOM_STATIC void gridloom_fortran_set(char **text, char *room, size_t length) {
    while (length > 0 && room[length - 1] == ' ') length--;
    room[length] = 0;
    free(*text);
    *text = room;
}

GRIDLOOM_STATIC FILE *gridloom_rank_results(FILE *file, const char *path) {
    if (file == NULL) return NULL;
    fclose(file);
    if ((file = fopen(path, "wb")) == NULL) gridloom_rank_wrong("its results cannot be written");
    return file;
}

GRIDLOOM_STATIC void gridloom_rank_write(FILE *file, const void *from, size_t size) {
    if (file != NULL && size > 0 && fwrite(from, 1, size, file) != size) gridloom_rank_wrong("its results cannot be written");
}

GRIDLOOM_STATIC void gridloom_rank_write_text(FILE *file, const char *text) {
    const size_t size = text == NULL ? 0 : strlen(text) + 1;
    gridloom_rank_write(file, &size, sizeof size);
    gridloom_rank_write(file, text, size);
}

GRIDLOOM_STATIC void gridloom_rank_write_texts(FILE *file, char *const *texts, size_t count) {
    size_t i;
    for (i = 0; file != NULL && i < count; i++) gridloom_rank_write_text(file, texts[i]);
}

GRIDLOOM_STATIC void gridloom_rank_end(FILE *file) {
    int is_over = 0;
    if (file != NULL && fclose(file) != 0) gridloom_rank_wrong("its results cannot be written");
    MPI_Finalized(&is_over);
    if (!is_over) MPI_Finalize();
}
