//! The `gridloom` program, with one file for each command.

mod commands;
#[cfg(test)]
#[path = "../../gridloom/tests/support/key_paths.rs"]
mod key_paths;
mod log;
mod model_store;
mod npy;
mod quantities;
mod records;
mod registered;
mod standby;
mod values;

use std::io::{Error as IoError, ErrorKind};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
#[cfg(feature = "workflows")]
use commands::map;
use commands::{
    agent, audit, calibrate, call, calls, cancel, chares, completions, connector, data, deploy, explain, functions,
    heuristics, idl, keys, logs, manual, models, mpirun, platform, relay, rules, serve, servers, sim, simulate,
    testbed, top, units, up, usage, worker,
};
use gridloom_base::escaped::escaped_json;

/// Remote procedure calls for scientific computing: groups of calls, mapped together onto servers and links.
#[derive(Parser)]
#[command(
    name = "gridloom",
    version,
    propagate_version = true,
    after_help = "Examples:\n  \
gridloom agent\n  gridloom serve linalg.idl --library libopenblas.so\n  gridloom functions\n  \
gridloom call linalg/dnrm2 '[3, 4]'\n  gridloom simulate -p platform.toml -- python program.py"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Agent(agent::Options),
    Serve(serve::Options),
    Relay(relay::Options),
    Connector(connector::Options),
    Up(up::Options),
    Status(up::Status),
    Drain(up::Drain),
    Down(up::Down),
    Functions(functions::Options),
    Servers(servers::Options),
    Models(models::Options),
    Calibrate(calibrate::Options),
    Call(call::Options),
    Top(top::Options),
    Calls(calls::Options),
    Cancel(cancel::Options),
    Logs(logs::Options),
    Usage(usage::Options),
    Audit(audit::Options),
    Data(data::Options),
    Simulate(simulate::Options),
    Deploy(deploy::Options),
    #[command(subcommand)]
    Chares(chares::Options),
    Mpirun(mpirun::Options),
    #[command(subcommand)]
    Sim(sim::Options),
    #[command(subcommand)]
    Testbed(testbed::Options),
    #[command(subcommand)]
    Platform(platform::Options),
    #[command(subcommand)]
    Idl(idl::Options),
    Heuristics(heuristics::Options),
    Explain(explain::Options),
    #[cfg(feature = "workflows")]
    Map(map::Options),
    #[command(subcommand)]
    Keys(keys::Options),
    #[command(subcommand)]
    Rules(rules::Options),
    Units(units::Options),
    Completions(completions::Options),
    #[command(hide = true)]
    Manual(manual::Options),
    #[command(hide = true)]
    Host(up::HostOptions),
    #[command(hide = true)]
    Worker(worker::Options),
}

fn main() -> ExitCode {
    gridloom_net::signals::reset();
    let mut command = take_negative_numbers(Cli::command());
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command))) {
        Ok(cli) => cli,
        Err(error) if error.exit_code() == 0 => error.exit(),
        Err(error) => {
            let text = error.render().to_string();
            print_error(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
            return ExitCode::from(USAGE);
        }
    };
    let result = match cli.command {
        Command::Agent(options) => agent::run(options),
        Command::Serve(options) => serve::run(options),
        Command::Relay(options) => relay::run(options),
        Command::Connector(options) => connector::run(options),
        Command::Up(options) => up::run(&options),
        Command::Status(options) => up::run_status(&options),
        Command::Drain(options) => up::run_drain(&options),
        Command::Down(options) => up::run_down(&options),
        Command::Functions(options) => functions::run(&options),
        Command::Servers(options) => servers::run(&options),
        Command::Models(options) => models::run(&options),
        Command::Calibrate(options) => calibrate::run(&options),
        Command::Call(options) => call::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Calls(options) => calls::run(&options),
        Command::Cancel(options) => cancel::run(&options),
        Command::Logs(options) => logs::run(&options),
        Command::Usage(options) => usage::run(&options),
        Command::Audit(options) => audit::run(&options),
        Command::Data(options) => data::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Deploy(options) => deploy::run(&options),
        Command::Chares(options) => chares::run(&options),
        Command::Mpirun(options) => mpirun::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Testbed(options) => testbed::run(options),
        Command::Platform(options) => platform::run(&options),
        Command::Idl(options) => idl::run(&options),
        Command::Heuristics(options) => heuristics::run(&options),
        Command::Explain(options) => explain::run(&options),
        #[cfg(feature = "workflows")]
        Command::Map(options) => map::run(&options),
        Command::Keys(options) => keys::run(&options),
        Command::Rules(options) => rules::run(&options),
        Command::Units(options) => units::run(&options),
        Command::Completions(options) => completions::run(&options, Cli::command()),
        Command::Manual(options) => manual::run(&options, Cli::command()),
        Command::Host(options) => up::run_host(options),
        Command::Worker(options) => worker::run(&options),
    };
    match result {
        Ok(code) => code,
        // The reader of the output has closed the pipe.
        Err(error) if error.downcast_ref::<IoError>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) => {
            ExitCode::FAILURE
        }
        Err(error) => {
            print_error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints the error that ends the program on standard error, as a line of JSON if `--json` requests it.
fn print_error(error: &str) {
    let mut arguments = std::env::args_os().skip(1).take_while(|argument| argument != "--");
    // The `--json` of services is for the line that reports that they are ready.
    let is_service =
        arguments.next().is_some_and(|command| command == "agent" || command == "serve" || command == "connector");
    match !is_service && arguments.any(|argument| argument == "--json") {
        true => gridloom_base::stderr_line!("{}", escaped_json(&serde_json::json!({ "error": error }).to_string())),
        false => gridloom_base::stderr_line!("gridloom: {error}"),
    }
}

/// Allows negative numbers as values, since no option looks like one. The parser of the value refuses a wrong one.
fn take_negative_numbers(command: clap::Command) -> clap::Command {
    let takes = |arg: clap::Arg| match arg.get_action().takes_values() && !arg.is_last_set() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(takes).mut_subcommands(take_negative_numbers)
}

/// Exit status of a command line that cannot be parsed.
const USAGE: u8 = 2;
