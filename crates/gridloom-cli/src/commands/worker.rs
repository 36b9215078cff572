//! `gridloom worker`: a server's slot for native functions. Started by servers.

use std::process::ExitCode;

use anyhow::Result;

/// Serve native functions to the server that started this process.
#[derive(clap::Args)]
pub struct Options {
    /// Descriptor of the socket to the server
    #[arg(long)]
    fd: i32,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    gridloom_net::worker::native_main(options.fd)?;
    Ok(ExitCode::SUCCESS)
}
