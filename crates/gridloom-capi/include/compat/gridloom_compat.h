/* Shared by the headers for programs of other systems. Programs do not include it. */
#ifndef GRIDLOOM_COMPAT_H
#define GRIDLOOM_COMPAT_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Declares a function that cannot be supported. The compiler rejects a call of it, and shows the reason. */
#if defined(__has_attribute)
#if __has_attribute(error)
#define GRIDLOOM_UNSUPPORTED_(declaration, reason) declaration __attribute__((error(reason)))
#endif
#endif
#ifndef GRIDLOOM_UNSUPPORTED_
#define GRIDLOOM_UNSUPPORTED_(declaration, reason) declaration
#endif

/* The headers of standard C do not declare mkstemp. */
int mkstemp(char *);
static inline int gridloom_new_file_(char *path) { return mkstemp(path); }

static inline char *gridloom_copy_(const char *text) {
    char *copy = (char *)malloc(strlen(text) + 1);
    return strcpy(copy, text);
}

/* Returns a configuration's name; NULL if a line of the file begins with one of these words of another system, whose settings
 * have no meaning here. */
static inline const char *gridloom_own_configuration_(const char *name, const char *first, const char *second, const char *third) {
    const char *const words[] = {first, second, third};
    char line[512];
    FILE *file = name == NULL || *name == '\0' ? NULL : fopen(name, "r");
    if (file == NULL) return name;
    while (name != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *text = line + strspn(line, " \t");
        size_t at;
        for (at = 0; at < sizeof words / sizeof *words; at++) {
            size_t length = strlen(words[at]);
            if (strncmp(text, words[at], length) == 0 && strchr(" \t=:", text[length]) != NULL && text[length] != '\0') name = NULL;
        }
    }
    fclose(file);
    return name;
}

#ifdef __cplusplus
}
#endif

#endif
