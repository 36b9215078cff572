//! GridRPC for C: the functions of `grpc.h`, `grpc_extensions.h`, `grpc_objects.h`, `grpc_remote.h`, `grpc_data.h`,
//! `grpc_shared.h`, `grpc_map.h`, `grpc_plan.h`, `grpc_heuristic.h` and `grpc_graph.h`, and the API of OmniStorage
//! (`omst.h`). The headers are in `gridloom-capi` and `gridloom-idl`, and document each function for its callers;
//! `gridloom-capi/GRIDRPC.md` has the design. `gridloom-ninfg` and `gridloom-omnirpc` add the functions of `grpc_ninfg.h` and
//! `OmniRpc.h`.
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
//! Each file, and each folder as a whole, imports only those in lower rows. `tests/test_layers.py` reads this table.
//!
//! | layer | content |
//! |---|---|
//! | `api` | the functions of the headers |
//! | `map` | blocks of `grpc_map` |
//! | `waits`, `call` | waiting for sessions, and probing them; a call until it is sent |
//! | `worker_functions`, `shared` | functions in workers, which are forwarded to the worker's library; shared data |
//! | `library` | the single session with a grid: begun, ended, found |
//! | `mappings`, `graphs` | names by which blocks are mapped, and declared graphs: both may be defined by the program |
//! | `sessions` | the table of outstanding calls |
//! | `session_records` | records of collected sessions |
//! | `latest` | the call that each thread started last |
//! | `session` | one outstanding call, until its results are written |
//! | `objects`, `deliver`, `remote_results` | the objects of handles; results to memory; results that are on servers instead of in the program's memory |
//! | `arguments` | the program's memory to values |
//! | `lists` | files, and arrays of strings and of files |
//! | `handles` | handles, and how C passes arguments (`calls.c`) |
//! | `remotes`, `callbacks`, `config`, `requests` | data by their addresses; functions that are called back; the configuration; outstanding puts and gets of shared data |
//! | `memory`, `choice`, `ninfg_config`, `problem` | reading and writing the program's memory; an array of ids, for one of which a thread waits; configurations of Ninf-G (feature `ninfg`); the view of a heuristic defined by the program |
//! | `limits`, `ranks` | time limits of calls; their numbers of ranks |
//! | `code` | codes, their names, each thread's last error |
//!
//! **Invariants**
//! - Locks are taken in this order: a session's stage, the grid's, the table of sessions. While the table's lock is
//!   held, no function of the grid is called and nothing of it is dropped.
//! - No panic leaves a function of the header (`code::run`).
//! - Memory of the program is read before a call returns. It is written by the thread that learns of the session's
//!   end, or at the end of the block to which the call belongs.

#![allow(
    clippy::missing_safety_doc,
    reason = "what a function expects of its pointers is the header's to say: a pointer is valid for what it is declared \
              to lead to, as for any function of C"
)]
#![allow(unsafe_code, reason = "this is the boundary to C")]

mod api;
mod arguments;
mod call;
mod callbacks;
mod choice;
mod code;
mod config;
mod deliver;
mod graphs;
mod handles;
mod latest;
mod library;
mod limits;
mod lists;
mod map;
mod mappings;
mod memory;
#[cfg(feature = "ninfg")]
mod ninfg_config;
mod objects;
mod problem;
mod ranks;
mod remote_results;
mod remotes;
mod requests;
mod session;
mod session_records;
mod sessions;
mod shared;
mod waits;
mod worker_functions;

pub use api::*;
pub use code::*;
pub use handles::{CFunctionHandle, CHandle, CObjectHandle, Slot};
pub use problem::*;
pub use remotes::CRemote;
pub use worker_functions::{WorkerFunctions, gridloom_functions_np, request_initial};

/// Items for the crates that add functions to these.
#[doc(hidden)]
pub mod parts {
    pub use crate::api::{begin_stack, call_of, call_stack, method_of};
    pub use crate::call::Call;
    pub use crate::code::{Failed, Outcome, last_error, name_of, run, run_for, to_c};
    pub use crate::latest::{Latest, latest};
    pub use crate::library::{Library, library, refuse_sessions_if};
    pub use crate::limits::{Limits, limit, whole_seconds};
    pub use crate::objects::ObjectSlot;
    pub use crate::session::Record;
    pub use crate::sessions::no_session;
    pub use crate::waits::VOID;

    /// Reads and writes the program's memory.
    pub mod memory {
        pub use crate::memory::{ProgramMemory, array, program_memory, string_or_null, text};
    }
}
