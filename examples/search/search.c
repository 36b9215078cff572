/* The kernels of search.idl: a search for similar proteins in the manner of BLAST (S. F. Altschul and others, Nucleic Acids Research 25,
 * 1997, 3389-3402), and the exact search with which its results can be compared.
 *
 * A database is an array of residues, sequence after sequence: sequence s has residues starts[s] to starts[s + 1] - 1. Residues are
 * numbers from 0 to 23, in the order of LETTERS in search.h. Queries are stored in the same way.
 *
 * 1. Words: three residues of the query, and all words that score at least WORD_SCORE_MIN with them. The index has their positions.
 * 2. Two hits on one diagonal, at most TWO_HITS_MAX apart, begin an extension without gaps. It ends where the score has fallen by
 *    UNGAPPED_DROP.
 * 3. If it scores at least GAP_TRIGGER, the sequences are aligned with gaps near this diagonal: Smith-Waterman with affine gaps
 *    (O. Gotoh, Journal of Molecular Biology 162, 1982, 705-708), in a band of BAND diagonals on both sides.
 * 4. The expected number of alignments with at least this score by chance follows from Karlin's and Altschul's statistics.
 *
 * Regions of low complexity are not masked, and the composition of sequences does not change scores; BLAST does both by default. */
#include "search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STANDARD = 20, LETTERS = 24, WORD_SCORE_MIN = 11, TWO_HITS_MAX = 40, UNGAPPED_DROP = 16, GAP_TRIGGER = 41, BAND = 48 };

/* A gap of k residues costs GAP_OPEN + k GAP_EXTEND. */
enum { GAP_OPEN = 11, GAP_EXTEND = 1 };

/* A number below any score. Adding penalties to it does not overflow. */
enum { LEAST = -(1 << 28) };

/* BLOSUM62 in half bits (S. Henikoff, J. G. Henikoff, PNAS 89, 1992, 10915-10919), in the order ARNDCQEGHILKMFPSTWYVBZX*. */
static const signed char SCORES[LETTERS][LETTERS] = {
    { 4, -1, -2, -2,  0, -1, -1,  0, -2, -1, -1, -1, -1, -2, -1,  1,  0, -3, -2,  0, -2, -1,  0, -4},
    {-1,  5,  0, -2, -3,  1,  0, -2,  0, -3, -2,  2, -1, -3, -2, -1, -1, -3, -2, -3, -1,  0, -1, -4},
    {-2,  0,  6,  1, -3,  0,  0,  0,  1, -3, -3,  0, -2, -3, -2,  1,  0, -4, -2, -3,  3,  0, -1, -4},
    {-2, -2,  1,  6, -3,  0,  2, -1, -1, -3, -4, -1, -3, -3, -1,  0, -1, -4, -3, -3,  4,  1, -1, -4},
    { 0, -3, -3, -3,  9, -3, -4, -3, -3, -1, -1, -3, -1, -2, -3, -1, -1, -2, -2, -1, -3, -3, -2, -4},
    {-1,  1,  0,  0, -3,  5,  2, -2,  0, -3, -2,  1,  0, -3, -1,  0, -1, -2, -1, -2,  0,  3, -1, -4},
    {-1,  0,  0,  2, -4,  2,  5, -2,  0, -3, -3,  1, -2, -3, -1,  0, -1, -3, -2, -2,  1,  4, -1, -4},
    { 0, -2,  0, -1, -3, -2, -2,  6, -2, -4, -4, -2, -3, -3, -2,  0, -2, -2, -3, -3, -1, -2, -1, -4},
    {-2,  0,  1, -1, -3,  0,  0, -2,  8, -3, -3, -1, -2, -1, -2, -1, -2, -2,  2, -3,  0,  0, -1, -4},
    {-1, -3, -3, -3, -1, -3, -3, -4, -3,  4,  2, -3,  1,  0, -3, -2, -1, -3, -1,  3, -3, -3, -1, -4},
    {-1, -2, -3, -4, -1, -2, -3, -4, -3,  2,  4, -2,  2,  0, -3, -2, -1, -2, -1,  1, -4, -3, -1, -4},
    {-1,  2,  0, -1, -3,  1,  1, -2, -1, -3, -2,  5, -1, -3, -1,  0, -1, -3, -2, -2,  0,  1, -1, -4},
    {-1, -1, -2, -3, -1,  0, -2, -3, -2,  1,  2, -1,  5,  0, -2, -1, -1, -1, -1,  1, -3, -1, -1, -4},
    {-2, -3, -3, -3, -2, -3, -3, -3, -1,  0,  0, -3,  0,  6, -4, -2, -2,  1,  3, -1, -3, -3, -1, -4},
    {-1, -2, -2, -1, -3, -1, -1, -2, -2, -3, -3, -1, -2, -4,  7, -1, -1, -4, -3, -2, -2, -1, -2, -4},
    { 1, -1,  1,  0, -1,  0,  0,  0, -1, -2, -2,  0, -1, -2, -1,  4,  1, -3, -2, -2,  0,  0,  0, -4},
    { 0, -1,  0, -1, -1, -1, -1, -2, -2, -1, -1, -1, -1, -2, -1,  1,  5, -2, -2,  0, -1, -1,  0, -4},
    {-3, -3, -4, -4, -2, -2, -3, -2, -2, -3, -2, -3, -1,  1, -4, -3, -2, 11,  2, -3, -4, -3, -2, -4},
    {-2, -2, -2, -3, -2, -1, -2, -3,  2, -1, -1, -2, -1,  3, -3, -2, -2,  2,  7, -1, -3, -2, -1, -4},
    { 0, -3, -3, -3, -1, -2, -2, -3, -3,  3,  1, -2,  1, -1, -2, -2,  0, -3, -1,  4, -3, -2, -1, -4},
    {-2, -1,  3,  4, -3,  0,  1, -1,  0, -3, -4,  0, -3, -3, -2,  0, -1, -4, -3, -3,  4,  1, -1, -4},
    {-1,  0,  0,  1, -3,  3,  4, -2,  0, -3, -3,  1, -1, -3, -1,  0, -1, -3, -2, -2,  1,  4, -1, -4},
    { 0, -1, -1, -1, -2, -1, -1, -1, -1, -1, -1, -1, -1, -1, -2,  0,  0, -2, -1, -1, -1, -1, -1, -4},
    {-4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4,  1},
};

