//! Requests that wait for names, by name and by client.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::limits::{NAME_WAITS_MAX, NAME_WAITS_PER_CLIENT_MAX};
use gridloom_base::{NameError, NodeId};

use super::RequestId;

/// Checks that one more request may wait.
///
/// # Errors
/// If too many requests of this client, or of all clients, are waiting already.
pub fn check_waits(all: usize, of_client: usize) -> Result<(), NameError> {
    if of_client >= NAME_WAITS_PER_CLIENT_MAX {
        let what = "waiting requests of this program for names".into();
        return Err(NameError::TooMany { what, limit: NAME_WAITS_PER_CLIENT_MAX });
    }
    if all >= NAME_WAITS_MAX {
        return Err(NameError::TooMany { what: "waiting requests for names".into(), limit: NAME_WAITS_MAX });
    }
    Ok(())
}

#[derive(Debug, Default)]
pub(super) struct WaitingRequests {
    by_name: BTreeMap<String, BTreeSet<RequestId>>,
    names: BTreeMap<RequestId, String>,
    /// Number of waiting requests of each client.
    counts: BTreeMap<NodeId, usize>,
}

impl WaitingRequests {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the names for which requests wait.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// # Errors
    /// If too many requests wait.
    pub(super) fn add(&mut self, request: RequestId, name: &str) -> Result<(), NameError> {
        // Clients number their requests uniquely. If one reuses a number, only its last request waits.
        self.remove(request);
        check_waits(self.len(), self.counts.get(&request.client).copied().unwrap_or(0))?;
        *self.counts.entry(request.client).or_default() += 1;
        self.names.insert(request, name.into());
        self.by_name.entry(name.into()).or_default().insert(request);
        Ok(())
    }

    /// Ends a wait. Returns true if the request was waiting.
    pub(super) fn remove(&mut self, request: RequestId) -> bool {
        let Some(name) = self.names.remove(&request) else { return false };
        let requests = self.by_name.get_mut(&name).expect("a request waits for that name");
        requests.remove(&request);
        if requests.is_empty() {
            self.by_name.remove(&name);
        }
        self.count_less(request.client);
        true
    }

    fn count_less(&mut self, client: NodeId) {
        let count = self.counts.get_mut(&client).expect("a request of this client waits");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&client);
        }
    }

    /// Removes and returns all requests that wait for a name.
    pub(super) fn take(&mut self, name: &str) -> BTreeSet<RequestId> {
        let requests = self.by_name.remove(name).unwrap_or_default();
        for request in &requests {
            self.names.remove(request);
            self.count_less(request.client);
        }
        requests
    }

    pub(super) fn client_lost(&mut self, client: NodeId) {
        let all = RequestId { client, number: u64::MIN }..=RequestId { client, number: u64::MAX };
        let requests: Vec<RequestId> = self.names.range(all).map(|(request, _)| *request).collect();
        requests.into_iter().for_each(|request| _ = self.remove(request));
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let sums = [self.by_name.values().map(BTreeSet::len).sum::<usize>(), self.counts.values().sum()];
        match sums.iter().all(|sum| *sum == self.names.len()) {
            true => Ok(()),
            false => Err("the waiting requests by name or by client differ from all waiting requests".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_of_one_client_are_limited() {
        let mut waits = WaitingRequests::default();
        let request = |client, number| RequestId { client: NodeId(client), number };
        let limit = NAME_WAITS_PER_CLIENT_MAX as u64;
        (0..limit).for_each(|number| waits.add(request(1, number), "mesh").unwrap());
        let error = waits.add(request(1, limit), "mesh").unwrap_err().to_string();
        assert!(error.contains(&format!("{limit} waiting requests of this program for names")), "{error}");
        assert_eq!(waits.add(request(2, 0), "mesh"), Ok(()), "another client is not affected");
        assert_eq!(waits.add(request(1, 0), "field"), Ok(()), "the request replaces an earlier one");
        assert!(waits.remove(request(1, 1)));
        assert_eq!((waits.add(request(1, limit), "mesh"), waits.check()), (Ok(()), Ok(())));
        waits.client_lost(NodeId(1));
        assert_eq!((waits.len(), waits.check()), (1, Ok(())));
    }
}
