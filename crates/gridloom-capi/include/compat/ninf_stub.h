/* Clients of Ninf 1 include this name, too. */
#include "ninf.h"
