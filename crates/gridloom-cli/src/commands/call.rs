//! `gridloom call`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gridloom::{Arg, Value};
use gridloom_idl::Signature;
use gridloom_net::payload::Payload;
use serde_json::{Value as Json, json};

use super::{GridOption, count, print_json, print_line};
use crate::npy;
use crate::values::{argument, to_json};

/// Call one function, with arguments from the command line.
///
/// Arguments are numbers, texts, arrays such as '[[1, 2], [3, 4]]', or @FILE for the content of a file: a text, JSON,
/// or an array that NumPy saved (.npy). A complex number is [re, im]. Either leave out the sizes that follow from the
/// arrays, or give all arguments in the order of the interface description. Results are printed by name. NaN and
/// infinities are printed as texts, because JSON has no numbers for them.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom call linalg/dnrm2 '[3, 4]'\n  \
gridloom call linalg/dgemm '[[1, 2], [3, 4]]' '[[1, 0], [0, 1]]' --json\n  \
gridloom call linalg/dgemm @a.npy @b.npy --out c.npy")]
pub struct Options {
    /// The function: module/function
    name: String,
    /// Arguments of the function
    #[arg(allow_negative_numbers = true)]
    args: Vec<String>,
    #[command(flatten)]
    grid: GridOption,
    /// Fail after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = super::simulate::seconds)]
    timeout: Option<f64>,
    /// Save a result in this file instead of printing it; with several results NAME=FILE, repeated
    #[arg(long, value_name = "[NAME=]FILE.npy")]
    out: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let limit = options.timeout.map(Duration::from_secs_f64);
    let grid = options.grid.connect()?;
    let function = grid.function(&options.name)?;
    let signature = function.signature();
    let saved = options.out.iter().map(|text| destination(text, signature)).collect::<Result<Vec<_>>>()?;
    let args = arguments(&options.args, signature)?;
    let values = function.submit(args, &[], limit)?.wait()?;
    let outputs = signature.params.iter().filter(|param| param.is_output());
    let mut results = serde_json::Map::new();
    for (param, value) in outputs.zip(&values) {
        let result = match saved.iter().find(|(name, _)| *name == param.name) {
            Some((_, file)) => save(value, file)?,
            None => to_json(value).with_context(|| format!("result '{}'", param.name))?,
        };
        results.insert(param.name.clone(), result);
    }
    match options.json {
        true => print_json(&json!({ "results": results }))?,
        false => results.iter().try_for_each(|(name, value)| print_line(&format!("{name} = {}", in_words(value))))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Parses either all arguments, or all but the sizes that follow from others.
fn arguments(texts: &[String], signature: &Signature) -> Result<Vec<Arg>> {
    let inputs: Vec<usize> = (0..signature.params.len()).filter(|i| signature.params[*i].is_input()).collect();
    let short = signature.positional();
    let given = match texts.len() {
        number if number == short.len() => short,
        number if number == inputs.len() => inputs,
        number => bail!("{signature} takes {}, got {number}", count(short.len(), "argument")),
    };
    let parse = |(text, index): (&String, &usize)| {
        let param = &signature.params[*index];
        argument(text, param).with_context(|| format!("argument '{}'", param.name)).map(Arg::from)
    };
    texts.iter().zip(&given).map(parse).collect()
}

/// Returns the name of the result and the file to save it in.
fn destination(text: &str, signature: &Signature) -> Result<(String, PathBuf)> {
    let names: Vec<&str> = signature.params.iter().filter(|p| p.is_output()).map(|p| p.name.as_str()).collect();
    match (text.split_once('='), &names[..]) {
        (Some((name, file)), names) if names.contains(&name) => Ok((name.to_string(), PathBuf::from(file))),
        (_, [name]) => Ok(((*name).to_string(), PathBuf::from(text))),
        (_, names) => bail!("--out {text}: use NAME=FILE.npy with one of the results {}", names.join(", ")),
    }
}

fn save(value: &Value, file: &PathBuf) -> Result<Json> {
    let bytes = value.payload().map(Payload::bytes).context("the value was simulated: it has no content")?;
    std::fs::write(file, npy::write(value.meta(), bytes)?).with_context(|| file.display().to_string())?;
    Ok(json!({ "file": file, "holds": value.meta().to_string() }))
}

fn in_words(result: &Json) -> String {
    match (result["file"].as_str(), result["holds"].as_str()) {
        (Some(file), Some(holds)) => format!("{holds}, saved in {file}"),
        _ => result.to_string(),
    }
}
