/* Clients of Ninf-G 1 include this name, too. */
#include "grpc.h"
