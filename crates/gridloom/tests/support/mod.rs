//! Shared helpers for tests of simulated grids: the files that a simulation reads.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::path::PathBuf;

use gridloom::SimulateConfig;

/// The product of two square matrices.
pub const PRODUCT: &str = r#"
Module kernels;
Define product(IN int n, IN double a[n][n], IN double b[n][n], OUT double c[n][n])
"c := a b" CalcOrder 2*n^3 Calls "C" product(n, a, b, c);
"#;

/// A function of the same name and work that reads only one matrix.
pub const SQUARE: &str = r#"
Module kernels;
Define product(IN int n, IN double a[n][n], OUT double c[n][n])
"c := a a" CalcOrder 2*n^3 Calls "C" product(n, a, c);
"#;

/// Hosts (name, speed) around a switch; bandwidth and latency are those of each host's link to it.
pub fn star(hosts: &[(&str, &str)], bandwidth: &str, latency: &str) -> String {
    let host = |(name, speed): &(&str, &str)| format!("[[host]]\nname = \"{name}\"\nspeed = \"{speed}\"\n");
    let names: Vec<&str> = hosts.iter().map(|(name, _)| *name).collect();
    let hosts: String = hosts.iter().map(host).collect();
    format!(
        "{hosts}[[star]]\nname = \"lan\"\nhosts = {names:?}\nbandwidth = \"{bandwidth}\"\nlatency = \"{latency}\"\n"
    )
}

/// The test's own folder, with those files (name, text) in it.
pub fn folder(test: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&folder).unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
    folder
}

/// A simulation on a platform, TOML or XML, whose servers offer these functions; `files` are stored beside it.
pub fn simulation(test: &str, platform: &str, functions: &str, files: &[(&str, &str)]) -> SimulateConfig {
    let name = if platform.trim_start().starts_with('<') { "platform.xml" } else { "platform.toml" };
    let own = [(name, platform), ("kernels.idl", functions)];
    let folder = folder(test, &[&own, files].concat());
    SimulateConfig {
        platform: folder.join(name),
        functions: vec![folder.join("kernels.idl")],
        ..SimulateConfig::default()
    }
}
