//! `gridloom top`.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::IsTerminal;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use gridloom_core::node::message::Stage;
use gridloom_perf::{LinkReport, host_of};
use serde_json::json;

use super::calls::{Servers, ask, calls_json, lines};
use super::models::link_json;
use super::{GridOption, clear_terminal, print_json, print_text};
use crate::quantities::scaled;

/// Maximum number of calls on a page.
const CALLS_SHOWN: usize = 20;
/// Maximum number of links on a page.
const LINKS_SHOWN: usize = 10;

/// Show the state of the servers: slots, calls, store and links; on a terminal, refresh it continuously.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom top\n  gridloom top --once --json")]
pub struct Options {
    #[command(flatten)]
    grid: GridOption,
    /// Seconds between refreshes
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = parse_interval)]
    interval: f64,
    /// Show the state once, as without a terminal
    #[arg(long)]
    once: bool,
    /// Print JSON, one object for each refresh
    #[arg(long)]
    json: bool,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected seconds".to_string())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("expected 0.1 to 3600 seconds".into()) }
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = options.grid.connect()?;
    let is_once = options.once || !std::io::stdout().is_terminal();
    loop {
        let (servers, links) = (ask(&grid)?, grid.links()?);
        if options.json {
            print_page(&servers, &links)?;
        } else if is_once {
            print_text(&page(&servers, &links))?;
        } else {
            clear_terminal()?;
            print_text(&page(&servers, &links))?;
        }
        if is_once {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(Duration::from_secs_f64(options.interval));
    }
}

fn print_page(servers: &Servers, links: &[LinkReport]) -> Result<()> {
    let rows = servers.iter().map(|(server, status)| {
        let calls = status.iter().flat_map(|status| calls_json(server, status));
        json!({
            "name": server.name,
            "slots": server.slots,
            "answers": status.is_some(),
            "calls": status.as_ref().map(|status| status.count),
            "store_bytes": status.as_ref().map(|status| status.store_bytes),
            "memory_bytes": server.memory_bytes,
            "shown": calls.collect::<Vec<_>>(),
        })
    });
    let links: Vec<_> = links.iter().map(link_json).collect();
    print_json(&json!({ "servers": rows.collect::<Vec<_>>(), "links": links }))
}

