//! Back-off for servers that could not keep shared data. They are not asked again for a while: a full disk remains
//! full, and each attempt sends a datum for nothing.
//!
//! **Invariant:** the pause doubles with each failed attempt, up to [`KEEPER_RETRY_NS_MAX`]. A success ends the server's pauses.

use std::collections::BTreeMap;

use gridloom_base::limits::{KEEPER_RETRY_NS_MAX, KEEPER_RETRY_NS_MIN};
use gridloom_base::{DatumId, NodeId, Time};

/// The current pauses: of a server for one datum, or for all durable data.
#[derive(Debug, Default)]
pub(super) struct KeeperBackoff(BTreeMap<(Option<DatumId>, NodeId), Backoff>);

#[derive(Debug)]
struct Backoff {
    until: Time,
    pause_ns: u64,
}

impl KeeperBackoff {
    /// Starts a pause: the server could not keep the datum, or any durable data if `datum` is `None`. Returns true if
    /// it had no such pause before.
    pub(super) fn begin(&mut self, now: Time, server: NodeId, datum: Option<DatumId>) -> bool {
        let known = self.0.get(&(datum, server)).map(|rest| rest.pause_ns);
        let pause_ns = known.map_or(KEEPER_RETRY_NS_MIN, |ns| (2 * ns).min(KEEPER_RETRY_NS_MAX));
        self.0.insert((datum, server), Backoff { until: now + pause_ns, pause_ns });
        known.is_none()
    }

    /// True if a server must not be asked to keep a datum now.
    pub(super) fn is_paused(&self, now: Time, server: NodeId, datum: DatumId, is_durable: bool) -> bool {
        let rests = |of| self.0.get(&(of, server)).is_some_and(|rest| rest.until > now);
        rests(Some(datum)) || is_durable && rests(None)
    }

    /// True if the server's last attempt to keep durable data failed.
    pub(super) fn has_no_disk(&self, server: NodeId) -> bool {
        self.0.contains_key(&(None, server))
    }

    /// Ends the pauses of a server that has kept a datum.
    pub(super) fn kept(&mut self, server: NodeId, datum: DatumId, is_durable: bool) {
        self.0.remove(&(Some(datum), server));
        if is_durable {
            self.0.remove(&(None, server));
        }
    }

    /// Drops the pauses for a datum that is no longer needed.
    pub(super) fn forget_datum(&mut self, datum: DatumId) {
        let of_it = (Some(datum), NodeId(u64::MIN))..=(Some(datum), NodeId(u64::MAX));
        let servers: Vec<NodeId> = self.0.range(of_it).map(|((_, server), _)| *server).collect();
        servers.into_iter().for_each(|server| _ = self.0.remove(&(Some(datum), server)));
    }

    pub(super) fn server_lost(&mut self, server: NodeId) {
        self.0.retain(|(_, of), _| *of != server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: NodeId = NodeId(3);
    const DATUM: DatumId = DatumId { client: NodeId::CATALOG, serial: 1 };
    const OTHER: DatumId = DatumId { client: NodeId::CATALOG, serial: 2 };

    /// Returns the times at which a server is asked that fails each time.
    fn asked_until(resting: &mut KeeperBackoff, end_ns: u64, of: Option<DatumId>) -> Vec<u64> {
        let mut asked = Vec::new();
        for at in (0..end_ns).step_by(KEEPER_RETRY_NS_MIN as usize) {
            if !resting.is_paused(Time(at), SERVER, DATUM, true) {
                resting.begin(Time(at), SERVER, of);
                asked.push(at / KEEPER_RETRY_NS_MIN);
            }
        }
        asked
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_end_with_a_success() {
        let mut resting = KeeperBackoff::default();
        let asked = asked_until(&mut resting, 4 * KEEPER_RETRY_NS_MAX, None);
        assert_eq!(asked[..6], [0, 1, 3, 7, 15, 31]);
        let last = asked.len() - 1;
        assert_eq!(asked[last] - asked[last - 1], KEEPER_RETRY_NS_MAX / KEEPER_RETRY_NS_MIN);
        assert!(resting.has_no_disk(SERVER) && resting.is_paused(Time(4 * KEEPER_RETRY_NS_MAX), SERVER, OTHER, true));
        assert!(!resting.is_paused(Time(4 * KEEPER_RETRY_NS_MAX), SERVER, OTHER, false));
        resting.kept(SERVER, OTHER, true);
        assert!(resting.begin(Time(0), SERVER, None));
    }

    #[test]
    fn pauses_for_one_datum_are_not_for_others() {
        let mut resting = KeeperBackoff::default();
        asked_until(&mut resting, 10 * KEEPER_RETRY_NS_MIN, Some(DATUM));
        assert!(resting.is_paused(Time(0), SERVER, DATUM, false) && !resting.is_paused(Time(0), SERVER, OTHER, true));
        resting.forget_datum(DATUM);
        assert!(resting.0.is_empty());
        resting.begin(Time(0), SERVER, None);
        resting.server_lost(SERVER);
        assert!(resting.0.is_empty());
    }
}
