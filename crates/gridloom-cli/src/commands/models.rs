//! `gridloom models`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use gridloom_perf::{
    Accuracy, Bottleneck, ConcurrencyPoint, Curve, FunctionModel, LinkReport, Point, ServerView, Size, first_guess_s,
};
use serde_json::{Value, json};

use super::{GridOption, parse_svg, print_json, print_line, write_svg};
use crate::quantities::scaled;

mod curves;

/// List the models of functions (time against problem size, on each server) and of links.
///
/// Each server builds its models from its calls and keeps them from run to run (`gridloom serve --models`). Servers of
/// one host share their models, except those that are slowed down. The size of a call is its work, given by the
/// function's complexity, or else the bytes of its arrays. A model whose points have 0 calls was scaled from another
/// host's by the ratio of speeds, or has only cold calls.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom models\n  gridloom models linalg/dgemm --plot dgemm.svg\n  \
gridloom models --accuracy\n  gridloom models --links")]
pub struct Options {
    /// Function to show with its points [default: all, one line each]
    function: Option<String>,
    /// Show this server only
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Show the errors of predictions of calls and transfers
    #[arg(long, conflicts_with_all = ["function", "plot"])]
    accuracy: bool,
    /// Show links instead of functions: latency, bandwidth and its forecaster, for each ordered pair of hosts
    #[arg(long, conflicts_with_all = ["function", "server", "accuracy"])]
    links: bool,
    /// Predict a call of this size: floating-point operations such as 2e9, or bytes if the function states no work
    #[arg(long, requires = "function", conflicts_with = "plot", value_parser = parse_problem_size)]
    size: Option<f64>,
    /// Draw the function's curves into an SVG file
    #[arg(long, value_name = "FILE", requires = "function", value_parser = parse_svg)]
    plot: Option<PathBuf>,
    #[command(flatten)]
    grid: GridOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_problem_size(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(size) if size.is_finite() && size >= 0.0 => Ok(size),
        _ => Err("expected a finite number of at least 0".into()),
    }
}

/// The model of a function on a server.
struct Row<'a> {
    server: &'a ServerView,
    function: &'a str,
    model: &'a FunctionModel,
}

impl Row<'_> {
    /// Returns the curves that have points, with the unit of their sizes.
    fn curves(&self) -> impl Iterator<Item = (&Curve, &'static str)> {
        let all = [(&self.model.by_work, "flop"), (&self.model.by_bytes, "B")];
        all.into_iter().filter(|(curve, _)| !curve.points.is_empty())
    }

    fn to_json(&self) -> Value {
        let point =
            |p: &Point| json!({ "size": p.size, "seconds": p.seconds, "spread_seconds": p.spread_s, "calls": p.calls });
        let points = |curve: &Curve| curve.points.iter().map(point).collect::<Vec<_>>();
        json!({
            "function": self.function,
            "server": self.server.name,
            "by_work": points(&self.model.by_work),
            "by_bytes": points(&self.model.by_bytes),
            "side_by_side": self.model.perturbation.points.iter().map(beside_json).collect::<Vec<_>>(),
            "accuracy": accuracy_json(&self.model.accuracy),
        })
    }
}

fn beside_json(one: &ConcurrencyPoint) -> Value {
    json!({ "tasks": one.tasks, "factor": one.factor, "calls": one.calls })
}

fn accuracy_json(accuracy: &Accuracy) -> Value {
    json!({
        "compared": accuracy.count,
        "outliers": accuracy.outliers,
        "measured_over_predicted": accuracy.bias.exp(),
        "error": accuracy.error.exp() - 1.0,
    })
}

pub(super) fn link_json(link: &LinkReport) -> Value {
    json!({
        "from": link.from,
        "to": link.to,
        "latency_seconds": link.link.latency_s,
        "bandwidth_bytes_per_second": link.link.bandwidth,
        "forecaster": link.predictor,
        "forecast_error": link.forecast_error,
        "measurements": link.measurements,
        "age_seconds": link.age_s,
        "accuracy": accuracy_json(&link.accuracy),
        "relay": link.relay,
        "shared": link.shared.iter().map(shared_json).collect::<Vec<_>>(),
    })
}

