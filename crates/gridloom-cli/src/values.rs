//! Values on the command line: arguments from text, JSON or files, and results as JSON.
//!
//! Numbers and nested lists are those of JSON. Values for which JSON has no number are texts, in both directions:
//! `"NaN"`, `"Infinity"`, `"-Infinity"`. A complex number is `[re, im]`; as an argument also `re`.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use gridloom::Value;
use gridloom_base::{ByteOrder, Dtype, Meta, Order};
use gridloom_idl::{BaseType, Param};
use gridloom_net::payload::Payload;
use gridloom_resources::text_file;
use serde_json::{Value as Json, json};

use crate::npy;

/// Parses an argument: `text` itself, or the content of the file that `@FILE` names. `@@` is an escaped first `@`.
///
/// # Errors
/// If it cannot be read, or if the parameter does not accept it.
pub fn argument(text: &str, param: &Param) -> Result<Value> {
    let (content, file) = match text.strip_prefix('@') {
        Some(rest) if !rest.starts_with('@') => {
            (text_file::read_bytes(Path::new(rest)).map_err(anyhow::Error::msg)?, Some(rest))
        }
        Some(rest) => (rest.as_bytes().to_vec(), None),
        None => (text.as_bytes().to_vec(), None),
    };
    let dtype = match param.base {
        _ if param.is_list() => return list_from_json(&content),
        BaseType::Text => return Ok(Value::text(std::str::from_utf8(&content).context("it is not a text (UTF-8)")?)),
        BaseType::String => {
            return Ok(match std::str::from_utf8(&content) {
                Ok(text) => Value::text(text),
                Err(_) => Value::from(std::sync::Arc::<[u8]>::from(content)),
            });
        }
        BaseType::Bytes | BaseType::File | BaseType::Stream => {
            return Ok(Value::from(std::sync::Arc::<[u8]>::from(content)));
        }
        BaseType::Number(dtype) => dtype,
    };
    match file {
        Some(file) if file.ends_with(".npy") || npy::is_npy(&content) => {
            from_npy(&content, param).with_context(|| file.to_string())
        }
        Some(file) => {
            let text = text_file::decode(content).map_err(|why| anyhow!("{file}{why}"))?;
            from_json(text.as_bytes(), param, dtype).with_context(|| file.to_string())
        }
        None => from_json(&content, param, dtype),
    }
}

/// Parses a list of texts; `null` is a missing item.
fn list_from_json(content: &[u8]) -> Result<Value> {
    let items: Vec<Option<String>> = serde_json::from_slice(content)
        .context("expected a list of texts, such as [\"one\", \"two\"]; null is a missing item")?;
    Ok(Value::list(items.iter().map(|item| item.as_deref().map(str::as_bytes))))
}

fn from_npy(content: &[u8], param: &Param) -> Result<Value> {
    let (mut meta, elements) = npy::read(content)?;
    if let Meta::Array { dtype, byte_order, shape, .. } = &meta
        && shape.is_empty()
        && !param.is_array
    {
        meta = Meta::Scalar { dtype: *dtype, byte_order: *byte_order };
    }
    Ok(Value::new(meta, Payload::copied(elements))?)
}

fn from_json(content: &[u8], param: &Param, dtype: Dtype) -> Result<Value> {
    let parsed = match serde_json::from_slice(content) {
        Ok(parsed) => parsed,
        // Quotes around words are tedious at a shell's prompt: NaN is accepted for "NaN".
        Err(error) => match std::str::from_utf8(content).map(str::trim) {
            Ok(word @ ("NaN" | "Infinity" | "-Infinity")) => json!(word),
            word => bail!("'{}' is not a number or an array: {error}", word.unwrap_or("it")),
        },
    };
    // The innermost list of a complex array may be a pair, which is not a dimension.
    let depth = if is_complex(dtype) { param.dims.len() } else { usize::MAX };
    let mut shape = Vec::new();
    let mut level = Some(&parsed);
    while let Some(Json::Array(items)) = level
        && shape.len() < depth
    {
        shape.push(items.len() as u64);
        level = items.first();
    }
    let mut bytes = Vec::new();
    flatten(&parsed, &shape, dtype, &mut bytes)?;
    let meta = match (param.is_array, shape.is_empty()) {
        (true, _) => Meta::array(dtype, &shape),
        (false, true) => Meta::scalar(dtype),
        (false, false) => bail!("expected a number, got an array"),
    };
    Ok(Value::new(meta, Payload::copied(&bytes))?)
}

fn is_complex(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Complex64 | Dtype::Complex128 | Dtype::ComplexLongDouble)
}

fn flatten(value: &Json, shape: &[u64], dtype: Dtype, bytes: &mut Vec<u8>) -> Result<()> {
    match (value, shape) {
        (Json::Array(items), [extent, rest @ ..]) => {
            if items.len() as u64 != *extent {
                bail!("an array has rows of {extent} and of {} elements", items.len());
            }
            items.iter().try_for_each(|item| flatten(item, rest, dtype, bytes))
        }
        (Json::Array(_), []) if !is_complex(dtype) => bail!("an array has rows of different depth"),
        (_, [_, ..]) => bail!("an array has rows of different depth"),
        (item, []) => push(item, dtype, bytes),
    }
}

