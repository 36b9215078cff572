//! `gridloom testbed check`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use gridloom_testbed::check::{self, AllHostsCheck, PairCheck};
use gridloom_testbed::control::{self, ReplyBody, Request};
use gridloom_testbed::kernel::hosts::address;
use gridloom_testbed::model::topology::{Topology, Tuning};
use gridloom_testbed::report::Report;
use gridloom_testbed::spec::{Launch, Spec, read_platform};
use gridloom_testbed::tool::{CleanupProcess, Testbed};
use serde_json::json;

use super::supervisor_command;
use crate::commands::{absolute, print_json, print_line};

/// Measure how accurately this machine emulates a platform.
///
/// The command measures round trips and the rate of one TCP connection, pair by pair. Then all hosts send at once,
/// each to the next. It prints each measurement beside the value in the platform file. All rates are of payload: a
/// packet of 1500 bytes carries 1448 bytes of it. The target is rates within 5 %, and round trips within 1 ms or 5 %.
/// The command ends with status 1 if a pair misses the target.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom testbed check -p two-sites.toml --pairs 4")]
pub struct Check {
    /// Platform file: TOML, or SimGrid's XML
    #[arg(short, long, value_name = "FILE")]
    platform: PathBuf,
    /// Number of pairs of hosts to measure, spread over all
    #[arg(long, default_value_t = 12)]
    pairs: usize,
    /// Duration of each rate measurement in seconds
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Check) -> Result<ExitCode> {
    let platform = read_platform(&options.platform)?;
    let topology = Topology::new(&platform, &Tuning::default())?;
    let program = std::env::current_exe().context("this program's own path")?;
    let name = format!("check-{}", std::process::id());
    let keeper = CleanupProcess::start(&name, supervisor_command()?, None)?;
    let services = (0..topology.hosts.len()).map(|host| {
        let words = ["testbed".into(), "probe".into(), keeper.folder().into(), host.to_string().into()];
        let mut command = vec![OsString::from(&program)];
        command.extend(words);
        command.push(address(host).to_string().into());
        let label = format!("probe of '{}'", topology.hosts[host]);
        Launch { host, label, command, environment: Vec::new(), computes: false }
    });
    let spec = Spec {
        platform: absolute(&options.platform)?,
        tuning: Tuning::default(),
        services: services.collect(),
        processes: Vec::new(),
        quotas: Vec::new(),
        environment: Vec::new(),
        program: None,
    };
    let testbed = Testbed::start(keeper, &spec, None)?;
    if !options.json {
        print_line(&format!(
            "{:<28} {:>12} {:>10} {:>9} {:>14} {:>10} {:>8}",
            "pair", "round trip", "measured", "error", "rate", "measured", "error"
        ))?;
    }
    let mut pairs = Vec::new();
    for (from, to) in check::choose_pairs(&topology, options.pairs) {
        let pair = check::pair(testbed.folder(), &topology, from, to, options.seconds)?;
        if !options.json {
            print_pair(&pair)?;
        }
        pairs.push(pair);
    }
    let before = report(&testbed)?.traffic;
    let together = check::together(testbed.folder(), &topology, options.seconds)?;
    let after = report(&testbed)?.traffic;
    let forwarder = (after.processor_s - before.processor_s) / (after.elapsed_s - before.elapsed_s).max(1e-9);
    let is_exact = pairs.iter().all(PairCheck::is_exact);
    if options.json {
        print_json(&json!({ "pairs": pairs, "together": together, "forwarder": forwarder, "traffic": after,
            "exact": is_exact }))?;
    } else {
        print_together(&together, forwarder)?;
        let (packets, mean, late) = (after.delivered, after.late_us_mean, after.late);
        print_line(&format!("{packets} packets, {mean:.1} us late on average, {late} by more than 1 ms"))?;
        print_line(if is_exact { "all pairs are within the target" } else { "some pairs miss the target" })?;
    }
    Ok(if is_exact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(testbed: &Testbed) -> Result<Report> {
    match control::request(testbed.folder(), &Request::Show)?.0 {
        ReplyBody::Report(report) => Ok(*report),
        _ => anyhow::bail!("the testbed sent no report"),
    }
}

fn print_pair(pair: &PairCheck) -> Result<()> {
    let mark = if pair.is_exact() { "" } else { "  !" };
    print_line(&format!(
        "{:<28} {:>9.3} ms {:>7.3} ms {:>+6.0} us {:>9.3} MB/s {:>10.3} {:>+6.2} %{mark}",
        format!("{} -> {}", pair.from, pair.to),
        pair.round_trip_expected_s * 1e3,
        pair.round_trip_s[1] * 1e3,
        pair.round_trip_error_s() * 1e6,
        pair.rate_expected / 1e6,
        pair.rate / 1e6,
        pair.rate_error() * 100.0
    ))
}

fn print_together(together: &AllHostsCheck, forwarder: f64) -> Result<()> {
    print_line(&format!(
        "{} at once: {:.1} MB/s of {:.1} MB/s expected ({:+.1} %), forwarder busy {:.0} % of a core",
        together.flows,
        together.rate / 1e6,
        together.rate_expected / 1e6,
        (together.rate / together.rate_expected - 1.0) * 100.0,
        forwarder * 100.0
    ))
}
