//! `gridloom servers`.

use std::process::ExitCode;

use anyhow::Result;
use gridloom_idl::method::is_listed;
use serde_json::json;

use super::{GridOption, print_json, print_line};

/// List the grid's servers: their addresses, slots, speeds, releases and functions.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom servers --json")]
pub struct Options {
    #[command(flatten)]
    grid: GridOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = options.grid.connect()?;
    let view = grid.servers();
    if options.json {
        let list = view.servers.iter().map(|server| {
            json!({
                "name": server.name,
                "address": server.address,
                "slots": server.slots,
                "plain": server.stateless,
                "memory_bytes": server.memory_bytes,
                "speed_flops": server.speed_flops,
                "release": server.release,
                "protocol": server.protocol,
                "functions": server.functions.keys().filter(|name| is_listed(name)).collect::<Vec<_>>(),
            })
        });
        print_json(&json!({ "servers": list.collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if view.servers.is_empty() {
        print_line("no servers; start one with 'gridloom serve'")?;
        return Ok(ExitCode::SUCCESS);
    }
    print_line(&format!(
        "{:<20} {:<22} {:>5} {:>10} {:>9}  {:<10} functions",
        "server", "address", "slots", "Gflop/s", "GiB", "release"
    ))?;
    for server in &view.servers {
        let speed = server.speed_flops.map_or("?".to_string(), |flops| format!("{:.1}", flops / 1e9));
        let memory = server.memory_bytes as f64 / f64::from(1 << 30);
        let plain = if server.stateless { " (plain)" } else { "" };
        print_line(&format!(
            "{:<20} {:<22} {:>5} {speed:>10} {memory:>9.1}  {:<10} {}{plain}",
            server.name,
            server.address,
            server.slots,
            server.version_text(),
            server.functions.keys().filter(|name| is_listed(name)).count()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
