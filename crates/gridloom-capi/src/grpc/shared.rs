//! Shared data, with sizes as C has them.

use std::borrow::Cow;
use std::ffi::c_void;
use std::time::Duration;

use gridloom::{BegunPut, Handle, PutOptions, Value};
use gridloom_base::{Meta, Order};
use gridloom_net::payload::Payload;

use super::code::{Failed, GRPC_SIZE_DIFFERS_NP, Outcome};
use super::library::Library;
use super::memory;

impl Library {
    /// A copy of memory of the program, where servers of this host can map it if it is large.
    ///
    /// # Safety
    /// As of [`memory::copied`].
    pub(super) unsafe fn copied(&self, data: *const c_void, size_bytes: usize) -> Outcome<Payload> {
        let mut segment = self.grid.allocate(size_bytes as u64)?;
        // SAFETY: promised by the caller.
        unsafe { memory::copy_to(data, segment.bytes_mut()) }.ok_or_else(|| Failed::null("the data"))?;
        Ok(Payload::segment(segment.freeze()))
    }

    pub(super) fn put_shared(&self, name: &str, bytes: Payload, options: PutOptions) -> Outcome<()> {
        Ok(self.grid.shared().put(name, &value_of(bytes)?, options)?)
    }

    pub(super) fn begin_put_shared(&self, name: &str, bytes: Payload) -> Outcome<BegunPut> {
        Ok(self.grid.shared().begin_put(name, &value_of(bytes)?, PutOptions::default())?)
    }

    /// Hands the bytes of a name to `take`, if they are so many; zeros in a simulation that does not run functions.
    pub(super) fn take_shared<R>(
        &self,
        name: &str,
        limit: Option<Duration>,
        size_bytes: Option<usize>,
        take: impl FnOnce(&[u8]) -> Outcome<R>,
    ) -> Outcome<R> {
        let handle = self.grid.shared().find(name, limit)?;
        let got = check_size(name, &handle, size_bytes)
            .and_then(|()| handle.get().map_err(|error| Failed::without_value(error, format!("'{name}'"))));
        drop(handle);
        // A worker may have nothing to do for long, and would keep the version.
        self.grid.release_dropped();
        let value = got?;
        match rows(&value) {
            Some(bytes) => take(&bytes),
            None => take(&vec![0; value.meta().size_bytes() as usize]),
        }
    }

    /// Hands so many bytes of a name, from that one on, to `take`; zeros in a simulation that does not run functions.
    pub(super) fn take_part_of_shared(
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
                "'{name}' has {has} bytes from byte {from} on, and the place for them {wanted}; grpc_shared_size_np tells how many \
                 it has"
            );
            return Err(Failed::new(GRPC_SIZE_DIFFERS_NP, text));
        }
        match got.payload() {
            Some(payload) => take(payload.bytes()),
            None => take(&vec![0; size_bytes]),
        }
        Ok(())
    }
}

fn value_of(bytes: Payload) -> Outcome<Value> {
    Ok(Value::new(Meta::Bytes { size_bytes: bytes.size_bytes() }, bytes)?)
}

fn check_size(name: &str, handle: &Handle, size_bytes: Option<usize>) -> Outcome<()> {
    let (has, wanted) = (handle.meta().size_bytes(), size_bytes.map(|size| size as u64));
    match wanted.filter(|wanted| *wanted != has) {
        None => Ok(()),
        Some(wanted) => {
            let text = format!(
                "'{name}' has {has} bytes, and the place for it {wanted}: give one of {has}; grpc_shared_size_np tells how many"
            );
            Err(Failed::new(GRPC_SIZE_DIFFERS_NP, text))
        }
    }
}

/// The bytes as C has them: an array row by row.
fn rows(value: &Value) -> Option<Cow<'_, [u8]>> {
    let mut rows = value.meta().clone();
    if let Meta::Array { order, .. } = &mut rows {
        *order = Order::C;
    }
    value.bytes_as(&rows)
}
