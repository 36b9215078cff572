//! Links the error handlers of BLAS (`src/worker/xerbla.c`) into a shared library, which is embedded in the program.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/worker/xerbla.c");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR")).join("xerbla.so");
    let mut command = cc::Build::new().std("c11").pic(true).extra_warnings(true).get_compiler().to_command();
    command.args(["-shared", "-Wl,-soname,gridloom-xerbla", "-Wl,-s", "-o"]).arg(&out).arg("src/worker/xerbla.c");
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
