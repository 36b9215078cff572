//! gridloom
