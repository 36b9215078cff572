//! Handles the replies of a worker: puts results into the store and turns failures into errors.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use gridloom_base::{DatumId, Meta, TaskError};

use gridloom_core::call::{Callback, TaskOutput};

use super::JobEvent;
use super::link::{PendingOutput, Sent, WaitReason, Worker};
use crate::payload::Payload;
use crate::store::Store;
use crate::worker::channel::Received;
use crate::worker::protocol::{FromWorker, Location, Value};

/// Reads once from a worker, puts its results into the store and appends the events.
///
/// # Errors
/// If the worker sends an invalid message, or its results cannot be stored. The worker must then be given up.
pub(super) fn read(link: &mut Worker, store: &Store, server: &str, events: &mut Vec<JobEvent>) -> io::Result<Received> {
    let received = link.inbox.receive(link.socket.as_fd(), false)?;
    while let Some((message, inline)) = link.inbox.next::<FromWorker>()? {
        match message {
            FromWorker::Ready => link.ready = true,
            FromWorker::Broken { why } => link.end.fault = Some(why),
            FromWorker::Callback { serial, callback, values } => {
                // A stopped task waits until it is killed.
                if let Some(sent) = link.tasks.iter().find(|sent| sent.serial == serial && !sent.stopped) {
                    events.push(JobEvent::CallsBack(Callback { task: sent.pending.task.id, callback, values }));
                    link.pause = WaitReason::Answer;
                }
            }
            FromWorker::Session { serial, request, bytes } => {
                let bytes = match bytes {
                    Location::Inline { .. } => inline.to_vec(),
                    Location::File { size_bytes } => {
                        let file = link.inbox.take_fd()?;
                        store.pool().adopt(file, size_bytes)?.bytes().to_vec()
                    }
                    _ => return Err(invalid_message("the value of a session is in an unexpected place")),
                };
                if let Some(sent) = link.tasks.iter().find(|sent| sent.serial == serial && !sent.stopped) {
                    if sent.pending.simulated_at.is_none() {
                        return Err(invalid_message("it uses a simulated session"));
                    }
                    let (task, request) = (sent.pending.task.id, Box::new(request));
                    events.push(JobEvent::Session { task, request, bytes });
                    link.asks_session = Some(serial);
                } else {
                    link.end_session(serial)?;
                }
            }
            FromWorker::Output { serial, saying } => {
                if let Some(sent) = link.tasks.iter().find(|sent| sent.serial == serial && !sent.stopped) {
                    events.push(JobEvent::Output(TaskOutput { task: sent.pending.task.id, item: saying }));
                }
            }
            FromWorker::WaitsForCalls { serial, waits } => {
                if let Some(sent) = link.tasks.iter().find(|sent| sent.serial == serial && !sent.stopped) {
                    events.push(JobEvent::Calling { task: sent.pending.task.id, waits });
                    link.pause = if waits { WaitReason::Calls } else { WaitReason::None };
                }
            }
            FromWorker::Ended { serial, run_ns, outcome } => {
                let made = match outcome {
                    Ok(values) => {
                        let inline = copies(&values, inline)?;
                        Ok((values, inline))
                    }
                    Err(error) => Err(error),
                };
                let mut files = Vec::new();
                for value in made.iter().flat_map(|(values, _)| values) {
                    if matches!(value.place, Location::File { .. }) {
                        files.push(link.inbox.take_fd()?);
                    }
                }
                // The reply to a task that was withdrawn, or stopped and removed, is ignored.
                let Some(Sent { pending, stopped, .. }) = link.take_ended(serial) else { continue };
                link.pause = WaitReason::None;
                if link.asks_session.take_if(|asks| *asks == serial).is_some() {
                    link.end_session(serial)?;
                }
                let task = pending.task.id;
                let outcome = match made {
                    _ if stopped => Err(TaskError::Cancelled),
                    Ok((values, inline)) => Ok(keep(pending.outputs, values, inline, files, store)?),
                    Err(error) => Err(error.with_names(pending.task.name(), server)),
                };
                events.push(JobEvent::Ended { task, outcome, run_ns });
            }
        }
    }
    Ok(received)
}

/// Copies the inline results.
fn copies(values: &[Value], mut inline: &[u8]) -> io::Result<Vec<Option<Payload>>> {
    let mut copies = Vec::with_capacity(values.len());
    for value in values {
        copies.push(match value.place {
            Location::Inline { size_bytes } => {
                let (bytes, rest) = inline
                    .split_at_checked(size_bytes as usize)
                    .ok_or_else(|| invalid_message("a result is missing"))?;
                inline = rest;
                Some(Payload::copied(bytes))
            }
            Location::Shared { .. } | Location::Room { .. } | Location::File { .. } => None,
        });
    }
    Ok(copies)
}

fn keep(
    outputs: Vec<PendingOutput>,
    values: Vec<Value>,
    inline: Vec<Option<Payload>>,
    files: Vec<OwnedFd>,
    store: &Store,
) -> io::Result<Vec<(DatumId, Meta)>> {
    if values.len() != outputs.len() {
        return Err(invalid_message("it returned a different number of results than requested"));
    }
    let mut files = files.into_iter();
    let mut made = Vec::with_capacity(outputs.len());
    for ((output, value), inline) in outputs.into_iter().zip(values).zip(inline) {
        let payload = match (value.place, inline, output.memory) {
            (Location::Inline { .. }, Some(inline), _) => inline,
            (Location::Shared { .. }, _, Some(memory)) => Payload::segment(memory.freeze()),
            (Location::File { size_bytes }, ..) => {
                let file = files.next().ok_or_else(|| invalid_message("a file is missing"))?;
                Payload::segment(store.pool().adopt(file, size_bytes)?)
            }
            (Location::Inline { .. } | Location::Shared { .. } | Location::Room { .. }, ..) => {
                return Err(invalid_message("a result is in an unexpected place"));
            }
        };
        // Only text, bytes and lists may differ from their declaration: their size may differ, text and bytes are
        // interchangeable, and a result declared as bytes may be an array about which nothing was known (VAROUT).
        let meta = match (output.meta, value.meta) {
            (Meta::Text { .. } | Meta::Bytes { .. }, made @ (Meta::Text { .. } | Meta::Bytes { .. })) => made,
            (Meta::Bytes { .. }, made @ Meta::Array { .. }) => made,
            (Meta::List { .. }, made @ Meta::List { .. }) => made,
            (meta, _) => meta,
        };
        if meta.checked_size_bytes() != Some(payload.size_bytes()) {
            return Err(invalid_message("the size of a result differs from its description"));
        }
        // If the result is already stored, it was received from another node and is the same datum.
        store.put(output.datum, meta.clone(), payload);
        made.push((output.datum, meta));
    }
    Ok(made)
}

fn invalid_message(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}
