//! Rows of a shared array: a server that has the array makes the rows a value of their own, and only that value is transferred.

use std::ops::Range;
use std::time::Duration;

use gridloom_base::{Meta, NodeId, Order, TaskError};

use super::SharedData;
use crate::call::Handle;
use crate::{Error, Value};

impl SharedData<'_> {
    /// Fetches some rows of a name's current version. No other bytes are transferred. Waits like [`SharedData::get`].
    ///
    /// Rows are taken along an array's first index; the rows of bytes are single bytes. `rows` returns the wanted
    /// range, given the number of rows; the range is cut at the last row.
    ///
    /// # Errors
    /// As for [`SharedData::get`]; [`Error::Usage`] for a value without rows, or whose rows are not contiguous in memory.
    pub fn get_rows(
        &self,
        name: &str,
        rows: impl Fn(u64) -> Range<u64>,
        limit: Option<Duration>,
    ) -> Result<Value, Error> {
        self.get_part(name, limit, |whole| {
            let usage = |why: &str| Error::Usage(format!("rows of '{name}': it {why}"));
            let count = whole.rows().map_err(usage)?;
            whole.part(rows(count)).map_err(usage)
        })
    }

    /// Fetches the bytes in a range of any value, as bytes.
    ///
    /// # Errors
    /// As for [`SharedData::get`]; [`Error::Usage`] for an array in column-major order.
    pub fn get_bytes(&self, name: &str, range: Range<u64>, limit: Option<Duration>) -> Result<Value, Error> {
        self.get_part(name, limit, |whole| {
            if let Meta::Array { order: Order::F, shape, .. } = whole
                && shape.len() > 1
            {
                return Err(Error::Usage(format!("bytes of '{name}': it is stored column by column; get all of it")));
            }
            let bytes = Meta::Bytes { size_bytes: whole.size_bytes() };
            Ok(bytes.part(range.clone()).expect("bytes have rows"))
        })
    }

    fn get_part(
        &self,
        name: &str,
        limit: Option<Duration>,
        choose: impl Fn(&Meta) -> Result<(u64, Meta), Error>,
    ) -> Result<Value, Error> {
        let (handle, holders) = self.find_with_servers(name, limit)?;
        self.read_and_drop(handle, |handle| {
            let (from_byte, meta) = choose(handle.meta())?;
            self.part_of(handle, &holders, from_byte, meta)
        })
    }

    /// Fetches the part from the first of the servers that provides it. If none does, fetches the whole value, from
    /// wherever it is by then.
    fn part_of(&self, handle: &Handle, holders: &[NodeId], from_byte: u64, meta: Meta) -> Result<Value, Error> {
        for server in self.known_servers(holders) {
            let part = handle.part(server, from_byte, meta.clone());
            let got = part.get();
            drop(part);
            self.0.release_dropped();
            match got {
                Err(Error::Task(error)) if is_server_failure(&error) => {}
                got => return got,
            }
        }
        let whole = handle.get()?;
        let Some(payload) = whole.payload() else { return Ok(Value::placeholder(meta)) };
        let part = payload.part(from_byte, meta.size_bytes()).expect("rows are within their array");
        Value::new(meta, part)
    }

    /// Returns those of the servers that this program knows, with the one that runs the program first.
    fn known_servers(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let near = self.own_server();
        let state = self.0.state();
        let servers = &state.directory.grid().servers;
        let known = nodes.iter().copied().filter(|node| servers.iter().any(|server| server.node == *node));
        let mut known: Vec<NodeId> = known.collect();
        known.sort_by_key(|node| Some(*node) != near);
        known
    }
}

/// True if it failed because of its server, or for lack of room there.
fn is_server_failure(error: &TaskError) -> bool {
    matches!(error, TaskError::ServerLost { .. } | TaskError::NotMapped { .. } | TaskError::StoreFull { .. })
}
