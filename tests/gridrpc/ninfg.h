/* A constant for the descriptions in ninfg.idl, which includes this file outside of Globals. */
#define FACTOR 2
