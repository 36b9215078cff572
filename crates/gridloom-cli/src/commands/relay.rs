//! `gridloom relay`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use gridloom_base::address::check_place;
use gridloom_keys::{Role, default_name};
use gridloom_net::transport::relay::server::{Relay, RelayHandle};
use serde_json::json;

use super::{ListenOptions, call_on_signals, hide_memory, parse_listen, print_json, print_line};

/// Interval between status lines in the log.
const STATUS_INTERVAL: Duration = Duration::from_secs(60);

/// Run a relay: it connects nodes that cannot dial each other, because of firewalls or address translation (NAT).
///
/// Agents and servers that cannot accept connections register with --relay. Other nodes then reach them through the relay.
/// Connections through a relay are encrypted from end to end: the relay sees neither calls nor data. It needs keys of the grid
/// for the role 'relay', and one port that all machines can reach.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
gridloom relay --listen 0.0.0.0:8443 --advertise relay.lab.org:8443\n  \
gridloom serve linalg.idl --agent head.lab.org:7711 --relay relay.lab.org:8443")]
pub struct Options {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, default_value = "0.0.0.0:443", value_name = "HOST:PORT", value_parser = parse_listen)]
    listen: SocketAddr,
    /// Name of the relay [default: the name of this machine]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    rest: ListenOptions,
}

pub fn run(options: Options) -> Result<ExitCode> {
    hide_memory()?;
    let Options { listen, name, rest } = options;
    if let Some(advertised) = &rest.advertise {
        check_place(advertised)?;
    }
    if !rest.relays.is_empty() {
        anyhow::bail!("--relay is for agents and servers: relays do not use other relays");
    }
    let name = name.unwrap_or_else(|| default_name(Role::Relay));
    let keys = rest.keys(Role::Relay, &name, false)?.own;
    rest.start_log();
    let relay = Relay::bind(listen, keys)?;
    let address = rest.advertise.clone().unwrap_or_else(|| relay.address().to_string());
    let handle = relay.handle();
    call_on_signals(rest.until_stdin_closes, move || handle.stop())?;
    log_status(relay.handle());
    match rest.json {
        true => print_json(&json!({ "address": address }))?,
        false => print_line(&format!("relay listening on {address}"))?,
    }
    let handle = relay.handle();
    relay.run()?;
    tracing::info!(target: "gridloom.relay", "forwarded {} bytes since the start", handle.status().forwarded_bytes);
    Ok(ExitCode::SUCCESS)
}

/// Logs the status of the relay every [`STATUS_INTERVAL`], if it has changed.
fn log_status(relay: RelayHandle) {
    std::thread::spawn(move || {
        let mut before = relay.status();
        loop {
            std::thread::sleep(STATUS_INTERVAL);
            let now = relay.status();
            if now != before {
                tracing::info!(
                    target: "gridloom.relay",
                    nodes = now.nodes, connections = now.connections,
                    "forwarded {} bytes in the last {} s",
                    now.forwarded_bytes - before.forwarded_bytes, STATUS_INTERVAL.as_secs()
                );
            }
            before = now;
        }
    });
}