/* Parameters of the distribution of scores for BLOSUM62 with these gaps (S. F. Altschul, W. Gish, Methods in Enzymology 266, 1996,
 * 460-480): lambda per unit of score, K, and the relative entropy H in nats per aligned pair. */
static const double LAMBDA = 0.267, K = 0.041, H = 0.14;

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

/* Ends the process unless `starts` are the beginnings of `count` sequences that cover `n` numbers, and the end of the last one. */
static void check_starts(const char *name, int n, int count, const int *starts) {
    int is_right = count >= 0 && starts[0] == 0 && starts[count < 0 ? 0 : count] == n;
    for (int s = 0; is_right && s < count; s++) is_right = starts[s] <= starts[s + 1];
    if (is_right) return;
    fprintf(stderr, "search: '%s' must begin with 0, never decrease, and end with %d\n", name, n);
    abort();
}

/* The same for an index of `n` residues: positions of words. */
static void check_index(int n, const int *first, const int *at) {
    int is_right = first[0] == 0 && first[SEARCH_WORDS] <= n;
    for (int word = 0; is_right && word < SEARCH_WORDS; word++) is_right = first[word] <= first[word + 1];
    for (int k = 0; is_right && k < first[SEARCH_WORDS]; k++) is_right = at[k] >= 0 && at[k] <= n - SEARCH_WORD;
    if (is_right) return;
    fprintf(stderr, "search: 'first' and 'at' are no index of %d residues; make one with search/index\n", n);
    abort();
}

/* ---- Words ------------------------------------------------------------------------------------------------------- */

/* Returns the number of a word, or -1 if a residue is not one of the 20 standard ones. */
static int word_at(const signed char *residues) {
    int word = 0;
    for (int i = 0; i < SEARCH_WORD; i++) {
        if (residues[i] < 0 || residues[i] >= STANDARD) return -1;
        word = word * STANDARD + residues[i];
    }
    return word;
}

void search_index(int n, const signed char *residues, int count, const int *starts, int *first, int *at) {
    check_starts("starts", n, count, starts);
    memset(first, 0, (SEARCH_WORDS + 1) * sizeof *first);
    memset(at, 0, (size_t)n * sizeof *at);
    for (int pass = 0; pass < 2; pass++) {
        for (int s = 0; s < count; s++)
            for (int i = starts[s]; i + SEARCH_WORD <= starts[s + 1]; i++) {
                int word = word_at(residues + i);
                if (word < 0) continue;
                if (pass == 0) first[word + 1]++;
                else at[first[word]++] = i;
            }
        if (pass == 0)
            for (int word = 0; word < SEARCH_WORDS; word++) first[word + 1] += first[word];
    }
    /* The second pass has moved each beginning to the next word's. */
    memmove(first + 1, first, SEARCH_WORDS * sizeof *first);
    first[0] = 0;
}

