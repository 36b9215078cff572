//! The `gridloom` program: one file a command.

mod commands;
mod drawing;
mod kept_models;
mod npy;
mod registered;
mod values;

use std::io::{Error as IoError, ErrorKind};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use commands::{
    agent, calibrate, call, deploy, explain, functions, heuristics, idl, map, models, platform, serve, servers, sim,
    simulate, soak, testbed, worker,
};

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
    Models(models::Options),
    Calibrate(calibrate::Options),
    Call(call::Options),
    Simulate(simulate::Options),
    Soak(soak::Options),
    Deploy(deploy::Options),
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
    Map(map::Options),
    #[command(hide = true)]
    Worker(worker::Options),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.exit_code() == 0 => error.exit(),
        Err(error) => {
            let text = error.render().to_string();
            gridloom_core::say!("gridloom: {}", text.strip_prefix("error: ").unwrap_or(&text).trim_end());
            return ExitCode::from(USAGE);
        }
    };
    let result = match cli.command {
        Command::Agent(options) => agent::run(options),
        Command::Serve(options) => serve::run(options),
        Command::Functions(options) => functions::run(&options),
        Command::Servers(options) => servers::run(&options),
        Command::Models(options) => models::run(&options),
        Command::Calibrate(options) => calibrate::run(&options),
        Command::Call(options) => call::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Deploy(options) => deploy::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Testbed(options) => testbed::run(options),
        Command::Platform(options) => platform::run(&options),
        Command::Idl(options) => idl::run(&options),
        Command::Heuristics(options) => heuristics::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Map(options) => map::run(&options),
        Command::Worker(options) => worker::run(&options),
    };
    match result {
        Ok(code) => code,
        // Whoever read the output has seen enough.
        Err(error) if error.downcast_ref::<IoError>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) => {
            ExitCode::FAILURE
        }
        Err(error) => {
            gridloom_core::say!("gridloom: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Exit status of a command line that makes no sense.
const USAGE: u8 = 2;
