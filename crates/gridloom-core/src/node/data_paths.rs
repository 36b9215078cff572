//! The paths over which the data of peers arrive, as a server or client reports them to the agent: through relays, or direct.

use std::collections::BTreeMap;

use super::message::LinkToAgent;
use gridloom_base::NodeId;
use gridloom_base::limits::RELAYED_PATHS_MAX;

/// The relays through which data of peers arrive. All other paths are direct.
#[derive(Debug, Default)]
pub struct DataPaths {
    /// Those of lost peers are kept, because the agent does not forget them either until it loses the peer.
    relays: BTreeMap<NodeId, String>,
}

impl DataPaths {
    /// Records the path from a peer. Returns the report for the agent if the path has changed.
    pub fn set(&mut self, from: NodeId, relay: Option<String>) -> Option<LinkToAgent> {
        if self.relays.get(&from) == relay.as_ref() {
            return None;
        }
        match &relay {
            Some(_) if self.relays.len() >= RELAYED_PATHS_MAX && !self.relays.contains_key(&from) => return None,
            Some(relay) => _ = self.relays.insert(from, relay.clone()),
            None => _ = self.relays.remove(&from),
        }
        Some(LinkToAgent::DataPath { from, relay })
    }

    /// Returns the reports for an agent that knows no paths yet.
    pub fn reports(&self) -> impl Iterator<Item = LinkToAgent> {
        self.relays.iter().map(|(from, relay)| LinkToAgent::DataPath { from: *from, relay: Some(relay.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_reported_and_a_new_agent_gets_all_relays() {
        let (mut paths, from, relay) = (DataPaths::default(), NodeId(2), || Some("relay:443".to_string()));
        let report = |relay| LinkToAgent::DataPath { from, relay };
        assert_eq!(paths.set(from, None), None, "a path is direct until stated otherwise");
        assert_eq!((paths.set(from, relay()), paths.set(from, relay())), (Some(report(relay())), None));
        assert_eq!(paths.reports().collect::<Vec<_>>(), [report(relay())]);
        assert_eq!((paths.set(from, None), paths.reports().count()), (Some(report(None)), 0));
    }
}
