//! `gridloom call`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use gridloom::{Arg, Grid, Value};
use gridloom_core::base::{ByteOrder, Dtype, Meta, Order};
use gridloom_core::idl::{BaseType, Param};
use serde_json::json;

use super::{AgentOption, print_json, print_line};

/// Call one function, with arguments from the command line.
///
/// Arguments are numbers, texts, arrays such as '[[1, 2], [3, 4]]', or @FILE for text or JSON in a file. Sizes that
/// follow from the arrays need not be given.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom call linalg/dnrm2 '[3, 4]'\n  \
gridloom call linalg/dgemm '[[1, 2], [3, 4]]' '[[1, 0], [0, 1]]' --json")]
pub struct Options {
    /// The function: module/function
    name: String,
    /// Its arguments
    #[arg(allow_negative_numbers = true)]
    args: Vec<String>,
    #[command(flatten)]
    agent: AgentOption,
    /// Fail after so many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = Grid::connect(&options.agent.agent)?;
    let function = grid.function(&options.name)?;
    let signature = function.signature();
    let inputs: Vec<usize> = (0..signature.params.len()).filter(|i| signature.params[*i].is_input()).collect();
    let positional = match signature.positional() {
        short if short.len() == options.args.len() => short,
        short => match inputs.len() == options.args.len() {
            true => inputs,
            false => bail!("{signature} takes {} arguments, got {}", short.len(), options.args.len()),
        },
    };
    let args = options.args.iter().zip(&positional).map(|(text, index)| {
        let param = &signature.params[*index];
        parse(text, param).with_context(|| format!("argument '{}'", param.name)).map(Arg::from)
    });
    let args = args.collect::<Result<Vec<Arg>>>()?;
    let limit = options.timeout.map(Duration::try_from_secs_f64).transpose().context("--timeout")?;
    let values = function.submit(&args, &[], limit)?.wait()?;
    let outputs = signature.params.iter().filter(|param| param.is_output());
    let mut results = serde_json::Map::new();
    for (param, value) in outputs.zip(&values) {
        results.insert(param.name.clone(), to_json(value)?);
    }
    match options.json {
        true => print_json(&json!({ "results": results }))?,
        false => results.iter().try_for_each(|(name, value)| print_line(&format!("{name} = {value}")))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(text: &str, param: &Param) -> Result<Value> {
    let content = match text.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(PathBuf::from(file)).with_context(|| file.to_string())?,
        None => text.to_string(),
    };
    let dtype = match param.base {
        BaseType::Text => return Ok(Value::text(&content)),
        BaseType::Bytes => return Ok(Value::from(std::sync::Arc::<[u8]>::from(content.into_bytes()))),
        BaseType::Number(dtype) => dtype,
    };
    let parsed: serde_json::Value =
        serde_json::from_str(&content).map_err(|error| anyhow!("'{content}' is no number or array: {error}"))?;
    let mut shape = Vec::new();
    let mut level = &parsed;
    while let serde_json::Value::Array(items) = level {
        shape.push(items.len() as u64);
        match items.first() {
            Some(first) => level = first,
            None => break,
        }
    }
    let mut bytes = Vec::new();
    flatten(&parsed, &shape, dtype, &mut bytes)?;
    let is_array = param.is_array || !param.dims.is_empty();
    let meta = match is_array {
        true => Meta::Array { dtype, byte_order: ByteOrder::NATIVE, order: Order::C, shape },
        false if shape.is_empty() => Meta::scalar(dtype),
        false => bail!("expected a number, got an array"),
    };
    Ok(Value::new(meta, gridloom_net::payload::Payload::copied(&bytes))?)
}

fn flatten(value: &serde_json::Value, shape: &[u64], dtype: Dtype, bytes: &mut Vec<u8>) -> Result<()> {
    match (value, shape) {
        (serde_json::Value::Array(items), [extent, rest @ ..]) => {
            if items.len() as u64 != *extent {
                bail!("rows of {} and {extent} elements in one array", items.len());
            }
            items.iter().try_for_each(|item| flatten(item, rest, dtype, bytes))
        }
        (serde_json::Value::Array(_), []) | (_, [_, ..]) => bail!("an array must have rows of equal length and depth"),
        (item, []) => push(item, dtype, bytes),
    }
}

fn push(item: &serde_json::Value, dtype: Dtype, bytes: &mut Vec<u8>) -> Result<()> {
    let real = || item.as_f64().ok_or_else(|| anyhow!("'{item}' is no number"));
    let int = || item.as_i64().ok_or_else(|| anyhow!("'{item}' is no whole number, as {dtype} needs"));
    let fits = |ok: bool| if ok { Ok(()) } else { Err(anyhow!("{item} does not fit {dtype}")) };
    macro_rules! whole {
        ($t:ty) => {{
            let value = int()?;
            fits(<$t>::try_from(value).is_ok())?;
            bytes.extend((value as $t).to_ne_bytes())
        }};
    }
    match dtype {
        Dtype::Bool => {
            bytes.push(u8::from(item.as_bool().ok_or_else(|| anyhow!("'{item}' is neither true nor false"))?))
        }
        Dtype::Int8 => whole!(i8),
        Dtype::Int16 => whole!(i16),
        Dtype::Int32 => whole!(i32),
        Dtype::Int64 => whole!(i64),
        Dtype::Uint8 => whole!(u8),
        Dtype::Uint16 => whole!(u16),
        Dtype::Uint32 => whole!(u32),
        Dtype::Uint64 => {
            let value = item.as_u64().ok_or_else(|| anyhow!("'{item}' is no whole number from 0, as {dtype} needs"))?;
            bytes.extend(value.to_ne_bytes());
        }
        Dtype::Float32 => bytes.extend((real()? as f32).to_ne_bytes()),
        Dtype::Float64 => bytes.extend(real()?.to_ne_bytes()),
        Dtype::Complex64 => bytes.extend([real()? as f32, 0.0].iter().flat_map(|x| x.to_ne_bytes())),
        Dtype::Complex128 => bytes.extend([real()?, 0.0].iter().flat_map(|x| x.to_ne_bytes())),
        Dtype::Float16 | Dtype::LongDouble | Dtype::ComplexLongDouble => {
            bail!("{dtype} cannot be written on a command line; call it from Python")
        }
    }
    Ok(())
}

fn to_json(value: &Value) -> Result<serde_json::Value> {
    let bytes = value.payload().map_or(&[][..], |payload| payload.bytes());
    let (dtype, shape) = match value.meta() {
        Meta::Text { .. } => return Ok(json!(String::from_utf8_lossy(bytes))),
        Meta::Bytes { .. } => return Ok(json!(bytes)),
        Meta::Scalar { dtype, .. } => (*dtype, Vec::new()),
        Meta::Array { dtype, shape, order: Order::C, .. } => (*dtype, shape.clone()),
        Meta::Array { dtype, shape, order: Order::F, .. } if shape.len() < 2 => (*dtype, shape.clone()),
        Meta::Array { .. } => bail!("the result is in Fortran order; call the function from Python"),
    };
    let mut items = bytes.chunks(dtype.size_bytes() as usize).map(|chunk| element(chunk, dtype));
    nest(&mut items, &shape)
}

fn nest(items: &mut impl Iterator<Item = Result<serde_json::Value>>, shape: &[u64]) -> Result<serde_json::Value> {
    match shape {
        [] => items.next().unwrap_or_else(|| bail!("the result has too few elements")),
        [extent, rest @ ..] => (0..*extent).map(|_| nest(items, rest)).collect::<Result<Vec<_>>>().map(Into::into),
    }
}

fn element(chunk: &[u8], dtype: Dtype) -> Result<serde_json::Value> {
    macro_rules! number {
        ($t:ty) => {
            <$t>::from_ne_bytes(chunk.try_into().context("a whole element")?)
        };
    }
    Ok(match dtype {
        Dtype::Bool => json!(chunk[0] != 0),
        Dtype::Int8 => json!(number!(i8)),
        Dtype::Int16 => json!(number!(i16)),
        Dtype::Int32 => json!(number!(i32)),
        Dtype::Int64 => json!(number!(i64)),
        Dtype::Uint8 => json!(number!(u8)),
        Dtype::Uint16 => json!(number!(u16)),
        Dtype::Uint32 => json!(number!(u32)),
        Dtype::Uint64 => json!(number!(u64)),
        Dtype::Float32 => json!(number!(f32)),
        Dtype::Float64 => json!(number!(f64)),
        Dtype::Complex64 => json!([element(&chunk[..4], Dtype::Float32)?, element(&chunk[4..], Dtype::Float32)?]),
        Dtype::Complex128 => json!([element(&chunk[..8], Dtype::Float64)?, element(&chunk[8..], Dtype::Float64)?]),
        Dtype::Float16 | Dtype::LongDouble | Dtype::ComplexLongDouble => {
            bail!("{dtype} cannot be printed; call the function from Python")
        }
    })
}
