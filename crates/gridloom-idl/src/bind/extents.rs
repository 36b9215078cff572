//! The extents of a call's arrays, computed from its sizes. Callers and servers share this check and its messages.

use super::error::BindError;
use crate::evaluation::{EvalError, EvalFailure};
use crate::expr::Expr;
use crate::scalar::scalar_value;
use crate::signature::{BaseType, Mode, Param, Signature};
use gridloom_base::limits::CALLBACK_BYTES_MAX;
use gridloom_base::{Dtype, Meta, list};

/// The known sizes of one call.
pub(super) struct Sizes<'a> {
    pub(super) signature: &'a Signature,
    /// Description and bytes of each parameter that is a scalar or text with a known value.
    pub(super) scalars: Vec<Option<(Meta, Vec<u8>)>>,
    /// The array parameter from which each size was inferred.
    pub(super) source: Vec<Option<usize>>,
}

impl Signature {
    /// Returns the extents of the arrays, `None` for other parameters, for a caller that has the sizes and needs to know how much
    /// memory the arrays take. `scalars` are the known ones, by parameter, in this machine's byte order.
    ///
    /// # Errors
    /// If an extent has no value or an invalid one, or an array is larger than 2⁶⁴ bytes.
    pub fn shapes(&self, scalars: Vec<Option<(Meta, Vec<u8>)>>) -> Result<Vec<Option<Vec<u64>>>, BindError> {
        let sizes = Sizes { signature: self, scalars, source: vec![None; self.params.len()] };
        let shape = |(index, param): (usize, &Param)| {
            if !param.is_array || param.mode == Mode::VarOut {
                return Ok(None);
            }
            let shape = sizes.extents(index)?;
            match Meta::array(in_memory(param.base), &shape).checked_size_bytes() {
                Some(_) => Ok(Some(shape)),
                None => Err(sizes.malformed(param, "its size is past 2^64 bytes".to_string())),
            }
        };
        self.params.iter().enumerate().map(shape).collect()
    }

    /// Returns the descriptions of a callback's arguments and results, as they are stored in this machine's memory: strings are
    /// pointers there. `scalars` are as for [`Signature::shapes`].
    ///
    /// # Errors
    /// Same as [`Signature::shapes`].
    pub fn callback_metas(
        &self,
        callback: usize,
        scalars: Vec<Option<(Meta, Vec<u8>)>>,
    ) -> Result<Vec<Meta>, BindError> {
        let sizes = Sizes { signature: self, scalars, source: vec![None; self.params.len()] };
        let mut left = CALLBACK_BYTES_MAX;
        let meta = |param: &Param| {
            let meta = Meta::array(in_memory(param.base), &sizes.extents_of(param)?);
            match meta.checked_size_bytes().and_then(|size_bytes| left.checked_sub(size_bytes)) {
                Some(rest) => left = rest,
                None => {
                    let why = format!("with {meta} its callback is past the limit of {CALLBACK_BYTES_MAX} bytes");
                    return Err(sizes.malformed(param, why));
                }
            }
            Ok(meta)
        };
        self.callbacks[callback].params.iter().map(meta).collect()
    }
}

/// The type of an array's elements in the function's memory: elements that are not numbers are pointers.
fn in_memory(base: BaseType) -> Dtype {
    match base {
        BaseType::Number(dtype) => dtype,
        _ => Dtype::Uint64,
    }
}

