//! Nodes that have not been updated speak the last version of the protocol.

use std::collections::BTreeMap;

use gridloom_channel::Dialect;
use gridloom_core::graph::Task;
use gridloom_core::node::message::{Message, TaskMessage, TaskToServer};
use gridloom_core::node::version::{VERSIONS, unknown_to};
use gridloom_platform::HostId;

/// Which version of the protocol nodes speak.
pub(crate) struct Versions {
    /// The highest, of hosts that do not speak all of this build.
    of_hosts: BTreeMap<HostId, u16>,
    /// Messages that went without the fields that one of the two ends does not know.
    pub(crate) messages_in_old: u64,
}

impl Versions {
    pub(crate) fn new(of_hosts: BTreeMap<HostId, u16>) -> Versions {
        Versions { of_hosts, messages_in_old: 0 }
    }

    /// In which version nodes of these hosts talk: the highest that both speak.
    pub(crate) fn between(&self, one: HostId, other: HostId) -> u16 {
        let highest = |host| self.of_hosts.get(&host).copied().unwrap_or(VERSIONS.1);
        highest(one).min(highest(other))
    }

    /// A message as its receiver reads it, and its bytes on the way: fields that one of the two does not know are left out, and have their
    /// defaults.
    pub(crate) fn pass(&mut self, version: u16, mut message: Message) -> (Message, Vec<u8>) {
        let mut bytes = Vec::new();
        if version == VERSIONS.1 {
            Dialect::OWN.append(&message, &mut bytes);
            return (message, bytes);
        }
        self.messages_in_old += 1;
        let dialect = Dialect::without(unknown_to(version));
        dialect.append(&message, &mut bytes);
        // A node that means ill says what no node reads: it passes as in this version.
        let Ok(mut read) = dialect.parse(&bytes) else { return (message, bytes) };
        // What simulated servers have of tasks that is no part of a message.
        for (read, task) in tasks_of(&mut read).iter_mut().zip(tasks_of(&mut message)) {
            read.terms.uses = std::mem::take(&mut task.terms.uses);
        }
        (read, bytes)
    }
}

fn tasks_of(message: &mut Message) -> &mut [Task] {
    match message {
        Message::Task(TaskMessage::ToServer(TaskToServer::Call { task, .. })) => std::slice::from_mut(task),
        Message::Task(TaskMessage::ToServer(TaskToServer::RunTasks { tasks, .. })) => tasks,
        _ => &mut [],
    }
}
