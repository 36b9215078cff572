//! C programs in both worlds: compiled with `cc` against the header and the library, and started by `gridloom simulate` and
//! `gridloom deploy`.

mod failures;
mod globals;
mod messages;
mod rust;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::support::{file, folder, gridloom, skipped};

/// Two hosts with 1e9 operations per second each.
const PLATFORM: &str = "
[[host]]
name = 'laptop'
speed = '1Gf'
[[host]]
name = 'desk'
speed = '1Gf'
[[link]]
name = 'lan'
bandwidth = '100MBps'
latency = '1ms'
[[route]]
from = 'laptop'
to = 'desk'
links = ['lan']
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the folder with the library under the name that programs use; `None` if there is no C compiler.
fn libraries() -> Option<&'static PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        if Command::new("cc").arg("--version").output().is_err() {
            return None;
        }
        // Cargo builds the library for these tests, in the folder of their own program.
        let built = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        let made = folder("c-library");
        for kind in ["so", "a"] {
            let own = made.join(format!("libgridloom.{kind}"));
            let from = built.join(format!("libgridloom_capi.{kind}"));
            // Another test may be creating the same file: tests run concurrently and use the same name.
            let new = made.join(format!("new-{}.{kind}", std::process::id()));
            let _ = std::fs::remove_file(&new);
            std::os::unix::fs::symlink(&from, &new).unwrap();
            std::fs::rename(&new, &own).unwrap();
        }
        Some(made)
    });
    made.as_ref()
}

/// Compiles a program; returns `None` if there is no compiler.
fn compiled(source: &Path, name: &str, flags: &[&str]) -> Option<String> {
    let Some(libraries) = libraries() else {
        skipped("there is no C compiler 'cc' here");
        return None;
    };
    let program = folder("c-programs").join(name);
    let crates = root().join("crates");
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-UNDEBUG"]);
    command.arg("-I").arg(crates.join("gridloom-capi/include"));
    command.arg("-I").arg(crates.join("gridloom-layout/include"));
    command.arg(source).arg("-o").arg(&program).args(flags);
    if !flags.contains(&"-ldl") {
        command.arg("-L").arg(libraries).arg("-lgridloom").arg(format!("-Wl,-rpath,{}", libraries.display()));
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(program.to_str().unwrap().to_string())
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/c").join(name)
}

fn example(name: &str) -> PathBuf {
    root().join("examples/processes").join(name)
}

/// Returns a deployment of these processes: host, function, arguments.
fn deployment(name: &str, processes: &[(&str, &str, &str)]) -> String {
    let mut text = String::new();
    for (host, function, arguments) in processes {
        let _ = writeln!(text, "[[process]]\nhost = '{host}'\nfunction = '{function}'\narguments = [{arguments}]\n");
    }
    file(&format!("{name}.toml"), &text)
}

fn platform() -> String {
    static FILE: OnceLock<String> = OnceLock::new();
    FILE.get_or_init(|| file("c-platform.toml", PLATFORM)).clone()
}

fn run(mut command: Command) -> (Output, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    (output, out, error)
}

/// Runs the program in simulation.
fn simulated(platform: &str, deployment: &str, program: &[&str]) -> (Output, String, String) {
    run(gridloom(&[&["simulate", "-p", platform, "-d", deployment, "--"], program].concat()))
}

/// Runs the program as real processes.
fn deployed(deployment: &str, program: &[&str]) -> (Output, String, String) {
    run(gridloom(&[&["deploy", "-d", deployment, "--"], program].concat()))
}

/// Runs the program in both worlds. Returns what it printed in each, without process names and the simulation's report.
fn in_both_worlds(platform: &str, deployment: &str, program: &[&str]) -> [String; 2] {
    let (output, out, error) = simulated(platform, deployment, program);
    assert!(output.status.success(), "simulated: {out}{error}");
    let own: String =
        out.lines().take_while(|line| !line.starts_with("simulated ")).map(|line| format!("{line}\n")).collect();
    let (output, out, error) = deployed(deployment, program);
    assert!(output.status.success(), "deployed: {out}{error}");
    let line = |line: &str| format!("{}\n", line.split_once("| ").unwrap().1);
    [own, out.lines().map(line).collect()]
}

fn two_sites() -> String {
    root().join("examples/two-sites.toml").display().to_string()
}
