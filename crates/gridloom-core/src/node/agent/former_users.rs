//! The users of clients whose connections were lost lately. Functions that such a client has called still put data for it.

use std::collections::{BTreeMap, VecDeque};

use gridloom_base::NodeId;

/// Maximum number of remembered clients.
const CLIENTS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct FormerUsers {
    users: BTreeMap<NodeId, String>,
    /// Oldest first; each once.
    order: VecDeque<NodeId>,
}

impl FormerUsers {
    pub(super) fn add(&mut self, client: NodeId, user: String) {
        if self.users.insert(client, user).is_none() {
            self.order.push_back(client);
        }
        if self.order.len() > CLIENTS_MAX {
            self.order.pop_front().map(|oldest| self.users.remove(&oldest));
        }
    }

    pub(super) fn get(&self, client: NodeId) -> Option<&str> {
        self.users.get(&client).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_clients_are_remembered() {
        let mut former = FormerUsers::default();
        for client in 0..=CLIENTS_MAX as u64 {
            former.add(NodeId(client), format!("user {client}"));
            former.add(NodeId(client), "anna".into());
        }
        assert_eq!((former.get(NodeId(0)), former.get(NodeId(1))), (None, Some("anna")));
        assert_eq!((former.users.len(), former.order.len()), (CLIENTS_MAX, CLIENTS_MAX));
    }
}
