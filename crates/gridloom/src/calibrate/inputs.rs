//! Generated arguments, for calls that only measure.
//!
//! Numbers are random in [0, 1), drawn from a fixed seed. Square matrices get their order added to the diagonal, so
//! that systems can be solved and matrices factored. Integers are 0 or 1, which are valid indices everywhere. Scalars that are
//! not sizes are 1. If a function needs anything else, its caller provides it.

use std::collections::BTreeMap;

use gridloom_base::limits::INLINE_BYTES_MAX;
use gridloom_base::{ByteOrder, Dtype, Meta, Order, SplitMix64};
use gridloom_idl::{BaseType, Mode, Param, Signature};
use gridloom_net::payload::Payload;
use gridloom_perf::Size;

use crate::call::{Arg, Function};
use crate::{Error, Value};

/// Values of the size arguments of a call, by name.
pub type Sizes = BTreeMap<String, i64>;

/// Makes the arguments of a call by name, for the given sizes. Sizes that follow from other arguments may be omitted.
pub type Make<'a> = dyn FnMut(&Sizes) -> Result<Vec<(String, Arg)>, Error> + 'a;

/// Smallest value of a size without a given range.
const SIZE_MIN: i64 = 16;
/// Largest value of a size without a given range, if the arrays fit into memory.
const SIZE_MAX: i64 = 1 << 20;
/// Maximum total size of the arrays of one call, unless a range was given.
const CALL_BYTES_MAX: u64 = 256 << 20;

/// Returns the integer arguments that determine array extents or the work.
pub(crate) fn size_names(signature: &Signature) -> Vec<String> {
    let used = signature.params.iter().flat_map(|param| &param.dims).chain(&signature.work);
    let mut used: Vec<usize> = used.flat_map(|expr| expr.params()).collect();
    used.sort_unstable();
    used.dedup();
    used.into_iter().map(|index| &signature.params[index]).filter(|p| is_size(p)).map(|p| p.name.clone()).collect()
}

/// True if the parameter is a scalar integer input, for which a range can be given.
pub(crate) fn is_size(param: &Param) -> bool {
    matches!(param.base, BaseType::Number(dtype) if dtype.is_integer()) && !param.is_array && param.mode == Mode::In
}

/// Returns the default range of a size: up to what fits into memory.
pub(crate) fn default_range(
    function: &Function,
    fixed: &Sizes,
    set: &BTreeMap<String, Value>,
    memory_bytes: u64,
) -> (i64, i64) {
    let names = size_names(function.signature());
    let limit_bytes = CALL_BYTES_MAX.min(memory_bytes / 8);
    let fits = |size: i64| {
        let sizes = names.iter().map(|name| (name.clone(), fixed.get(name).copied().unwrap_or(size))).collect();
        matches!(arguments(function, &sizes, set, false), Ok(args) if call_size(function, &args).is_ok_and(|(_, bytes)| bytes <= limit_bytes))
    };
    let mut largest = SIZE_MAX;
    while largest > 1 && !fits(largest) {
        largest /= 2;
    }
    (SIZE_MIN.min(largest), largest)
}

/// Returns the size of a call as the models use it, and the bytes that it reads and writes.
pub(crate) fn call_size(function: &Function, args: &[(String, Arg)]) -> Result<(Size, u64), Error> {
    let bound = function.bind(&[], args)?;
    let read = args.iter().map(|(_, arg)| match arg {
        Arg::Value(value) => &value.meta,
        Arg::Handle(handle) => handle.meta(),
    });
    // Small values travel with the task and are not data of their own.
    let read = read.filter(|meta| matches!(meta, Meta::Array { .. }) || meta.size_bytes() > INLINE_BYTES_MAX as u64);
    let metas = read.chain(bound.outputs.iter().map(|(_, meta)| meta));
    let bytes = metas.map(|meta| meta.checked_size_bytes().unwrap_or(u64::MAX)).fold(0, u64::saturating_add);
    Ok((Size::new(bound.work_flops, bytes), bytes))
}

