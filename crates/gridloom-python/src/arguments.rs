//! Converts Python objects to arguments of calls.
//!
//! Arrays are copied once, into shared memory if they are large, so the program may change them afterwards.
//! Arrays of `Grid.empty` are not copied. The bits of every element are preserved, including byte order and NaNs.

use std::path::PathBuf;
use std::sync::Arc;

use gridloom::{Arg, Grid, Value};
use gridloom_base::limits::{EAGER_BYTES_MAX, INLINE_BYTES_MAX};
use gridloom_base::{Dtype, Meta, Order};
use gridloom_idl::{BaseType, Param, Signature};
use gridloom_net::payload::Payload;
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyComplex, PyComplexMethods, PyDict, PyFloat, PyInt, PyString, PyTuple,
};

use crate::errors::{OrRaise, error};
use crate::handle::RawHandle;
use crate::import;
use crate::memory::{Keeper, Memory, element_of};
use crate::results::to_python;
use crate::snapshots::{FileState, Snapshots};
use crate::wait::detached;

/// The destination of arguments.
pub(crate) struct Target<'a> {
    pub(crate) grid: &'a Grid,
    pub(crate) signature: &'a Signature,
    /// True if the bytes do not matter: in a simulation without bodies.
    pub(crate) describes_only: bool,
    pub(crate) snapshots: Option<&'a Snapshots>,
}

/// Arguments by position, and by name.
pub(crate) type Arguments = (Vec<Arg>, Vec<(String, Arg)>);

