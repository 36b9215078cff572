//! The process that runs Python functions for a server: `python -m gridloom.worker --fd 0`.
//!
//! Arguments are read-only arrays over memory shared with the server. They are valid only while the
//! call runs; later their content may change, so a function has to copy what it keeps.

use gridloom_base::EscapedBytes;
use std::collections::HashMap;

use gridloom_base::{ByteOrder, Dtype, Meta, RaisedCause, TaskError};
use gridloom_idl::scalar::Scalar;
use gridloom_idl::{Body, Definition};
use gridloom_net::worker::{ArgView, CallbackTarget, Functions, OutView, Room, Setup, inherited, nested, serve};
use pyo3::exceptions::{PyModuleNotFoundError, PySystemExit};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyFloat, PyInt, PyString, PyTuple};

use crate::import;
use crate::memory::{Keeper, Memory, element, type_string};

/// Maximum length of a traceback; a longer one loses its beginning.
const TRACEBACK_BYTES_MAX: usize = 8 << 10;
/// The attribute that `gridloom.program` sets on its functions: the function itself. A wrapper of such a function has
/// the attribute, too.
const PROGRAM: &str = "_gridloom_program";
/// Maximum length of an exception's message; a longer one loses its middle.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Serves until the server closes the socket. Without a log, output of calls is sent to their programs or dropped.
#[pyfunction]
pub(crate) fn worker_main(py: Python<'_>, fd: i32, has_log: bool) -> PyResult<()> {
    if !has_log {
        nested::drop_excess_output();
    }
    py.detach(|| serve(inherited(fd)?, &mut PythonFunctions::default()))?;
    Ok(())
}

/// Sends text that the running call prints to its program. Returns false if it belongs in the server's log.
#[pyfunction]
pub(crate) fn print_to_program(py: Python<'_>, is_error: bool, text: &str) -> bool {
    py.detach(|| nested::print(is_error, text))
}

/// Reports the progress of the running call; does nothing if none runs.
#[pyfunction]
#[pyo3(signature = (done, total))]
pub(crate) fn tell_progress(py: Python<'_>, done: f64, total: Option<f64>) {
    py.detach(|| nested::progress(done, total));
}

#[derive(Default)]
struct PythonFunctions {
    loaded: HashMap<u32, Loaded>,
}

struct Loaded {
    callable: Py<PyAny>,
    /// For each input, whether the function takes it: sizes that only appear in extents are not passed.
    is_passed: Vec<bool>,
    /// True if it takes files as they are in the server's memory.
    is_program: bool,
    /// Names of the results.
    results: Vec<String>,
}

impl Functions for PythonFunctions {
    fn setup(&mut self, setup: &Setup) -> Result<(), String> {
        Python::attach(|py| {
            let told = import(py, "gridloom.functions.program_run")
                .and_then(|module| module.call_method1("keep_folders_in", (&setup.scratch,)));
            told.map(drop).map_err(|error| error.to_string())
        })
    }

    fn load(&mut self, function: u32, definition: &Definition) -> Result<(), String> {
        let Body::Python { module, function: name } = &definition.body else {
            return Err("it is not a Python function".into());
        };
        Python::attach(|py| {
            let find = || {
                import(py, "gridloom.worker.modules")?
                    .call_method1("load", (module.as_os_str(),))?
                    .getattr(name.as_str())
            };
            let found = find().map_err(|error| {
                let file = EscapedBytes::of(module.file_name().unwrap_or(module.as_os_str()));
                format!("{file} cannot be imported: {error}")
            })?;
            let inputs = definition.signature.params.iter().filter(|param| param.is_input());
            let is_passed = inputs.map(|param| !param.hidden).collect();
            let outputs = definition.signature.params.iter().filter(|param| param.is_output());
            let results = outputs.map(|param| param.name.clone()).collect();
            let own = found.getattr_opt(PROGRAM).map_err(|error| error.to_string())?;
            let is_program = own.is_some_and(|own| own.is(&found));
            self.loaded.insert(function, Loaded { callable: found.unbind(), is_passed, is_program, results });
            Ok(())
        })
    }

