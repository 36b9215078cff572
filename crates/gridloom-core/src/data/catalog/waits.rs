//! Requests that wait for names, by name and by client.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::limits::NAME_WAITS_MAX;
use gridloom_base::{NameError, NodeId};

use super::RequestId;

#[derive(Debug, Default)]
pub(super) struct WaitingRequests {
    by_name: BTreeMap<String, BTreeSet<RequestId>>,
    names: BTreeMap<RequestId, String>,
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
    pub(super) fn add(&mut self, question: RequestId, name: &str) -> Result<(), NameError> {
        if self.len() >= NAME_WAITS_MAX {
            return Err(NameError::TooMany { what: "waiting requests for names".into(), limit: NAME_WAITS_MAX });
        }
        // Clients number their requests uniquely. If one reuses a number, only its last request waits.
        self.remove(question);
        self.names.insert(question, name.into());
        self.by_name.entry(name.into()).or_default().insert(question);
        Ok(())
    }

    /// Ends a wait. Returns true if the request was waiting.
    pub(super) fn remove(&mut self, question: RequestId) -> bool {
        let Some(name) = self.names.remove(&question) else { return false };
        let questions = self.by_name.get_mut(&name).expect("it waits for that name");
        questions.remove(&question);
        if questions.is_empty() {
            self.by_name.remove(&name);
        }
        true
    }

    /// Removes and returns all requests that wait for a name.
    pub(super) fn take(&mut self, name: &str) -> BTreeSet<RequestId> {
        let questions = self.by_name.remove(name).unwrap_or_default();
        questions.iter().for_each(|question| _ = self.names.remove(question));
        questions
    }

    pub(super) fn client_lost(&mut self, client: NodeId) {
        let all = RequestId { client, number: u64::MIN }..=RequestId { client, number: u64::MAX };
        let questions: Vec<RequestId> = self.names.range(all).map(|(question, _)| *question).collect();
        questions.into_iter().for_each(|question| _ = self.remove(question));
    }

    pub(super) fn check(&self) -> Result<(), String> {
        match self.names.len() == self.by_name.values().map(BTreeSet::len).sum::<usize>() {
            true => Ok(()),
            false => Err("the waiting requests by name are not all waiting requests".into()),
        }
    }
}
