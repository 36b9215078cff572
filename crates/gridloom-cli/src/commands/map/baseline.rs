//! The table for a folder of workflows and their platforms.
//!
//! The folder has `baseline.json`: `{"workflows": [{"workflow": NAME, "platforms": [PLATFORM, ...]}]}`, and
//! `NAME.json` for each. If it also has `best_known.json`, `{"model": MODEL, "cases": [{"workflow": NAME, "k":
//! PLATFORM, "best_known_seconds": …}]}`, `auto` is compared with these makespans.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use gridloom_map::Spec;
use gridloom_workflows::{Case, Model, Servers, Workflow};
use serde_json::{Value, json};

use super::super::{print_json, print_line, read_text};

/// The heuristics whose best plan is compared.
const COMPARED_HEURISTICS: [&str; 4] = ["heft", "cpop", "min-min", "max-min"];
/// For model m2 the mean gain of this many best cases is shown.
const BEST_CASES: usize = 10;

/// Makespans of one case.
struct Row {
    workflow: String,
    platform: Value,
    model: Model,
    bound_s: f64,
    heft_s: f64,
    best_of_four_s: f64,
    mct_s: f64,
    auto_s: f64,
    map_s: f64,
    /// The best known makespan, for the model for which one is known.
    best_known_s: Option<f64>,
}

/// The best known makespans, by workflow and platform, for one model.
struct BestKnown {
    model: Option<Model>,
    seconds: BTreeMap<(String, String), f64>,
}

impl BestKnown {
    /// Reads the folder.
    fn read(folder: &Path) -> Result<BestKnown> {
        let path = folder.join("best_known.json");
        if !path.exists() {
            return Ok(BestKnown { model: None, seconds: BTreeMap::new() });
        }
        let known: Value = serde_json::from_str(&read_text(&path)?).with_context(|| path.display().to_string())?;
        let name = known["model"].as_str().with_context(|| format!("{}: no 'model'", path.display()))?;
        let model = name.parse::<Model>().map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))?;
        let case = |case: &Value| {
            let workflow = case["workflow"].as_str()?.to_owned();
            Some(((workflow, case["k"].to_string()), case["best_known_seconds"].as_f64()?))
        };
        let seconds = known["cases"].as_array().into_iter().flatten().filter_map(case).collect();
        Ok(BestKnown { model: Some(model), seconds })
    }

    fn of(&self, model: Model, workflow: &str, platform: &Value) -> Option<f64> {
        let key = (workflow.to_owned(), platform.to_string());
        self.seconds.get(&key).copied().filter(|_| self.model == Some(model))
    }
}

/// Maps all cases by all models and prints the table.
pub fn run(folder: &Path, json: bool) -> Result<()> {
    let path = folder.join("baseline.json");
    let baseline: Value = serde_json::from_str(&read_text(&path)?).with_context(|| path.display().to_string())?;
    let workflows = baseline["workflows"].as_array().with_context(|| format!("{}: no 'workflows'", path.display()))?;
    if !json {
        print_line(&format!(
            "{:32} {:>2} {:5} {:>12} {:>12} {:>12} {:>12} {:>12} {:>8} {:>8} {:>8} {:>7}",
            "workflow",
            "k",
            "model",
            "bound",
            "heft",
            "best of 4",
            "mct",
            "auto",
            "of best",
            "of mct",
            "of known",
            "map s"
        ))?;
    }
    let best_known = BestKnown::read(folder)?;
    let mut rows = Vec::new();
    for model in [Model::M0, Model::M1, Model::M2] {
        for entry in workflows {
            let name = entry["workflow"].as_str().context("a workflow without a name")?;
            let file = folder.join(format!("{name}.json"));
            let workflow = Workflow::parse(&read_text(&file)?, &file.display().to_string())?;
            for platform in entry["platforms"].as_array().into_iter().flatten() {
                let servers = Servers::parse(&platform.to_string(), name)?;
                let case = Case { workflow: &workflow, servers: &servers, model };
                let k = &platform["platform"]["k"];
                let row = Row { best_known_s: best_known.of(model, name, k), ..row(&case, name, k)? };
                if !json {
                    print_row(&row)?;
                }
                rows.push(row);
            }
        }
    }
    if json {
        print_json(&json!({ "cases": rows.iter().map(as_json).collect::<Vec<_>>() }))
    } else {
        print_means(&rows)
    }
}

