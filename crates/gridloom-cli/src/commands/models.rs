//! `gridloom models`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use gridloom::Grid;
use gridloom_core::perf::{Curve, FunctionModel, Point, ServerView};
use serde_json::{Value, json};

use super::{AgentOption, print_json, print_line};
use crate::drawing::curves;
use crate::drawing::words::scaled;

/// List what is known of the times of functions: time against problem size, on each server.
///
/// Each server builds them from its calls and keeps them from run to run (`gridloom serve --models`); servers of one host
/// share what they know. The size of a call is its work, by the function's complexity, or else the bytes of its arrays.
/// A model whose points have 0 calls was guessed from another host's by the ratio of speeds, or has seen cold calls only.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom models\n  gridloom models linalg/dgemm --plot dgemm.svg\n  \
gridloom models --accuracy")]
pub struct Options {
    /// The function, with its points [default: all, a line each]
    function: Option<String>,
    /// Of that server only
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// How far calls were from what the models had predicted
    #[arg(long, conflicts_with_all = ["function", "plot"])]
    accuracy: bool,
    /// What a call of that size is predicted to take, floating-point operations such as 2e9, or bytes if it states no work
    #[arg(long, requires = "function", conflicts_with = "plot", value_parser = parse_problem_size)]
    size: Option<f64>,
    /// Draw the function's curves into an SVG file
    #[arg(long, value_name = "FILE", requires = "function")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_problem_size(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(size) if size.is_finite() && size >= 0.0 => Ok(size),
        _ => Err("a finite number that is not negative is wanted".into()),
    }
}

/// A model of a function on a server.
struct Row<'a> {
    server: &'a ServerView,
    function: &'a str,
    model: &'a FunctionModel,
}

impl Row<'_> {
    /// The curves that have points, with what their sizes are.
    fn curves(&self) -> impl Iterator<Item = (&Curve, &'static str)> {
        let all = [(&self.model.by_work, "flop"), (&self.model.by_bytes, "B")];
        all.into_iter().filter(|(curve, _)| !curve.points.is_empty())
    }

    fn to_json(&self) -> Value {
        let point =
            |p: &Point| json!({ "size": p.size, "seconds": p.seconds, "spread_seconds": p.spread_s, "calls": p.calls });
        let points = |curve: &Curve| curve.points.iter().map(point).collect::<Vec<_>>();
        let accuracy = self.model.accuracy;
        json!({
            "function": self.function,
            "server": self.server.name,
            "by_work": points(&self.model.by_work),
            "by_bytes": points(&self.model.by_bytes),
            "accuracy": {
                "compared": accuracy.count,
                "outliers": accuracy.outliers,
                "measured_over_predicted": accuracy.bias.exp(),
                "error": accuracy.error.exp() - 1.0,
            },
        })
    }
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = Grid::connect(&options.agent.agent)?;
    let view = grid.servers();
    if let Some(name) = &options.server
        && !view.servers.iter().any(|server| server.name == *name)
    {
        let known: Vec<&str> = view.servers.iter().map(|server| server.name.as_str()).collect();
        bail!("no server '{name}'; there are: {}", known.join(", "));
    }
    // Tells of an unknown function, with names that are near.
    let function = options.function.as_ref().map(|name| grid.function(name)).transpose()?;
    let servers = view.servers.iter().filter(|server| options.server.as_ref().is_none_or(|name| server.name == *name));
    let mut rows: Vec<Row> = servers
        .flat_map(|server| server.functions.iter().map(move |(function, model)| Row { server, function, model }))
        .filter(|row| function.as_ref().is_none_or(|wanted| wanted.signature().name == row.function))
        .filter(|row| !row.model.is_empty())
        .collect();
    rows.sort_by(|a, b| (a.function, &a.server.name).cmp(&(b.function, &b.server.name)));
    if let (Some(file), Some(name)) = (&options.plot, &options.function) {
        let lines: Vec<_> = rows
            .iter()
            .flat_map(|row| row.curves().map(|(curve, unit)| (row.server.name.as_str(), curve, unit)))
            .collect();
        std::fs::write(file, curves::draw(name, &lines)).with_context(|| file.display().to_string())?;
    }
    if options.json {
        print_json(&json!({ "models": rows.iter().map(Row::to_json).collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if rows.is_empty() {
        print_line("nothing is known yet: models are made from calls, as they end")?;
        return Ok(ExitCode::SUCCESS);
    }
    match (&options.function, options.accuracy) {
        (Some(_), _) if options.size.is_some() => print_predictions(&rows, options.size.unwrap_or_default())?,
        (Some(_), _) => print_points(&rows)?,
        (None, true) => print_accuracy(&rows)?,
        (None, false) => print_summary(&rows)?,
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
                    scaled(point.spread_s, "s"),
                    point.calls
                ))?;
            }
        }
    }
    Ok(())
}

fn print_predictions(rows: &[Row], size: f64) -> Result<()> {
    for row in rows {
        for (curve, unit) in row.curves() {
            let Some(found) = curve.predict(size) else { continue };
            let note = if found.is_extrapolated { "  (extrapolated)" } else { "" };
            let (seconds, spread) = (scaled(found.seconds, "s"), scaled(found.spread_s, "s"));
            print_line(&format!("{:<16} {:>14} {seconds:>12} ± {spread}{note}", row.server.name, scaled(size, unit)))?;
        }
    }
    Ok(())
}

fn print_accuracy(rows: &[Row]) -> Result<()> {
    print_line(&format!(
        "{:<28} {:<16} {:>9} {:>9} {:>20} {:>8}",
        "function", "server", "compared", "outliers", "measured/predicted", "off by"
    ))?;
    for row in rows.iter().filter(|row| row.model.accuracy.count > 0) {
        let accuracy = row.model.accuracy;
        print_line(&format!(
            "{:<28} {:<16} {:>9} {:>9} {:>20.3} {:>7.1}%",
            row.function,
            row.server.name,
            accuracy.count,
            accuracy.outliers,
            accuracy.bias.exp(),
            100.0 * (accuracy.error.exp() - 1.0)
        ))?;
    }
    Ok(())
}
