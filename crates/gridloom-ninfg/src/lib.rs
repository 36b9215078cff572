//! Ninf-G's functions for C (`grpc_ninfg.h`), based on GridRPC (`gridloom-grpc`): attributes of handles and sessions,
//! records of sessions, checks of handles. `gridloom-capi` links them into the library. Ninf-G's configurations are read
//! by `gridloom-grpc`, with its feature `ninfg`.

#![allow(
    clippy::missing_safety_doc,
    reason = "what a function expects of its pointers is the header's to say: a pointer is valid for what it is declared \
              to lead to, as for any function of C"
)]
#![allow(unsafe_code, reason = "this is the boundary to C")]

mod attributes;
mod handle_attributes;
mod handles;
mod session_attributes;
mod session_info;

pub use handle_attributes::*;
pub use handles::*;
pub use session_attributes::*;
pub use session_info::*;
