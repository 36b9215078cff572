//! gridloom-net