/* The words that score enough with the word at `residues`. @return Their number. `words` has room for all words. */
static int neighbours(const signed char *residues, int *words) {
    int count = 0;
    if (word_at(residues) < 0) return 0;
    for (int a = 0; a < STANDARD; a++)
        for (int b = 0; b < STANDARD; b++) {
            int two = SCORES[residues[0]][a] + SCORES[residues[1]][b];
            for (int c = 0; c < STANDARD; c++)
                if (two + SCORES[residues[2]][c] >= WORD_SCORE_MIN) words[count++] = (a * STANDARD + b) * STANDARD + c;
        }
    return count;
}

/* ---- Alignments -------------------------------------------------------------------------------------------------- */

typedef struct {
    int score, query_begin, query_end, subject_begin, subject_end;
} alignment;

/* The best extension without gaps through the word at (i, j). `end` becomes the position in the query behind it. */
static int ungapped(const signed char *query, int length, const signed char *subject, int width, int i, int j, int *end) {
    int score = 0, best = 0, sum = 0;
    *end = i + SEARCH_WORD;
    for (int k = 0; k < SEARCH_WORD; k++) score += SCORES[query[i + k]][subject[j + k]];
    for (int k = SEARCH_WORD; i + k < length && j + k < width; k++) {
        sum += SCORES[query[i + k]][subject[j + k]];
        if (sum > best) {
            best = sum;
            *end = i + k + 1;
        }
        if (sum < best - UNGAPPED_DROP) break;
    }
    score += best;
    best = sum = 0;
    for (int k = 1; i - k >= 0 && j - k >= 0; k++) {
        sum += SCORES[query[i - k]][subject[j - k]];
        if (sum > best) best = sum;
        if (sum < best - UNGAPPED_DROP) break;
    }
    return score + best;
}

/* A cell of a row: the best score of an alignment that ends there, and the best that ends there with a gap in the query; each with
 * the position where it begins. */
typedef struct {
    int score, gap, query, subject, gap_query, gap_subject;
} cell;

/* The best local alignment on the diagonals from `low` to `high`, where the diagonal is the position in the subject minus that in
 * the query. `row` has room for width + 1 cells. */
static alignment aligned(const signed char *query, int length, const signed char *subject, int width, int low, int high, cell *row) {
    alignment best = {0, 0, 0, 0, 0};
    for (int j = 0; j <= width; j++) row[j] = (cell){0, LEAST, 0, j, 0, 0};
    for (int i = 1; i <= length; i++) {
        int from = i + low < 1 ? 1 : i + low, to = i + high > width ? width : i + high;
        if (from > to) continue;
        /* Cells to the left of the band are not part of it. The cell before the band becomes the diagonal neighbour of its first cell. */
        cell diagonal = row[from - 1], left = {LEAST, LEAST, 0, 0, 0, 0};
        if (from == 1) diagonal = left = (cell){0, LEAST, i - 1, 0, 0, 0};
        int across = LEAST, across_query = 0, across_subject = 0;
        for (int j = from; j <= to; j++) {
            cell up = row[j], here;
            if (j - i == high && i > 1) up = (cell){LEAST, LEAST, 0, 0, 0, 0};
            /* Alignments that end with a gap in the subject, and with one in the query. */
            here.gap = up.gap - GAP_EXTEND;
            here.gap_query = up.gap_query;
            here.gap_subject = up.gap_subject;
            if (up.score - GAP_OPEN - GAP_EXTEND > here.gap) {
                here.gap = up.score - GAP_OPEN - GAP_EXTEND;
                here.gap_query = up.query;
                here.gap_subject = up.subject;
            }
            across -= GAP_EXTEND;
            if (left.score - GAP_OPEN - GAP_EXTEND > across) {
                across = left.score - GAP_OPEN - GAP_EXTEND;
                across_query = left.query;
                across_subject = left.subject;
            }
            here.score = diagonal.score + SCORES[query[i - 1]][subject[j - 1]];
            here.query = diagonal.query;
            here.subject = diagonal.subject;
            if (diagonal.score <= 0) {
                here.score = SCORES[query[i - 1]][subject[j - 1]];
                here.query = i - 1;
                here.subject = j - 1;
            }
            if (here.gap > here.score) {
                here.score = here.gap;
                here.query = here.gap_query;
                here.subject = here.gap_subject;
            }
            if (across > here.score) {
                here.score = across;
                here.query = across_query;
                here.subject = across_subject;
            }
            if (here.score < 0) here.score = 0;
            if (here.score > best.score) best = (alignment){here.score, here.query, i, here.subject, j};
            diagonal = row[j];
            row[j] = left = here;
        }
    }
    return best;
}

