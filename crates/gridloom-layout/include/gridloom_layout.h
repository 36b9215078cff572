/* Annotations of C declarations that are message types. The C compiler sees nothing of most of them; Gridloom reads them
 * in the text of the declarations.
 *
 *   struct Matrix { unsigned int lines, rows; double *data GRIDLOOM_LENGTH(lines * rows); };
 */
#ifndef GRIDLOOM_LAYOUT_H
#define GRIDLOOM_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* On a pointer: it leads to so many elements. An expression over the integer fields of the struct; ^ is power. */
#define GRIDLOOM_LENGTH(expression)
/* On a pointer to char: it leads to one character, not to a string. On a pointer to a number: it leads to one; such a pointer
 * has this or GRIDLOOM_LENGTH. */
#define GRIDLOOM_ONE
/* On a union: the field of the same struct that tells its case. */
#define GRIDLOOM_TAG(field)
/* On a member of a union: the tag that stands for it. */
#define GRIDLOOM_CASE(constant)
/* After the word struct: without padding. */
#define GRIDLOOM_PACKED __attribute__((packed))
/* As the type of a field: a dynamic array. What is received has capacity == length. */
#define GRIDLOOM_ARRAY(type) struct { type *data; size_t length; size_t capacity; }

#endif
