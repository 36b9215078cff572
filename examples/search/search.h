/* The functions of search.c, which search.idl describes, and how proteins are read. */
#ifndef SEARCH_H
#define SEARCH_H

/* Residues of a word, the number of words, and the numbers of a hit: sequence, score, beginning and end in the query, the same in the
 * sequence. An end is the position behind the last residue. */
enum { SEARCH_WORD = 3, SEARCH_WORDS = 20 * 20 * 20, SEARCH_FIELDS = 6 };

/* Residues by number. The last four are B, Z, any residue, and a stop. */
#define SEARCH_LETTERS "ARNDCQEGHILKMFPSTWYVBZX*"

void search_index(int n, const signed char *residues, int count, const int *starts, int *first, int *at);
void search_search(int n, const signed char *residues, int count, const int *starts, const int *first, const int *at, int m,
                   const signed char *queries, int number, const int *begins, long total, int sequences, double evalue_max, int limit,
                   int *found, int *hits, double *evalues);
void search_exact(int n, const signed char *residues, int count, const int *starts, int m, const signed char *queries, int number,
                  const int *begins, long total, int sequences, int *scores, double *evalues);

#endif