/* ---- Statistics -------------------------------------------------------------------------------------------------- */

/* The expected length of an alignment. Alignments near the ends of sequences are cut off, so lengths are reduced by it. It is the largest
 * l with l = ln(K (m - l) (N - s l)) / H, approached from below. */
static double length_adjustment(double length, double total, double sequences) {
    double l = 0;
    for (int step = 0; step < 20; step++) {
        double m = length - l, n = total - sequences * l;
        if (m < 1 || n < sequences) break;
        double next = log(K * m * n) / H;
        if (next <= 0) return 0;
        /* At least one residue must be left. */
        next = fmin(next, fmin(length - 1, total / sequences - 1));
        if (fabs(next - l) < 0.5) break;
        l = (l + next) / 2;
    }
    return floor(l);
}

static double expectation(int score, double space) { return K * space * exp(-LAMBDA * score); }

static double search_space(int length, long total, int sequences) {
    double l = length_adjustment(length, (double)total, sequences);
    return fmax(length - l, 1) * fmax((double)total - sequences * l, 1);
}

/* ---- Search ------------------------------------------------------------------------------------------------------ */

/* Inserts a hit into the hits of one query, best first. If there is no room, the worst one is dropped. Of equal hits, the sequence with
 * the smaller number is first. */
static void keep(int limit, int *found, int *hits, double *evalues, const int *hit, double evalue) {
    int at = *found < limit ? *found : limit;
    while (at > 0 && (evalues[at - 1] > evalue || (evalues[at - 1] == evalue && hits[(at - 1) * SEARCH_FIELDS] > hit[0]))) at--;
    if (at >= limit) return;
    int last = *found < limit ? *found : limit - 1;
    memmove(hits + (at + 1) * SEARCH_FIELDS, hits + at * SEARCH_FIELDS, (size_t)(last - at) * SEARCH_FIELDS * sizeof *hits);
    memmove(evalues + at + 1, evalues + at, (size_t)(last - at) * sizeof *evalues);
    memcpy(hits + at * SEARCH_FIELDS, hit, SEARCH_FIELDS * sizeof *hits);
    evalues[at] = evalue;
    if (*found < limit) (*found)++;
}

static int sequence_of(int position, int count, const int *starts) {
    int low = 0, high = count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (starts[middle] <= position) low = middle;
        else high = middle;
    }
    return low;
}

/* An extension that scored enough. */
typedef struct {
    int sequence, diagonal;
} seed;

static int by_place(const void *a, const void *b) {
    const seed *x = a, *y = b;
    if (x->sequence != y->sequence) return x->sequence < y->sequence ? -1 : 1;
    return (x->diagonal > y->diagonal) - (x->diagonal < y->diagonal);
}

/* The seeds of one query. @return Their number; `*seeds` is new memory. */
static int seeds_of(int n, const signed char *residues, int count, const int *starts, const int *first, const int *at,
                    const signed char *query, int length, int *words, seed **seeds) {
    /* By diagonal: the query position of the last hit, and where the last extension ended. -1 where there is none. */
    size_t diagonals = (size_t)n + (size_t)length;
    int *last = malloc(diagonals * sizeof *last), *extended = malloc(diagonals * sizeof *extended);
    int found = 0, room = 64;
    *seeds = malloc((size_t)room * sizeof **seeds);
    if (last == NULL || extended == NULL || *seeds == NULL) abort();
    memset(last, 0xff, diagonals * sizeof *last);
    memset(extended, 0xff, diagonals * sizeof *extended);
    for (int i = 0; i + SEARCH_WORD <= length; i++) {
        int near = neighbours(query + i, words);
        for (int w = 0; w < near; w++)
            for (int k = first[words[w]]; k < first[words[w] + 1]; k++) {
                int position = at[k], diagonal = position - i + length, before = last[diagonal], apart = i - before;
                if (i < extended[diagonal]) continue;
                if (before >= 0 && apart < SEARCH_WORD) continue;
                last[diagonal] = i;
                if (before < 0 || apart > TWO_HITS_MAX) continue;
                int s = sequence_of(position, count, starts), end;
                if (position - apart < starts[s]) continue;
                int score = ungapped(query, length, residues + starts[s], starts[s + 1] - starts[s], i, position - starts[s], &end);
                extended[diagonal] = end;
                if (score < GAP_TRIGGER) continue;
                if (found == room) {
                    *seeds = realloc(*seeds, (size_t)(room *= 2) * sizeof **seeds);
                    if (*seeds == NULL) abort();
                }
                (*seeds)[found++] = (seed){s, position - starts[s] - i};
            }
    }
    free(last);
    free(extended);
    qsort(*seeds, (size_t)found, sizeof **seeds, by_place);
    return found;
}

