//! `gridloom worker`: runs native functions in a server's slot, and checks that libraries have the functions. Servers start it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use gridloom_idl::{Body, Definition};
use gridloom_net::worker::native::Native;
use gridloom_net::worker::{Functions, Setup};
use serde_json::json;

use super::print_json;

/// Serve native functions to the server that started this process.
#[derive(clap::Args)]
pub struct Options {
    /// Descriptor of the socket to the server
    #[arg(long, required_unless_present_any = ["check", "rank"])]
    fd: Option<i32>,
    /// Only look up the symbols of the definitions on standard input
    #[arg(long, conflicts_with = "fd")]
    check: bool,
    /// Only run that function of a library on the call in a file, as one rank of several
    #[arg(long, num_args = 3, value_names = ["LIBRARY", "SYMBOL", "FILE"], conflicts_with_all = ["fd", "check"])]
    rank: Vec<String>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    if let [library, symbol, file] = options.rank.as_slice() {
        gridloom_net::worker::native::rank_main(library.as_ref(), symbol, file).map_err(anyhow::Error::msg)?;
        return Ok(ExitCode::SUCCESS);
    }
    match options.fd {
        Some(fd) => gridloom_net::worker::native_main(
            fd,
            &[gridloom_capi::worker_functions()],
            Some(gridloom_capi::request_initial),
        )?,
        None => check()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A function that cannot be run, and the reason.
pub type UnusableFunction = (String, String);

/// The answer of the checking process: functions that cannot be run, or libraries that cannot be loaded.
type CheckAnswer = Result<Vec<UnusableFunction>, Vec<String>>;

/// Looks up every native function in a separate process. So the server notices at its start that a library cannot be
/// loaded, and a library that crashes while it is loaded does no harm.
///
/// # Errors
/// If the functions cannot be looked up at all, or if a library cannot be loaded.
pub fn check_libraries(definitions: &[Definition], libraries: &[PathBuf]) -> Result<Vec<UnusableFunction>> {
    let native: Vec<&Definition> =
        definitions.iter().filter(|definition| matches!(definition.body, Body::Native { .. })).collect();
    if native.is_empty() {
        return Ok(Vec::new());
    }
    let mut child = Command::new(std::env::current_exe().context("this program's own path")?)
        .args(["worker", "--check"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot check the libraries")?;
    let question = json!({ "definitions": native, "libraries": libraries }).to_string();
    // The worker reads all definitions before it loads anything: after a broken pipe, its exit status shows the reason.
    let _ = child.stdin.take().expect("it is piped").write_all(question.as_bytes());
    let output = child.wait_with_output().context("cannot check the libraries")?;
    let said = String::from_utf8_lossy(&output.stdout);
    // A library may print while it is loaded: the answer is the last line.
    let answer = said.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let answer: CheckAnswer =
        answer.with_context(|| format!("loading the libraries ended the process ({})", output.status))?;
    answer.or_else(|unloadable| bail!("{}", unloadable.join("\ngridloom: ")))
}

fn check() -> Result<()> {
    let question: serde_json::Value = serde_json::from_reader(std::io::stdin().lock())?;
    let definitions: Vec<Definition> = serde_json::from_value(question["definitions"].clone())?;
    let libraries: Vec<PathBuf> = serde_json::from_value(question["libraries"].clone())?;
    let mut native = Native::default();
    let (modules, scratch) = (Vec::new(), PathBuf::new());
    let setup = Setup { server_name: String::new(), libraries, modules, slowdown: 1.0, scratch };
    native.setup(&setup).map_err(anyhow::Error::msg)?;
    // Reported once, not for each function that is missing because of it.
    let unloadable: Vec<String> =
        native.unloadable().map(|(path, why)| format!("library {} cannot be loaded: {why}", path.display())).collect();
    if !unloadable.is_empty() {
        return print_json(&json!(CheckAnswer::Err(unloadable)));
    }
    let mut wrong: Vec<UnusableFunction> = Vec::new();
    for (number, definition) in definitions.iter().enumerate() {
        if let Err(why) = native.load(number as u32, definition) {
            wrong.push((definition.signature.name.clone(), why));
        }
    }
    print_json(&json!(CheckAnswer::Ok(wrong)))
}