fn page(servers: &Servers, links: &[LinkReport]) -> String {
    if servers.is_empty() {
        return "no servers; start one with 'gridloom serve'\n".into();
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let mut text = format!(
        "{:<20} {:>5} {:>7} {:>7} {:>7} {:>7} {:>16}\n",
        "server", "slots", "running", "calling", "queued", "waiting", "store, GiB"
    );
    for (server, status) in servers {
        let name = &server.name;
        // Writing to a string cannot fail.
        let _ = match status {
            None => writeln!(text, "{name:<20} {:>5} no answer", server.slots),
            Some(status) => {
                let (running, calling) = (status.at(Stage::Running), status.at(Stage::Paused));
                let (queued, waiting) = (status.at(Stage::Queued), status.at(Stage::Waiting));
                let store = format!("{:.2} of {:.1}", gib(status.store_bytes), gib(server.memory_bytes));
                let slots = server.slots;
                writeln!(text, "{name:<20} {slots:>5} {running:>7} {calling:>7} {queued:>7} {waiting:>7} {store:>16}")
            }
        };
    }
    let hosts: BTreeSet<&str> = servers.iter().map(|(server, _)| host_of(&server.address)).collect();
    text += &links_page(links, &hosts);
    let calls = lines(servers, CALLS_SHOWN);
    if !calls.is_empty() {
        let _ = writeln!(text, "\n{}", calls.join("\n"));
    }
    text
}

/// Lists the slowest measured links: those that a plan avoids, and that somebody may repair. An end that is no host of
/// servers is a program; it is shown by the name of its node, as in its calls.
fn links_page(links: &[LinkReport], hosts: &BTreeSet<&str>) -> String {
    let end = |name: &str| if hosts.contains(name) { name.to_string() } else { format!("program {name}") };
    let mut measured: Vec<&LinkReport> = links.iter().filter(|link| link.measurements > 0).collect();
    if measured.is_empty() {
        return String::new();
    }
    measured.sort_by(|a, b| a.link.bandwidth.total_cmp(&b.link.bandwidth));
    let mut text =
        format!("\n{:<20} {:<20} {:>10} {:>12} {:>10}\n", "link from", "to", "latency", "bandwidth", "measured");
    for link in measured.iter().take(LINKS_SHOWN) {
        let (latency, bandwidth) = (scaled(link.link.latency_s, "s"), scaled(link.link.bandwidth, "B/s"));
        let age = format!("{} ago", scaled(link.age_s, "s"));
        let (from, to) = (end(&link.from), end(&link.to));
        let kind = if is_within_host(link) { "  same host" } else { "" };
        let _ = writeln!(text, "{from:<20} {to:<20} {latency:>10} {bandwidth:>12} {age:>10}{kind}");
    }
    if measured.len() > LINKS_SHOWN {
        let more = measured.len() - LINKS_SHOWN;
        let _ = writeln!(text, "and {more} faster links; 'gridloom models --links' lists all");
    }
    text
}

/// True if both ends are known to be on one host: arrays pass through its memory, and no network is involved. A
/// loopback address can be reached from its own host only.
fn is_within_host(link: &LinkReport) -> bool {
    let is_loopback = |end: &str| {
        let address = end.trim_start_matches('[').trim_end_matches(']');
        end == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    link.from == link.to || is_loopback(&link.from) || is_loopback(&link.to)
}

#[cfg(test)]
mod tests {
    use gridloom_perf::{Accuracy, LinkEstimate};

    use super::*;

    fn measured(from: &str, to: &str) -> LinkReport {
        LinkReport {
            from: from.into(),
            to: to.into(),
            link: LinkEstimate { latency_s: 1e-4, bandwidth: 1e6 },
            predictor: "last".into(),
            forecast_error: 0.0,
            measurements: 1,
            age_s: 3.0,
            accuracy: Accuracy::default(),
            shared: Vec::new(),
            relay: None,
        }
    }

    #[test]
    fn the_slowest_links_that_were_measured_are_shown() {
        let link = |number: u64, measurements| LinkReport {
            link: LinkEstimate { latency_s: 1e-4, bandwidth: 1e6 * (20 - number) as f64 },
            measurements,
            ..measured(&format!("host-{number}"), "hub")
        };
        let hosts = (0..14).map(|number| format!("host-{number}")).collect::<Vec<_>>();
        let hosts = hosts.iter().map(String::as_str).chain(["hub"]).collect();
        assert_eq!(links_page(&[link(1, 0)], &hosts), "");
        let links: Vec<LinkReport> = (0..14).map(|number| link(number, number)).collect();
        let page = links_page(&links, &hosts);
        let lines: Vec<&str> = page.lines().collect();
        assert!(
            lines[2].starts_with("host-13 ") && lines[2].contains("7 MB/s") && lines[2].contains("3 s ago"),
            "{page}"
        );
        assert_eq!((lines.len(), lines[12]), (13, "and 3 faster links; 'gridloom models --links' lists all"));
        let program = LinkReport { from: "n2f3a90".into(), ..link(1, 3) };
        let page = links_page(&[program], &hosts);
        assert!(page.lines().nth(2).unwrap().starts_with("program n2f3a90 "), "{page}");
    }

    #[test]
    fn links_within_a_host_are_marked_at_any_speed() {
        for (from, to, is_within) in [
            ("hub", "hub", true),
            ("n2f3a90", "127.0.0.1", true),
            ("[::1]", "n2f3a90", true),
            ("n2f3a90", "localhost", true),
            ("n2f3a90", "10.0.0.1", false),
            ("host-1", "hub", false),
        ] {
            for bandwidth in [1e3, 109e9] {
                let link = LinkEstimate { latency_s: 1e-4, bandwidth };
                let page = links_page(&[LinkReport { link, ..measured(from, to) }], &BTreeSet::new());
                assert_eq!(page.ends_with("  same host\n"), is_within, "{page}");
            }
        }
    }
}
