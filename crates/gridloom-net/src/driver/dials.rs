//! Dials in progress, and dials that wait for the connection that the peer has dialled itself.
//!
//! Two nodes may dial each other at the same moment, and one of the two connections ends as "duplicate". Its dial is
//! *shadowed*: it ends when the other connection is up, or fails at its deadline.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;

use gridloom_base::address::RelayPath;
use gridloom_base::dial::{ConnectionError, ConnectionFault, NO_ANSWER, NOT_LISTENING};
use gridloom_base::limits::DIAL_NS_MAX;
use gridloom_base::{NodeId, Time};

use crate::descriptors;

/// A way to connect to the node of a dial.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Candidate {
    Direct(SocketAddr),
    Relayed(RelayPath),
}

/// A dial in progress. Its candidates are tried one after another. If one does not answer soon, the next is tried in
/// parallel, and the first that answers is used (RFC 8305).
pub(super) struct Dial {
    pub(super) address: String,
    /// The node that must answer, if the address names it.
    pub(super) node: Option<NodeId>,
    /// Candidates not tried yet.
    pub(super) left: VecDeque<Candidate>,
    /// Number of attempts in progress. A name resolution counts as one.
    pub(super) attempts: u32,
    /// Time at which the next candidate is tried, even if no attempt has failed.
    pub(super) next_at: Time,
    /// Why the attempts have failed, each reason once.
    pub(super) reasons: Vec<ConnectionError>,
    pub(super) began: Time,
    pub(super) deadline: Time,
}

impl Dial {
    /// Ends an attempt that has failed.
    pub(super) fn attempt_failed(&mut self, error: ConnectionError) {
        self.attempts -= 1;
        self.add_reason(error);
    }

    pub(super) fn add_reason(&mut self, error: ConnectionError) {
        if !self.reasons.contains(&error) {
            self.reasons.push(error);
        }
    }

    /// Returns why the dial has failed. A refusal by one candidate says nothing about the others, so the reason is permanent
    /// only if all are.
    pub(super) fn why_failed(&self) -> ConnectionError {
        let (permanent, other): (Vec<_>, Vec<_>) = self.reasons.iter().partition(|one| one.fault.is_permanent());
        let refuses = (!permanent.is_empty()).then_some("a node at another of its addresses refuses the connection");
        let (shown, refuses) = if other.is_empty() { (permanent, None) } else { (other, refuses) };
        let revoked = shown.iter().find(|one| one.fault == ConnectionFault::Revoked);
        let fault = revoked.or(shown.first()).map_or(ConnectionFault::Other, |one| one.fault);
        let all: Vec<&str> = shown.iter().map(|one| one.why.as_str()).chain(refuses).collect();
        ConnectionError::new(fault, all.join("; "))
    }

    /// Returns the next candidate.
    pub(super) fn take_next(&mut self, next_at: Time) -> Option<Candidate> {
        let candidate = self.left.pop_front()?;
        self.next_at = next_at;
        self.attempts += 1;
        Some(candidate)
    }

    /// True if nothing is left to try.
    pub(super) fn has_failed(&self) -> bool {
        self.left.is_empty() && self.attempts == 0
    }

    fn next_candidate_at(&self) -> Time {
        if self.left.is_empty() { Time::NEVER } else { self.next_at }
    }
}

/// The dials of a node.
#[derive(Default)]
pub(super) struct DialTable {
    in_progress: BTreeMap<u64, Dial>,
    next: u64,
    /// Deadlines of shadowed dials, by node and address.
    shadowed: BTreeMap<(NodeId, String), Time>,
}

impl DialTable {
    /// Registers a new dial and returns its number.
    pub(super) fn begin(&mut self, dial: Dial) -> u64 {
        self.next += 1;
        self.in_progress.insert(self.next, dial);
        self.next
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Dial> {
        self.in_progress.get_mut(&number)
    }

    /// True if the dial must lead to another node than this one.
    pub(super) fn leads_elsewhere(&self, number: u64, node: NodeId) -> bool {
        self.in_progress.get(&number).and_then(|dial| dial.node).is_some_and(|expected| expected != node)
    }

    /// Removes a dial, whether it succeeded or failed.
    pub(super) fn end(&mut self, number: u64) -> Option<Dial> {
        self.in_progress.remove(&number)
    }

    /// Registers a dial that ended as a duplicate while the other connection is not up yet.
    pub(super) fn shadow(&mut self, peer: NodeId, address: String, deadline: Time) {
        self.shadowed.insert((peer, address), deadline);
    }

    /// Takes the addresses of the shadowed dials to this peer, whose connection is up now.
    pub(super) fn take_shadowed(&mut self, peer: NodeId) -> Vec<String> {
        self.take_shadowed_if(|node, _| node == peer)
    }

    /// Returns the dials past their deadline.
    pub(super) fn late(&self, now: Time) -> Vec<u64> {
        self.in_progress.iter().filter(|(_, dial)| dial.deadline <= now).map(|(number, _)| *number).collect()
    }

    /// Returns the dials whose next candidate is due.
    pub(super) fn due(&self, now: Time) -> Vec<u64> {
        let due = self.in_progress.iter().filter(|(_, dial)| dial.next_candidate_at() <= now);
        due.map(|(number, _)| *number).collect()
    }

    /// Takes the addresses of shadowed dials past their deadline.
    pub(super) fn take_late_shadowed(&mut self, now: Time) -> Vec<String> {
        self.take_shadowed_if(|_, deadline| deadline <= now)
    }

    fn take_shadowed_if(&mut self, is_over: impl Fn(NodeId, Time) -> bool) -> Vec<String> {
        let mut over = Vec::new();
        self.shadowed.retain(|(node, address), deadline| {
            let is_over = is_over(*node, *deadline);
            if is_over {
                over.push(address.clone());
            }
            !is_over
        });
        over
    }

    /// Returns all deadlines.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = Time> {
        let of_dials = self.in_progress.values().map(|dial| dial.deadline.min(dial.next_candidate_at()));
        of_dials.chain(self.shadowed.values().copied())
    }
}

