/* Programs of GRAS include this name, too. */
#include "../gras.h"
