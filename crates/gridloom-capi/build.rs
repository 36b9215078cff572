//! Gives the shared library the name that programs ask for at run time, and compiles the variadic functions, which have to
//! be C. `-fexceptions`, so that a simulated process that goes on after its end is unwound through them.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgridloom.so");
    println!("cargo:rerun-if-changed=src/grpc/calls.c");
    println!("cargo:rerun-if-changed=src/grpc/calls.h");
    println!("cargo:rerun-if-changed=include");
    println!("cargo:rerun-if-changed=../gridloom-idl/include");
    cc::Build::new()
        .file("src/grpc/calls.c")
        .include("include")
        .include("../gridloom-idl/include")
        .std("c11")
        .flag("-fexceptions")
        .extra_warnings(true)
        .compile("gridloom_calls");
}
