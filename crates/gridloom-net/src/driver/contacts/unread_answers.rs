//! Peers that do not read their answers: their requests are not read, either, so that the memory for answers is
//! limited.
//!
//! A peer is *throttled* while more than [`ANSWERS_BYTES_MAX`] wait for it. Its received requests stay where they are,
//! and no more are read. Meanwhile one request is handled every [`ADMIT_INTERVAL_NS`] if fewer bytes wait than when the
//! throttling began, because a peer of which nothing is received counts as lost, and it may only have a slow link. A
//! peer that reads nothing for [`NOTHING_READ_NS_MAX`] is disconnected.
//!
//! Of two nodes, only one throttles the other: an agent throttles servers and clients, and a server clients. If both
//! could, each might wait for the other to read.

use std::collections::BTreeMap;

use gridloom_base::Time;
use gridloom_base::dial::ConnectionFault;
use gridloom_base::limits::SILENCE_NS_MAX;
use gridloom_base::time::SECOND_NS;
use gridloom_channel::ReceiveBuffer;
use gridloom_core::node::Role;

use super::Connections;
use crate::driver::contact::Stage;
use crate::log::warning;

/// Bytes that may wait for a peer before it is throttled. On links of 1 Gbit/s, a round-trip time of 16 ms needs so
/// many.
pub(super) const ANSWERS_BYTES_MAX: usize = 2 << 20;
/// Interval at which a request of a throttled peer is handled.
const ADMIT_INTERVAL_NS: u64 = SILENCE_NS_MAX / 5;
/// Maximum time in which a throttled peer reads nothing. It is shorter than the one after which a silent peer is lost,
/// so that the reason is the right one.
const NOTHING_READ_NS_MAX: u64 = SILENCE_NS_MAX - 2 * SECOND_NS;
/// Interval of the checks of throttled peers.
const CHECK_NS: u64 = SECOND_NS / 2;

/// The throttled connections, by token.
#[derive(Default)]
pub(super) struct Throttled(BTreeMap<usize, Throttle>);

struct Throttle {
    /// Bytes that waited when the throttling began.
    began_bytes: usize,
    /// Least number of bytes that have waited since, and when.
    least: (usize, Time),
    admitted_at: Time,
}

impl Throttled {
    pub(super) fn forget(&mut self, token: usize) {
        self.0.remove(&token);
    }

    pub(super) fn has(&self, token: usize) -> bool {
        self.0.contains_key(&token)
    }
}

impl Connections {
    /// Reports whether a request of this connection must wait, because its peer does not read.
    pub(in crate::driver) fn must_wait(&mut self, token: usize, now: Time) -> bool {
        let Some(contact) = self.connections.get_mut(&token) else { return false };
        let Stage::Up(peer) = contact.stage else { return false };
        let may_throttle = || self.peers.get(&peer).is_some_and(|peer| rank(self.own.role) > rank(peer.role));
        if contact.channel.outbound.waiting_bytes() <= ANSWERS_BYTES_MAX || contact.broken.is_some() || !may_throttle()
        {
            self.open.throttled.forget(token);
            return false;
        }
        // The answers of this turn have not been offered to the socket yet. An error is found again at the end of the
        // turn.
        let _ = contact.channel.flush(&mut self.buffers);
        let waiting = contact.channel.outbound.waiting_bytes();
        if waiting <= ANSWERS_BYTES_MAX {
            self.open.throttled.forget(token);
            return false;
        }
        let new = Throttle { began_bytes: waiting, least: (waiting, now), admitted_at: now };
        let throttle = self.open.throttled.0.entry(token).or_insert(new);
        let may_admit = waiting < throttle.began_bytes && now.since(throttle.admitted_at) >= ADMIT_INTERVAL_NS;
        if may_admit {
            throttle.admitted_at = now;
        }
        self.open.dirty.insert(token);
        self.check_at = self.check_at.min(now + CHECK_NS);
        !may_admit
    }

    /// Reports whether requests of this connection may have been received that were not handled.
    pub(in crate::driver) fn is_throttled(&self, token: usize) -> bool {
        self.open.throttled.has(token)
    }

    /// Hands out the received bytes that were not handled; the caller returns them with
    /// [`Connections::return_unhandled`].
    pub(in crate::driver) fn take_unhandled(&mut self, token: usize) -> Option<ReceiveBuffer> {
        Some(std::mem::take(&mut self.connections.get_mut(&token)?.channel.inbound))
    }

    pub(in crate::driver) fn return_unhandled(&mut self, token: usize, mut inbound: ReceiveBuffer) {
        inbound.release(&mut self.buffers);
        if let Some(contact) = self.connections.get_mut(&token) {
            contact.channel.inbound = inbound;
        }
    }

    /// Reads the connection again if its peer has read enough.
    pub(super) fn resume_if_read(&mut self, token: usize) {
        let waiting = |contact: &super::Connection| contact.channel.outbound.waiting_bytes();
        if self.open.throttled.has(token) && self.connections.get(&token).map(waiting) <= Some(ANSWERS_BYTES_MAX) {
            self.read_later(token);
        }
    }

    /// Disconnects the throttled peers that read nothing, and lets others make a request.
    pub(super) fn check_throttled(&mut self, now: Time) {
        let (mut stopped, mut admitted) = (Vec::new(), Vec::new());
        for (token, throttle) in &mut self.open.throttled.0 {
            let Some(contact) = self.connections.get(token) else { continue };
            let waiting = contact.channel.outbound.waiting_bytes();
            if waiting < throttle.least.0 {
                throttle.least = (waiting, now);
            }
            if now.since(throttle.least.1) >= NOTHING_READ_NS_MAX {
                stopped.push((*token, waiting));
            } else if waiting < throttle.began_bytes && now.since(throttle.admitted_at) >= ADMIT_INTERVAL_NS {
                admitted.push(*token);
            }
        }
        for (token, waiting) in stopped {
            let why = format!(
                "it does not read its answers: {waiting} bytes of them have waited for {} s, and {ANSWERS_BYTES_MAX} may wait; \
                 a program must not be stopped while it is connected",
                NOTHING_READ_NS_MAX / SECOND_NS
            );
            if let Some(Stage::Up(peer)) = self.stage(token)
                && let Some(peer) = self.peers.get(&peer)
            {
                let line = warning("a connection was closed").peer(peer.name.clone()).why(&why);
                self.turned_away(line);
            }
            self.refuse(token, ConnectionFault::Disconnected, &why);
        }
        admitted.into_iter().for_each(|token| self.read_later(token));
        if !self.open.throttled.0.is_empty() {
            self.check_at = self.check_at.min(now + CHECK_NS);
        }
    }
}

/// Of two nodes, the one of the higher rank throttles the other.
fn rank(role: Role) -> u8 {
    match role {
        Role::Client => 0,
        Role::Server => 1,
        Role::Agent => 2,
    }
}