fn shared_json(one: &Bottleneck<String>) -> Value {
    let pairs: Vec<Value> = one.pairs.iter().map(|(from, to)| json!({ "from": from, "to": to })).collect();
    json!({ "bandwidth_bytes_per_second": one.bandwidth, "links": pairs })
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = options.grid.connect()?;
    if options.links {
        return run_links(options, &grid.links()?);
    }
    let view = grid.servers();
    if let Some(name) = &options.server
        && !view.servers.iter().any(|server| server.name == *name)
    {
        let known: Vec<&str> = view.servers.iter().map(|server| server.name.as_str()).collect();
        bail!("no server '{name}'; there are: {}", known.join(", "));
    }
    // Here an unknown function is an error with suggestions of similar names.
    let function = options.function.as_ref().map(|name| grid.function(name)).transpose()?;
    let servers = view.servers.iter().filter(|server| options.server.as_ref().is_none_or(|name| server.name == *name));
    let mut rows: Vec<Row> = servers
        .flat_map(|server| server.functions.iter().map(move |(function, model)| Row { server, function, model }))
        .filter(|row| function.as_ref().is_none_or(|wanted| wanted.signature().name == row.function))
        .filter(|row| options.size.is_some() || !row.model.is_empty())
        .collect();
    rows.sort_by(|a, b| (a.function, &a.server.name).cmp(&(b.function, &b.server.name)));
    if let (Some(file), Some(name)) = (&options.plot, &options.function) {
        let lines: Vec<_> = rows
            .iter()
            .flat_map(|row| row.curves().map(|(curve, unit)| (row.server.name.as_str(), curve, unit)))
            .collect();
        write_svg(file, &curves::draw(name, &lines), options.json)?;
    }
    let links = if options.accuracy { grid.links()? } else { Vec::new() };
    if options.json && options.accuracy {
        let links: Vec<Value> = links.iter().map(link_json).collect();
        print_json(&json!({ "models": rows.iter().map(Row::to_json).collect::<Vec<_>>(), "links": links }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.json {
        print_json(&json!({ "models": rows.iter().map(Row::to_json).collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if rows.is_empty() && !links.iter().any(|link| link.accuracy.count > 0) {
        print_line("nothing is known yet: models are made from calls, as they end")?;
        return Ok(ExitCode::SUCCESS);
    }
    match (&options.function, options.accuracy) {
        (Some(_), _) if options.size.is_some() => print_predictions(&rows, options.size.unwrap_or_default())?,
        (Some(_), _) => print_points(&rows)?,
        (None, true) => print_accuracy(&rows, &links)?,
        (None, false) => print_summary(&rows)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn run_links(options: &Options, links: &[LinkReport]) -> Result<ExitCode> {
    if options.json {
        print_json(&json!({ "links": links.iter().map(link_json).collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if links.is_empty() {
        print_line("nothing is known yet: links between hosts are measured when servers meet, and as data move")?;
        return Ok(ExitCode::SUCCESS);
    }
    print_line(&format!(
        "{:<20} {:<20} {:>10} {:>12} {:<15} {:>7} {:>8} {:>10}",
        "from", "to", "latency", "bandwidth", "forecast by", "off by", "measured", "age"
    ))?;
    for link in links {
        print_line(&format!(
            "{:<20} {:<20} {:>10} {:>12} {:<15} {:>7} {:>8} {:>10}",
            link.from,
            link.to,
            scaled(link.link.latency_s, "s"),
            scaled(link.link.bandwidth, "B/s"),
            link.predictor,
            of_several(link.measurements, || format!("{:.1}%", 100.0 * link.forecast_error)),
            link.measurements,
            scaled(link.age_s, "s")
        ))?;
    }
    let mut shared: Vec<&Bottleneck<String>> = Vec::new();
    for one in links.iter().flat_map(|link| &link.shared) {
        if !shared.contains(&one) {
            shared.push(one);
        }
    }
    for one in shared {
        let pairs: Vec<String> = one.pairs.iter().map(|(from, to)| format!("{from} to {to}")).collect();
        print_line(&format!("shared, {} in all: {}", scaled(one.bandwidth, "B/s"), pairs.join(", ")))?;
    }
    let mut relayed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for link in links {
        if let Some(relay) = &link.relay {
            relayed.entry(relay).or_default().push(format!("{} to {}", link.from, link.to));
        }
    }
    for (relay, pairs) in relayed {
        print_line(&format!("through relay {relay}: {}", pairs.join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_summary(rows: &[Row]) -> Result<()> {
    print_line(&format!(
        "{:<28} {:<16} {:>7} {:>6}  {:<24} {:<22}",
        "function", "server", "calls", "points", "sizes", "seconds"
    ))?;
    for row in rows {
        for (curve, unit) in row.curves() {
            let (first, last) = (curve.points[0], curve.points[curve.points.len() - 1]);
            let range = |a: f64, b: f64, unit: &str| match a == b {
                true => scaled(a, unit),
                false => format!("{} to {}", scaled(a, unit), scaled(b, unit)),
            };
            print_line(&format!(
                "{:<28} {:<16} {:>7} {:>6}  {:<24} {:<22}",
                row.function,
                row.server.name,
                curve.calls(),
                curve.points.len(),
                range(first.size, last.size, unit),
                range(first.seconds, last.seconds, "s")
            ))?;
        }
    }
    Ok(())
}

fn print_points(rows: &[Row]) -> Result<()> {
    print_line(&format!("{:<16} {:>14} {:>12} {:>12} {:>7}", "server", "size", "time", "spread", "calls"))?;
    for row in rows {
        for (curve, unit) in row.curves() {
            for point in &curve.points {
                print_line(&format!(
                    "{:<16} {:>14} {:>12} {:>12} {:>7}",
                    row.server.name,
                    scaled(point.size, unit),
                    scaled(point.seconds, "s"),
                    of_several(point.calls, || scaled(point.spread_s, "s")),
                    point.calls
                ))?;
            }
        }
        print_perturbation(row)?;
    }
    Ok(())
}

fn print_perturbation(row: &Row) -> Result<()> {
    let points = &row.model.perturbation.points;
    if points.is_empty() {
        return Ok(());
    }
    let factors: Vec<String> = points.iter().map(|one| format!("{} tasks × {:.2}", one.tasks, one.factor)).collect();
    print_line(&format!("{:<16} side by side: {}", row.server.name, factors.join(", ")))
}

fn print_predictions(rows: &[Row], size: f64) -> Result<()> {
    for row in rows {
        let speed_flops = row.server.speed_flops;
        if row.model.is_empty() {
            let seconds = scaled(first_guess_s(Size::Work(size), speed_flops), "s");
            let size = scaled(size, "flop");
            let name = &row.server.name;
            print_line(&format!("{name:<16} {size:>14} {seconds:>12}  (never called: by the server's speed)"))?;
        }
        for (curve, unit) in row.curves() {
            let by = if unit == "flop" { Size::Work(size) } else { Size::Bytes(size as u64) };
            let Some(found) = row.model.predict(by, speed_flops) else { continue };
            let note = if found.is_extrapolated { "  (extrapolated)" } else { "" };
            let calls = curve.points.iter().map(|point| point.calls).max().unwrap_or(0);
            let spread = of_several(calls, || format!("± {}", scaled(found.spread_s, "s")));
            let (size, seconds) = (scaled(size, unit), scaled(found.seconds, "s"));
            print_line(&format!("{:<16} {size:>14} {seconds:>12} {spread}{note}", row.server.name))?;
        }
    }
    Ok(())
}

/// Formats a spread or a forecast error, which needs more than one measurement.
fn of_several(measurements: u64, spread: impl Fn() -> String) -> String {
    if measurements > 1 { spread() } else { "-".to_string() }
}

fn print_accuracy(rows: &[Row], links: &[LinkReport]) -> Result<()> {
    print_line(&format!(
        "{:<28} {:<16} {:>9} {:>9} {:>20} {:>8}",
        "function or link", "server", "compared", "outliers", "measured/predicted", "off by"
    ))?;
    let functions = rows.iter().map(|row| (row.function.to_string(), row.server.name.as_str(), row.model.accuracy));
    let links = links.iter().map(|link| (format!("{} -> {}", link.from, link.to), "", link.accuracy));
    for (what, server, accuracy) in functions.chain(links).filter(|(.., accuracy)| accuracy.count > 0) {
        print_line(&format!(
            "{what:<28} {server:<16} {:>9} {:>9} {:>20.3} {:>7.1}%",
            accuracy.count,
            accuracy.outliers,
            accuracy.bias.exp(),
            100.0 * (accuracy.error.exp() - 1.0)
        ))?;
    }
    Ok(())
}
