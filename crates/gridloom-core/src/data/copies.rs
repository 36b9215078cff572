//! Copies of a datum that the program placed on servers, and the status of a datum.

use std::fmt;

use gridloom_base::NodeId;

/// Locations of a datum's copies besides the one where it was produced.
#[derive(Clone, Default, Debug)]
pub struct PlacedCopies {
    /// In the order in which they were placed.
    servers: Vec<(NodeId, String)>,
    /// True if the client has dropped its own copy.
    client_dropped: bool,
}

impl PlacedCopies {
    /// Records a copy on a server. `is_single` means that the client has dropped its own.
    pub fn add(&mut self, server: NodeId, name: String, is_single: bool) {
        self.servers.push((server, name));
        self.client_dropped |= is_single;
    }

    /// Records that the copy on that server was dropped.
    pub fn remove(&mut self, server: NodeId) {
        self.servers.retain(|(other, _)| *other != server);
    }

    pub fn has(&self, server: NodeId) -> bool {
        self.servers.iter().any(|(other, _)| *other == server)
    }

    /// Returns the server that got the first copy.
    pub fn first(&self) -> Option<NodeId> {
        self.servers.first().map(|(node, _)| *node)
    }

    /// Returns the names of all locations, the producing one first. The client's name is [`CLIENT`].
    pub fn places(&self, made_at: Option<String>) -> Vec<String> {
        let made_at = made_at.filter(|place| !self.client_dropped || place != CLIENT);
        let others = self.servers.iter().map(|(_, name)| name.clone());
        let mut all: Vec<String> = Vec::new();
        made_at.into_iter().chain(others).for_each(|name| {
            if !all.contains(&name) {
                all.push(name);
            }
        });
        all
    }
}

/// Name of the client in lists of locations.
pub const CLIENT: &str = "client";

/// The status of a datum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DatumStatus {
    /// It has no value.
    Undefined,
    /// The call that produces it has not ended.
    InProgress,
    Ready,
    /// The call that should produce it failed, for this reason.
    Lost(String),
}

impl fmt::Display for DatumStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatumStatus::Undefined => f.write_str("undefined"),
            DatumStatus::InProgress => f.write_str("under way"),
            DatumStatus::Ready => f.write_str("ready"),
            DatumStatus::Lost(why) => write!(f, "lost: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named_once_and_the_client_while_it_has_a_copy() {
        let server = |name: &str| NodeId(name.bytes().map(u64::from).sum());
        let mut copies = PlacedCopies::default();
        copies.add(server("a"), "a".into(), false);
        copies.add(server("b"), "b".into(), false);
        assert_eq!(copies.places(Some("b".into())), ["b", "a"]);
        copies.remove(server("a"));
        assert!(!copies.has(server("a")) && copies.first() == Some(server("b")));
        assert_eq!(copies.places(Some(CLIENT.into())), [CLIENT, "b"]);
        copies.add(server("c"), "c".into(), true);
        assert_eq!(copies.places(Some(CLIENT.into())), ["b", "c"]);
    }
}
