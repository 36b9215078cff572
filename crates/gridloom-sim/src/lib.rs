//! gridloom-sim
