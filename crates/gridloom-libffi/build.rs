//! Compiles libffi's C library from the sources in the crate libffi-sys. `config/fficonfig.h` has the settings that libffi's
//! configure script finds on Linux with glibc.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

const COMMON: [&str; 4] = ["src/closures.c", "src/prep_cif.c", "src/tramp.c", "src/types.c"];
const X86_64: [&str; 4] = ["src/x86/ffi64.c", "src/x86/ffiw64.c", "src/x86/unix64.S", "src/x86/win64.S"];
const AARCH64: [&str; 2] = ["src/aarch64/ffi.c", "src/aarch64/sysv.S"];

fn main() {
    for path in ["build.rs", "config", "Cargo.toml"] {
        println!("cargo:rerun-if-changed={path}");
    }
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let (target, folder, files) = match arch.as_str() {
        "x86_64" => ("X86_64", "x86", &X86_64[..]),
        "aarch64" => ("AARCH64", "aarch64", &AARCH64[..]),
        // Other architectures need the package libffi-dev or libffi-devel.
        _ => return println!("cargo:rustc-link-lib=dylib=ffi"),
    };
    let out = PathBuf::from(variable("OUT_DIR"));
    let libffi = sources();
    let header = fs::read_to_string(libffi.join("include/ffi.h.in")).expect("the header is in the crate libffi-sys");
    let header =
        VALUES.iter().fold(header.replace("@TARGET@", target), |text, (mark, value)| text.replace(mark, value));
    fs::write(out.join("ffi.h"), header).expect("the build's folder is writable");
    cc::Build::new()
        .files(COMMON.iter().chain(files).map(|file| libffi.join(file)))
        .include(&out)
        .include("config")
        .include(libffi.join("include"))
        .include(libffi.join("src").join(folder))
        .flag("-fexceptions")
        .opt_level(3)
        .warnings(false)
        .compile("gridloom_ffi");
}

/// The folder of the C library's sources. Only Cargo knows where it has put the crate's files.
fn sources() -> PathBuf {
    let mut command = Command::new(variable("CARGO"));
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &variable("TARGET")]);
    let output = command.output().expect("Cargo runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cannot find the sources of libffi-sys: {command:?} failed: {error}");
    let text = String::from_utf8(output.stdout).expect("Cargo writes UTF-8");
    let manifests = text.split("\"manifest_path\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let found = manifests.filter_map(|path| path.strip_suffix("/Cargo.toml")).find(|path| {
        path.rsplit('/').next().is_some_and(|folder| folder == "libffi-sys" || folder.starts_with("libffi-sys-"))
    });
    PathBuf::from(found.expect("libffi-sys is a dependency")).join("libffi")
}

/// Values of the placeholders in the header.
const VALUES: [(&str, &str); 5] = [
    ("@VERSION@", "3.5.2"),
    ("@FFI_VERSION_STRING@", "3.5.2"),
    ("@FFI_VERSION_NUMBER@", "30502"),
    ("@HAVE_LONG_DOUBLE@", "1"),
    ("@FFI_EXEC_TRAMPOLINE_TABLE@", "0"),
];

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("Cargo sets {name}"))
}
