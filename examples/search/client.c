/* The search of search.py through GridRPC: prints the same hits.
 *
 *   client CONFIGURATION DATABASE [QUERIES [PARTS]]
 *
 * DATABASE and QUERIES are proteins in FASTA format; without QUERIES, or with '-', every 60th protein of the database is a query. The
 * indexes of all parts and the search in them are one group: each index stays on the server that made it. */
#include "search.h"

#include <ctype.h>
#include <grpc.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVERY = 60, LIMIT = 250, SHOWN = 3, PARTS_MAX = 64 };
static const double EVALUE_MAX = 1e-3;

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != GRPC_NO_ERROR) {                                                                                 \
            grpc_perror_np(#call);                                                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Sequences of proteins, one after the other: sequence s has the residues starts[s] to starts[s + 1] - 1. */
typedef struct {
    int count, *starts;
    signed char *residues;
    char **names;
} proteins;

static void *memory(void *old, size_t size) {
    void *made = realloc(old, size);
    if (made == NULL) {
        fprintf(stderr, "cannot allocate %zu bytes\n", size);
        exit(1);
    }
    return made;
}

static void mistake(const char *path, const char *what) {
    fprintf(stderr, "%s %s\n", path, what);
    exit(1);
}

/* Appends a sequence of `length` residues. `p` has room for one more sequence and for these residues. */
static void append(proteins *p, const signed char *residues, int length, char *name) {
    memcpy(p->residues + p->starts[p->count], residues, (size_t)length);
    p->names[p->count] = name;
    p->starts[p->count + 1] = p->starts[p->count] + length;
    p->count++;
}

static proteins with_room(int count, size_t residues) {
    proteins p = {0, memory(NULL, ((size_t)count + 1) * sizeof(int)), memory(NULL, residues + 1), memory(NULL, ((size_t)count + 1) * sizeof(char *))};
    p.starts[0] = 0;
    return p;
}

/* Returns the whole file, followed by a zero byte. */
static char *content(const char *path, size_t *size) {
    FILE *in = fopen(path, "rb");
    char *text = NULL;
    size_t room = 0, got;
    if (in == NULL) mistake(path, "cannot be read");
    *size = 0;
    do {
        text = memory(text, (room += 1 << 20) + 1);
        got = fread(text + *size, 1, room - *size, in);
        *size += got;
    } while (got > 0);
    fclose(in);
    text[*size] = 0;
    return text;
}

/* Reads a file in FASTA format. Letters other than those of SEARCH_LETTERS are any residue; a stop at the end is left out. */
static proteins read_proteins(const char *path) {
    size_t size;
    char *text = content(path, &size);
    char *begin = text;
    int headers = 0;
    /* Blank lines before the first header. */
    for (size_t blank; begin[blank = strspn(begin, " \t\r\v\f")] == '\n';) begin += blank + 1;
    for (char *c = begin; *c; c++) headers += *c == '>' && (c == begin || c[-1] == '\n');
    if (*begin != '>') mistake(path, "is not a file in FASTA format: its first line does not begin with '>'");
    proteins p = with_room(headers, size);
    signed char *one = memory(NULL, size + 1);
    for (char *at = begin; *at;) {
        size_t length = 0, line = strcspn(at, "\n"), blank = strspn(at + 1, " \t\r"), width = strcspn(at + 1 + blank, " \t\r\n");
        char *name = memory(NULL, width + 2);
        snprintf(name, width + 2, "%.*s", (int)width, at + 1 + blank);
        if (width == 0) strcpy(name, "?");
        for (at += line; *at && !(*at == '>' && at[-1] == '\n'); at++) {
            const char *letter = strchr(SEARCH_LETTERS, toupper((unsigned char)*at));
            if (!isspace((unsigned char)*at)) one[length++] = (signed char)(letter ? letter - SEARCH_LETTERS : strchr(SEARCH_LETTERS, 'X') - SEARCH_LETTERS);
        }
        while (length > 0 && SEARCH_LETTERS[one[length - 1]] == '*') length--;
        if (length > (size_t)(INT_MAX - p.starts[p.count])) mistake(path, "has more than 2147483647 residues; cut it into several files");
        append(&p, one, (int)length, name);
    }
    free(text), free(one);
    if (p.starts[p.count] == 0) mistake(path, "has no sequences");
    return p;
}

static proteins every(const proteins *all, int step) {
    proteins p = with_room(all->count, (size_t)all->starts[all->count]);
    for (int s = 0; s < all->count; s += step)
        append(&p, all->residues + all->starts[s], all->starts[s + 1] - all->starts[s], all->names[s]);
    return p;
}

/* A part of the database: its first sequence, its sequences, its index, and the hits of the queries in it. */
typedef struct {
    int begin, count, *starts, *first, *at, *found, *hits;
    signed char *residues;
    double *evalues;
} part;

/* Cuts the database into at most `wanted` parts of about equal numbers of residues. @return Their number. */
static int cut(const proteins *all, int wanted, int queries, part *parts) {
    int made = 0, total = all->starts[all->count];
    for (int p = 0, begin = 0; p < wanted; p++) {
        int end = begin;
        while (end < all->count && (p + 1 == wanted || all->starts[end] < (double)(p + 1) * total / wanted)) end++;
        if (end == begin) continue;
        part *one = &parts[made++];
        int n = all->starts[end] - all->starts[begin];
        *one = (part){.begin = begin, .count = end - begin, .residues = all->residues + all->starts[begin]};
        one->starts = memory(NULL, ((size_t)one->count + 1) * sizeof(int));
        for (int s = begin; s <= end; s++) one->starts[s - begin] = all->starts[s] - all->starts[begin];
        one->first = memory(NULL, (SEARCH_WORDS + 1) * sizeof(int));
        one->at = memory(NULL, ((size_t)n + 1) * sizeof(int));
        one->found = memory(NULL, (size_t)queries * sizeof(int));
        one->hits = memory(NULL, (size_t)queries * LIMIT * SEARCH_FIELDS * sizeof(int));
        one->evalues = memory(NULL, (size_t)queries * LIMIT * sizeof(double));
        begin = end;
    }
    return made;
}

/* ---- The best hits of all parts ---------------------------------------------------------------------------------- */

typedef struct {
    double evalue;
    int sequence;
    const int *hit;
} found;

static int by_evalue(const void *a, const void *b) {
    const found *x = a, *y = b;
    if (x->evalue != y->evalue) return x->evalue < y->evalue ? -1 : 1;
    return x->sequence - y->sequence;
}

/* Prints the best hits of a query. @return Their number. */
static int print_hits(const proteins *database, const char *name, int query, const part *parts, int count) {
    int many = 0;
    found *all = memory(NULL, (size_t)count * LIMIT * sizeof *all);
    for (const part *p = parts; p < parts + count; p++)
        for (int i = 0; i < p->found[query]; i++) {
            size_t at = (size_t)query * LIMIT + (size_t)i;
            const int *hit = p->hits + at * SEARCH_FIELDS;
            all[many++] = (found){p->evalues[at], p->begin + hit[0], hit};
        }
    qsort(all, (size_t)many, sizeof *all, by_evalue);
    if (many > LIMIT) many = LIMIT;
    for (int i = 0; i < many && i < SHOWN; i++) {
        const int *hit = all[i].hit;
        printf("%s %s %d %.2g %d-%d %d-%d\n", name, database->names[all[i].sequence], hit[1], all[i].evalue, hit[2], hit[3], hit[4], hit[5]);
    }
    free(all);
    return many;
}

int main(int argc, char **argv) {
    static part parts[PARTS_MAX];
    int wanted = argc > 4 ? atoi(argv[4]) : 8, sum = 0;
    if (argc < 3 || wanted < 1 || wanted > PARTS_MAX) {
        fprintf(stderr, "usage: %s CONFIGURATION DATABASE [QUERIES [PARTS]], with 1 to %d parts\n", argv[0], PARTS_MAX);
        return 2;
    }
    proteins database = read_proteins(argv[2]);
    proteins queries = argc > 3 && strcmp(argv[3], "-") != 0 ? read_proteins(argv[3]) : every(&database, EVERY);
    int count = cut(&database, wanted, queries.count, parts);
    long total = database.starts[database.count];
    grpc_function_handle_t index, search;
    MUST(grpc_initialize(argv[1]));
    MUST(grpc_function_handle_default(&index, "search/index"));
    MUST(grpc_function_handle_default(&search, "search/search"));
    grpc_map("auto") {
        for (part *p = parts; p < parts + count; p++) {
            grpc_sessionid_t indexed, searched;
            grpc_stays_remote(p->first, p->at);
            MUST(grpc_call_async(&index, &indexed, p->starts[p->count], p->residues, p->count, p->starts, p->first, p->at));
            MUST(grpc_call_async(&search, &searched, p->starts[p->count], p->residues, p->count, p->starts, p->first, p->at,
                                 queries.starts[queries.count], queries.residues, queries.count, queries.starts, total, database.count,
                                 EVALUE_MAX, LIMIT, p->found, p->hits, p->evalues));
        }
        MUST(grpc_wait_all());
    }
    MUST(grpc_map_error_np());
    for (int q = 0; q < queries.count; q++) sum += print_hits(&database, queries.names[q], q, parts, count);
    printf("%d hits of %d queries in %d proteins\n", sum, queries.count, database.count);
    MUST(grpc_function_handle_destruct(&index));
    MUST(grpc_function_handle_destruct(&search));
    MUST(grpc_finalize());
    return 0;
}