impl Target<'_> {
    pub(crate) fn arguments(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Arguments> {
        let signature = self.signature;
        let is_given = |param: &Param| param.is_input() && !param.hidden;
        let full: Vec<usize> =
            (0..signature.params.len()).filter(|index| is_given(&signature.params[*index])).collect();
        let order = if args.len() == full.len() { full } else { signature.positional() };
        let mut positional = Vec::with_capacity(args.len());
        for (at, object) in args.iter().enumerate() {
            let param = order.get(at).map(|index| &signature.params[*index]);
            positional.push(self.argument(&object, param)?);
        }
        let mut named = Vec::new();
        for (name, object) in kwargs.into_iter().flatten() {
            let name: String = name.extract()?;
            let param = signature.params.iter().find(|param| param.name == name && param.is_input());
            named.push((name, self.argument(&object, param)?));
        }
        Ok((positional, named))
    }

    pub(crate) fn argument(&self, object: &Bound<'_, PyAny>, param: Option<&Param>) -> PyResult<Arg> {
        let py = object.py();
        if let Ok(array) = object.cast::<PyUntypedArray>() {
            return self.array(array, param).map(Arg::Value);
        }
        if let Some(param) = param.filter(|param| param.is_list())
            && object.getattr_opt("_raw")?.is_none()
        {
            return self.list(object, param).map(Arg::Value);
        }
        if let Some(param @ Param { base: BaseType::File | BaseType::Stream, .. }) = param
            && let Some(value) = self.file(object, param)?
        {
            return Ok(Arg::Value(value));
        }
        if let Some(value) = self.plain(object, param)? {
            return Ok(Arg::Value(value));
        }
        if let Some(raw) = object.getattr_opt("_raw")? {
            if let Ok(handle) = raw.cast::<RawHandle>() {
                return Ok(Arg::Handle(handle.get().live(py)?));
            }
            return Err(self.refused(object, param, "; pass its .get()"));
        }
        let array =
            import(py, "numpy")?.call_method1("asarray", (object,)).map_err(|_| self.refused(object, param, ""))?;
        let array = self.widened(object, array, param)?;
        let array = array.cast::<PyUntypedArray>()?;
        if element_of(&array.dtype()).is_none() {
            return Err(self.refused(object, param, ""));
        }
        self.array(array, param).map(Arg::Value)
    }

    /// Converts a list of Python numbers, which has no element type of its own, to the parameter's type if that is lossless.
    fn widened<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        array: Bound<'py, PyAny>,
        param: Option<&Param>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(Param { base: BaseType::Number(want), is_array: true, .. }) = param else { return Ok(array) };
        if array.getattr("ndim")?.extract::<usize>()? > 0 && object.hasattr("dtype")? {
            return Ok(array);
        }
        let numpy = import(object.py(), "numpy")?;
        let wanted = numpy.call_method1("dtype", (want.name(),))?;
        let is_safe = numpy.call_method1("can_cast", (array.getattr("dtype")?, &wanted, "safe"))?;
        if is_safe.extract()? { array.call_method1("astype", (wanted,)) } else { Ok(array) }
    }

    /// Converts strings or files; `None` marks a missing one.
    fn list(&self, object: &Bound<'_, PyAny>, param: &Param) -> PyResult<Value> {
        let refused = |object: &Bound<'_, PyAny>| self.refused(object, Some(param), "");
        if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
            return Err(refused(object));
        }
        let mut items: Vec<Option<Vec<u8>>> = Vec::new();
        for item in object.try_iter().map_err(|_| refused(object))? {
            let item = item?;
            let is_file = param.base != BaseType::String;
            let file = if is_file && !item.is_none() { self.file(&item, param)? } else { None };
            items.push(match (item.cast::<PyString>(), item.cast::<PyBytes>(), file) {
                _ if item.is_none() => None,
                (_, _, Some(content)) => {
                    Some(content.payload().map_or_else(Vec::new, |payload| payload.bytes().to_vec()))
                }
                (Ok(text), ..) => Some(text.to_str().map_err(|_| refused(&item))?.as_bytes().to_vec()),
                (_, Ok(bytes), _) => Some(bytes.as_bytes().to_vec()),
                _ => return Err(refused(&item)),
            });
        }
        Ok(Value::list(items.iter().map(Option::as_deref)))
    }

    /// Reads the file at a path; `None` means no file.
    fn file(&self, object: &Bound<'_, PyAny>, param: &Param) -> PyResult<Option<Value>> {
        if object.is_none() {
            return Ok(Some(Value::text("")));
        }
        let is_path = object.is_instance_of::<PyString>() || object.hasattr("__fspath__")?;
        if !is_path {
            return Ok(None);
        }
        let (grid, function, name) = (self.grid.clone(), self.signature.name.clone(), param.name.clone());
        let path: PathBuf = object.extract()?;
        let state = FileState::of(&path);
        if let (Some(snapshots), Some(state)) = (self.snapshots, state)
            && let Some(known) = snapshots.file(state)
        {
            return Ok(Some(known));
        }
        let value = match path.metadata() {
            Ok(about) if self.describes_only => Value::placeholder(Meta::Bytes { size_bytes: about.len() }),
            _ => detached(object.py(), move || grid.file_argument(&function, &name, &path)).or_raise(object.py())?,
        };
        if let (Some(snapshots), Some(state)) = (self.snapshots, state) {
            snapshots.keep_file(state, value.clone());
        }
        Ok(Some(value))
    }

    /// Converts Python's own numbers and texts.
    fn plain(&self, object: &Bound<'_, PyAny>, param: Option<&Param>) -> PyResult<Option<Value>> {
        let is_string = param.is_some_and(|param| param.base == BaseType::String);
        if is_string && object.is_none() {
            // Empty bytes represent NULL; an empty text represents an empty string.
            return Ok(Some(Value::from(Arc::<[u8]>::from([]))));
        }
        if is_string && object.cast::<PyBytes>().is_ok_and(|bytes| bytes.as_bytes().is_empty()) {
            return Ok(Some(Value::text("")));
        }
        if let Ok(text) = object.cast::<PyString>() {
            let text = text.to_cow().map_err(|error| self.refused(object, param, &format!("; {error}")))?;
            return Ok(Some(Value::text(&text)));
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            let meta = Meta::Bytes { size_bytes: bytes.as_bytes().len() as u64 };
            let snapshots = self.snapshots.filter(|_| bytes.as_bytes().len() > INLINE_BYTES_MAX);
            if let Some(known) = snapshots.and_then(|snapshots| snapshots.object(object, &meta, &[])) {
                return Ok(Some(known));
            }
            let value = Value::from(Arc::<[u8]>::from(bytes.as_bytes()));
            if let Some(snapshots) = snapshots {
                snapshots.keep_object(object, meta, Vec::new(), value.clone());
            }
            return Ok(Some(value));
        }
        if let Ok(bytes) = object.cast::<PyByteArray>() {
            return Ok(Some(Value::from(Arc::<[u8]>::from(bytes.to_vec()))));
        }
        let want = match param {
            Some(Param { is_array: true, .. }) => return Ok(None),
            Some(Param { base: BaseType::Number(want), .. }) => Some(*want),
            _ => None,
        };
        if let Ok(truth) = object.cast_exact::<PyBool>() {
            return Ok(Some(Value::scalar(Dtype::Bool, &[u8::from(truth.is_true())])));
        }
        if object.is_exact_instance_of::<PyInt>() {
            if let Some(long @ (Dtype::LongDouble | Dtype::ComplexLongDouble)) = want {
                return numpy_scalar(object, long).map(Some);
            }
            if let Ok(small) = object.extract::<i64>() {
                return Ok(Some(Value::from(small)));
            }
            let large: u64 = object
                .extract()
                .map_err(|_| self.refused(object, param, "; an integer argument has at most 64 bits"))?;
            return Ok(Some(Value::scalar(Dtype::Uint64, &large.to_ne_bytes())));
        }
        if let Ok(real) = object.cast_exact::<PyFloat>() {
            return rounded(object, (real.value(), 0.0), want).map(|value| Some(value.unwrap_or(real.value().into())));
        }
        if let Ok(number) = object.cast_exact::<PyComplex>() {
            let parts = (number.real(), number.imag());
            let want = want.filter(|want| matches!(want, Dtype::Complex64 | Dtype::ComplexLongDouble));
            let own = || Value::scalar(Dtype::Complex128, &[parts.0.to_ne_bytes(), parts.1.to_ne_bytes()].concat());
            return rounded(object, parts, want).map(|value| Some(value.unwrap_or_else(own)));
        }
        Ok(None)
    }

    fn array(&self, array: &Bound<'_, PyUntypedArray>, param: Option<&Param>) -> PyResult<Value> {
        let py = array.py();
        let kind = array.get_type().name()?;
        if kind.to_cow()? == "MaskedArray" {
            return Err(self.refused(array, param, "; a mask is not sent: pass .filled(...) or .data"));
        }
        let Some((dtype, byte_order)) = element_of(&array.dtype()) else {
            return Err(self.refused(array, param, ""));
        };
        if param.is_some_and(|param| !param.is_array) && array.ndim() == 0 {
            let bytes = array.call_method0("tobytes")?;
            let payload = Payload::copied(bytes.cast::<PyBytes>()?.as_bytes());
            return Value::new(Meta::Scalar { dtype, byte_order }, payload).or_raise(py);
        }
        let contiguous = match (array.is_c_contiguous(), array.is_fortran_contiguous()) {
            (true, _) => Some(Order::C),
            (false, true) => Some(Order::F),
            (false, false) => None,
        };
        // An array that is not contiguous has to be copied anyway, so it is copied in the order that the function wants.
        let wanted = param.and_then(|param| param.order.in_memory()).unwrap_or(Order::C);
        let shape = array.shape().iter().map(|extent| *extent as u64).collect();
        let meta = Meta::Array { dtype, byte_order, order: contiguous.unwrap_or(wanted), shape };
        if contiguous.is_some()
            && !self.describes_only
            && let Some(value) = shared(array, &meta)?
        {
            return Ok(value);
        }
        let strides = array.strides().to_vec();
        if let Some(known) = self.snapshots.and_then(|snapshots| snapshots.object(array.as_any(), &meta, &strides))
            && (self.describes_only || is_unchanged(py, array, &known)?)
        {
            return Ok(known);
        }
        let value = match self.describes_only {
            true => Value::placeholder(meta.clone()),
            false => {
                self.admit(py, &meta, param)?;
                copied(py, self.grid, array, &meta)?
            }
        };
        if let Some(snapshots) = self.snapshots {
            snapshots.keep_object(array.as_any(), meta, strides, value.clone());
        }
        Ok(value)
    }

    /// Checks that an array can be copied and sent, before it is.
    fn admit(&self, py: Python<'_>, meta: &Meta, param: Option<&Param>) -> PyResult<()> {
        let name = param.map_or("of no name", |param| &param.name);
        let size_bytes = meta.checked_size_bytes().unwrap_or(u64::MAX);
        if size_bytes <= EAGER_BYTES_MAX {
            return Ok(());
        }
        let (grid, function, name) = (self.grid.clone(), self.signature.name.clone(), name.to_string());
        detached(py, move || grid.admit_argument(&function, &name, size_bytes)).or_raise(py)
    }

    fn refused(&self, object: &Bound<'_, PyAny>, param: Option<&Param>, remedy: &str) -> PyErr {
        let expected = param.map_or("a number, an array, a string or bytes".to_string(), |param| {
            match (param.base, param.is_array) {
                (BaseType::Number(dtype), true) => format!("an array of {dtype}"),
                (BaseType::Number(dtype), false) => dtype.number(),
                (BaseType::Text, _) => "a string".to_string(),
                (BaseType::String, false) => "a string, bytes or None".to_string(),
                (BaseType::String, true) => "a list of strings, bytes and None".to_string(),
                (BaseType::Bytes, _) => "bytes".to_string(),
                (BaseType::File | BaseType::Stream, false) => "a path, bytes or None".to_string(),
                (BaseType::File | BaseType::Stream, true) => "a list of paths, bytes and None".to_string(),
            }
        });
        let kind = object.get_type().name().map_or_else(|_| "object".to_string(), |name| name.to_string());
        let got = match object.getattr("dtype") {
            Ok(dtype) => format!("{kind} of {dtype}"),
            Err(_) => kind,
        };
        let name = param.map_or("argument".to_string(), |param| format!("argument '{}'", param.name));
        let text = format!("{}: {name}: expected {expected}, got {got}{remedy}", self.signature.name);
        error(object.py(), "ArgumentError", &text)
    }
}

