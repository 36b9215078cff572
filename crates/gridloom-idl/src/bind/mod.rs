//! Checks a call against its signature, on the caller's side, before anything is sent.
//!
//! Arguments are given by position, by name, or both. Positional arguments are assigned either to the positional parameters
//! ([`Signature::positional`]) from the first on or, as in GridRPC, to all inputs that are not hidden, sizes
//! included. The other arguments may be given by name. A size that is not given is inferred from the first array that has it
//! as an extent. The extent may be the size itself, or a conditional that selects it by known values. Every other
//! array is checked against it.
//!
//! Scalars are converted if their value stays exactly the same ([`super::scalar`] has the rule). A text of one ASCII letter
//! is a number of 8 bits, as in C. A remote scalar must have the parameter's type already. Arrays are never converted here:
//! type, number of dimensions and extents must fit. Their memory order and byte order are free: the receiver converts them.

pub mod check_call;
pub mod error;
mod extents;
mod shared;
pub mod slices;
#[cfg(test)]
mod tests;
mod values;

use crate::bind::error::BindError;
use crate::bind::extents::{Sizes, described, wanted};
use crate::expr::Expr;
use crate::scalar::{Scalar, scalar_value};
use crate::signature::{BaseType, Mode, Param, Signature};
use crate::uses::UsedName;
use gridloom_base::near::{did_you_mean, near_names};
use gridloom_base::{ByteOrder, Dtype, Meta, Order, list};

/// The caller's argument for one parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct ActualArgument {
    /// Its description.
    pub meta: Meta,
    /// Bytes of a scalar or text that is known now; `None` for an array or a remote value.
    pub inline: Option<Vec<u8>>,
}

/// A call that fits its signature.
#[derive(Clone, PartialEq, Debug)]
pub struct BoundCall {
    /// Description and bytes of each parameter, in this machine's byte order, if it is a scalar or text input with a
    /// known value, inferred ones included; else `None`.
    pub scalars: Vec<Option<(Meta, Vec<u8>)>>,
    /// Index and result description of each `OUT` and `INOUT` parameter, in order.
    pub outputs: Vec<(usize, Meta)>,
    /// Work in floating-point operations, if the signature states it.
    pub work_flops: Option<f64>,
    /// Shared data that the call gets and puts, if they are declared and known.
    pub uses: Vec<UsedName>,
    /// Index of the caller's argument for each `IN` and `INOUT` parameter in order (hidden ones included), positional arguments
    /// first and then named ones, or `None` if its value was inferred.
    pub actual_of: Vec<Option<usize>>,
}

impl Signature {
    /// Checks a call and completes it.
    ///
    /// # Errors
    /// The first mismatch.
    pub fn bind(
        &self,
        positional: &[ActualArgument],
        named: &[(String, ActualArgument)],
    ) -> Result<BoundCall, BindError> {
        let given = self.assign(positional.len(), named)?;
        let actual =
            |index: usize| given[index].map(|at| positional.get(at).unwrap_or_else(|| &named[at - positional.len()].1));
        let mut binding = CallCheck(Sizes::unknown(self));
        for index in self.inputs() {
            if let Some(actual) = actual(index) {
                binding.check_kind(index, actual)?;
            }
        }
        for index in self.inputs() {
            if let Some(actual) = actual(index) {
                binding.infer_from(index, actual, &given)?;
            }
        }
        for index in self.inputs() {
            if let Some(actual) = actual(index) {
                binding.check_shape(index, actual)?;
            }
        }
        binding.0.check_scalars()?;
        let given_bytes = |index: usize| actual(index).map(|actual| actual.meta.size_bytes() as f64);
        let mut outputs = Vec::new();
        for (index, param) in self.params.iter().enumerate() {
            if param.is_output() || param.mode == Mode::Work {
                let likely = param
                    .likely_bytes
                    .as_ref()
                    .map(|size| binding.estimate(size, &given_bytes, &format!("likely size of '{}'", param.name)));
                let meta = binding.output(index, actual(index), likely.transpose()?.map_or(0, |bytes| bytes as u64))?;
                if param.is_output() {
                    outputs.push((index, meta));
                }
            }
        }
        let work_flops =
            self.work.as_ref().map(|work| binding.estimate(work, &given_bytes, "work (CalcOrder)")).transpose()?;
        let actual_of = self.inputs().map(|index| given[index]).collect();
        let uses = binding.0.uses()?;
        Ok(BoundCall { scalars: binding.0.scalars, outputs, work_flops, uses, actual_of })
    }

