//! A session's knowledge, as its client's machine told it: in parts with state of their own, which do not know one another.
//!
//! **Invariant:** an event is taken in once, under the session's lock, by [`State::take_in`], which hands it to the parts that
//! it concerns; nothing here waits or sends.

use std::sync::Arc;

use gridloom_base::{DatumId, NodeId, TaskError};
use gridloom_core::node::Event;

use super::addresses::Addresses;
use super::call_backs::CallBacks;
use super::calls::{Calls, Whose};
use super::data::Fetches;
use super::directory::Directory;
use super::ends::Ends;
use super::groups::{Groups, Keeps};
use super::links::Links;
use crate::plan::Basis;
use crate::report::GroupRecord;

/// What a session knows.
#[derive(Default)]
pub(super) struct State {
    pub(super) directory: Directory,
    pub(super) addresses: Addresses,
    pub(super) calls: Calls,
    pub(super) ends: Ends,
    pub(super) fetches: Fetches,
    pub(super) groups: Groups,
    pub(super) links: Links,
    pub(super) call_backs: CallBacks,
    /// Lines that the client's machine logged.
    pub(super) log: Vec<String>,
}

impl State {
    pub(super) fn new(keeps: Keeps) -> State {
        State { groups: Groups::new(keeps), ..State::default() }
    }

    /// Takes in an event of that client; gives the data of the client's store that nothing asks for any more.
    pub(super) fn take_in(&mut self, event: Event, client: NodeId) -> Vec<DatumId> {
        match event {
            Event::Directory { grid, functions } => self.directory.on_directory(grid, functions, client),
            Event::AgentLost { address, why } => self.directory.on_agent_lost(TaskError::AgentLost { address, why }),
            Event::ModelsKnown { server } => self.directory.on_models(server),
            Event::Reached { address, server } => self.addresses.on_answer(address, Ok(server)),
            Event::NotReached { address, why } => self.addresses.on_answer(address, Err(why)),
            Event::Links { links } => self.links.on_answer(links),
            // A server's.
            Event::Learned { .. } => {}
            Event::GroupPlanned { at, group, plan, tasks, data, map_ns, seen } => {
                let names = self.directory.names();
                let record = |record: &mut GroupRecord| {
                    let mut plan = record.planned(at, &plan, &tasks, &data, map_ns, names);
                    plan.basis = seen.map(|seen| Arc::new(Basis::new(seen, &tasks, &data)));
                    plan
                };
                self.groups.on_planned(group, tasks.first(), record);
            }
            Event::GroupNotMapped { group, error } => self.groups.on_not_mapped(group, error),
            Event::GroupEnded { at, group } => self.groups.on_ended(group, at),
            Event::ServerLost { name, why, again, .. } => self.groups.on_server_lost(&name, &why, &again),
            Event::CallsBack { server, call } => self.call_backs.on_call(server, call),
            Event::TaskEnded { at, server, report } => {
                self.call_backs.on_end(report.task);
                self.ends.on_end(report.task);
                match self.calls.on_end(at, server, report) {
                    Whose::Call => {}
                    Whose::Abandoned(outputs) => return outputs,
                    Whose::Group(report) => self.groups.on_task_ended(at, server, report),
                }
            }
            Event::Transferred { at, report } => {
                self.links.on_transfer(&report, client, self.directory.names());
                self.groups.on_transferred(at, report);
            }
            Event::DatumHere { datum, meta } => self.fetches.on_answer(datum, Ok(meta)),
            Event::DatumLost { datum, error } => self.fetches.on_answer(datum, Err(error)),
            Event::Log(line) => {
                if self.log.len() < LOG_LINES_MAX {
                    self.log.push(line);
                }
            }
        }
        Vec::new()
    }

    /// Asserts what must always hold of each part.
    pub(super) fn check(&self) {
        self.directory.check();
        self.calls.check();
        self.ends.check();
        self.fetches.check();
        self.groups.check();
        self.call_backs.check();
    }
}

/// Lines kept for [`Grid::take_log`](crate::Grid::take_log).
const LOG_LINES_MAX: usize = 10_000;