/// Converts a Python number to the narrower or wider type of the parameter. Programs write any
/// real number as a Python float, so it is rounded like `numpy.float32(x)`. `None` if that would overflow, or no
/// conversion is needed.
fn rounded(object: &Bound<'_, PyAny>, parts: (f64, f64), want: Option<Dtype>) -> PyResult<Option<Value>> {
    let narrow = (parts.0 as f32, parts.1 as f32);
    let fits = |wide: f64, narrow: f32| narrow.is_finite() || !wide.is_finite();
    Ok(match want {
        Some(Dtype::Float32) if fits(parts.0, narrow.0) => Some(Value::scalar(Dtype::Float32, &narrow.0.to_ne_bytes())),
        Some(Dtype::Complex64) if fits(parts.0, narrow.0) && fits(parts.1, narrow.1) => {
            Some(Value::scalar(Dtype::Complex64, &[narrow.0.to_ne_bytes(), narrow.1.to_ne_bytes()].concat()))
        }
        Some(Dtype::Float16) if parts.0.abs() < FLOAT16_LIMIT || !parts.0.is_finite() => {
            Some(numpy_scalar(object, Dtype::Float16)?)
        }
        Some(long @ (Dtype::LongDouble | Dtype::ComplexLongDouble)) => Some(numpy_scalar(object, long)?),
        _ => None,
    })
}

