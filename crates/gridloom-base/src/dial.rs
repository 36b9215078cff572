//! Why a connection could not be opened, or was lost. A [`ConnectionFault`] decides what a node does next; the texts are for people.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Beginnings of the texts of faults.
pub const UNRESOLVED: &str = "the name cannot be resolved";
pub const NOT_LISTENING: &str = "no program listens there";
pub const NO_ANSWER: &str = "no answer";
pub const NOT_A_NODE: &str = "the program that answers there is not a Gridloom node";
pub const SILENT: &str = "a program listens there, but does not answer";
pub const CLOSED: &str = "the program that listens there closed the connection before it answered";
pub const DISCONNECTED: &str = "the connection was lost";
pub const REVOKED: &str = "certificate revoked: ";
pub const NO_DESCRIPTORS: &str = "the node has no free file descriptors";

/// The kind of a failed dial or of a lost connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum ConnectionFault {
    /// The host name cannot be resolved.
    Unresolved,
    /// The host refuses the connection: no program listens on the port.
    NotListening,
    /// The host does not answer.
    NoAnswer,
    /// A program listens on the port, but does not answer: it may be slow or stopped, or expect another protocol.
    Silent,
    /// A program accepted the connection, and closed it before it answered.
    Closed,
    /// A program listens on the port, but its answer does not follow Gridloom's protocol.
    NotANode,
    /// Another node than the wanted one answers.
    WrongNode,
    /// The node is connected already, at another address.
    ConnectedAlready,
    /// A relay could not be used, or cannot reach the node.
    Relay,
    /// The node has no file descriptor for the connection.
    NoDescriptors,
    /// One side refuses the other for a reason that is not listed here.
    Refused,
    /// The two sides have no version of the protocol in common.
    WrongVersion,
    /// One side has no certificate, or none for the grid of the other.
    NoCertificate,
    /// The certificate of one side has expired, or is not valid yet.
    Expired,
    /// The two sides belong to different grids.
    WrongGrid,
    /// The certificate of one side does not allow the role that it has.
    WrongRole,
    /// One side uses an identifier that its certificate does not allow.
    WrongIdentity,
    /// The certificate of one side has been revoked.
    Revoked,
    /// The node was connected before.
    Disconnected,
    /// The cause is in this node, or is not known yet.
    Other,
}

impl ConnectionFault {
    /// All faults.
    pub const ALL: [ConnectionFault; 20] = {
        use ConnectionFault::*;
        [
            Unresolved,
            NotListening,
            NoAnswer,
            Silent,
            Closed,
            NotANode,
            WrongNode,
            ConnectedAlready,
            Relay,
            NoDescriptors,
            Refused,
            WrongVersion,
            NoCertificate,
            Expired,
            WrongGrid,
            WrongRole,
            WrongIdentity,
            Revoked,
            Disconnected,
            Other,
        ]
    };

    /// True if one of the two nodes refused the other.
    pub fn is_refusal(self) -> bool {
        use ConnectionFault::*;
        match self {
            NoDescriptors | Refused | WrongVersion | NoCertificate | Expired | WrongGrid | WrongRole
            | WrongIdentity | Revoked => true,
            Unresolved | NotListening | NoAnswer | Silent | Closed | NotANode | WrongNode | ConnectedAlready
            | Relay | Disconnected | Other => false,
        }
    }

    /// True if a retry cannot help, because the settings of the two nodes do not match.
    pub fn is_permanent(self) -> bool {
        self.is_refusal() && self != ConnectionFault::NoDescriptors
    }

    /// True if the node may only be slow or overloaded.
    pub fn may_recover(self) -> bool {
        self == ConnectionFault::Silent
    }

    /// Returns the remedy for an agent that cannot be reached, as the end of a sentence.
    pub fn agent_remedy(self) -> &'static str {
        use ConnectionFault::*;
        match self {
            Revoked => "; ask the administrator of the grid for a new certificate, and start this program again",
            NotListening | Disconnected => "; start an agent with 'gridloom agent', or connect to another one",
            Unresolved | NoAnswer | NotANode => "; check the address, HOST:PORT as 'gridloom agent' prints it",
            Silent | Closed => {
                "; if that is the agent, it is overloaded, stopped or shutting down: check its log and its process on that \
                 host; otherwise check the address, HOST:PORT as 'gridloom agent' prints it"
            }
            WrongNode | ConnectedAlready | Relay | NoDescriptors | Refused | WrongVersion | NoCertificate | Expired
            | WrongGrid | WrongRole | WrongIdentity | Other => "",
        }
    }

    /// Returns the number of the fault in refusals, which never changes.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the fault with that number. A newer peer may send others, which are refusals, too.
    pub fn from_code(code: u8) -> ConnectionFault {
        ConnectionFault::ALL.get(usize::from(code)).copied().unwrap_or(ConnectionFault::Refused)
    }
}

/// A fault with its description.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{why}")]
pub struct ConnectionError {
    pub fault: ConnectionFault,
    pub why: String,
}

impl ConnectionError {
    pub fn new(fault: ConnectionFault, why: impl Into<String>) -> ConnectionError {
        ConnectionError { fault, why: why.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_code() {
        for (code, fault) in ConnectionFault::ALL.into_iter().enumerate() {
            assert_eq!((usize::from(fault.code()), ConnectionFault::from_code(code as u8)), (code, fault));
        }
        assert_eq!(ConnectionFault::from_code(200), ConnectionFault::Refused);
    }

    #[test]
    fn only_refusals_are_permanent_and_a_full_node_may_recover() {
        use ConnectionFault::*;
        assert!([Revoked, WrongGrid, WrongRole, Expired, WrongVersion].into_iter().all(ConnectionFault::is_permanent));
        assert!([Silent, NoDescriptors, Disconnected, NotListening, Relay].into_iter().all(|one| !one.is_permanent()));
        assert!(NoDescriptors.is_refusal() && Silent.may_recover() && !Closed.may_recover());
    }
}
