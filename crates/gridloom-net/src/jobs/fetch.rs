//! Collects what a worker needs to run a task: its inputs from the store, and memory for its results.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom_base::limits::EAGER_BYTES_MAX;
use gridloom_base::near::{did_you_mean, near_names};
use gridloom_base::{Meta, TaskError};
use gridloom_core::graph::{Argument, Task};

use super::JobsConfig;
use super::kind::Kind;
use super::link::{Pending, PendingOutput, check_intact};
use crate::payload::Payload;
use crate::store::Store;
use crate::worker::{relabelled, wanted_order};

/// Collects what a task needs; `functions` maps names to the numbers of definitions.
///
/// # Errors
/// If the function is unknown, an input is not in the store, or there is no memory for a result.
pub(super) fn fetch(
    config: &JobsConfig,
    functions: &BTreeMap<String, u32>,
    task: &Arc<Task>,
    store: &Store,
) -> Result<Pending, TaskError> {
    let (name, server) = (task.name(), &config.server_name);
    let function = *functions.get(name).ok_or_else(|| {
        let near = near_names(name, functions.keys().map(String::as_str));
        TaskError::NoSuchFunction { function: name.to_string(), near: did_you_mean(&near) }
    })?;
    let no_memory = |error: std::io::Error| TaskError::CannotRun {
        function: name.to_string(),
        server: server.clone(),
        why: format!("no shared memory: {error}"),
    };
    let definition = &config.definitions[function as usize];
    let params = definition.signature.params.iter();
    let mut inputs = Vec::with_capacity(task.args.len());
    for arg in &task.args {
        inputs.push(match arg {
            Argument::Inline { .. } => None,
            Argument::Datum(datum) => {
                let lost = || TaskError::DatumLost { datum: *datum, why: format!("it is not stored on '{server}'") };
                let (meta, payload) = store.get(datum).ok_or_else(lost)?;
                check_intact(*datum, &payload, server)?;
                if payload.size_bytes() <= EAGER_BYTES_MAX {
                    Some((meta, payload))
                } else {
                    let found = store.segment_of(datum).map_err(no_memory)?.ok_or_else(lost)?;
                    let (meta, segment, offset, size_bytes) = found;
                    Some((meta, Payload::Segment { segment, offset, size_bytes }))
                }
            }
        });
    }
    let mut outputs = Vec::with_capacity(task.outputs.len());
    for (output, param) in task.outputs.iter().zip(params.filter(|param| param.is_output())) {
        let meta = relabelled(&output.meta, wanted_order(param));
        let is_text = matches!(meta, Meta::Text { .. } | Meta::Bytes { .. } | Meta::List { .. });
        let memory = match meta.checked_size_bytes() {
            Some(size_bytes) if is_text || size_bytes <= EAGER_BYTES_MAX => None,
            size_bytes => Some(store.pool().allocate(size_bytes.unwrap_or(u64::MAX)).map_err(no_memory)?),
        };
        outputs.push(PendingOutput { datum: output.datum, meta, memory });
    }
    if outputs.len() != task.outputs.len() {
        let why = format!("it returns {} results, but the call requests {}", outputs.len(), task.outputs.len());
        return Err(TaskError::Refused { function: name.to_string(), server: server.clone(), why });
    }
    let kind = Kind::of(definition);
    let (task, simulated_at, run_as) = (task.clone(), None, None);
    Ok(Pending { task, function, kind, simulated_at, run_as, inputs, outputs, attempts: 0, killed: 0 })
}
