//! The connected peers, and whether they are alive.
//!
//! Every node pings each of its peers once per heartbeat. It considers a peer dead that has been silent for
//! [`SILENCE_NS_MAX`]. Anything received counts as a sign of life.

use std::collections::BTreeMap;

use gridloom_base::limits::{HEARTBEAT_NS, SILENCE_NS_MAX};
use gridloom_base::{NodeId, Time};

/// A connected peer. `R` is additional data of the owner.
#[derive(Clone, Debug)]
pub struct Peer<R> {
    /// The owner's data about the peer.
    pub data: R,
    /// When something was last received from it.
    pub last_received: Time,
    /// Shortest round trip measured.
    pub rtt_ns: Option<u64>,
    ping: Option<(u64, Time)>,
    /// Number of heartbeats that have pinged the peer since the last message from it.
    unanswered: u32,
}

/// A heartbeat that follows the previous one after more than this is late: three intervals.
const LATE_NS: u64 = 3 * HEARTBEAT_NS;

/// The connected peers.
#[derive(Clone, Debug)]
pub struct Members<R> {
    peers: BTreeMap<NodeId, Peer<R>>,
    next_token: u64,
    /// Time of the last heartbeat, or of the first connection.
    last_beat: Option<Time>,
}

/// The actions of a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Beat {
    /// Pings to send (peer, token).
    pub pings: Vec<(NodeId, u64)>,
    /// Peers that have been silent for too long (peer, nanoseconds of silence).
    pub silent: Vec<(NodeId, u64)>,
}

impl<R> Default for Members<R> {
    fn default() -> Self {
        Members { peers: BTreeMap::new(), next_token: 0, last_beat: None }
    }
}

impl<R> Members<R> {
    /// Adds a connected peer.
    pub fn add(&mut self, now: Time, node: NodeId, about: R) {
        // The first heartbeat may be late too.
        self.last_beat.get_or_insert(now);
        self.peers.insert(node, Peer { data: about, last_received: now, rtt_ns: None, ping: None, unanswered: 0 });
    }

    /// Removes a peer whose connection is lost. Returns its entry.
    pub fn remove(&mut self, node: NodeId) -> Option<Peer<R>> {
        self.peers.remove(&node)
    }

