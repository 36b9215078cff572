//! GridRPC for C: what `include/grpc.h`, `grpc_extensions.h`, `grpc_objects.h`, `grpc_remote.h` and `grpc_data.h` declare, which document each function for who
//! calls it. `GRIDRPC.md` has the whole design; here is what there is of it:
//!
//! ```text
//!  grpc_call(&h, …) ─calls.c: va_list → slots, by the handle's reading plan─▶ calls ─▶ arguments: slots → values
//!                                                                              │
//!      Function::submit ─▶ Pending ◀── sessions ◀──────────────────────────────┘
//!  grpc_wait, grpc_probe ─▶ wait ─▶ deliver: values → the program's memory
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `calls.c`, `calls` | the variadic functions, which C reads and Rust runs |
//! | `slots` | arguments as C passes them, and how they are read |
//! | `library` | the one session with a grid: begun, ended, found |
//! | `config` | its configuration |
//! | `code` | codes, their names, each thread's last error |
//! | `handles` | handles of functions |
//! | `objects` | those of objects |
//! | `sessions` | calls under way, and those that are remembered |
//! | `choice` | an array of ids, of which one is to end |
//! | `wait` | probes, waits, cancelling, errors of sessions |
//! | `arguments`, `deliver` | the program's memory to values, and back |
//! | `callbacks` | functions of the program that are called back |
//! | `memory` | where it is read and written |
//! | `work` | what a session is of: a call by itself, one with remote data, or one in a mapped block |
//! | `map` | `grpc_map` |
//! | `files` | result files |
//! | `remote` | data that stay where they are made (`include/grpc_remote.h`) |
//! | `data`, `description`, `uri` | the same with places to read them from and to put them (`include/grpc_data.h`) |
//! | `stacks`, `extensions` | what is not of the standard |
//!
//! **Invariants**
//! - Locks are taken in this order: a session's stage, the grid's, the table of sessions. Nothing of the grid is called or
//!   dropped under the table's.
//! - No panic leaves a function of the header (`code::run`).
//! - Memory of the program is read before a call returns, and written by who learns of the session's end, or by the end of
//!   the block that the call is of.

mod arguments;
mod callbacks;
mod calls;
mod choice;
mod code;
mod config;
mod data;
mod deliver;
mod description;
mod extensions;
mod files;
mod handles;
mod library;
mod map;
mod memory;
mod objects;
mod remote;
mod sessions;
mod slots;
mod stacks;
mod uri;
mod wait;
mod work;

pub use calls::*;
pub use code::*;
pub use data::*;
pub use extensions::*;
pub use handles::*;
pub use library::*;
pub use map::*;
pub use objects::*;
pub use remote::*;
pub use slots::Slot;
pub use stacks::*;
pub use wait::*;
