//! Runs native functions for one slot of a server: `gridloom-worker worker --fd 0`. Only servers start this program.

use std::process::ExitCode;

fn main() -> ExitCode {
    let fd = std::env::args_os().skip_while(|arg| arg != "--fd").nth(1).and_then(|fd| fd.to_str()?.parse().ok());
    match gridloom_net::worker::native_main(fd.unwrap_or(0), &[], None) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            gridloom_base::stderr_line!("gridloom-worker: {error}");
            ExitCode::FAILURE
        }
    }
}