static int longest(int count, const int *starts) {
    int most = 0;
    for (int s = 0; s < count; s++)
        if (starts[s + 1] - starts[s] > most) most = starts[s + 1] - starts[s];
    return most;
}

void search_search(int n, const signed char *residues, int count, const int *starts, const int *first, const int *at, int m,
                   const signed char *queries, int number, const int *begins, long total, int sequences, double evalue_max, int limit,
                   int *found, int *hits, double *evalues) {
    check_starts("starts", n, count, starts);
    check_starts("begins", m, number, begins);
    check_index(n, first, at);
    int *words = malloc(SEARCH_WORDS * sizeof *words);
    cell *row = malloc(((size_t)longest(count, starts) + 1) * sizeof *row);
    if (words == NULL || row == NULL) abort();
    memset(hits, 0, (size_t)number * limit * SEARCH_FIELDS * sizeof *hits);
    memset(evalues, 0, (size_t)number * limit * sizeof *evalues);
    for (int q = 0; q < number; q++) {
        const signed char *query = queries + begins[q];
        int length = begins[q + 1] - begins[q];
        double space = search_space(length, total, sequences);
        seed *seeds;
        int many = seeds_of(n, residues, count, starts, first, at, query, length, words, &seeds);
        found[q] = 0;
        for (int k = 0; k < many;) {
            int s = seeds[k].sequence, width = starts[s + 1] - starts[s];
            alignment best = {0, 0, 0, 0, 0};
            while (k < many && seeds[k].sequence == s) {
                /* One band for all seeds that are near the first of them. */
                int low = seeds[k].diagonal, high = low;
                for (; k < many && seeds[k].sequence == s && seeds[k].diagonal <= high + BAND; k++) high = seeds[k].diagonal;
                alignment one = aligned(query, length, residues + starts[s], width, low - BAND, high + BAND, row);
                if (one.score > best.score) best = one;
            }
            double evalue = expectation(best.score, space);
            int hit[SEARCH_FIELDS] = {s, best.score, best.query_begin, best.query_end, best.subject_begin, best.subject_end};
            if (evalue <= evalue_max) keep(limit, &found[q], hits + (size_t)q * limit * SEARCH_FIELDS, evalues + (size_t)q * limit, hit, evalue);
        }
        free(seeds);
    }
    free(words);
    free(row);
}

/* ---- The exact search -------------------------------------------------------------------------------------------- */

void search_exact(int n, const signed char *residues, int count, const int *starts, int m, const signed char *queries, int number,
                  const int *begins, long total, int sequences, int *scores, double *evalues) {
    check_starts("starts", n, count, starts);
    check_starts("begins", m, number, begins);
    int most = longest(number, begins);
    /* By position in the query: the best score that ends there, and the best one that ends there with a gap in the query. */
    int *best = malloc(((size_t)most + 1) * sizeof *best), *gap = malloc(((size_t)most + 1) * sizeof *gap);
    if (best == NULL || gap == NULL) abort();
    for (int q = 0; q < number; q++) {
        const signed char *query = queries + begins[q];
        int length = begins[q + 1] - begins[q];
        double space = search_space(length, total, sequences);
        for (int s = 0; s < count; s++) {
            int highest = 0;
            for (int i = 0; i <= length; i++) best[i] = 0, gap[i] = LEAST;
            for (int j = starts[s]; j < starts[s + 1]; j++) {
                const signed char *scored = SCORES[residues[j]];
                int diagonal = 0, down = LEAST;
                for (int i = 1; i <= length; i++) {
                    int score = diagonal + scored[query[i - 1]];
                    gap[i] = best[i] - GAP_OPEN > gap[i] ? best[i] - GAP_OPEN - GAP_EXTEND : gap[i] - GAP_EXTEND;
                    down = best[i - 1] - GAP_OPEN > down ? best[i - 1] - GAP_OPEN - GAP_EXTEND : down - GAP_EXTEND;
                    if (gap[i] > score) score = gap[i];
                    if (down > score) score = down;
                    diagonal = best[i];
                    best[i] = score > 0 ? score : 0;
                    if (best[i] > highest) highest = best[i];
                }
            }
            scores[(size_t)q * count + s] = highest;
            evalues[(size_t)q * count + s] = expectation(highest, space);
        }
    }
    free(best);
    free(gap);
}
