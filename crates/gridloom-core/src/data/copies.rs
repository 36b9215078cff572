//! Copies of a datum that the program had put on servers, and how far the datum is.

use std::fmt;

use gridloom_base::NodeId;

/// Where a datum's copies are, besides the place where it was made.
#[derive(Clone, Default, Debug)]
pub struct Copies {
    /// In the order in which they were put there.
    servers: Vec<(NodeId, String)>,
    /// The client has given up its own copy.
    is_away: bool,
}

impl Copies {
    /// A copy was put on a server. `is_single`: the client has given up its own.
    pub fn add(&mut self, server: NodeId, name: String, is_single: bool) {
        self.servers.push((server, name));
        self.is_away |= is_single;
    }

    /// The copy on that server was given up.
    pub fn remove(&mut self, server: NodeId) {
        self.servers.retain(|(other, _)| *other != server);
    }

    pub fn has(&self, server: NodeId) -> bool {
        self.servers.iter().any(|(other, _)| *other == server)
    }

    /// The server that got the first copy.
    pub fn first(&self) -> Option<NodeId> {
        self.servers.first().map(|(node, _)| *node)
    }

    /// Names of all places, the one where it was made first; the client's name is [`CLIENT`].
    pub fn places(&self, made_at: Option<String>) -> Vec<String> {
        let made_at = made_at.filter(|place| !self.is_away || place != CLIENT);
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

/// The client among the names of places.
pub const CLIENT: &str = "client";

/// How far a datum is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// It has no value.
    Undefined,
    /// The call that makes it has not ended.
    UnderWay,
    Ready,
    /// The call that was to make it failed; why.
    Lost(String),
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Undefined => f.write_str("undefined"),
            Status::UnderWay => f.write_str("under way"),
            Status::Ready => f.write_str("ready"),
            Status::Lost(why) => write!(f, "lost: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named_once_and_the_client_while_it_has_a_copy() {
        let server = |name: &str| NodeId(name.bytes().map(u64::from).sum());
        let mut copies = Copies::default();
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