    fn call(
        &mut self,
        function: u32,
        args: &[ArgView<'_>],
        outs: &mut [OutView<'_>],
        _program: &mut dyn CallbackTarget,
    ) -> Result<(), TaskError> {
        Python::attach(|py| {
            let loaded = self.loaded.get(&function).expect("the server loads before it calls");
            let call = || {
                let passed = args.iter().zip(&loaded.is_passed).filter(|(_, passed)| **passed);
                let actual = passed.map(|(arg, _)| {
                    let file = if loaded.is_program { in_memory(py, arg)? } else { None };
                    file.map_or_else(|| argument(py, arg), Ok)
                });
                let actual = actual.collect::<PyResult<Vec<_>>>()?;
                loaded.callable.bind(py).call1(PyTuple::new(py, actual)?)
            };
            let result = call();
            if nested::is_forked() {
                end_fork(py, result.err());
            }
            let result = result.map_err(|error| raised(py, &error))?;
            store(py, &result, &loaded.results, outs)
        })
    }
}

/// A file in the server's memory, which is written to a program's working folder without an intermediate copy.
fn in_memory<'py>(py: Python<'py>, arg: &ArgView<'_>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (Meta::Bytes { .. }, Some(datum), Some(mapping)) = (&arg.meta, arg.datum, &arg.mapping) else {
        return Ok(None);
    };
    let address = arg.bytes.as_ptr() as usize;
    let content = Memory::array(py, Keeper::Mapping(mapping.clone()), address, arg.meta.clone(), false)?;
    // A datum that was lost and recomputed has the same id, and usually another address. Its content is the same,
    // unless its function returns another result each time.
    import(py, "gridloom.functions.program_files")?
        .call_method1("InMemory", (content, format!("{datum} at {address}")))
        .map(Some)
}

fn argument<'py>(py: Python<'py>, arg: &ArgView<'_>) -> PyResult<Bound<'py, PyAny>> {
    match &arg.meta {
        Meta::Text { .. } => Ok(PyString::new(py, &String::from_utf8_lossy(arg.bytes)).into_any()),
        // No Python function takes a list of this kind.
        Meta::Bytes { .. } | Meta::List { .. } => Ok(PyBytes::new(py, arg.bytes).into_any()),
        Meta::Scalar { dtype, byte_order } => {
            let array = import(py, "numpy")?
                .call_method1("frombuffer", (PyBytes::new(py, arg.bytes), type_string(*dtype, *byte_order)))?;
            match dtype {
                Dtype::Bool | Dtype::Int64 | Dtype::Float64 | Dtype::Complex128 => array.call_method1("item", (0,)),
                _ => array.get_item(0),
            }
        }
        Meta::Array { .. } => {
            let address = arg.bytes.as_ptr() as usize;
            match &arg.mapping {
                Some(mapping) if !arg.bytes.is_empty() => {
                    Memory::array(py, Keeper::Mapping(mapping.clone()), address, arg.meta.clone(), false)
                }
                // This memory belongs to the call, so a function that kept the array would keep nothing valid.
                _ => {
                    let copy = Memory::array(py, Keeper::Caller, address, arg.meta.clone(), false)?
                        .call_method1("copy", ("K",))?;
                    copy.getattr("flags")?.setattr("writeable", false)?;
                    Ok(copy)
                }
            }
        }
    }
}

/// Ends a process that the function forked and that has left the function, in the way a program ends: with its output, and the
/// traceback of an exception.
fn end_fork(py: Python<'_>, error: Option<PyErr>) -> ! {
    let error = error.map(|error| error.into_value(py));
    // It does not return; if it cannot be called, there is nothing left to report.
    let _ = import(py, "gridloom.worker.modules").and_then(|module| module.call_method1("end_fork", (error,)));
    std::process::abort()
}

