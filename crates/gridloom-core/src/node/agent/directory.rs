//! Directory pushes: updates about servers and functions that the agent sends to clients.
//!
//! A client receives the complete directory once, and then the same changes as all others, since there may be
//! thousands of clients.

use std::collections::BTreeSet;

use super::{Agent, send};
use crate::node::AgentTimer;
use crate::node::message::{DirectoryToClient, DirectoryUpdate};
use crate::node::protocol::Effect;
use gridloom_base::{NodeId, Time};
use gridloom_perf::ServerView;

/// Changes within this time are sent to clients together.
pub(super) const DIRECTORY_PAUSE_NS: u64 = 2_000_000;
/// Minimum interval between updates that contain only learned models.
pub(super) const MODELS_PAUSE_NS: u64 = 200_000_000;

/// The subscribed clients, the last directory that was sent to them, and whether an update is due.
#[derive(Debug, Default)]
pub(super) struct DirectoryPush {
    clients: BTreeSet<NodeId>,
    /// Servers as all clients know them, ordered by name.
    servers: Vec<ServerView>,
    /// Functions were added or removed since the last update.
    functions_changed: bool,
    is_due: bool,
}

impl DirectoryPush {
    pub(super) fn is_subscribed(&self, client: NodeId) -> bool {
        self.clients.contains(&client)
    }

    /// True if functions or servers were added or removed since the last update.
    pub(super) fn has_pending(&self) -> bool {
        self.functions_changed
    }

    pub(super) fn forget(&mut self, client: NodeId) {
        self.clients.remove(&client);
    }
}

impl Agent {
    /// Schedules an update after servers or functions were added or removed.
    pub(super) fn directory_changed(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.directory.functions_changed = true;
        self.directory.is_due = false;
        self.schedule_push(now + DIRECTORY_PAUSE_NS, out);
    }

    /// Schedules an update of all clients at this time, unless one is due already.
    pub(super) fn schedule_push(&mut self, at: Time, out: &mut Vec<Effect>) {
        if !self.directory.is_due {
            self.directory.is_due = true;
            out.push(Effect::SetTimer { timer: AgentTimer::DirectoryPush.into(), at });
        }
    }

    /// Sends a new client the directory that all others know. Pending changes of known servers follow with the next
    /// update. Pending changes of servers and functions are sent first: a client never knows functions without their
    /// servers, and a program may have waited for a server to appear before it started.
    pub(super) fn on_subscribe(&mut self, now: Time, client: NodeId, out: &mut Vec<Effect>) {
        if self.directory.functions_changed {
            self.push_directory(now, out);
        }
        self.directory.clients.insert(client);
        let servers = self.directory.servers.clone();
        let functions = Some(self.functions.values().map(|(signature, _)| signature.clone()).collect());
        let news = DirectoryUpdate { is_full: true, servers, removed: Vec::new(), functions };
        send(out, client, DirectoryToClient::Update(news));
    }

    /// Sends all clients the changes since the last update.
    pub(super) fn push_directory(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.directory.is_due = false;
        let servers = self.grid_view(now, None).servers;
        let functions = std::mem::take(&mut self.directory.functions_changed)
            .then(|| self.functions.values().map(|(signature, _)| signature.clone()).collect());
        let news = DirectoryUpdate::between(&self.directory.servers, &servers, functions);
        self.directory.servers = servers;
        if !news.is_empty() {
            for client in &self.directory.clients {
                send(out, *client, DirectoryToClient::Update(news.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::tests::{agent, register};
    use super::*;
    use crate::node::message::{DirectoryMessage, DirectoryToAgent, Message};
    use crate::node::protocol::{Input, Role};
    use crate::node::version::VERSIONS;
    use gridloom_base::Machine;

    /// Returns the updates that these effects send to each client.
    fn updates_of(out: Vec<Effect>) -> Vec<(NodeId, DirectoryUpdate)> {
        let news = out.into_iter().filter_map(|effect| match effect {
            Effect::Send { to, message: Message::Directory(DirectoryMessage::ToClient(message)) } => match message {
                DirectoryToClient::Update(news) => Some((to, news)),
                other => panic!("{other:?}"),
            },
            _ => None,
        });
        news.collect()
    }

    fn push(agent: &mut Agent) -> Vec<(NodeId, DirectoryUpdate)> {
        let mut out = Vec::new();
        agent.handle(Time(500_000_000), Input::Timer(AgentTimer::DirectoryPush.into()), &mut out);
        updates_of(out)
    }

    fn receives(agent: &mut Agent, from: NodeId, message: DirectoryToAgent) -> Vec<Effect> {
        let mut out = Vec::new();
        if message == DirectoryToAgent::Subscribe {
            let (name, address) = ("client".into(), String::new());
            let (role, version) = (Role::Client, VERSIONS.1);
            agent.handle(Time(4), Input::PeerUp { peer: from, role, name, address, version }, &mut out);
        }
        agent.handle(Time(400_000_000), Input::Received { from, message: message.into() }, &mut out);
        out
    }

    #[test]
    fn clients_receive_the_directory_and_then_changes() {
        let mut agent = agent();
        let mut known = [Vec::new(), Vec::new()];
        let names = |news: &DirectoryUpdate| news.servers.iter().map(|server| server.node.0).collect::<Vec<_>>();
        register(&mut agent, 2, "one:1", 1.0, 1.0);
        register(&mut agent, 3, "two:1", 1.0, 1.0);
        let [first] = &updates_of(receives(&mut agent, NodeId(9), DirectoryToAgent::Subscribe))[..] else { panic!() };
        assert_eq!((first.0, first.1.is_full, names(&first.1)), (NodeId(9), true, vec![2, 3]));
        assert_eq!(first.1.functions.as_ref().map(Vec::len), Some(agent.functions.len()));
        first.1.clone().apply(&mut known[0]);
        assert_eq!(push(&mut agent), [], "nothing has changed");

        // A client subscribes while a change is pending: it receives the change together with the other client.
        receives(&mut agent, NodeId(3), DirectoryToAgent::Speed { flops: 7.0 });
        let [late] = &updates_of(receives(&mut agent, NodeId(10), DirectoryToAgent::Subscribe))[..] else { panic!() };
        late.1.clone().apply(&mut known[1]);
        let both = push(&mut agent);
        assert_eq!(
            both.iter().map(|(to, news)| (to.0, names(news))).collect::<Vec<_>>(),
            [(9, vec![3]), (10, vec![3])]
        );
        assert!(both.iter().all(|(_, news)| news.functions.is_none() && !news.is_full));
        both.into_iter().zip(&mut known).for_each(|((_, news), known)| drop(news.apply(known)));
        assert_eq!(known[0], agent.grid_view(Time(1), None).servers);

        let mut out = Vec::new();
        agent.handle(Time(1), Input::PeerLost { peer: NodeId(2), why: "it ended".into() }, &mut out);
        let both = push(&mut agent);
        assert_eq!(both[0].1.removed, [NodeId(2)]);
        both.into_iter().zip(&mut known).for_each(|((_, news), known)| drop(news.apply(known)));
        assert_eq!(known[0], agent.grid_view(Time(1), None).servers);
        assert_eq!(known[0], known[1]);
    }
}
