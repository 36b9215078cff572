//! Gridloom for C: the functions of `include/gridloom.h`, and, linked into the same library, GridRPC (`gridloom-grpc`),
//! Ninf-G and OmniRPC (features `ninfg` and `omnirpc`). The headers document each function for its callers.
//!
//! ```text
//!  GRIDLOOM_MESSAGE, GRIDLOOM_PROCESS ──before main──▶ declare ──▶ types: kind ▶ schema, receiver
//!  gridloom_main ──▶ run ──▶ gridloom::process::run ──▶ a C function on a stack of its own
//!  gridloom_send, … ──▶ current: which process calls ──▶ gridloom::process::Process ──▶ its world
//!                                                                                        │ own: before C runs again,
//!                                                                                        ▼ its globals are restored
//! ```
//!
//! | file | content |
//! |---|---|
//! | `declare` | a program's declarations before `main` |
//! | `types` | its message types |
//! | `memory` | C's memory, for the layout's encoder |
//! | `message` | received messages |
//! | `current` | the running process, and its last error |
//! | `code` | errors as numbers |
//! | `globals` | a copy of the program's variables for each simulated process |
//! | `own` | a simulated process's world, which restores them |
//! | `overflow` | names the process that overflowed its stack |
//! | `run` | `gridloom_main` |
//! | `connections`, `callbacks`, `time`, `log`, `config`, `array`, `dictionary` | the functions of the header's sections |
//!
//! **Invariants**
//! - One thread runs C code, and it runs one process at a time; `current` names the process, and its globals are
//!   loaded whenever C code runs.
//! - None of the library's own data is in the program's writable memory; otherwise globals are not exchanged (`globals`).
//! - Functions of the header are `extern "C-unwind"`. A simulated process that continues after its end is unwound
//!   through its C frames, which own nothing that a compiler would drop.

#![allow(
    clippy::missing_safety_doc,
    reason = "what a function expects of its pointers is the header's to say: a pointer is valid for what it is declared \
              to lead to, as for any function of C"
)]
#![allow(unsafe_code, reason = "this is the boundary to C")]

mod array;
mod callbacks;
mod code;
mod config;
mod connections;
mod current;
mod declare;
mod dictionary;
mod globals;
mod log;
mod memory;
mod message;
mod overflow;
mod process_world;
mod run;
mod time;
mod types;

pub use array::*;
pub use callbacks::*;
pub use code::*;
pub use config::*;
pub use connections::*;
pub use declare::*;
pub use dictionary::*;
pub use gridloom_grpc::*;
#[cfg(feature = "ninfg")]
pub use gridloom_ninfg::*;
#[cfg(feature = "omnirpc")]
pub use gridloom_omnirpc::*;
pub use log::*;
pub use message::*;
pub use run::*;
pub use time::*;
