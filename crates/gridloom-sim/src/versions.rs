//! Nodes that were not updated use the previous wire version.

use std::collections::BTreeMap;

use gridloom_channel::Dialect;
use gridloom_core::graph::Task;
use gridloom_core::node::message::{Message, TaskMessage, TaskToServer};
use gridloom_core::node::version::{VERSIONS, unknown_to};
use gridloom_platform::HostId;

/// The wire versions of nodes.
pub(crate) struct Versions {
    /// The highest version of each host that does not support all versions of this build.
    of_hosts: BTreeMap<HostId, u16>,
    /// Number of messages sent without the fields that one of the two ends does not know.
    pub(crate) messages_in_old: u64,
}

impl Versions {
    pub(crate) fn new(of_hosts: BTreeMap<HostId, u16>) -> Versions {
        Versions { of_hosts, messages_in_old: 0 }
    }

    /// Returns the version used between nodes of two hosts: the highest that both support.
    pub(crate) fn between(&self, one: HostId, other: HostId) -> u16 {
        let highest = |host| self.of_hosts.get(&host).copied().unwrap_or(VERSIONS.1);
        highest(one).min(highest(other))
    }

    /// Returns a message as its receiver decodes it, and its encoded bytes. Fields that one end does not know are
    /// omitted and get their defaults.
    pub(crate) fn pass(&mut self, version: u16, message: Message) -> (Message, Vec<u8>) {
        if version == VERSIONS.1 {
            let bytes = written(Dialect::OWN, &message);
            return (message, bytes);
        }
        self.messages_in_old += 1;
        pass_in(Dialect::without(unknown_to(version)), message)
    }
}

fn written(dialect: Dialect, message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    dialect.append(message, &mut bytes);
    bytes
}

/// # Panics
/// If a message of this version cannot be encoded in that one.
fn pass_in(dialect: Dialect, mut message: Message) -> (Message, Vec<u8>) {
    let bytes = written(dialect, &message);
    let mut read = match dialect.parse(&bytes) {
        Ok(read) => read,
        // A hostile node's message may not parse. It is delivered unchanged.
        Err(_) if Dialect::OWN.parse::<Message>(&written(Dialect::OWN, &message)).is_err() => return (message, bytes),
        Err(why) => panic!("{message:?} cannot be encoded in the previous wire version: {why}"),
    };
    // `uses` is not serialized; simulated servers need it.
    for (read, task) in tasks_of(&mut read).iter_mut().zip(tasks_of(&mut message)) {
        read.terms.uses = std::mem::take(&mut task.terms.uses);
    }
    (read, bytes)
}

fn tasks_of(message: &mut Message) -> &mut [Task] {
    match message {
        Message::Task(TaskMessage::ToServer(TaskToServer::Call { task, .. })) => std::slice::from_mut(task),
        Message::Task(TaskMessage::ToServer(TaskToServer::RunTasks { tasks, .. })) => tasks,
        _ => &mut [],
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::{DatumId, NodeId};
    use gridloom_core::node::message::DataMessage;

    use super::*;

    #[test]
    #[should_panic(expected = "FetchRefused")]
    fn a_field_without_a_default_that_one_version_lacks_is_noticed() {
        let datum = DatumId { client: NodeId(1), serial: 1 };
        let refused = DataMessage::FetchRefused { datum, why: "it is gone".into() };
        pass_in(Dialect::without(&[("DatumId", "serial")]), refused.into());
    }
}
