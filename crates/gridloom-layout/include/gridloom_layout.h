/* Annotations of C declarations that are message types. Most of them expand to nothing for the C compiler; Gridloom reads them
 * in the text of the declarations.
 *
 *   struct Matrix { unsigned int lines, rows; double *data GRIDLOOM_LENGTH(lines * rows); };
 */
#ifndef GRIDLOOM_LAYOUT_H
#define GRIDLOOM_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* On a pointer: its number of elements. An expression over the integer fields of the struct; ^ is power. */
#define GRIDLOOM_LENGTH(expression)
/* On a pointer to char: it points to one character, not to a string. On a pointer to a number: it points to one; such a pointer
 * needs this or GRIDLOOM_LENGTH. */
#define GRIDLOOM_ONE
/* On a union: the field of the same struct that selects its case. */
#define GRIDLOOM_TAG(field)
/* On a member of a union: the tag that selects it. */
#define GRIDLOOM_CASE(constant)
/* After the word struct: without padding. */
#define GRIDLOOM_PACKED __attribute__((packed))
/* As the type of a field: a dynamic array. In received data capacity == length. */
#define GRIDLOOM_ARRAY(type) struct { type *data; size_t length; size_t capacity; }

#endif