/// The smallest number that rounds to infinity as `float16`.
const FLOAT16_LIMIT: f64 = 65520.0;

/// Converts a number with NumPy.
fn numpy_scalar(object: &Bound<'_, PyAny>, dtype: Dtype) -> PyResult<Value> {
    let scalar = import(object.py(), "numpy")?.getattr(dtype.name())?.call1((object,))?;
    let bytes = scalar.call_method0("tobytes")?;
    Ok(Value::scalar(dtype, bytes.cast::<PyBytes>()?.as_bytes()))
}

/// Returns an array in memory of `Grid.empty` without a copy.
fn shared(array: &Bound<'_, PyUntypedArray>, meta: &Meta) -> PyResult<Option<Value>> {
    let mut base = array.getattr("base")?;
    while base.cast::<PyUntypedArray>().is_ok() {
        base = base.getattr("base")?;
    }
    let Ok(memory) = base.cast::<Memory>() else { return Ok(None) };
    let Keeper::Shared(segment) = &memory.get().keeper else { return Ok(None) };
    let size_bytes = meta.size_bytes();
    if size_bytes == 0 {
        return Ok(None);
    }
    let address: usize = array.getattr("__array_interface__")?.get_item("data")?.get_item(0)?.extract()?;
    let Some(offset) = memory.get().offset_of(address) else { return Ok(None) };
    let payload = Payload::Segment { segment: segment.clone(), offset, size_bytes };
    Value::new(meta.clone(), payload).or_raise(array.py()).map(Some)
}

fn copied(py: Python<'_>, grid: &Grid, array: &Bound<'_, PyUntypedArray>, meta: &Meta) -> PyResult<Value> {
    let size_bytes = meta.size_bytes();
    if size_bytes <= EAGER_BYTES_MAX {
        let order = if matches!(meta, Meta::Array { order: Order::F, .. }) { "F" } else { "C" };
        let bytes = array.call_method1("tobytes", (order,))?;
        return Value::new(meta.clone(), Payload::copied(bytes.cast::<PyBytes>()?.as_bytes())).or_raise(py);
    }
    let grid = grid.clone();
    let mut segment = detached(py, move || grid.allocate(size_bytes)).or_raise(py)?;
    let address = segment.bytes_mut().as_mut_ptr() as usize;
    let target = Memory::array(py, Keeper::Caller, address, meta.clone(), true)?;
    // NumPy releases the GIL while it copies.
    import(py, "numpy")?.call_method1("copyto", (target, array))?;
    Value::new(meta.clone(), Payload::segment(segment.freeze())).or_raise(py)
}

/// True if an array still has the bytes that were copied: comparing them costs less than sending them twice.
fn is_unchanged(py: Python<'_>, array: &Bound<'_, PyUntypedArray>, copy: &Value) -> PyResult<bool> {
    let order = if matches!(copy.meta(), Meta::Array { order: Order::F, .. }) { "F" } else { "C" };
    let words = if copy.meta().size_bytes().is_multiple_of(8) { "u8" } else { "u1" };
    let bits = |array: Bound<'_, PyAny>| -> PyResult<Py<PyAny>> {
        Ok(array.call_method1("ravel", (order,))?.call_method1("view", (words,))?.unbind())
    };
    let (now, then) = (bits(array.clone().into_any())?, bits(to_python(py, copy, true)?)?);
    import(py, "numpy")?.call_method1("array_equal", (now, then))?.extract()
}