fn row(case: &Case<'_>, name: &str, platform: &Value) -> Result<Row> {
    let mapped = |spec: &str| -> Result<(f64, f64)> {
        let started = Instant::now();
        let plan = case.map(&Spec::parse(spec)?)?;
        let map_s = started.elapsed().as_secs_f64();
        Ok((case.evaluate(plan).with_context(|| format!("{name}: {spec}"))?.makespan_s, map_s))
    };
    let four: Vec<f64> = COMPARED_HEURISTICS.iter().map(|spec| Ok(mapped(spec)?.0)).collect::<Result<_>>()?;
    let (auto_s, map_s) = mapped("auto")?;
    Ok(Row {
        workflow: name.to_owned(),
        platform: platform.clone(),
        model: case.model,
        bound_s: case.lower_bound_s(),
        heft_s: four[0],
        best_of_four_s: four.iter().copied().fold(f64::INFINITY, f64::min),
        mct_s: if case.model == Model::M2 { mapped("mct")?.0 } else { case.plain_s() },
        auto_s,
        map_s,
        best_known_s: None,
    })
}

fn print_row(row: &Row) -> Result<()> {
    let Row { workflow, platform, model, bound_s, heft_s, best_of_four_s, mct_s, auto_s, map_s, best_known_s } = row;
    let of_known = best_known_s.map_or("-".into(), |known_s| format!("{:.4}", auto_s / known_s));
    print_line(&format!(
        "{workflow:32} {platform:>2} {:5} {bound_s:12.3} {heft_s:12.3} {best_of_four_s:12.3} {mct_s:12.3} {auto_s:12.3} \
         {:8.4} {:8.4} {of_known:>8} {map_s:7.3}",
        format!("{model:?}").to_lowercase(),
        auto_s / best_of_four_s,
        auto_s / mct_s,
    ))
}

fn as_json(row: &Row) -> Value {
    json!({
        "workflow": row.workflow, "k": row.platform, "model": format!("{:?}", row.model).to_lowercase(),
        "lower_bound_seconds": row.bound_s, "heft_seconds": row.heft_s, "best_of_four_seconds": row.best_of_four_s,
        "mct_seconds": row.mct_s, "auto_seconds": row.auto_s, "map_seconds": row.map_s,
        "best_known_seconds": row.best_known_s,
    })
}

fn print_means(rows: &[Row]) -> Result<()> {
    for model in [Model::M0, Model::M1, Model::M2] {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.model == model).collect();
        let name = format!("{model:?}").to_lowercase();
        let slowest_s = rows.iter().map(|row| row.map_s).fold(0.0, f64::max);
        let of_best: Vec<f64> = rows.iter().map(|row| row.auto_s / row.best_of_four_s).collect();
        let far = rows.iter().filter(|row| row.best_of_four_s > 1.1 * row.bound_s);
        let of_far: Vec<f64> = far.map(|row| row.auto_s / row.best_of_four_s).collect();
        let over_mct: Vec<f64> = rows.iter().map(|row| row.mct_s / row.auto_s).collect();
        let mut over_heft: Vec<f64> = rows.iter().map(|row| row.heft_s / row.auto_s).collect();
        over_heft.sort_by(|a, b| b.total_cmp(a));
        print_line(&format!(
            "{name}: auto takes {:.4} of the best of four ({:.4} over the {} cases more than 10 % above the bound, {:.4} at \
             worst); mct takes {:.3} times auto, heft {:.3} times ({:.3} in the {BEST_CASES} that gain most, {:.3} at worst); mapped \
             in {slowest_s:.2} s at most",
            mean(&of_best),
            mean(&of_far),
            of_far.len(),
            of_best.iter().copied().fold(0.0, f64::max),
            mean(&over_mct),
            mean(&over_heft),
            mean(&over_heft[..BEST_CASES.min(over_heft.len())]),
            over_heft.last().copied().unwrap_or(1.0),
        ))?;
        let of_known: Vec<f64> = rows.iter().filter_map(|row| Some(row.auto_s / row.best_known_s?)).collect();
        if !of_known.is_empty() {
            let worst = of_known.iter().copied().fold(0.0, f64::max);
            let cases = of_known.len();
            let mean = mean(&of_known);
            print_line(&format!(
                "{name}: auto takes {mean:.4} of the best known over {cases} cases, {worst:.4} at worst"
            ))?;
        }
    }
    Ok(())
}

/// Geometric mean.
fn mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len().max(1) as f64).exp()
}
