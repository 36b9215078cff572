//! Calls C functions whose types are known only at run time, and creates C function pointers, with libffi.
//!
//! The crate `libffi` is compiled without its C library, and `build.rs` compiles that library with the C compiler alone.
//! The crate's own build runs configure and make, which cannot build in a folder whose path contains spaces, and takes
//! 20 s.
//!
//! The sources are those in the crate libffi-sys 4.2.2 (libffi 3.5.2), which match the declarations of the crate libffi. `config/fficonfig.h` and
//! `build.rs` belong to this version, so `Cargo.toml` names it exactly: update them together.

#![forbid(unsafe_code)]

pub use libffi::{low, middle};
