//! Shared data, with sizes as in C.

use std::borrow::Cow;
use std::ffi::c_void;
use std::time::Duration;

use gridloom::{BegunPut, Error, PutOptions, Value};
use gridloom_base::{Meta, Order, TaskError};
use gridloom_net::payload::Payload;

use super::code::{Failed, GRPC_NOT_COMPLETED, GRPC_SIZE_DIFFERS_NP, Outcome};
use super::library::Library;
use super::memory;
use super::requests::Request;

impl Library {
    /// Copies memory of the program. If it is large, servers of this host can map the copy.
    ///
    /// # Safety
    /// As for [`memory::copied`].
    pub(crate) unsafe fn copied(&self, data: *const c_void, size_bytes: usize) -> Outcome<Payload> {
        let mut segment = self.grid.allocate(size_bytes as u64)?;
        // SAFETY: promised by the caller.
        unsafe { memory::copy_to(data, segment.bytes_mut()) }.ok_or_else(|| Failed::null("the data"))?;
        Ok(Payload::segment(segment.freeze()))
    }

    pub(crate) fn put_shared(&self, name: &str, bytes: Payload, options: PutOptions) -> Outcome<()> {
        Ok(self.grid.shared().put(name, &value_of(bytes)?, options)?)
    }

    pub(crate) fn begin_put_shared(&self, name: &str, bytes: Payload, options: PutOptions) -> Outcome<BegunPut> {
        Ok(self.grid.shared().begin_put(name, &value_of(bytes)?, options)?)
    }

    /// Passes the bytes of a name to `take`, if their number is right; zeros in a simulation that does not run functions.
    pub(crate) fn with_shared<R>(
        &self,
        name: &str,
        limit: Option<Duration>,
        size_bytes: Option<usize>,
        take: impl FnOnce(&[u8]) -> Outcome<R>,
    ) -> Outcome<R> {
        let handle = self.grid.shared().find(name, limit)?;
        let got = check_size(name, handle.meta().size_bytes(), size_bytes)
            .and_then(|()| handle.get().map_err(|error| Failed::without_value(error, format!("'{name}'"))));
        drop(handle);
        // A worker may be idle for a long time, and would keep the version.
        self.grid.release_dropped();
        with_bytes(&got?, take)
    }

    /// Passes this many bytes of a name, beginning at an offset, to `take`; zeros in a simulation that does not run functions.
    pub(crate) fn take_part_of_shared(
        &self,
        name: &str,
        limit: Option<Duration>,
        (from_byte, size_bytes): (usize, usize),
        take: impl FnOnce(&[u8]),
    ) -> Outcome<()> {
        let (from, wanted) = (from_byte as u64, size_bytes as u64);
        let got = self.grid.shared().get_bytes(name, from..from.saturating_add(wanted), limit)?;
        let has = got.meta().size_bytes();
        if has != wanted {
            let text = format!(
                "'{name}' has {has} bytes from byte {from} on, and the memory for them {wanted}; \
                 grpc_shared_size_np returns the size"
            );
            return Err(Failed::new(GRPC_SIZE_DIFFERS_NP, text));
        }
        match got.payload() {
            Some(payload) => take(payload.bytes()),
            None => take(&vec![0; size_bytes]),
        }
        Ok(())
    }

    /// Waits until a request has ended, at most `limit`, and finishes it: the result of a get is written.
    ///
    /// # Safety
    /// The memory of a get is still valid.
    pub(crate) unsafe fn finish_request(&self, number: usize, limit: Option<Duration>) -> Outcome<()> {
        let request = self.requests.known(number)?;
        let got = match &*request {
            Request::Put { begun, .. } => begun.wait(limit).map(|()| None),
            Request::Get { begun, .. } => begun.wait(limit).map(Some),
            Request::Wait(begun) => begun.wait(limit).map(|()| None),
        };
        if let Err(Error::TimedOut { .. }) = got {
            self.pass_time_of_a_probe();
            return Err(Failed::new(GRPC_NOT_COMPLETED, ""));
        }
        self.requests.remove(number)?;
        let finished = match (&*request, got) {
            (Request::Get { name, .. }, Err(error)) => Err(not_got(error, name)),
            (_, Err(error)) => Err(error.into()),
            (Request::Get { name, address, size_bytes, .. }, Ok(Some(value))) => {
                check_size(name, value.meta().size_bytes(), Some(*size_bytes)).map(|()| {
                    let place = std::ptr::with_exposed_provenance_mut::<c_void>(*address);
                    // SAFETY: promised by the caller; there are exactly as many.
                    with_bytes(&value, |bytes| unsafe { memory::write(place, bytes) });
                })
            }
            (Request::Put { name, is_for_all: true, .. }, Ok(_)) => {
                // A hint: a server that has no room, or that is lost meanwhile, gets the data when a call there reads
                // them, or that call reports why it cannot.
                let _ = self.grid.shared().place(name, &[]);
                Ok(())
            }
            (_, Ok(_)) => Ok(()),
        };
        drop(request);
        // A worker may be idle for a long time, and would keep the version.
        self.grid.release_dropped();
        finished
    }

    /// Cancels a request, unless it has ended. It must still be finished.
    pub(crate) fn cancel_request(&self, number: usize) -> Outcome<()> {
        match &*self.requests.known(number)? {
            Request::Put { begun, .. } => begun.cancel(),
            Request::Get { begun, .. } => begun.cancel(),
            Request::Wait(begun) => begun.cancel(),
        }
        Ok(())
    }
}

fn not_got(error: Error, name: &str) -> Failed {
    match error {
        Error::Task(TaskError::Cancelled) => error.into(),
        _ => Failed::without_value(error, format!("'{name}'")),
    }
}

fn value_of(bytes: Payload) -> Outcome<Value> {
    Ok(Value::new(Meta::Bytes { size_bytes: bytes.size_bytes() }, bytes)?)
}

/// Refuses memory whose size differs from that of the data.
fn check_size(name: &str, has: u64, size_bytes: Option<usize>) -> Outcome<()> {
    let wanted = size_bytes.map(|size| size as u64);
    match wanted.filter(|wanted| *wanted != has) {
        None => Ok(()),
        Some(wanted) => {
            let text = format!(
                "'{name}' has {has} bytes, and the memory for it {wanted}: pass {has} bytes; grpc_shared_size_np \
                 returns the size"
            );
            Err(Failed::new(GRPC_SIZE_DIFFERS_NP, text))
        }
    }
}

/// Passes on the bytes in C's form; zeros in a simulation that does not run functions.
fn with_bytes<R>(value: &Value, take: impl FnOnce(&[u8]) -> R) -> R {
    match rows(value) {
        Some(bytes) => take(&bytes),
        None => take(&vec![0; value.meta().size_bytes() as usize]),
    }
}

/// Returns an array row by row.
fn rows(value: &Value) -> Option<Cow<'_, [u8]>> {
    let mut rows = value.meta().clone();
    if let Meta::Array { order, .. } = &mut rows {
        *order = Order::C;
    }
    value.bytes_as(&rows)
}
