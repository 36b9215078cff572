//! Addresses of nodes: several direct ones, and paths through relays for nodes that others cannot dial.
//!
//! An address is text, `10.0.0.5:7711+vpn.lab:7711+relay.org:443/n3f21@lab7`: alternatives in order of preference,
//! separated by `+`. An alternative without a slash is dialled directly. One with a slash names a relay and, after the
//! slash, the node that is registered there.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::{EscapedLine, NodeId};

/// Separator of the alternatives.
pub const SEPARATOR: char = '+';
/// Maximum number of alternatives: a dial tries all of them.
pub const ALTERNATIVES_MAX: usize = 8;
/// Maximum length of an address.
pub const ADDRESS_BYTES_MAX: usize = 1024;
/// Target of a path through a relay that leads to the agent of the grid.
const AGENT: &str = "agent";

/// The address of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeAddress {
    /// Addresses that can be dialled directly, HOST:PORT.
    pub direct: Vec<String>,
    pub relayed: Vec<RelayPath>,
}

/// A path to a node through a relay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelayPath {
    /// The address of the relay, HOST:PORT.
    pub relay: String,
    pub target: RelayTarget,
}

/// The node to which a relay leads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RelayTarget {
    /// The agent of the relay's grid.
    Agent,
    Node {
        node: NodeId,
        /// Name of the node's machine. Nodes with the same name share the machine.
        host: String,
    },
}

/// Why a text is not an address.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct InvalidAddress(String);

impl NodeAddress {
    /// Returns the node at the address, if the address names one.
    pub fn node(&self) -> Option<NodeId> {
        self.relayed.iter().find_map(|path| match path.target {
            RelayTarget::Agent => None,
            RelayTarget::Node { node, .. } => Some(node),
        })
    }
}

impl FromStr for NodeAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<NodeAddress, InvalidAddress> {
        if text.len() > ADDRESS_BYTES_MAX {
            let why = format!("an address has at most {ADDRESS_BYTES_MAX} bytes, this one has {}", text.len());
            return Err(InvalidAddress(why));
        }
        let mut address = NodeAddress::default();
        for (index, alternative) in text.split(SEPARATOR).enumerate() {
            if index == ALTERNATIVES_MAX {
                return Err(InvalidAddress(format!("an address has at most {ALTERNATIVES_MAX} alternatives")));
            }
            let (place, target) = match alternative.split_once('/') {
                Some((relay, target)) => (relay, Some(target)),
                None => (alternative, None),
            };
            check_place(place)?;
            match target {
                None => address.direct.push(place.into()),
                Some(target) => {
                    address.relayed.push(RelayPath { relay: place.into(), target: target.parse()? });
                }
            }
        }
        Ok(address)
    }
}

impl FromStr for RelayTarget {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<RelayTarget, InvalidAddress> {
        if text == AGENT {
            return Ok(RelayTarget::Agent);
        }
        let parse = || {
            let (node, host) = text.split_once('@')?;
            let node = u64::from_str_radix(node.strip_prefix('n')?, 16).ok()?;
            let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            let is_valid = !host.is_empty() && host.bytes().all(is_host);
            is_valid.then(|| RelayTarget::Node { node: NodeId(node), host: host.into() })
        };
        parse().ok_or_else(|| {
            let text = EscapedLine(text);
            InvalidAddress(format!(
                "'{text}' after the address of a relay is not a node; expected '{AGENT}' or nID@HOST"
            ))
        })
    }
}

/// Checks that a text has the form HOST:PORT.
///
/// # Errors
/// If it has another.
pub fn check_place(place: &str) -> Result<(), InvalidAddress> {
    let port = place.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(port)) if port > 0 => Ok(()),
        _ => {
            let place = EscapedLine(place);
            Err(InvalidAddress(format!("'{place}' is not an address; expected HOST:PORT, such as 127.0.0.1:7711")))
        }
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = self.relayed.iter().map(ToString::to_string);
        let all: Vec<String> = self.direct.iter().cloned().chain(paths).collect();
        f.write_str(&all.join(&SEPARATOR.to_string()))
    }
}

impl fmt::Display for RelayPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.relay, self.target)
    }
}

impl fmt::Display for RelayTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelayTarget::Agent => f.write_str(AGENT),
            RelayTarget::Node { node, host } => write!(f, "{node}@{host}"),
        }
    }
}

/// Returns the name of the host in an address. For a node behind a relay, this is the name of its machine, because
/// private addresses of two networks may be equal. Otherwise it is the host of the first alternative.
pub fn host_of(address: &str) -> &str {
    if let Some((_, rest)) = address.split_once('@') {
        return rest.split(SEPARATOR).next().unwrap_or(rest);
    }
    let first = address.split(SEPARATOR).next().unwrap_or(address);
    first.rsplit_once(':').map_or(first, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_are_parsed_and_printed() {
        let text = "10.0.0.5:7711+[fd00::5]:7711+relay.org:443/n3f21@lab7+other.org:443/n3f21@lab7";
        let address: NodeAddress = text.parse().unwrap();
        assert_eq!(address.direct, ["10.0.0.5:7711", "[fd00::5]:7711"]);
        assert_eq!((address.relayed.len(), address.node()), (2, Some(NodeId(0x3f21))));
        assert_eq!(address.to_string(), text);
        let agent: NodeAddress = "relay.org:443/agent".parse().unwrap();
        assert_eq!(agent.relayed[0], RelayPath { relay: "relay.org:443".into(), target: RelayTarget::Agent });
        assert_eq!(agent.node(), None);
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let error = |text: &str| text.parse::<NodeAddress>().unwrap_err().to_string();
        assert_eq!(error("lab"), "'lab' is not an address; expected HOST:PORT, such as 127.0.0.1:7711");
        for wrong in ["", ":7", "a:0", "a:70000", "a:1+", "a:1++b:2", "relay:0/agent", "a\n:x"] {
            assert!(error(wrong).contains("is not an address"), "{wrong}");
        }
        for wrong in ["", "server", "n3f21", "3f21@lab", "nxyz@lab", "n1@", "n1@a/b", "n1@a@b", "n10000000000000000@a"]
        {
            let error = error(&format!("relay:443/{wrong}"));
            assert!(error.ends_with("is not a node; expected 'agent' or nID@HOST"), "{error}");
        }
        assert_eq!(error(&["a:1"; 9].join("+")), "an address has at most 8 alternatives");
        assert!(error(&"a".repeat(1025)).starts_with("an address has at most 1024 bytes"));
    }

    #[test]
    fn the_host_of_a_relayed_node_is_its_machine() {
        assert_eq!(host_of("10.0.0.5:7711"), "10.0.0.5");
        assert_eq!(host_of("[fd00::5]:7711+b:1"), "[fd00::5]");
        assert_eq!(host_of("10.0.0.5:1+relay:443/n1@lab7+other:443/n1@lab7"), "lab7");
        assert_eq!(host_of("relay:443/agent"), "relay");
        assert_eq!(host_of(""), "");
    }
}
