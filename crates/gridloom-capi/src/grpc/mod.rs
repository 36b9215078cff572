//! GridRPC for C: what `include/grpc.h` declares, with `grpc_extensions.h`, `grpc_objects.h`, `grpc_remote.h`, `grpc_data.h` and
//! `grpc_map.h`. The headers document each function for its callers, `GRIDRPC.md` has the design.
//!
//! ```text
//!  grpc_call(&h, …) ─calls.c: va_list → slots, by the handle's reading plan─▶ api/calls ─▶ call
//!                        arguments: slots → values ◀── survey, gather ──────────────────────┤
//!                               Function::submit ─▶ Pending ◀── sessions ◀── Work ◀────────┘
//!  grpc_wait, grpc_probe ─▶ api/waits ─▶ waits ─▶ session ─▶ deliver: values → the program's memory
//! ```
//!
//! # Layers
//!
//! Each file, and each folder as a whole, imports only those in rows below its own. `tests/test_layers.py` reads this table.
//!
//! | layer | what it holds |
//! |---|---|
//! | `api` | the functions of the headers |
//! | `map` | blocks of `grpc_map` |
//! | `waits` | waiting for sessions, and probing them |
//! | `library` | the one session with a grid: begun, ended, found |
//! | `sessions` | the table of calls under way |
//! | `remembered` | those that were collected |
//! | `session` | one call under way, until its results are written |
//! | `call` | a call that is sent: by itself, with remote data, or in a mapped block |
//! | `objects` | handles of objects |
//! | `handles` | handles of functions |
//! | `client` | the grid, and what stands for pointers |
//! | `elsewhere` | results that are elsewhere than in the program's memory |
//! | `arguments` | the program's memory to values |
//! | `deliver`, `remotes`, `callbacks`, `slots`, `config` | results to memory; data by their addresses; functions that are called back; arguments as C passes them (`calls.c`); the configuration |
//! | `memory`, `choice` | the program's memory, read and written; an array of ids, of which one is to end |
//! | `code` | codes, their names, each thread's last error |
//!
//! **Invariants**
//! - Locks are taken in this order: a session's stage, the grid's, the table of sessions. Nothing of the grid is called or
//!   dropped under the table's.
//! - No panic leaves a function of the header (`code::run`).
//! - Memory of the program is read before a call returns. The thread that learns of the session's end writes it, or the end of
//!   the block that the call is of.

mod api;
mod arguments;
mod call;
mod callbacks;
mod choice;
mod client;
mod code;
mod config;
mod deliver;
mod elsewhere;
mod handles;
mod library;
mod map;
mod memory;
mod objects;
mod remembered;
mod remotes;
mod session;
mod sessions;
mod slots;
mod waits;

pub use api::*;
pub use code::*;
pub use handles::CFunctionHandle;
pub use objects::CObjectHandle;
pub use remotes::CRemote;
pub use slots::Slot;
