//! Compiles the variadic functions, which must be in C. With `-fexceptions`, a simulated process that continues after its
//! end is unwound through them.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/calls.c");
    println!("cargo:rerun-if-changed=src/ninfg_calls.h");
    println!("cargo:rerun-if-changed=../gridloom-grpc/src/calls.h");
    println!("cargo:rerun-if-changed=../gridloom-capi/include");
    println!("cargo:rerun-if-changed=../gridloom-idl/include");
    cc::Build::new()
        .file("src/calls.c")
        .include("../gridloom-grpc/src")
        .include("../gridloom-capi/include")
        .include("../gridloom-idl/include")
        .std("c11")
        .flag("-fexceptions")
        .extra_warnings(true)
        .compile("gridloom_ninfg_calls");
}