/// Makes arguments of the given sizes, with or without content.
pub(crate) fn arguments(
    function: &Function,
    sizes: &Sizes,
    set: &BTreeMap<String, Value>,
    has_content: bool,
) -> Result<Vec<(String, Arg)>, Error> {
    let signature = function.signature();
    let mut random = SplitMix64::new(1);
    let mut args: Vec<(String, Arg)> = Vec::new();
    let value_of = |index: usize| {
        let param = &signature.params[index];
        sizes.get(&param.name).map(|size| i128::from(*size)).or(is_size(param).then_some(1))
    };
    for param in signature.params.iter().filter(|param| param.is_input()) {
        let value = match (sizes.get(&param.name), set.get(&param.name)) {
            (Some(size), _) => Value::from(*size),
            (None, Some(value)) => value.clone(),
            (None, None) => match (param.base, param.is_array) {
                (BaseType::Number(dtype), true) => {
                    let extents = param.dims.iter().map(|dim| dim.evaluate_extent(&signature.params, &value_of));
                    let shape = extents.collect::<Result<Vec<u64>, _>>().map_err(|error| {
                        Error::Usage(format!(
                            "{}: extents of '{}': {error}; choose other sizes",
                            signature.name, param.name
                        ))
                    })?;
                    let order = param.order.in_memory().unwrap_or(Order::C);
                    let meta = Meta::Array { dtype, byte_order: ByteOrder::NATIVE, order, shape };
                    if has_content { random_array(meta, &mut random)? } else { Value::placeholder(meta) }
                }
                (BaseType::Number(_), false) => Value::from(1i64),
                _ => {
                    let (function, name) = (&signature.name, &param.name);
                    let why = "is not a number, so no value can be chosen for it";
                    return Err(Error::Usage(format!("{function}: argument '{name}' {why}; set it ({name}=VALUE)")));
                }
            },
        };
        args.push((param.name.clone(), value.into()));
    }
    Ok(args)
}

fn random_array(meta: Meta, random: &mut SplitMix64) -> Result<Value, Error> {
    let Meta::Array { dtype, shape, .. } = &meta else { unreachable!("made by the caller") };
    let size_bytes = meta.checked_size_bytes().and_then(|bytes| usize::try_from(bytes).ok());
    let size_bytes = size_bytes.ok_or_else(|| Error::Usage(format!("{meta} is more than memory can hold")))?;
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(size_bytes)
        .map_err(|_| Error::Usage(format!("no memory for {meta}; choose smaller sizes")))?;
    let order = match shape[..] {
        [rows, columns] if rows == columns => rows,
        _ => 0,
    };
    let count = shape.iter().product::<u64>();
    for index in 0..count {
        let is_diagonal = order > 0 && index % (order + 1) == 0;
        let number = random.unit() + if is_diagonal { order as f64 } else { 0.0 };
        match dtype {
            Dtype::Float64 => bytes.extend(number.to_ne_bytes()),
            Dtype::Float32 => bytes.extend((number as f32).to_ne_bytes()),
            Dtype::Complex128 => bytes.extend([number, 0.0].map(f64::to_ne_bytes).concat()),
            Dtype::Complex64 => bytes.extend([number as f32, 0.0].map(f32::to_ne_bytes).concat()),
            // For the other types only the bit patterns of 0 and of the integers 0 and 1 are needed; half precision
            // has its own pattern for 1.
            Dtype::Float16 => bytes.extend(if number < 0.5 { 0u16 } else { 0x3c00 }.to_ne_bytes()),
            Dtype::LongDouble | Dtype::ComplexLongDouble => bytes.resize(bytes.len() + dtype.size_bytes() as usize, 0),
            integer => {
                let mut element = vec![0; integer.size_bytes() as usize];
                let lowest = if cfg!(target_endian = "big") { element.len() - 1 } else { 0 };
                element[lowest] = u8::from(number >= 0.5);
                bytes.extend(element);
            }
        }
    }
    Value::new(meta, Payload::Inline(bytes.into()))
}
