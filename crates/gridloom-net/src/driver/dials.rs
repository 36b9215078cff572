//! Dials in progress, and dials that wait for the connection that the peer has dialled itself.
//!
//! Two nodes may dial each other at the same moment, and one of the two connections ends as "duplicate". Its dial is
//! *shadowed*: it ends when the other connection is up, or fails at its deadline.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;

use gridloom_base::dial::{NO_ANSWER, NOT_LISTENING};
use gridloom_base::limits::DIAL_NS_MAX;
use gridloom_base::{NodeId, Time};

use crate::descriptors;

/// A dial in progress.
pub(super) struct Dial {
    pub(super) address: String,
    /// Addresses not tried yet.
    pub(super) left: VecDeque<SocketAddr>,
    pub(super) began: Time,
    pub(super) deadline: Time,
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

    /// Stores the resolved addresses of a dial.
    pub(super) fn resolved(&mut self, number: u64, addresses: Vec<SocketAddr>) {
        if let Some(dial) = self.in_progress.get_mut(&number) {
            dial.left = addresses.into();
        }
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
        self.in_progress.values().map(|dial| dial.deadline).chain(self.shadowed.values().copied())
    }
}

/// Describes why a connection failed.
pub(super) fn cannot_connect(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("{NOT_LISTENING} (connection refused)"),
        io::ErrorKind::TimedOut => no_answer(),
        _ if descriptors::have_run_out(error) => {
            format!("no connection could be opened: {}", descriptors::describe(error))
        }
        _ => format!("{NO_ANSWER} ({error})"),
    }
}

/// Describes why a dial that got no answer failed.
pub(super) fn no_answer() -> String {
    let seconds = DIAL_NS_MAX as f64 / 1e9;
    format!("{NO_ANSWER} within {seconds} s: the host is down, or something on the path drops the packets")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadowed_dial_ends_with_its_peer_or_at_its_deadline() {
        let mut dials = DialTable::default();
        let dial = Dial { address: "a:1".into(), left: VecDeque::new(), began: Time(0), deadline: Time(9) };
        let number = dials.begin(dial);
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
