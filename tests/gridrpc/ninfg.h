/* A constant of the descriptions of ninfg.idl, which includes this outside of Globals. */
#define FACTOR 2
