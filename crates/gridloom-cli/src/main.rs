//! The `gridloom` program: one file a command.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use commands::{agent, call, functions, heuristics, idl, platform, serve, servers, simulate, worker};

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
    Functions(functions::Options),
    Servers(servers::Options),
    Call(call::Options),
    Simulate(simulate::Options),
    #[command(subcommand)]
    Platform(platform::Options),
    #[command(subcommand)]
    Idl(idl::Options),
    Heuristics(heuristics::Options),
    #[command(hide = true)]
    Worker(worker::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Agent(options) => agent::run(options),
        Command::Serve(options) => serve::run(options),
        Command::Functions(options) => functions::run(&options),
        Command::Servers(options) => servers::run(&options),
        Command::Call(options) => call::run(&options),
        Command::Simulate(options) => simulate::run(options),
        Command::Platform(options) => platform::run(&options),
        Command::Idl(options) => idl::run(&options),
        Command::Heuristics(options) => heuristics::run(&options),
        Command::Worker(options) => worker::run(&options),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("gridloom: {error:#}");
            ExitCode::FAILURE
        }
    }
}