impl Sizes<'_> {
    /// Starts without any known size.
    pub(super) fn unknown(signature: &Signature) -> Sizes<'_> {
        let count = signature.params.len();
        Sizes { signature, scalars: vec![None; count], source: vec![None; count] }
    }

    /// Checks the number of dimensions of an array.
    pub(super) fn check_dimensions(&self, param: &Param, shape: &[u64]) -> Result<(), BindError> {
        if shape.len() == param.dims.len() {
            return Ok(());
        }
        let dimensions = if param.dims.len() == 1 { "dimension" } else { "dimensions" };
        let expected = format!("{} of {} {dimensions}", self.symbolic(param), param.dims.len());
        Err(self.shape_error(param, shape, expected))
    }

    /// Checks the extents of an array, which has the right number of dimensions, against those of the signature.
    pub(super) fn check_shape(&self, index: usize, shape: &[u64]) -> Result<(), BindError> {
        let param = &self.signature.params[index];
        let expected = self.extents(index)?;
        if expected == shape {
            return Ok(());
        }
        let differing: Vec<usize> = (0..shape.len()).filter(|dim| expected[*dim] != shape[*dim]).collect();
        let blamed = |size: usize| differing.iter().any(|dim| param.dims[*dim].params().contains(&size));
        // A size that was inferred from this array, and agrees with it, is printed as a name.
        let numbers: Vec<String> = (0..shape.len())
            .map(|dim| match &param.dims[dim] {
                Expr::Param(size) if self.source[*size] == Some(index) && !blamed(*size) => {
                    self.signature.params[*size].name.clone()
                }
                _ => expected[dim].to_string(),
            })
            .collect();
        let mut origins: Vec<usize> = differing.iter().flat_map(|dim| param.dims[*dim].params()).collect();
        origins.sort_unstable();
        origins.dedup();
        let origins: Vec<String> = origins.into_iter().map(|size| self.origin(size)).collect();
        let origins = if origins.is_empty() { String::new() } else { format!(" ({})", origins.join(", ")) };
        let symbolic = self.symbolic(param);
        let numbers = format!("[{}]", numbers.join(", "));
        let text = if symbolic == numbers { numbers } else { format!("{symbolic} = {numbers}{origins}") };
        Err(self.shape_error(param, shape, text))
    }

    /// Checks the items of a list against the extents of the signature.
    pub(super) fn check_items(&self, index: usize, packed: &[u8]) -> Result<(), BindError> {
        let param = &self.signature.params[index];
        let expected = self.extents(index)?;
        let count = expected.iter().try_fold(1u64, |count, extent| count.checked_mul(*extent));
        match list::unpack(packed).map(|items| items.len() as u64) {
            Some(items) if Some(items) == count => Ok(()),
            Some(items) => {
                let text = format!("{} = {expected:?}", self.symbolic(param));
                Err(self.shape_error(param, &[items], text))
            }
            None => Err(self.malformed(param, "its bytes are not a list".to_string())),
        }
    }

    /// `k = 3 from argument 'a'`.
    fn origin(&self, size: usize) -> String {
        let name = &self.signature.params[size].name;
        let value = scalar_value(&self.scalars, size).map_or_else(|| "?".to_string(), |value| value.to_string());
        match self.source[size] {
            Some(array) => format!("{name} = {value} from argument '{}'", self.signature.params[array].name),
            None => format!("{name} = {value} as given"),
        }
    }

    pub(super) fn extents(&self, index: usize) -> Result<Vec<u64>, BindError> {
        self.strides(index)?;
        self.extents_of(&self.signature.params[index])
    }

    fn extents_of(&self, param: &Param) -> Result<Vec<u64>, BindError> {
        let extent = |(at, dim): (usize, &Expr)| {
            let what = || format!("extent {} of '{}'", at + 1, param.name);
            dim.extent_of(&self.signature.params, &self.scalars).map_err(|error| self.eval_error(error, what()))
        };
        param.dims.iter().enumerate().map(extent).collect()
    }

    pub(super) fn eval_error(&self, error: EvalError, what: String) -> BindError {
        match error.failure {
            EvalFailure::NeedsValue { name, .. } => BindError::NeedsValue { function: self.function(), param: name },
            _ => BindError::Value { function: self.function(), what, why: error.to_string() },
        }
    }

    pub(super) fn shape_error(&self, param: &Param, shape: &[u64], expected: String) -> BindError {
        BindError::Shape { function: self.function(), param: param.name.clone(), expected, got: format!("{shape:?}") }
    }

    pub(super) fn malformed(&self, param: &Param, why: String) -> BindError {
        BindError::Malformed { function: self.function(), param: param.name.clone(), why }
    }

    pub(super) fn symbolic(&self, param: &Param) -> String {
        let dims: Vec<String> = param.dims.iter().map(|dim| dim.display(&self.signature.params).to_string()).collect();
        format!("[{}]", dims.join(", "))
    }

    pub(super) fn function(&self) -> String {
        self.signature.name.clone()
    }
}

pub(super) fn wanted(param: &Param) -> String {
    match (param.base, param.is_array) {
        (BaseType::Number(dtype), true) => format!("an array of {dtype}"),
        (BaseType::Number(dtype), false) => dtype.number(),
        (BaseType::Text | BaseType::String, false) => "a string".to_string(),
        (BaseType::Text | BaseType::String, true) => "a list of strings".to_string(),
        (BaseType::Bytes, _) => "bytes".to_string(),
        (BaseType::File | BaseType::Stream, false) => "the content of a file (bytes)".to_string(),
        (BaseType::File | BaseType::Stream, true) => "a list of contents of files".to_string(),
    }
}

pub(super) fn described(meta: &Meta) -> String {
    match meta {
        Meta::Scalar { dtype, .. } => dtype.number(),
        Meta::Text { .. } => "a string".to_string(),
        Meta::Bytes { .. } => "bytes".to_string(),
        Meta::List { .. } => "a list".to_string(),
        Meta::Array { dtype, .. } => format!("an array of {dtype}"),
    }
}
