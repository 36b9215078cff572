//! Deletes of durable data: a client is answered once the data are off the disks of all servers, so that they do not
//! return if agent and servers are killed after that.
//!
//! Each time a durable version is dropped or superseded, its servers confirm that it is off their disks. A delete of
//! its name waits for all these confirmations, also for those of earlier versions: after a crash, a former version that
//! is still on a disk would be the current one.
//!
//! A server that is lost meanwhile may return within [`RECONNECT_NS_MAX`], and is then asked again. After that time,
//! the delete is answered without it: the catalog makes it drop the data whenever it returns.

use std::collections::BTreeMap;

use crate::data::RequestId;
use gridloom_base::limits::{RECONNECT_NS_MAX, SHARED_DATA_MAX};
use gridloom_base::{NameError, NodeId, Time};

#[derive(Debug, Default)]
pub(super) struct Removals {
    last: u64,
    /// Names of the versions whose removal a server has not confirmed, by the server and the number of the request.
    unconfirmed: BTreeMap<(NodeId, u64), String>,
    /// Number of entries of each name in `unconfirmed`. None is 0.
    of_names: BTreeMap<String, usize>,
    /// Lost servers that have not confirmed a removal, with the time until which they may return.
    lost: BTreeMap<NodeId, Time>,
    /// Deletes that wait for confirmations, and their names.
    waiting: Vec<(RequestId, String)>,
}

impl Removals {
    /// Returns the number of confirmations and deletes that are waited for.
    pub(super) fn len(&self) -> usize {
        self.unconfirmed.len() + self.waiting.len()
    }

    /// Checks that one more delete may wait.
    ///
    /// # Errors
    /// If too many wait already.
    pub(super) fn check_room(&self) -> Result<(), NameError> {
        match self.waiting.len() < SHARED_DATA_MAX && self.unconfirmed.len() < SHARED_DATA_MAX {
            true => Ok(()),
            false => Err(NameError::TooMany { what: "deletes in progress".into(), limit: SHARED_DATA_MAX }),
        }
    }

    /// Records that a server is asked to confirm the removal of a version of a name. Returns the number of the request;
    /// `None` if too many are open: then no delete is accepted, either.
    pub(super) fn begin(&mut self, server: NodeId, name: &str) -> Option<u64> {
        if self.unconfirmed.len() >= 2 * SHARED_DATA_MAX {
            return None;
        }
        self.last += 1;
        self.unconfirmed.insert((server, self.last), name.into());
        *self.of_names.entry(name.into()).or_default() += 1;
        Some(self.last)
    }

    /// Handles the confirmation of a server for this request, and for all earlier ones.
    pub(super) fn confirmed(&mut self, server: NodeId, number: u64) {
        let range = (server, 0)..=(server, number);
        let confirmed: Vec<(NodeId, u64)> = self.unconfirmed.range(range).map(|(key, _)| *key).collect();
        for key in confirmed {
            let name = self.unconfirmed.remove(&key).expect("it was just found");
            let count = self.of_names.get_mut(&name).expect("it was counted");
            *count -= 1;
            if *count == 0 {
                self.of_names.remove(&name);
            }
        }
    }

    /// Records the loss of a server, which may return.
    pub(super) fn server_lost(&mut self, now: Time, server: NodeId) {
        if self.last_of(server).is_some() {
            self.lost.insert(server, now + RECONNECT_NS_MAX);
        }
    }

    /// Handles the return of a server. Returns the number of its last open request, which it is to receive again.
    pub(super) fn server_returned(&mut self, server: NodeId) -> Option<u64> {
        self.lost.remove(&server);
        self.last_of(server)
    }

    fn last_of(&self, server: NodeId) -> Option<u64> {
        self.unconfirmed.range((server, 0)..=(server, u64::MAX)).next_back().map(|((_, number), _)| *number)
    }

    /// Forgets the requests to servers that have not returned in time.
    pub(super) fn expire(&mut self, now: Time) {
        let late: Vec<NodeId> =
            self.lost.iter().filter(|(_, until)| **until <= now).map(|(server, _)| *server).collect();
        for server in late {
            self.lost.remove(&server);
            self.confirmed(server, u64::MAX);
        }
    }

    /// Adds a delete that waits until the versions of its name are off the disks.
    pub(super) fn wait(&mut self, request: RequestId, name: String) {
        self.waiting.push((request, name));
    }

    pub(super) fn client_lost(&mut self, client: NodeId) {
        self.waiting.retain(|(request, _)| request.client != client);
    }

    /// Removes and returns the deletes that are complete.
    pub(super) fn take_complete(&mut self) -> Vec<RequestId> {
        let is_complete = |(_, name): &mut (RequestId, String)| !self.of_names.contains_key(name);
        self.waiting.extract_if(.., is_complete).map(|(request, _)| request).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::time::SECOND_NS;

    fn request(number: u64) -> RequestId {
        RequestId { client: NodeId(9), number }
    }

    #[test]
    fn a_delete_waits_for_all_versions_of_its_name_on_all_servers() {
        let mut removals = Removals::default();
        removals.wait(request(1), "a".into());
        assert_eq!(removals.take_complete(), [request(1)], "nothing is on a disk");
        let former = removals.begin(NodeId(1), "a").unwrap();
        let current = removals.begin(NodeId(2), "a").unwrap();
        let other = removals.begin(NodeId(2), "b").unwrap();
        removals.wait(request(2), "a".into());
        removals.wait(request(3), "b".into());
        removals.confirmed(NodeId(2), current);
        assert!(removals.take_complete().is_empty());
        removals.confirmed(NodeId(1), former);
        assert_eq!(removals.take_complete(), [request(2)]);
        removals.confirmed(NodeId(2), other);
        assert_eq!((removals.take_complete(), removals.len()), (vec![request(3)], 0));
    }

    #[test]
    fn a_server_that_returns_is_asked_again_and_a_lost_one_is_not_awaited_forever() {
        let mut removals = Removals::default();
        let at = |seconds: u64| Time(seconds * SECOND_NS);
        let number = removals.begin(NodeId(1), "a");
        removals.wait(request(1), "a".into());
        removals.server_lost(at(5), NodeId(1));
        assert_eq!((removals.server_returned(NodeId(1)), removals.server_returned(NodeId(2))), (number, None));
        removals.expire(at(5) + RECONNECT_NS_MAX);
        assert!(removals.take_complete().is_empty(), "it is connected");
        removals.server_lost(at(50), NodeId(1));
        removals.expire(at(49) + RECONNECT_NS_MAX);
        assert!(removals.take_complete().is_empty());
        removals.expire(at(50) + RECONNECT_NS_MAX);
        assert_eq!((removals.take_complete(), removals.len()), (vec![request(1)], 0));
        // A client that is lost needs no answer.
        removals.begin(NodeId(1), "a");
        removals.wait(request(2), "a".into());
        removals.client_lost(NodeId(9));
        removals.confirmed(NodeId(1), u64::MAX);
        assert!(removals.take_complete().is_empty());
    }
}
