//! Signatures of Python functions, built and checked by the same code as those of the interface description language.

use std::path::PathBuf;
use std::sync::Arc;

use gridloom_base::{Dtype, NameKind};
use gridloom_idl::{ArrayOrder, BaseType, Body, Definition, Retention, Signature, SignatureBuilder, UseKind};
use pyo3::prelude::*;

use crate::errors::error;

/// A checked signature.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawSignature {
    pub(crate) signature: Arc<Signature>,
}

#[pymethods]
impl RawSignature {
    #[getter]
    fn name(&self) -> &str {
        &self.signature.name
    }

    #[getter]
    fn about(&self) -> &str {
        &self.signature.about
    }

    fn __str__(&self) -> String {
        self.signature.to_string()
    }

    /// The definition of a Python function with this signature, as JSON.
    fn definition(&self, module: PathBuf, function: String) -> String {
        let definition =
            Definition { signature: self.signature.as_ref().clone(), body: Body::Python { module, function } };
        serde_json::to_string(&definition).expect("a definition of names and numbers")
    }
}

/// Name, base type, extents (`None`: one value) and memory order.
type Declared = (String, String, Option<Vec<String>>, String);

#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "each is a part of a declaration, and one caller has them")]
pub(crate) fn build_signature(
    py: Python<'_>,
    name: &str,
    inputs: Vec<Declared>,
    outputs: Vec<Declared>,
    work: Option<&str>,
    uses: Vec<(String, String, String, u16, bool, String)>,
    sizes: Vec<(String, String)>,
    about: &str,
) -> PyResult<RawSignature> {
    // Later errors begin with the name.
    NameKind::Function.check(name).map_err(|failure| error(py, "InputError", &failure.to_string()))?;
    let mut builder = SignatureBuilder::new(name).about(about);
    for (is_output, (param, base, dims, order)) in
        inputs.iter().map(|one| (false, one)).chain(outputs.iter().map(|one| (true, one)))
    {
        let base = match base.as_str() {
            "str" => BaseType::Text,
            "bytes" => BaseType::Bytes,
            "file" => BaseType::File,
            number => BaseType::Number(Dtype::from_name(number).ok_or_else(|| {
                let known = Dtype::ALL.map(Dtype::name).join(", ");
                let what = format!("{name}: '{param}': no element type is named '{number}'; there are {known}");
                error(py, "InputError", &what)
            })?),
        };
        let order = match order.as_str() {
            "C" => ArrayOrder::C,
            "F" => ArrayOrder::F,
            _ => ArrayOrder::Any,
        };
        let dims: Option<Vec<&str>> = dims.as_ref().map(|dims| dims.iter().map(String::as_str).collect());
        builder = match is_output {
            false => builder.input(param, base, dims.as_deref(), order),
            true => builder.output(param, base, dims.as_deref(), order),
        };
    }
    if let Some(work) = work {
        builder = builder.work(work);
    }
    for (does, name, size_bytes, replicas, is_durable, method) in &uses {
        let does = match does.as_str() {
            "gets" => UseKind::Get,
            "puts" => UseKind::Put,
            _ => UseKind::Replace,
        };
        let method =
            method.parse().map_err(|message: String| error(py, "InputError", &format!("{name}: {message}")))?;
        let kept = Retention { replicas: *replicas, is_durable: *is_durable, method };
        builder = builder.uses_kept(does, name, size_bytes, kept);
    }
    for (output, size_bytes) in &sizes {
        builder = builder.likely(output, size_bytes);
    }
    // The error names the function instead of a file; line numbers mean nothing here.
    let signature =
        builder.build().map_err(|failure| error(py, "InputError", &format!("{name}: {}", failure.message)))?;
    Ok(RawSignature { signature: Arc::new(signature) })
}
