//! Copies of data on servers that the program chooses: placed, kept, released.

use std::collections::BTreeMap;

use gridloom_base::{DatumId, GroupId, Meta, NodeId, TaskId};
use gridloom_core::graph::{self, Argument, CopyLifetime, Output, Source, Task, TaskKind};
use gridloom_core::node::Command;
use gridloom_idl::Signature;

use super::handle::Handle;
use super::submitted::Submitted;
use crate::launch::{Made, Parts, PlannedCall, run_planned};
use crate::session::Session;
use crate::{Error, Value};

impl Handle {
    /// Creates a handle for a value that no call of the session makes, and which the client's machine knows.
    pub(crate) fn of_value(session: &Session, datum: DatumId, meta: Meta) -> Handle {
        let signature = Signature {
            name: "the program".into(),
            params: Vec::new(),
            callbacks: Vec::new(),
            work: None,
            uses: Vec::new(),
            about: String::new(),
        };
        Handle::new(Made::of_value(session, signature, datum, meta))
    }

    /// Makes a value of the program a datum at the client, usable by any number of calls like a result, until the
    /// handle is dropped.
    pub(crate) fn put(session: &Session, value: &Value) -> Handle {
        let (datum, meta) = (session.new_datum(), value.meta().clone());
        session.put(datum, value);
        let sources = BTreeMap::from([(datum, Source { meta: meta.clone(), at: vec![session.client()] })]);
        // A group without calls announces the datum to the client's machine.
        let group = group(session.new_group(), None, sources);
        session.command(Command::Run { group, heuristic: "auto".into() });
        Handle::of_value(session, datum, meta)
    }

    /// Copies the value to a server as soon as it is made. With `is_kept` the copy stays there until the last handle is
    /// dropped or the copy is released ([`Handle::release_copy`]), otherwise only as long as there is room. Calls that run
    /// there then need no transfer.
    ///
    /// # Errors
    /// If its own call cannot be launched. If the server is lost, or has no room, the returned call fails.
    pub fn place(&self, server: NodeId, is_kept: bool) -> Result<Submitted, Error> {
        self.launch()?;
        let copies = if is_kept { CopyLifetime::Kept } else { CopyLifetime::Cached };
        Ok(self.replicate(copies, PlannedCall { server, from: BTreeMap::new() }).1)
    }

    /// Prefetches a copy to a server that will read it: the transfer overlaps with other work of the program. Nobody
    /// waits for it; if it fails, the call that reads the value fetches it itself.
    pub(crate) fn prefetch_to(&self, server: NodeId, from: Option<NodeId>) {
        let from = from.map(|from| (self.datum(), from)).into_iter().collect();
        let (group, _) = self.replicate(CopyLifetime::Cached, PlannedCall { server, from });
        self.made().session.state().groups.note_failures_read(&[group]);
    }

    fn replicate(&self, copies: CopyLifetime, place: PlannedCall) -> (GroupId, Submitted) {
        self.run_at(TaskKind::Replicate(copies), Vec::new(), place)
    }

    /// Returns some bytes of it, starting at `from_byte`, as a value of that description. The server, which holds the
    /// value, does not copy the bytes.
    pub(crate) fn part(&self, server: NodeId, from_byte: u64, meta: Meta) -> Handle {
        let part = Handle::of_value(&self.made().session, self.made().session.new_datum(), meta.clone());
        let outputs = vec![Output { datum: part.datum(), meta }];
        let (group, _) =
            self.run_at(TaskKind::View { from_byte }, outputs, PlannedCall { server, from: BTreeMap::new() });
        // The handle reports a failure.
        self.made().session.state().groups.note_failures_read(&[group]);
        part
    }

    fn run_at(&self, kind: TaskKind, outputs: Vec<Output>, place: PlannedCall) -> (GroupId, Submitted) {
        let session = &self.made().session;
        let task = Task {
            id: TaskId { client: session.client(), serial: session.next_serial() },
            kind,
            args: vec![Argument::Datum(self.datum())],
            outputs,
            work_flops: None,
            options: session.call_options(),
        };
        let (id, named) = (session.new_group(), task.id);
        // The client's machine knows where the datum is.
        let sources = BTreeMap::from([(self.datum(), Source { meta: self.made().meta.clone(), at: Vec::new() })]);
        let parts = Parts::new(session);
        parts.add(id);
        run_planned(session, group(id, Some(task), sources), place, "auto".into(), id);
        (id, Submitted::new(session, named, vec![self.clone()], &parts))
    }

    /// Releases the copy at a server, or the local one if `server` is `None`, unless it is the only copy.
    pub fn release_copy(&self, server: Option<NodeId>) {
        let session = &self.made().session;
        session.command(Command::DropCopy { datum: self.datum(), at: server.unwrap_or(session.client()) });
    }

    /// Erases the value everywhere as soon as the current calls that read it have ended. It can no longer be recomputed, not even
    /// to recover lost results of those calls.
    pub fn erase(&self) {
        self.made().session.command(Command::Erase { datum: self.datum() });
    }
}

fn group(id: GroupId, task: Option<Task>, sources: BTreeMap<DatumId, Source>) -> graph::Group {
    graph::Group { id, tasks: task.into_iter().collect(), sources, wanted: Vec::new() }
}
