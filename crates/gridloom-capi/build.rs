//! Sets the name by which programs find the shared library at run time, and compiles the variadic functions, which
//! must be in C. With `-fexceptions`, a simulated process that continues after its end is unwound through them.

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