    /// Assigns arguments to parameters.
    fn assign(&self, count: usize, named: &[(String, ActualArgument)]) -> Result<Vec<Option<usize>>, BindError> {
        let function = || self.name.clone();
        let short = self.positional();
        let full: Vec<usize> = self.inputs().filter(|index| !self.params[*index].hidden).collect();
        let order = if count == full.len() { &full } else { &short };
        if count > order.len() {
            let expected = if full.len() > short.len() {
                format!("{}, or {} with the sizes", short.len(), full.len())
            } else {
                short.len().to_string()
            };
            return Err(BindError::Count { function: function(), expected, got: count, signature: self.to_string() });
        }
        let mut given = vec![None; self.params.len()];
        for (at, index) in order.iter().take(count).enumerate() {
            given[*index] = Some(at);
        }
        for (at, (name, _)) in named.iter().enumerate() {
            let Some(index) = self.inputs().find(|index| self.params[*index].name == *name) else {
                let inputs = self.inputs().map(|index| self.params[index].name.as_str());
                let near = did_you_mean(&near_names(name, inputs));
                let (name, signature) = (name.clone(), self.to_string());
                return Err(BindError::UnknownName { function: function(), name, near, signature });
            };
            if given[index].is_some() {
                return Err(BindError::GivenTwice { function: function(), name: name.clone() });
            }
            given[index] = Some(count + at);
        }
        let missing: Vec<String> = short
            .iter()
            .filter(|index| given[**index].is_none())
            .map(|index| format!("'{}'", self.params[*index].name))
            .collect();
        if !missing.is_empty() {
            let noun = if missing.len() == 1 { "argument" } else { "arguments" };
            let missing = format!("{noun} {}", missing.join(", "));
            return Err(BindError::Missing { function: function(), missing, signature: self.to_string() });
        }
        Ok(given)
    }
}

/// A call while it is being checked.
struct CallCheck<'a>(Sizes<'a>);

