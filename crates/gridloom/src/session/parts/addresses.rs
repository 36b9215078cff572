//! Servers by address: those that a session without an agent was given.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gridloom_base::NodeId;

/// The addresses that a session without an agent was given.
#[derive(Default)]
pub(crate) struct Addresses {
    given: BTreeSet<String>,
    /// How long the session waited for answers.
    limit: Duration,
    /// The server at each address that has answered, or why it cannot be used.
    answers: BTreeMap<String, Result<NodeId, String>>,
}

impl Addresses {
    pub(crate) fn on_answer(&mut self, address: String, answer: Result<NodeId, String>) {
        self.answers.insert(address, answer);
    }

    /// Sets the addresses that the session was given, and the time for which it waits for answers.
    pub(crate) fn give(&mut self, addresses: BTreeSet<String>, limit: Duration) {
        (self.given, self.limit) = (addresses, limit);
    }

    /// True if all addresses have answered. A server has answered when it is in the directory, too: `is_listed`.
    pub(crate) fn have_answered(&self, is_listed: impl Fn(NodeId) -> bool) -> bool {
        let has_answered = |address: &String| match self.answers.get(address) {
            Some(Ok(server)) => is_listed(*server),
            Some(Err(_)) => true,
            None => false,
        };
        self.given.iter().all(has_answered)
    }

    /// Returns the addresses whose servers cannot be used now, with the reasons.
    pub(crate) fn unreachable(&self, is_listed: impl Fn(NodeId) -> bool) -> Vec<(String, String)> {
        let Addresses { given, limit, answers } = self;
        let why = |(address, answer): (&String, &Result<NodeId, String>)| match answer {
            Ok(server) if is_listed(*server) => None,
            Ok(_) => Some((address.clone(), "it has not sent its functions, or is gone".to_string())),
            Err(why) => Some((address.clone(), why.clone())),
        };
        let silent = given.iter().filter(|address| !answers.contains_key(*address));
        let seconds = limit.as_secs_f64();
        let silent = silent.map(|address| (address.clone(), format!("no answer within {seconds} s")));
        answers.iter().filter_map(why).chain(silent).collect()
    }
}
