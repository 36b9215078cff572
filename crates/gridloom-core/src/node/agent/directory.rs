//! Directory pushes: updates about servers and functions that the agent sends to clients.
//!
//! A client receives the complete directory once, and then the same changes as all others, since there may be
//! thousands of clients. Only servers that may have changed are compared with what clients know of them.

use std::collections::{BTreeMap, BTreeSet};

use super::send;
use crate::node::AgentTimer;
use crate::node::message::{DirectoryToClient, DirectoryUpdate};
use crate::node::protocol::Effect;
use gridloom_base::limits::SERVERS_MAPPED_ALL_MAX;
use gridloom_base::{NodeId, Time};
use gridloom_idl::Signature;
use gridloom_perf::ServerView;

/// Changes within this time are sent to clients together, in a small grid.
pub(super) const DIRECTORY_PAUSE_NS: u64 = 2_000_000;
/// Minimum interval between updates that contain only learned models, in a small grid.
pub(super) const MODELS_PAUSE_NS: u64 = 200_000_000;

/// The subscribed clients, the last directory that was sent to them, and whether an update is due.
#[derive(Debug, Default)]
pub(super) struct DirectoryPush {
    clients: BTreeSet<NodeId>,
    /// Servers as all clients know them.
    servers: BTreeMap<NodeId, ServerView>,
    /// Servers that may have changed since the last update.
    changed: BTreeSet<NodeId>,
    /// All servers may have changed since the last update.
    has_all_changed: bool,
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

    /// Records that these servers may have changed.
    pub(super) fn mark(&mut self, servers: impl IntoIterator<Item = NodeId>) {
        self.changed.extend(servers);
    }

    /// Records that all servers may have changed.
    pub(super) fn mark_all(&mut self) {
        self.has_all_changed = true;
    }

    /// Schedules an update after servers or functions were added or removed.
    pub(super) fn changed(&mut self, at: Time, out: &mut Vec<Effect>) {
        self.functions_changed = true;
        self.is_due = false;
        self.schedule(at, out);
    }

    /// Schedules an update of all clients at this time, unless one is due already.
    pub(super) fn schedule(&mut self, at: Time, out: &mut Vec<Effect>) {
        if !self.is_due {
            self.is_due = true;
            out.push(Effect::SetTimer { timer: AgentTimer::DirectoryPush.into(), at });
        }
    }

    /// Sends a new client the directory that all others know. Pending changes of known servers follow with the next
    /// update. If servers or functions were added or removed, that must be sent first: a client never knows functions
    /// without their servers, and a program may have waited for a server to appear before it started.
    pub(super) fn subscribe(&mut self, client: NodeId, functions: Vec<Signature>, out: &mut Vec<Effect>) {
        debug_assert!(!self.functions_changed, "added and removed servers were not sent first");
        self.clients.insert(client);
        let mut servers: Vec<ServerView> = self.servers.values().cloned().collect();
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        let functions = Some(functions);
        let update = DirectoryUpdate { is_full: true, servers, removed: Vec::new(), functions };
        send(out, client, DirectoryToClient::Update(update));
    }

    /// Sends all clients the changes since the last update. `views` returns what is known of servers: of these, or of all.
    pub(super) fn push(
        &mut self,
        views: impl FnOnce(Option<&BTreeSet<NodeId>>) -> Vec<ServerView>,
        functions: impl FnOnce() -> Vec<Signature>,
        out: &mut Vec<Effect>,
    ) {
        self.is_due = false;
        let functions = std::mem::take(&mut self.functions_changed).then(functions);
        let mut changed = std::mem::take(&mut self.changed);
        let mut views = match std::mem::take(&mut self.has_all_changed) {
            true => {
                changed.extend(self.servers.keys());
                views(None)
            }
            false => views(Some(&changed)),
        };
        for view in &views {
            changed.remove(&view.node);
        }
        views.retain(|view| self.servers.get(&view.node) != Some(view));
        views.sort_by(|a, b| a.name.cmp(&b.name));
        let removed: Vec<NodeId> = changed.into_iter().filter(|gone| self.servers.remove(gone).is_some()).collect();
        self.servers.extend(views.iter().map(|view| (view.node, view.clone())));
        let update = DirectoryUpdate { is_full: false, servers: views, removed, functions };
        if !update.is_empty() {
            for client in &self.clients {
                send(out, *client, DirectoryToClient::Update(update.clone()));
            }
        }
    }
}