impl CallCheck<'_> {
    /// Checks extents, now that the sizes are known.
    fn check_shape(&self, index: usize, actual: &ActualArgument) -> Result<(), BindError> {
        let param = &self.0.signature.params[index];
        match (&actual.meta, &actual.inline) {
            (Meta::Array { shape, .. }, _) if param.is_array => self.0.check_shape(index, shape),
            (Meta::List { .. }, Some(packed)) if param.is_list() => self.0.check_items(index, packed),
            _ => Ok(()),
        }
    }

    /// Checks kind, element type and number of dimensions; stores the value of a scalar.
    fn check_kind(&mut self, index: usize, actual: &ActualArgument) -> Result<(), BindError> {
        let param = &self.0.signature.params[index];
        let wrong = |remedy: String| {
            let expected = wanted(param);
            let got = described(&actual.meta);
            Err(BindError::Type { function: self.0.function(), param: param.name.clone(), expected, got, remedy })
        };
        match (&actual.meta, param.base) {
            (Meta::Array { dtype, shape, .. }, BaseType::Number(want)) if param.is_array => {
                if *dtype != want {
                    return wrong(format!("; convert it with .astype(numpy.{want})"));
                }
                self.0.check_dimensions(param, shape)?;
                if actual.meta.checked_size_bytes().is_none() {
                    return Err(self.0.malformed(param, "its size is past 2^64 bytes".to_string()));
                }
                Ok(())
            }
            (Meta::Scalar { dtype, byte_order }, BaseType::Number(want)) if !param.is_array => {
                self.take_scalar(index, *dtype, *byte_order, want, actual.inline.as_deref())
            }
            (Meta::Array { dtype, byte_order, shape, .. }, BaseType::Number(want))
                if !param.is_array && shape.is_empty() && actual.inline.is_some() =>
            {
                self.take_scalar(index, *dtype, *byte_order, want, actual.inline.as_deref())
            }
            (Meta::Text { .. }, BaseType::Number(want @ (Dtype::Int8 | Dtype::Uint8))) if !param.is_array => {
                match actual.inline.as_deref() {
                    Some([letter]) if letter.is_ascii() => {
                        self.0.scalars[index] = Some((Meta::scalar(want), vec![*letter]));
                        Ok(())
                    }
                    _ => wrong("; a text of one ASCII letter represents its number".to_string()),
                }
            }
            (meta, _) if param.holds(meta) => self.take_bytes(index, actual),
            // A result whose call has not run yet.
            (Meta::Bytes { size_bytes: 0 }, BaseType::Number(_)) if actual.inline.is_none() => {
                wrong("; the size of a VAROUT result is not known before its call has run: pass its .get()".to_string())
            }
            _ => wrong(String::new()),
        }
    }

    /// Stores a text, a string, bytes or a file.
    fn take_bytes(&mut self, index: usize, actual: &ActualArgument) -> Result<(), BindError> {
        let Some(bytes) = &actual.inline else { return Ok(()) };
        let param = &self.0.signature.params[index];
        if bytes.len() as u64 != actual.meta.size_bytes() {
            let why = format!("{} bytes of {} given", bytes.len(), actual.meta.size_bytes());
            return Err(self.0.malformed(param, why));
        }
        if matches!(actual.meta, Meta::Text { .. }) && std::str::from_utf8(bytes).is_err() {
            return Err(self.0.malformed(param, "its text is not UTF-8".to_string()));
        }
        if let (BaseType::String, false, Some(at)) =
            (param.base, param.is_array, bytes.iter().position(|byte| *byte == 0))
        {
            let why = format!("its byte {} is zero, where a C string ends; cut it there, or pass an array", at + 1);
            return Err(BindError::Value {
                function: self.0.function(),
                what: format!("argument '{}'", param.name),
                why,
            });
        }
        self.0.scalars[index] = Some((actual.meta.clone(), bytes.clone()));
        Ok(())
    }

    fn take_scalar(
        &mut self,
        index: usize,
        dtype: Dtype,
        byte_order: ByteOrder,
        want: Dtype,
        inline: Option<&[u8]>,
    ) -> Result<(), BindError> {
        let param = &self.0.signature.params[index];
        let (function, name) = (self.0.function(), param.name.clone());
        let convertible = dtype == want || kind_converts(dtype, want);
        let Some(bytes) = inline else {
            return match (dtype == want, convertible) {
                (true, _) => Ok(()),
                (false, true) => Err(BindError::NeedsValue { function, param: name }),
                (false, false) => Err(self.kind_error(param, dtype, want)),
            };
        };
        if bytes.len() as u64 != dtype.size_bytes() {
            let why = format!("{} bytes given for {dtype}, which has {}", bytes.len(), dtype.size_bytes());
            return Err(self.0.malformed(param, why));
        }
        let verbatim = dtype == want && byte_order == ByteOrder::NATIVE;
        if verbatim {
            self.0.scalars[index] = Some((Meta::scalar(want), bytes.to_vec()));
            return Ok(());
        }
        if !convertible {
            return Err(self.kind_error(param, dtype, want));
        }
        let Some(value) = Scalar::read(dtype, byte_order, bytes) else {
            return Err(self.0.malformed(param, format!("{dtype} does not change byte order; convert it to float64")));
        };
        let Some(converted) = value.write(want) else {
            let remedy = match want {
                Dtype::Float16 | Dtype::Float32 | Dtype::Complex64 => format!("; round it with numpy.{want}(...)"),
                _ => String::new(),
            };
            let (expected, got) = (want.to_string(), format!("{value} ({dtype})"));
            return Err(BindError::NotExact { function, param: name, expected, got, remedy });
        };
        self.0.scalars[index] = Some((Meta::scalar(want), converted));
        Ok(())
    }

    /// Infers sizes that the caller left out from an array's extents.
    fn infer_from(&mut self, index: usize, actual: &ActualArgument, given: &[Option<usize>]) -> Result<(), BindError> {
        let signature = self.0.signature;
        let param = &signature.params[index];
        let shape = match (&actual.meta, &actual.inline) {
            (Meta::Array { shape, .. }, _) if param.is_array => shape.clone(),
            (Meta::List { .. }, Some(packed)) if param.is_list() && param.dims.len() == 1 => {
                list::unpack(packed).iter().map(|items| items.len() as u64).collect()
            }
            _ => return Ok(()),
        };
        for (dim, extent) in param.dims.iter().zip(&shape) {
            let Some(size) = self.size_named(dim) else { continue };
            if given[size].is_some() || self.0.scalars[size].is_some() {
                continue;
            }
            let BaseType::Number(dtype) = signature.params[size].base else { continue };
            let Some(bytes) = Scalar::Integer(i128::from(*extent)).write(dtype) else {
                let name = &signature.params[size].name;
                let expected = format!("{} with an extent {name} that fits {dtype}", self.0.symbolic(param));
                return Err(self.0.shape_error(param, &shape, expected));
            };
            self.0.scalars[size] = Some((Meta::scalar(dtype), bytes));
            self.0.source[size] = Some(index);
        }
        Ok(())
    }

    /// Returns the size that an extent stands for, by itself or as the branch of a conditional with a known condition.
    fn size_named(&self, extent: &Expr) -> Option<usize> {
        match extent {
            Expr::Param(size) => Some(*size),
            Expr::Conditional(condition, then, otherwise) => {
                let is_true = condition.extent_of(&self.0.signature.params, &self.0.scalars).ok()? != 0;
                self.size_named(if is_true { then } else { otherwise })
            }
            _ => None,
        }
    }

    fn output(&self, index: usize, actual: Option<&ActualArgument>, likely_bytes: u64) -> Result<Meta, BindError> {
        let param = &self.0.signature.params[index];
        let dtype = match (param.unknown_result(likely_bytes), param.base) {
            (Some(unknown), _) => return Ok(unknown),
            (None, BaseType::Number(dtype)) => dtype,
            (None, _) => unreachable!("only a number's size is known before"),
        };
        if !param.is_array {
            return Ok(Meta::scalar(dtype));
        }
        let order = match (param.order.in_memory(), actual.map(|actual| &actual.meta)) {
            (Some(order), _) => order,
            (None, Some(Meta::Array { order, .. })) => *order,
            (None, _) => Order::C,
        };
        let shape = self.0.extents(index)?;
        let meta = Meta::Array { dtype, byte_order: ByteOrder::NATIVE, order, shape };
        if meta.checked_size_bytes().is_none() {
            let what = format!("array '{}' of shape {}", param.name, self.0.symbolic(param));
            return Err(BindError::Value {
                function: self.0.function(),
                what,
                why: format!("{meta} is past 2^64 bytes"),
            });
        }
        Ok(meta)
    }

    /// Evaluates the work, or a likely size. For a text, bytes or a file it uses the size in bytes.
    fn estimate(&self, expr: &Expr, given_bytes: &dyn Fn(usize) -> Option<f64>, what: &str) -> Result<f64, BindError> {
        let params = &self.0.signature.params;
        let value = |index: usize| match params[index].base {
            BaseType::Number(_) => scalar_value(&self.0.scalars, index).and_then(Scalar::real),
            _ => given_bytes(index),
        };
        let found = expr.evaluate_real(params, &value).map_err(|error| self.0.eval_error(error, what.to_string()))?;
        if found.is_finite() && found >= 0.0 {
            return Ok(found);
        }
        if found.is_nan() {
            // For example n log n with n = 0.
            return Ok(0.0);
        }
        let why = format!("expression '{}' is {found}, expected a finite number, 0 or more", expr.display(params));
        Err(BindError::Value { function: self.0.function(), what: what.to_string(), why })
    }

    fn kind_error(&self, param: &Param, got: Dtype, want: Dtype) -> BindError {
        let (expected, got) = (want.number(), got.number());
        BindError::Type { function: self.0.function(), param: param.name.clone(), expected, got, remedy: String::new() }
    }
}

/// True if some value of one type is exactly a value of the other.
fn kind_converts(from: Dtype, to: Dtype) -> bool {
    let complex = |dtype| matches!(dtype, Dtype::Complex64 | Dtype::Complex128);
    let real = |dtype: Dtype| dtype.is_integer() || dtype.is_real();
    (real(from) && (real(to) || complex(to))) || (complex(from) && complex(to)) || (from == to && from == Dtype::Bool)
}