fn push(item: &Json, dtype: Dtype, bytes: &mut Vec<u8>) -> Result<()> {
    macro_rules! whole {
        ($type:ty) => {{
            let wide = item.as_i64().map(i128::from).or(item.as_u64().map(i128::from));
            let wide = wide.ok_or_else(|| anyhow!("{item} is not a whole number, as {dtype} requires"))?;
            let value = <$type>::try_from(wide).map_err(|_| anyhow!("{item} does not fit {dtype}"))?;
            bytes.extend(value.to_ne_bytes())
        }};
    }
    if let (Dtype::Int8 | Dtype::Uint8, Some([letter])) = (dtype, item.as_str().map(str::as_bytes))
        && letter.is_ascii()
    {
        bytes.push(*letter);
        return Ok(());
    }
    match dtype {
        Dtype::Bool => bytes.push(u8::from(item.as_bool().ok_or_else(|| anyhow!("{item} is neither true nor false"))?)),
        Dtype::Int8 => whole!(i8),
        Dtype::Int16 => whole!(i16),
        Dtype::Int32 => whole!(i32),
        Dtype::Int64 => whole!(i64),
        Dtype::Uint8 => whole!(u8),
        Dtype::Uint16 => whole!(u16),
        Dtype::Uint32 => whole!(u32),
        Dtype::Uint64 => whole!(u64),
        Dtype::Float32 => bytes.extend(single(item)?.to_ne_bytes()),
        Dtype::Float64 => bytes.extend(real(item)?.to_ne_bytes()),
        Dtype::Complex64 => pair(item)?.iter().try_for_each(|part| push(part, Dtype::Float32, bytes))?,
        Dtype::Complex128 => pair(item)?.iter().try_for_each(|part| push(part, Dtype::Float64, bytes))?,
        Dtype::Float16 | Dtype::LongDouble | Dtype::ComplexLongDouble => {
            bail!("{dtype} cannot be written on a command line; pass @FILE.npy")
        }
    }
    Ok(())
}

fn real(item: &Json) -> Result<f64> {
    match item.as_str() {
        Some("NaN") => Ok(f64::NAN),
        Some("Infinity") => Ok(f64::INFINITY),
        Some("-Infinity") => Ok(f64::NEG_INFINITY),
        _ => item.as_f64().ok_or_else(|| anyhow!("{item} is not a number")),
    }
}

fn single(item: &Json) -> Result<f32> {
    let wide = real(item)?;
    let value = wide as f32;
    if value.is_infinite() && wide.is_finite() {
        bail!("{item} does not fit float32");
    }
    Ok(value)
}

fn pair(item: &Json) -> Result<[Json; 2]> {
    match item {
        Json::Array(parts) => match &parts[..] {
            [re, im] => Ok([re.clone(), im.clone()]),
            _ => bail!("{item} is not a complex number; expected [re, im]"),
        },
        re => Ok([re.clone(), json!(0)]),
    }
}

/// Returns a value as JSON: row by row, whatever its order in memory.
///
/// # Errors
/// If its elements have no decimal form here, or if it has no bytes.
pub fn to_json(value: &Value) -> Result<Json> {
    let bytes = value.payload().map(Payload::bytes).context("the value was simulated: it has no content")?;
    let (dtype, byte_order, order, shape) = match value.meta() {
        Meta::Text { .. } => return Ok(json!(String::from_utf8_lossy(bytes))),
        Meta::Bytes { .. } => return Ok(json!(bytes)),
        Meta::List { .. } => {
            let items = value.items().context("it is not a list")?;
            let texts: Vec<_> = items.iter().map(|item| item.map(String::from_utf8_lossy)).collect();
            return Ok(json!(texts));
        }
        Meta::Scalar { dtype, byte_order } => (*dtype, *byte_order, Order::C, &[][..]),
        Meta::Array { dtype, byte_order, order, shape } => (*dtype, *byte_order, *order, &shape[..]),
    };
    let mut native = bytes.to_vec();
    if byte_order != ByteOrder::NATIVE {
        native.chunks_exact_mut(dtype.swap_bytes() as usize).for_each(<[u8]>::reverse);
    }
    let dims = strided(shape, order);
    nest(&native, dtype, &dims, 0)
}

/// Returns the extent and the stride, in elements, of each dimension.
fn strided(shape: &[u64], order: Order) -> Vec<(usize, usize)> {
    let mut dims = vec![(0, 0); shape.len()];
    let mut stride = 1;
    for at in 0..shape.len() {
        let dim = if order == Order::F { at } else { shape.len() - 1 - at };
        dims[dim] = (shape[dim] as usize, stride);
        stride *= shape[dim] as usize;
    }
    dims
}