/// Removes the middle of a text that is longer than a message can be.
fn cut(text: &str) -> String {
    if text.len() <= MESSAGE_BYTES_MAX {
        return text.to_string();
    }
    let half = MESSAGE_BYTES_MAX / 2;
    let boundary = |from: usize| (from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    format!("{} ... {}", &text[..boundary(half)], &text[boundary(text.len() - half)..])
}

fn raised(py: Python<'_>, error: &PyErr) -> TaskError {
    let (function, server) = (String::new(), String::new());
    if error.is_instance_of::<PySystemExit>(py) {
        let how = cut(&format!("it called sys.exit({})", error.value(py)));
        return TaskError::Crashed { function, server, how };
    }
    let kind = error.get_type(py).qualname().map_or_else(|_| "Exception".into(), |name| name.to_string());
    let message = error.value(py).str().map_or_else(|_| String::new(), |text| cut(&text.to_string_lossy()));
    let formatted = import(py, "gridloom.worker.modules")
        .and_then(|module| module.call_method1("format_traceback", (error.value(py), error.traceback(py))))
        .and_then(|text| text.extract::<String>());
    let mut traceback = formatted.unwrap_or_default();
    if traceback.len() > TRACEBACK_BYTES_MAX {
        let mut cut = traceback.len() - TRACEBACK_BYTES_MAX;
        while !traceback.is_char_boundary(cut) {
            cut += 1;
        }
        traceback = format!("...{}", &traceback[cut..]);
    }
    if !traceback.is_empty() {
        traceback.insert(0, '\n');
    }
    let cause = cause(py, error);
    TaskError::Raised { function, server, kind, message, traceback, cause }
}

/// Returns the cause of an exception, which depends on its class and not on the name of the class.
fn cause(py: Python<'_>, error: &PyErr) -> RaisedCause {
    if error.is_instance_of::<PyModuleNotFoundError>(py) {
        return RaisedCause::MissingModule;
    }
    let class = import(py, "gridloom.errors").and_then(|module| module.getattr("ServerFault"));
    match class.and_then(|class| error.value(py).is_instance(&class)) {
        Ok(true) => RaisedCause::Server,
        Ok(false) | Err(_) => RaisedCause::Function,
    }
}

fn wrong(why: String) -> TaskError {
    TaskError::WrongResult { function: String::new(), server: String::new(), why }
}

/// Checks the function's return value and stores it in the results.
fn store(
    py: Python<'_>,
    result: &Bound<'_, PyAny>,
    names: &[String],
    outs: &mut [OutView<'_>],
) -> Result<(), TaskError> {
    match outs {
        [] if result.is_none() => Ok(()),
        [] => Err(wrong(format!("expected None, got {}", kind_of(result)))),
        [one] => store_one(py, &names[0], result, one),
        several => {
            let items: Option<Vec<Bound<'_, PyAny>>> =
                result.cast::<PyTuple>().ok().map(|tuple| tuple.iter().collect());
            let items = match items.or_else(|| result.cast::<pyo3::types::PyList>().ok().map(|l| l.iter().collect())) {
                Some(items) if items.len() == several.len() => items,
                Some(items) => {
                    let (expected, got) = (several.len(), items.len());
                    return Err(wrong(format!("expected a tuple of {expected} results, got {got}")));
                }
                None => {
                    let (expected, got) = (several.len(), kind_of(result));
                    return Err(wrong(format!("expected a tuple of {expected} results, got {got}")));
                }
            };
            for ((item, out), name) in items.iter().zip(several).zip(names) {
                store_one(py, name, item, out)?;
            }
            Ok(())
        }
    }
}

fn store_one(py: Python<'_>, name: &str, item: &Bound<'_, PyAny>, out: &mut OutView<'_>) -> Result<(), TaskError> {
    let what = format!("result '{name}'");
    let unfit = |expected: &str| wrong(format!("{what}: expected {expected}, got {}", kind_of(item)));
    match (&out.meta, &mut out.room) {
        (Meta::Text { .. }, Room::Growing(room)) => {
            let text = item.cast::<PyString>().map_err(|_| unfit("str"))?;
            // Texts are sent as UTF-8, which has no lone surrogates.
            let text = text.to_str().map_err(|error| wrong(format!("{what}: {error}")))?;
            room.clear();
            room.extend_from_slice(text.as_bytes());
            Ok(())
        }
        (Meta::Bytes { .. }, Room::Growing(room)) => {
            let bytes: Vec<u8> = match (item.cast::<PyBytes>(), item.cast::<PyByteArray>()) {
                (Ok(bytes), _) => bytes.as_bytes().to_vec(),
                (_, Ok(bytes)) => bytes.to_vec(),
                _ => return Err(unfit("bytes")),
            };
            **room = bytes;
            Ok(())
        }
        (meta @ Meta::Scalar { dtype, .. }, Room::Fixed(room)) => {
            let bytes = scalar(item, *dtype).map_err(|_| unfit(&meta.to_string()))?;
            match bytes {
                Some(bytes) if bytes.len() == room.len() => {
                    room.copy_from_slice(&bytes);
                    Ok(())
                }
                _ => Err(unfit(&meta.to_string())),
            }
        }
        (meta @ Meta::Array { .. }, Room::Fixed(room)) => {
            match array(py, item, meta, room).map_err(|error| wrong(format!("{what}: {error}")))? {
                None => Ok(()),
                Some(got) => Err(wrong(format!("{what}: expected {}, got {got}", shown(meta)))),
            }
        }
        (meta, _) => Err(wrong(format!("{what}: no room for {meta}"))),
    }
}

/// Returns the bytes of a number as that type, if it is a number and keeps its value; a Python float is rounded.
fn scalar(item: &Bound<'_, PyAny>, dtype: Dtype) -> PyResult<Option<Vec<u8>>> {
    let numpy = import(item.py(), "numpy")?;
    let bytes_of = |value: &Bound<'_, PyAny>| -> PyResult<Vec<u8>> {
        Ok(value.call_method0("tobytes")?.cast::<PyBytes>()?.as_bytes().to_vec())
    };
    if item.is_exact_instance_of::<PyInt>() && dtype.is_integer() {
        return Ok(item.extract::<i128>().ok().and_then(|value| Scalar::Integer(value).write(dtype)));
    }
    let rounds = matches!(
        dtype,
        Dtype::Float16
            | Dtype::Float32
            | Dtype::Float64
            | Dtype::LongDouble
            | Dtype::Complex64
            | Dtype::Complex128
            | Dtype::ComplexLongDouble
    );
    let is_complex = matches!(dtype, Dtype::Complex64 | Dtype::Complex128 | Dtype::ComplexLongDouble);
    let is_python_number = item.is_exact_instance_of::<PyInt>()
        || item.is_exact_instance_of::<PyFloat>()
        || (is_complex && item.is_exact_instance_of::<pyo3::types::PyComplex>());
    if rounds && is_python_number {
        let rounded = numpy.getattr(dtype.name())?.call1((item,))?;
        let is_finite = |value: &Bound<'_, PyAny>| numpy.call_method1("isfinite", (value,))?.is_truthy();
        // Beyond the largest number of the type it would become infinite.
        return match is_finite(&rounded)? || !is_finite(item)? {
            true => bytes_of(&rounded).map(Some),
            false => Ok(None),
        };
    }
    let array = numpy.call_method1("asarray", (item,))?;
    let wanted = numpy.call_method1("dtype", (dtype.name(),))?;
    if array.getattr("ndim")?.extract::<usize>()? != 0 {
        return Ok(None);
    }
    let is_safe: bool = numpy.call_method1("can_cast", (array.getattr("dtype")?, &wanted, "safe"))?.extract()?;
    let is_truth: bool = array.getattr("dtype")?.getattr("kind")?.eq("b")?;
    if is_safe && is_truth == (dtype == Dtype::Bool) {
        return bytes_of(&array.call_method1("astype", (wanted,))?).map(Some);
    }
    // A number of another type that fits exactly.
    let number = array.call_method0("item")?;
    let value = match (number.extract::<i128>(), number.extract::<f64>()) {
        _ if is_truth => None,
        (Ok(integer), _) if number.is_exact_instance_of::<PyInt>() => Some(Scalar::Integer(integer)),
        (_, Ok(real)) if number.is_exact_instance_of::<PyFloat>() => Some(Scalar::Real(real)),
        _ => None,
    };
    Ok(value.and_then(|value| value.write(dtype)))
}

/// Copies an array into its room; returns `Some` with a description of the actual value if that does not fit.
fn array(py: Python<'_>, item: &Bound<'_, PyAny>, meta: &Meta, room: &mut [u8]) -> PyResult<Option<String>> {
    let numpy = import(py, "numpy")?;
    if item.hasattr("mask")? && item.is_instance(&numpy.getattr("ma")?.getattr("MaskedArray")?)? {
        return Ok(Some("an array with a mask, which would be lost: return item.filled(…), or data and mask".into()));
    }
    let Ok(array) = numpy.call_method1("asarray", (item,)) else { return Ok(Some(kind_of(item))) };
    let (dtype, _) = element(meta);
    let wanted = numpy.call_method1("dtype", (type_string(dtype, ByteOrder::NATIVE),))?;
    let casting = if item.hasattr("dtype")? { "equiv" } else { "safe" };
    let fits: bool = numpy.call_method1("can_cast", (array.getattr("dtype")?, wanted, casting))?.extract()?;
    let shape: Vec<u64> = array.getattr("shape")?.extract()?;
    let expected = match meta {
        Meta::Array { shape, .. } => shape,
        _ => return Ok(Some(kind_of(item))),
    };
    if !fits || shape != *expected {
        let dtype: String = array.getattr("dtype")?.str()?.extract()?;
        let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
        return Ok(Some(format!("{dtype}[{}]", extents.join(", "))));
    }
    if !room.is_empty() {
        let target = Memory::array(py, Keeper::Caller, room.as_mut_ptr() as usize, meta.clone(), true)?;
        numpy.call_method1("copyto", (target, array))?;
    }
    Ok(None)
}

/// Returns a description without the memory order, which a function may ignore.
fn shown(meta: &Meta) -> String {
    match meta {
        Meta::Array { dtype, shape, .. } => Meta::array(*dtype, shape).to_string(),
        other => other.to_string(),
    }
}

fn kind_of(item: &Bound<'_, PyAny>) -> String {
    let kind = item.get_type().name().map_or_else(|_| "object".to_string(), |name| name.to_string());
    match (item.getattr("dtype"), item.getattr("shape")) {
        (Ok(dtype), Ok(shape)) => format!("{kind} of {dtype} with shape {shape}"),
        _ => match item.repr() {
            Ok(text) if item.is_exact_instance_of::<PyInt>() || item.is_exact_instance_of::<PyFloat>() => {
                format!("{kind} {text}")
            }
            _ => kind,
        },
    }
}