/// Returns how many times the pauses between updates are longer than in a small grid: comparing and sending the servers of a
/// large one takes longer.
pub(super) fn pause_factor(servers: usize) -> u64 {
    (servers / SERVERS_MAPPED_ALL_MAX).max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::super::Agent;
    use super::super::models::tests::{agent, register};
    use super::*;
    use crate::node::message::{DirectoryMessage, DirectoryToAgent, Message};
    use crate::node::protocol::{Input, Role};
    use crate::node::version::VERSIONS;
    use gridloom_base::dial::ConnectionFault;
    use gridloom_base::{Machine, Origin};

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
            agent.handle(
                Time(4),
                Input::PeerUp { peer: from, role, name, origin: Origin::default(), address, version },
                &mut out,
            );
        }
        agent.handle(Time(400_000_000), Input::Received { from, message: message.into() }, &mut out);
        out
    }

    #[test]
    fn clients_of_a_large_grid_know_what_the_agent_does() {
        for servers in [40, 200] {
            let (mut agent, mut known) = (agent(), Vec::new());
            let update = |agent: &mut Agent, known: &mut Vec<ServerView>| {
                let updates = push(agent);
                let sent: usize = updates.iter().map(|(_, news)| news.servers.len() + news.removed.len()).sum();
                updates.into_iter().for_each(|(_, news)| drop(news.apply(known)));
                assert_eq!(*known, agent.grid_view(Time(1)).servers);
                sent
            };
            for n in 0..servers {
                register(&mut agent, 2 + n, &format!("h{n:03}:1"), 1.0, 1.0 + 0.01 * n as f64);
            }
            let client = NodeId(9_000);
            let updates = updates_of(receives(&mut agent, client, DirectoryToAgent::Subscribe));
            updates.into_iter().for_each(|(_, news)| drop(news.apply(&mut known)));
            assert_eq!(known.len(), servers as usize);
            assert_eq!(update(&mut agent, &mut known), 0);
            // Other hosts' models are guessed from the first hosts by name only, if there are many.
            for (node, flops) in [(2, 3e9), (servers, 2e9)] {
                receives(&mut agent, NodeId(node), DirectoryToAgent::Speed { flops });
                let sent = update(&mut agent, &mut known);
                assert!(sent > 0 && (servers < 128 || node == 2 || sent == 1), "{sent} of {servers}");
            }
            receives(&mut agent, NodeId(5), DirectoryToAgent::CannotRun { function: "m/f".into(), why: "so".into() });
            assert_eq!(update(&mut agent, &mut known), 1);
            let why = "it ended".to_string();
            let lost = Input::PeerLost { peer: NodeId(3), fault: ConnectionFault::Disconnected, why };
            agent.handle(Time(1), lost, &mut Vec::new());
            assert!(update(&mut agent, &mut known) > 0);
        }
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
        assert_eq!(first.1.functions.as_ref().map(Vec::len), Some(agent.registry.signatures().len()));
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
        assert_eq!(known[0], agent.grid_view(Time(1)).servers);

        let mut out = Vec::new();
        agent.handle(
            Time(1),
            Input::PeerLost { peer: NodeId(2), fault: ConnectionFault::Disconnected, why: "it ended".into() },
            &mut out,
        );
        let both = push(&mut agent);
        assert_eq!(both[0].1.removed, [NodeId(2)]);
        both.into_iter().zip(&mut known).for_each(|((_, news), known)| drop(news.apply(known)));
        assert_eq!(known[0], agent.grid_view(Time(1)).servers);
        assert_eq!(known[0], known[1]);
    }
}