fn nest(bytes: &[u8], dtype: Dtype, dims: &[(usize, usize)], at: usize) -> Result<Json> {
    match dims {
        [(extent, stride), rest @ ..] => (0..*extent)
            .map(|index| nest(bytes, dtype, rest, at + index * stride))
            .collect::<Result<Vec<_>>>()
            .map(Json::from),
        [] => {
            let size = dtype.size_bytes() as usize;
            element(bytes.get(at * size..(at + 1) * size).context("the value has too few bytes")?, dtype)
        }
    }
}

fn element(bytes: &[u8], dtype: Dtype) -> Result<Json> {
    macro_rules! number {
        ($type:ty) => {
            <$type>::from_ne_bytes(bytes.try_into().context("a whole element")?)
        };
    }
    let parts = |part: Dtype| {
        let (re, im) = bytes.split_at(bytes.len() / 2);
        Ok(json!([element(re, part)?, element(im, part)?]))
    };
    Ok(match dtype {
        Dtype::Bool => json!(bytes[0] != 0),
        Dtype::Int8 => json!(number!(i8)),
        Dtype::Int16 => json!(number!(i16)),
        Dtype::Int32 => json!(number!(i32)),
        Dtype::Int64 => json!(number!(i64)),
        Dtype::Uint8 => json!(number!(u8)),
        Dtype::Uint16 => json!(number!(u16)),
        Dtype::Uint32 => json!(number!(u32)),
        Dtype::Uint64 => json!(number!(u64)),
        // Through its shortest decimal form: 0.1 remains 0.1.
        Dtype::Float32 => decimal(number!(f32).to_string().parse().context("a printed number")?),
        Dtype::Float64 => decimal(number!(f64)),
        Dtype::Complex64 => return parts(Dtype::Float32),
        Dtype::Complex128 => return parts(Dtype::Float64),
        Dtype::Float16 | Dtype::LongDouble | Dtype::ComplexLongDouble => {
            bail!("{dtype} cannot be printed; save it with --out FILE.npy")
        }
    })
}

fn decimal(x: f64) -> Json {
    match x.is_finite() {
        true => json!(x),
        false if x.is_nan() => json!("NaN"),
        false => json!(if x > 0.0 { "Infinity" } else { "-Infinity" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_idl::{Signature, parse};

    fn signature(params: &str) -> Signature {
        let text = format!("Define f({params}) Calls \"C\" f();");
        parse(&text, "t.idl").unwrap().remove(0).signature
    }

    fn round(param: &str, text: &str) -> Result<String> {
        let signature = signature(&format!("IN int n, {param}"));
        Ok(to_json(&argument(text, &signature.params[1])?)?.to_string())
    }

    #[test]
    fn arguments_survive_the_round_trip() {
        for (param, text) in [
            ("IN double x", "2.5"),
            ("IN float x", "0.1"),
            ("IN int x", "-7"),
            ("IN double a[n][n]", "[[1.0,2.0],[3.0,4.0]]"),
            ("IN double a[n]", "[\"NaN\",\"-Infinity\"]"),
            ("IN dcomplex a[n]", "[[1.0,2.0],[3.0,-4.0]]"),
            ("IN double a[n]", "[]"),
        ] {
            assert_eq!(round(param, text).unwrap(), text, "{param}");
        }
        assert_eq!(round("IN dcomplex z", "3").unwrap(), "[3.0,0.0]");
        assert_eq!(round("IN char c", "\"N\"").unwrap(), "78");
        assert_eq!(round("IN double x", "NaN").unwrap(), "\"NaN\"");
    }

    #[test]
    fn wrong_arguments_are_named() {
        let says = |param, text| format!("{:#}", round(param, text).unwrap_err());
        assert_eq!(says("IN int x", "2.5"), "2.5 is not a whole number, as int32 requires");
        assert_eq!(says("IN char c", "\"NT\""), "\"NT\" is not a whole number, as int8 requires");
        assert_eq!(says("IN int x", "3000000000"), "3000000000 does not fit int32");
        assert_eq!(says("IN float x", "1e300"), "1e+300 does not fit float32");
        assert_eq!(says("IN double a[n][n]", "[[1,2],[3]]"), "an array has rows of 2 and of 1 elements");
        assert_eq!(says("IN double a[n][n]", "[[1,2],3]"), "an array has rows of different depth");
        assert_eq!(says("IN double x", "[1]"), "expected a number, got an array");
        assert!(says("IN double x", "one").starts_with("'one' is not a number or an array: "));
    }

    #[test]
    fn both_memory_orders_and_byte_orders_print_alike() {
        let other = if ByteOrder::NATIVE == ByteOrder::Little { ByteOrder::Big } else { ByteOrder::Little };
        let columns: Vec<u8> = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0f64]
            .iter()
            .flat_map(|x| {
                let mut bytes = x.to_ne_bytes();
                bytes.reverse();
                bytes
            })
            .collect();
        let meta = Meta::Array { dtype: Dtype::Float64, byte_order: other, order: Order::F, shape: vec![2, 3] };
        let value = Value::new(meta, Payload::copied(&columns)).unwrap();
        assert_eq!(to_json(&value).unwrap().to_string(), "[[1.0,2.0,3.0],[4.0,5.0,6.0]]");
    }
}
