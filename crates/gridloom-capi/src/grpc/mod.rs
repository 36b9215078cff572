//! GridRPC for C: what `include/grpc.h` declares, with `grpc_extensions.h`, `grpc_ninfg.h`, `grpc_objects.h`, `grpc_remote.h`,
//! `grpc_data.h`, `grpc_shared.h`, `grpc_map.h`, `grpc_plan.h`, `grpc_heuristic.h` and `grpc_graph.h`, and the faces of OmniStorage and
//! OmniRPC (`omst.h`, `OmniRpc.h`). The headers document each function for its callers, `GRIDRPC.md` has the design.
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
//! | `waits`, `call` | waiting for sessions, and probing them; a call until it is sent |
//! | `hosted`, `shared` | functions in workers, which go to the worker's library; shared data |
//! | `library` | the one session with a grid: begun, ended, found |
//! | `mappings`, `graphs` | by what blocks are mapped, and graphs that were described: names that the program gave |
//! | `sessions` | the table of calls under way |
//! | `remembered` | those that were collected |
//! | `latest` | what each thread began last |
//! | `session` | one call under way, until its results are written |
//! | `objects`, `deliver`, `elsewhere` | what handles of objects stand for; results to memory; results that are elsewhere than in the program's memory |
//! | `arguments` | the program's memory to values |
//! | `lists` | files, and arrays of strings and of files |
//! | `handles` | handles, and how C passes arguments (`calls.c`) |
//! | `remotes`, `callbacks`, `config`, `requests` | data by their addresses; functions that are called back; the configuration; puts and gets of shared data that have begun |
//! | `memory`, `choice`, `ninfg_config`, `problem` | the program's memory, read and written; an array of ids, of which one is to end; configurations of Ninf-G; what a heuristic of the program's own sees |
//! | `limits` | time limits of calls |
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
mod code;
mod config;
mod deliver;
mod elsewhere;
mod graphs;
mod handles;
mod hosted;
mod latest;
mod library;
mod limits;
mod lists;
mod map;
mod mappings;
mod memory;
mod ninfg_config;
mod objects;
mod problem;
mod remembered;
mod remotes;
mod requests;
mod session;
mod sessions;
mod shared;
mod waits;

pub use api::*;
pub use code::*;
pub use handles::{CFunctionHandle, CHandle, CObjectHandle, Slot};
pub use hosted::{WorkerFunctions, ask_initial, gridloom_functions_np};
pub use problem::*;
pub use remotes::CRemote;