/// Describes why a connection failed.
pub(super) fn cannot_connect(error: &io::Error) -> ConnectionError {
    let (fault, why) = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            (ConnectionFault::NotListening, format!("{NOT_LISTENING} (connection refused)"))
        }
        io::ErrorKind::TimedOut => return no_answer(),
        _ if descriptors::have_run_out(error) => {
            (ConnectionFault::Other, format!("no connection could be opened: {}", descriptors::describe(error)))
        }
        _ => (ConnectionFault::NoAnswer, format!("{NO_ANSWER} ({error})")),
    };
    ConnectionError { fault, why }
}

/// Describes why a dial that got no answer failed.
pub(super) fn no_answer() -> ConnectionError {
    let seconds = DIAL_NS_MAX as f64 / 1e9;
    let why = format!("{NO_ANSWER} within {seconds} s: the host is down, or something on the path drops the packets");
    ConnectionError::new(ConnectionFault::NoAnswer, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dial_of(ports: &[u16]) -> Dial {
        let candidate = |port: &u16| Candidate::Direct(([127, 0, 0, 1], *port).into());
        Dial {
            address: "a:1".into(),
            node: None,
            left: ports.iter().map(candidate).collect(),
            attempts: 0,
            next_at: Time(0),
            reasons: Vec::new(),
            began: Time(0),
            deadline: Time(9),
        }
    }

    #[test]
    fn a_dial_fails_when_all_its_candidates_have() {
        let mut dials = DialTable::default();
        let number = dials.begin(dial_of(&[1, 2]));
        assert_eq!(dials.due(Time(0)), [number]);
        let dial = dials.get_mut(number).unwrap();
        assert!(dial.take_next(Time(3)).is_some());
        assert_eq!((dials.due(Time(2)), dials.due(Time(3))), (vec![], vec![number]));
        assert_eq!(dials.deadlines().min(), Some(Time(3)));
        let dial = dials.get_mut(number).unwrap();
        assert!(dial.take_next(Time(6)).is_some() && dial.take_next(Time(6)).is_none());
        let error = ConnectionError::new;
        let closed = error(ConnectionFault::Closed, "why");
        dial.attempt_failed(closed.clone());
        assert!(!dial.has_failed());
        dial.attempt_failed(closed.clone());
        assert!(dial.has_failed() && dial.why_failed() == closed);
        dial.add_reason(error(ConnectionFault::WrongGrid, "the agent there refused: it is of another grid"));
        let why = "why; a node at another of its addresses refuses the connection";
        assert_eq!(dial.why_failed(), error(ConnectionFault::Closed, why));
        dial.reasons.remove(0);
        assert_eq!(dial.why_failed().fault, ConnectionFault::WrongGrid);
        dial.add_reason(error(ConnectionFault::Revoked, "certificate revoked: "));
        assert_eq!(dial.why_failed().fault, ConnectionFault::Revoked);
        assert_eq!((dials.due(Time(8)), dials.deadlines().min()), (vec![], Some(Time(9))));
    }

    #[test]
    fn a_shadowed_dial_ends_with_its_peer_or_at_its_deadline() {
        let mut dials = DialTable::default();
        let number = dials.begin(dial_of(&[]));
        assert_eq!((dials.late(Time(8)), dials.late(Time(9))), (vec![], vec![number]));
        assert!(dials.end(number).is_some() && dials.end(number).is_none());
        dials.shadow(NodeId(1), "a:1".into(), Time(9));
        dials.shadow(NodeId(2), "b:1".into(), Time(7));
        assert_eq!(dials.deadlines().min(), Some(Time(7)));
        assert_eq!(dials.take_late_shadowed(Time(8)), ["b:1"]);
        assert_eq!(dials.take_shadowed(NodeId(1)), ["a:1"]);
        assert_eq!(dials.deadlines().min(), None);
    }
}
