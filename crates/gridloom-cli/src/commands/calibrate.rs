//! `gridloom calibrate`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gridloom::{CalibrateConfig, Calibrated, CalibrationCall, Function, Sizes, Value};
use gridloom_idl::{BaseType, Mode};
use serde_json::json;

use super::{GridOption, count, print_json, print_line};
use crate::quantities::scaled;
use crate::values::argument;

/// Measure functions on their servers until the models predict their times well enough.
///
/// The command calls each function with random arguments. It begins with five sizes over the range, from small to
/// large, and then measures where the model has the largest error. It stops when the error of the model is below the
/// limit everywhere. A server is measured only while it is idle, and measuring stops when other calls arrive. Servers
/// of one host take turns. Servers learn from these calls as from any other: they report the times to the agent, and
/// store them with their models.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom calibrate linalg/dgemm --sizes m=100..2000 n=100..2000 k=100..2000\n  \
gridloom calibrate linalg/dgemm_update --error 0.02 --set beta=0\n  gridloom calibrate --budget 10")]
pub struct Options {
    /// Functions to measure: module/function [default: all]
    #[arg(value_name = "FUNCTION")]
    functions: Vec<String>,
    /// Ranges of size arguments, which grow together, or fixed values [default: from 16 to the largest that fits the memory]
    #[arg(long, value_name = "NAME=FROM..TO", num_args = 1.., value_delimiter = ',', value_parser = parse_range)]
    sizes: Vec<(String, (i64, i64))>,
    /// Values of other arguments, as for 'gridloom call'. A text must be set; a number is 1 unless it is set
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    set: Vec<(String, String)>,
    /// Largest allowed error of a prediction, as a fraction of the time
    #[arg(long, default_value_t = 0.05, value_name = "PART")]
    error: f64,
    /// Measure on this server only; may be repeated
    #[arg(long = "server", value_name = "NAME")]
    servers: Vec<String>,
    /// Time limit for each function on each server, in seconds; one call should take at most a tenth of it
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    budget: f64,
    #[command(flatten)]
    grid: GridOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_range(text: &str) -> Result<(String, (i64, i64)), String> {
    let expected = || format!("'{text}': expected NAME=FROM..TO, such as n=100..2000, or NAME=VALUE");
    let (name, range) = text.split_once('=').ok_or_else(expected)?;
    let (low, high) = range.split_once("..").unwrap_or((range, range));
    let number = |text: &str| text.parse::<i64>().map_err(|_| expected());
    let (low, high) = (number(low)?, number(high)?);
    if low < 1 || low > high {
        return Err(format!("'{text}': expected NAME=FROM..TO with 1 <= FROM <= TO"));
    }
    Ok((name.to_string(), (low, high)))
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("'{text}': expected NAME=VALUE"))?;
    Ok((name.to_string(), value.to_string()))
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let Ok(budget) = Duration::try_from_secs_f64(options.budget) else {
        bail!("--budget {}: expected seconds above 0, such as 60", options.budget);
    };
    let grid = options.grid.connect()?;
    let names: Vec<String> = match options.functions.is_empty() {
        true => grid.functions().iter().map(|signature| signature.name.clone()).collect(),
        false => options.functions.clone(),
    };
    if names.is_empty() {
        let whom = options.grid.in_words()?;
        bail!("{whom} knows no server that offers a function; start one, such as 'gridloom serve builtin:linalg'");
    }
    let functions = names.iter().map(|name| grid.function(name)).collect::<Result<Vec<Function>, _>>()?;
    check_names(options, &functions)?;
    let mut all: Vec<Calibrated> = Vec::new();
    let mut has_failed = false;
    for function in &functions {
        let done = settings(options, function).and_then(|(sizes, set)| {
            let config = CalibrateConfig { sizes, set, error: options.error, budget, servers: options.servers.clone() };
            Ok(grid.calibrate(function.name(), &config, None, &mut |call| print_progress(function.name(), call))?)
        });
        match done {
            Ok(calibrated) => all.extend(calibrated),
            // The other functions are measured nevertheless.
            Err(error) if functions.len() > 1 => {
                has_failed = true;
                gridloom_base::stderr_line!("gridloom: {error:#}");
            }
            Err(error) => return Err(error),
        }
    }
    has_failed |= all.iter().any(|one| one.has_failed);
    if options.json {
        print_json(&json!({ "calibrated": all }))?;
    } else {
        all.iter().try_for_each(print)?;
    }
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Refuses names of arguments that no function has.
fn check_names(options: &Options, functions: &[Function]) -> Result<()> {
    let known: BTreeSet<&str> = functions
        .iter()
        .flat_map(|f| &f.signature().params)
        .filter(|p| p.is_input())
        .map(|p| p.name.as_str())
        .collect();
    let given = options.sizes.iter().map(|(name, _)| name).chain(options.set.iter().map(|(name, _)| name));
    for name in given {
        if !known.contains(name.as_str()) {
            let known: Vec<&str> = known.iter().copied().collect();
            bail!("no argument '{name}'; there are: {}", known.join(", "));
        }
    }
    Ok(())
}

/// Returns the ranges of sizes and the values of other arguments that apply to the function.
#[allow(clippy::type_complexity)]
fn settings(options: &Options, function: &Function) -> Result<(BTreeMap<String, (i64, i64)>, BTreeMap<String, Value>)> {
    let input = |name: &str| function.signature().params.iter().find(|param| param.is_input() && param.name == *name);
    let has = |(name, _): &&(String, (i64, i64))| input(name).is_some();
    let mut sizes: BTreeMap<String, (i64, i64)> = options.sizes.iter().filter(has).cloned().collect();
    let mut set = BTreeMap::new();
    for (name, text) in &options.set {
        let Some(param) = input(name) else { continue };
        let is_integer = matches!(param.base, BaseType::Number(dtype) if dtype.is_integer()) && !param.is_array;
        if is_integer && param.mode == Mode::In {
            let value = text.parse().with_context(|| format!("--set {name}={text}: expected an integer"))?;
            sizes.insert(name.clone(), (value, value));
        } else {
            set.insert(name.clone(), argument(text, param).with_context(|| format!("--set {name}"))?);
        }
    }
    Ok((sizes, set))
}

/// Prints the progress: a line for each call.
fn print_progress(function: &str, call: &CalibrationCall) -> ControlFlow<()> {
    let took =
        call.seconds.map_or("was preempted by other work; tries again later".into(), |seconds| scaled(seconds, "s"));
    let sizes = if call.sizes.is_empty() { String::new() } else { format!(" {}:", in_words(call.sizes)) };
    let line = format!("gridloom: {function} on {}:{sizes} {took}\n", call.server);
    match std::io::stderr().write_all(line.as_bytes()) {
        // The reader of the progress has closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ControlFlow::Break(()),
        Ok(()) | Err(_) => ControlFlow::Continue(()),
    }
}

fn in_words(sizes: &Sizes) -> String {
    if sizes.is_empty() {
        return "no sizes".into();
    }
    let sizes: Vec<String> = sizes.iter().map(|(name, size)| format!("{name}={size}")).collect();
    sizes.join(" ")
}

fn print(one: &Calibrated) -> Result<()> {
    let percent = |part: f64| format!("{:.1} %", 100.0 * part);
    let error = match (one.points.len(), one.error) {
        // A single point leaves nothing to predict.
        (1, _) => "-".to_string(),
        (_, error) => error.map_or("unknown".into(), percent),
    };
    let (calls, points) = (count(one.calls, "call"), count(one.points.len(), "size"));
    let verdict = if one.reached_goal { "" } else { ", not the requested size" };
    let has_spread = one.points.iter().any(|point| point.calls > 1);
    let spread = if has_spread { percent(one.spread) } else { "-".to_string() };
    print_line(&format!(
        "{} on {}: error {error}{verdict}; {calls} of {points} in {:.1} s, calls of one size differ by {spread}",
        one.function, one.server, one.seconds
    ))?;
    if let Some(why) = &one.why {
        print_line(&format!("  {why}"))?;
    }
    for jump in &one.jumps {
        let (from, to) = (scaled(jump.from, one.unit), scaled(jump.to, one.unit));
        print_line(&format!("  the time jumps between {from} and {to}: off by up to {}", percent(jump.error)))?;
    }
    for point in &one.points {
        print_line(&format!(
            "  {:<24} {:>14} {:>12} {:<12} {:>3}",
            in_words(&point.sizes),
            scaled(point.size, one.unit),
            scaled(point.seconds, "s"),
            if point.calls > 1 { format!("± {}", scaled(point.spread_s, "s")) } else { "-".to_string() },
            count(point.calls as usize, "call")
        ))?;
    }
    Ok(())
}