    /// True if the node is connected.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.peers.contains_key(&node)
    }

    /// Returns the peer if it is connected.
    pub fn get(&self, node: NodeId) -> Option<&Peer<R>> {
        self.peers.get(&node)
    }

    /// Returns the peer if it is connected.
    pub fn get_mut(&mut self, node: NodeId) -> Option<&mut Peer<R>> {
        self.peers.get_mut(&node)
    }

    /// Returns all peers, ordered by identifier.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Peer<R>)> {
        self.peers.iter().map(|(node, peer)| (*node, peer))
    }

    /// Records that something was received from a peer. Returns false if it is not connected: messages that were in
    /// flight when the connection ended do not count.
    #[must_use]
    pub fn record_received(&mut self, now: Time, node: NodeId) -> bool {
        let peer = self.peers.get_mut(&node);
        peer.map(|peer| (peer.last_received, peer.unanswered) = (now, 0)).is_some()
    }

    /// True if a connected peer has left the pings of more than `pings` consecutive heartbeats unanswered, including the
    /// current one. Unlike [`Members::silence_ns`], this does not count time in which this process was stopped.
    pub fn is_unresponsive(&self, node: NodeId, pings: u32) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.unanswered > pings)
    }

    /// Returns for how long a connected peer has been silent, in nanoseconds.
    pub fn silence_ns(&self, now: Time, node: NodeId) -> Option<u64> {
        self.peers.get(&node).map(|peer| now.since(peer.last_received))
    }

    /// Returns the token of a ping to send now, outside the heartbeat.
    pub fn ping(&mut self, now: Time, node: NodeId) -> Option<u64> {
        let peer = self.peers.get_mut(&node)?;
        let token = self.next_token;
        self.next_token += 1;
        peer.ping = Some((token, now));
        Some(token)
    }

    /// Handles the answer to a ping. Returns the shortest round trip so far if it answers the last ping. The minimum
    /// is used because busy processors can delay an answer as well as the link.
    pub fn pong(&mut self, now: Time, node: NodeId, token: u64) -> Option<u64> {
        let peer = self.peers.get_mut(&node)?;
        let (sent, at) = peer.ping?;
        if sent != token {
            return None;
        }
        peer.ping = None;
        let rtt = now.since(at);
        let least = peer.rtt_ns.map_or(rtt, |known| known.min(rtt));
        peer.rtt_ns = Some(least);
        Some(least)
    }

    /// Handles one heartbeat. Peers that were heard from within the last interval are alive and are not pinged. If the
    /// heartbeat itself is late, this process was stopped (or its host slept) and messages of peers wait unread: their
    /// silence is counted from now.
    pub fn beat(&mut self, now: Time) -> Beat {
        let mut beat = Beat::default();
        let last = self.last_beat.replace(now);
        if last.is_some_and(|last| now.since(last) > LATE_NS) {
            self.peers.values_mut().for_each(|peer| (peer.last_received, peer.unanswered) = (now, 0));
            beat.pings = self
                .peers
                .keys()
                .copied()
                .collect::<Vec<_>>()
                .into_iter()
                .filter_map(|n| self.ping(now, n).map(|t| (n, t)))
                .collect();
            return beat;
        }
        let quiet: Vec<NodeId> = self
            .peers
            .iter()
            .filter(|(_, p)| now.since(p.last_received) >= HEARTBEAT_NS / 2)
            .map(|(n, _)| *n)
            .collect();
        for node in quiet {
            let silence = now.since(self.peers[&node].last_received);
            if silence > SILENCE_NS_MAX {
                beat.silent.push((node, silence));
                continue;
            }
            self.peers.entry(node).and_modify(|peer| peer.unanswered += 1);
            if let Some(token) = self.ping(now, node) {
                beat.pings.push((node, token));
            }
        }
        beat
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::time::SECOND_NS;

    #[test]
    fn pings_without_answers_are_counted_by_heartbeats_on_time() {
        let (mut members, node) = (Members::default(), NodeId(1));
        members.add(Time(0), node, ());
        let beat = |members: &mut Members<()>, ms: u64| {
            members.beat(Time(ms * SECOND_NS / 1000));
            members.is_unresponsive(node, 2)
        };
        assert!(!beat(&mut members, 1000) && !beat(&mut members, 2000));
        assert!(members.record_received(Time(2_500_000_000), node));
        assert!(!beat(&mut members, 3000) && !beat(&mut members, 4000) && beat(&mut members, 5000));
        assert!(members.record_received(Time(5_400_000_000), node) && !members.is_unresponsive(node, 2));
        // This process is stopped: one heartbeat is late, and messages wait unread.
        assert!(!beat(&mut members, 6000) && !beat(&mut members, 8900));
        assert!(!beat(&mut members, 12_000) && !beat(&mut members, 13_000) && !beat(&mut members, 14_000));
        assert!(beat(&mut members, 15_000));
    }

    #[test]
    fn a_silent_peer_is_noticed_and_a_slow_one_is_not() {
        let mut members = Members::default();
        members.add(Time(0), NodeId(1), ());
        members.add(Time(0), NodeId(2), ());
        let mut silent = Vec::new();
        for second in 1..=11 {
            let now = Time(second * SECOND_NS);
            if second % 5 == 0 {
                assert!(members.record_received(now, NodeId(2)));
            }
            silent.extend(members.beat(now).silent);
        }
        assert_eq!(silent.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [NodeId(1)]);
    }

    #[test]
    fn who_slept_does_not_take_others_for_silent() {
        let mut members = Members::default();
        members.add(Time(0), NodeId(1), ());
        members.beat(Time(SECOND_NS));
        let beat = members.beat(Time(60 * SECOND_NS));
        assert!(beat.silent.is_empty());
        assert_eq!(beat.pings.len(), 1);
        let later = (61..=71).map(|second| members.beat(Time(second * SECOND_NS)));
        assert_eq!(later.flat_map(|beat| beat.silent).count(), 1);
    }

    #[test]
    fn who_slept_before_the_first_heartbeat_does_not_either() {
        let mut members = Members::default();
        members.add(Time(0), NodeId(1), ());
        assert!(members.beat(Time(60 * SECOND_NS)).silent.is_empty());
    }

    #[test]
    fn what_comes_behind_the_end_of_a_connection_is_not_heard() {
        let mut members = Members::default();
        members.add(Time(0), NodeId(1), ());
        assert!(members.record_received(Time(1), NodeId(1)));
        members.remove(NodeId(1));
        assert!(!members.record_received(Time(2), NodeId(1)));
    }

    #[test]
    fn the_round_trip_is_that_of_the_last_ping() {
        let mut members = Members::default();
        members.add(Time(0), NodeId(1), ());
        let token = members.ping(Time(10), NodeId(1)).unwrap();
        assert_eq!(members.pong(Time(14), NodeId(1), token + 1), None);
        assert_eq!(members.pong(Time(15), NodeId(1), token), Some(5));
        assert_eq!(members.pong(Time(16), NodeId(1), token), None);
    }
}
