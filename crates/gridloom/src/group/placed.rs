//! Copies of data on servers of the program's choice: taken there, kept, given up.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use gridloom_base::{DatumId, GroupId, Meta, NodeId, TaskId};
use gridloom_core::graph::{self, Argument, Copies, Output, Source, Task, TaskKind};
use gridloom_core::node::Command;
use gridloom_idl::Signature;

use super::{Handle, HandleInner, Parts, Submitted};
use crate::described::PlannedCall;
use crate::{Error, Grid, Value};

impl Grid {
    /// A value of the program as if it were a result: at the client, for any number of calls, until the handle is dropped.
    pub fn hold(&self, value: &Value) -> Handle {
        let (datum, meta) = (self.new_datum(), value.meta().clone());
        self.put(datum, value);
        let sources = BTreeMap::from([(datum, Source { meta: meta.clone(), at: vec![self.client()] })]);
        let id = GroupId { client: self.client(), serial: self.next_serial() };
        // A group without calls: its client learns of the datum.
        self.command(Command::Run { group: group(id, None, sources), heuristic: "auto".into() });
        Handle::of_value(self, datum, meta)
    }
}

impl Handle {
    /// A handle for a value that no call of the session makes, and which its client's machine knows.
    pub(crate) fn of_value(grid: &Grid, datum: DatumId, meta: Meta) -> Handle {
        let signature = Signature {
            name: "the program".into(),
            params: Vec::new(),
            callbacks: Vec::new(),
            work: None,
            uses: Vec::new(),
            about: String::new(),
        };
        let inner = HandleInner {
            grid: grid.clone(),
            datum,
            meta,
            signature: Arc::new(signature),
            group: Weak::new(),
            held: Weak::new(),
            discarded: OnceLock::new(),
            parts: Parts::new(grid),
        };
        Handle(Arc::new(inner), None)
    }

    /// Has a copy taken to a server as soon as it is made; with `is_kept` it stays there until the last handle is dropped or it
    /// is given up ([`Handle::give_up`]), else as long as there is room. Calls that run there need no transfer then.
    ///
    /// # Errors
    /// If its own call cannot be launched. That the server is lost, or has no room, is told by the end of what is returned.
    pub fn place(&self, server: NodeId, is_kept: bool) -> Result<Submitted, Error> {
        self.launch()?;
        let copies = if is_kept { Copies::Kept } else { Copies::Cached };
        Ok(self.replicate(copies, PlannedCall { server, from: BTreeMap::new() }).1)
    }

    /// Has a copy taken to a server that will read it: it travels while the program does something else. Nobody waits for it; if
    /// it fails, the call that reads it fetches the value itself.
    pub(super) fn send_ahead(&self, server: NodeId, from: Option<NodeId>) {
        let from = from.map(|from| (self.datum(), from)).into_iter().collect();
        let (group, _) = self.replicate(Copies::Cached, PlannedCall { server, from });
        self.0.grid.told(&[group]);
    }

    fn replicate(&self, copies: Copies, place: PlannedCall) -> (GroupId, Submitted) {
        self.run_at(TaskKind::Replicate(copies), Vec::new(), place)
    }

    /// Bytes of it, from that one on, as a value of that description. The server, which has it, makes no copy of them.
    pub(crate) fn take_part(&self, server: NodeId, from_byte: u64, meta: Meta) -> Handle {
        let part = Handle::of_value(&self.0.grid, self.0.grid.new_datum(), meta.clone());
        let outputs = vec![Output { datum: part.datum(), meta }];
        let (group, _) =
            self.run_at(TaskKind::TakePart { from_byte }, outputs, PlannedCall { server, from: BTreeMap::new() });
        // That it fails is told by the handle.
        self.0.grid.told(&[group]);
        part
    }

    fn run_at(&self, kind: TaskKind, outputs: Vec<Output>, place: PlannedCall) -> (GroupId, Submitted) {
        let grid = &self.0.grid;
        let task = Task {
            id: TaskId { client: grid.client(), serial: grid.next_serial() },
            kind,
            args: vec![Argument::Datum(self.datum())],
            outputs,
            work_flops: None,
            terms: grid.terms(),
        };
        let (id, named) = (GroupId { client: grid.client(), serial: grid.next_serial() }, task.id);
        // Where it is, the client's machine knows.
        let sources = BTreeMap::from([(self.datum(), Source { meta: self.0.meta.clone(), at: Vec::new() })]);
        let parts = Parts::new(grid);
        parts.add(id);
        grid.run_planned(group(id, Some(task), sources), place, "auto".into(), id);
        (id, Submitted { grid: grid.clone(), task: named, results: vec![self.clone()], parts })
    }

    /// Gives up the copy at a server, or the one here if none is named, unless it is the only one.
    pub fn give_up(&self, server: Option<NodeId>) {
        let grid = &self.0.grid;
        grid.command(Command::GiveUp { datum: self.datum(), at: server.unwrap_or(grid.client()) });
    }

    /// Has it erased everywhere as soon as the calls that read it by now have ended. It can be made no more, also not for
    /// results of theirs that are lost.
    pub fn erase(&self) {
        self.0.grid.command(Command::Erase { datum: self.datum() });
    }
}

fn group(id: GroupId, task: Option<Task>, sources: BTreeMap<DatumId, Source>) -> graph::Group {
    graph::Group { id, tasks: task.into_iter().collect(), sources, wanted: Vec::new() }
}
