//! Explanations of shared data: where the versions of a name are stored, and from which sources each server without a
//! copy gets one, or would get one.
//!
//! The sources are the same that servers are assigned: see [`crate::data::DatumTransfers`]. A server that receives the datum
//! in slices has one source for each slice. An explanation starts no transfer.

use std::collections::BTreeMap;

use super::sources::{DatumFacts, SourceSearches};
use crate::data::{DatumTransfers, Source, Verdict, VersionState};
use crate::node::message::{CandidateReport, CatalogAnswer, CopyReport};
use gridloom_base::{DatumId, NameError, NodeId, check_name};

/// Maximum number of servers in one answer, because the agent does nothing else while it rates their sources.
const SERVERS_PER_ANSWER_MAX: usize = 64;
/// Maximum number of sources reported for one server.
const SOURCES_PER_SERVER_MAX: usize = 8;

/// Returns the versions of a name, and how servers after `after` without a copy of the current version would get one.
pub(super) fn explain(
    searches: &mut SourceSearches,
    facts: DatumFacts<'_>,
    name: &str,
    after: Option<NodeId>,
) -> Result<CatalogAnswer, NameError> {
    check_name(name)?;
    let versions = facts.catalog.reports(name);
    if versions.is_empty() {
        return Err(facts.catalog.unknown(name));
    }
    searches.refresh_links(facts.grid);
    let (mut copies, mut has_more) = (Vec::new(), false);
    if let Some(current) = versions.iter().find(|version| version.standing == VersionState::Current) {
        let after = facts.grid.servers.after(after);
        let without = after.filter(|(node, server)| !server.is_stateless() && !current.holders.contains(node));
        let mut without = without.map(|(node, _)| node);
        let copy = |server| copy_to(searches, facts, current.named.datum, server);
        copies = without.by_ref().take(SERVERS_PER_ANSWER_MAX).map(copy).collect();
        has_more = without.next().is_some();
    }
    Ok(CatalogAnswer::Explained { versions, copies, has_more })
}

fn copy_to(searches: &SourceSearches, facts: DatumFacts<'_>, datum: DatumId, server: NodeId) -> CopyReport {
    let (none_comes, none_failed) = (DatumTransfers::default(), BTreeMap::new());
    let report = |source: Source, sends, verdict| {
        let Source { node: from, hops, end_s } = source;
        let (link, basis) = searches.link_between(facts.grid, from, server);
        let seconds = (end_s - facts.grid.now.seconds()).max(0.0);
        CandidateReport { from, hops, seconds, link, basis, sends, verdict }
    };
    let spread = searches.spread_of(datum).unwrap_or(&none_comes);
    let slices = datum.slices().into_iter().filter_map(|slice| searches.spread_of(slice)?.source_of(server));
    let coming: Vec<Source> = spread.source_of(server).into_iter().chain(slices).collect();
    if !coming.is_empty() {
        let candidates: Vec<CandidateReport> =
            coming.into_iter().map(|source| report(source, 0, Verdict::Taken)).collect();
        return CopyReport { server, is_in_transfer: true, count: candidates.len() as u32, candidates };
    }
    let failed = searches.failed_for(datum, server).unwrap_or(&none_failed);
    // If other servers are receiving the datum in slices, a further server joins them.
    let slices = datum.slices();
    if slices.iter().any(|slice| searches.spread_of(*slice).is_some()) {
        let best = |slice: DatumId| {
            let spread = searches.spread_of(slice).unwrap_or(&none_comes);
            let best = *searches.candidates(facts, slice, server, (spread, failed)).first()?;
            Some(report(best.source, best.sends, best.verdict))
        };
        let candidates: Vec<CandidateReport> = slices.into_iter().filter_map(best).collect();
        return CopyReport { server, is_in_transfer: false, count: candidates.len() as u32, candidates };
    }
    let all = searches.candidates(facts, datum, server, (spread, failed));
    let best = all.iter().take(SOURCES_PER_SERVER_MAX);
    let candidates = best.map(|one| report(one.source, one.sends, one.verdict)).collect();
    CopyReport { server, is_in_transfer: false, count: all.len().try_into().unwrap_or(u32::MAX), candidates }
}

#[cfg(test)]
mod tests {
    use super::super::Agent;
    use super::super::models::tests::{agent, register};
    use super::*;
    use crate::node::AgentTimer;
    use crate::node::message::{LinkBasis, ServerToCatalog, StoredVersion, SupplyFault, TaskToClient};
    use crate::node::protocol::Input;
    use gridloom_base::time::SECOND_NS;
    use gridloom_base::{Dtype, Machine, Meta, Method, NamedDatum, Time};

    const DATUM: DatumId = DatumId { client: NodeId::CATALOG, serial: 1 };

    fn explain(agent: &mut Agent, name: &str, after: Option<NodeId>) -> Result<CatalogAnswer, NameError> {
        let (names, grid) = agent.names(Time(2 * SECOND_NS));
        names.explain(grid, name, after)
    }

    fn copies(agent: &mut Agent, after: Option<NodeId>) -> (Vec<CopyReport>, bool) {
        match explain(agent, "mesh", after) {
            Ok(CatalogAnswer::Explained { copies, has_more, .. }) => (copies, has_more),
            other => panic!("{other:?}"),
        }
    }

    fn receive(agent: &mut Agent, from: NodeId, message: impl Into<crate::node::message::Message>) {
        agent.handle(Time(SECOND_NS), Input::Received { from, message: message.into() }, &mut Vec::new());
    }

    /// Returns an agent with this many servers, one of which has the datum.
    fn with_one_holder(servers: u64, holder: NodeId) -> Agent {
        let mut agent = agent();
        (2..servers + 2).for_each(|node| register(&mut agent, node, &format!("host-{node}:1"), 1.0, 1.0));
        let meta = Meta::array(Dtype::Uint8, &[1 << 20]);
        let named = NamedDatum {
            datum: DATUM,
            name: "mesh".into(),
            version: 1,
            meta,
            replicas: 1,
            is_durable: false,
            method: Method::Auto,
            put_by: None,
            readers: Default::default(),
        };
        receive(
            &mut agent,
            holder,
            ServerToCatalog::StoredVersions { data: vec![StoredVersion { named, is_current: true }] },
        );
        agent
    }

    #[test]
    fn a_transfer_in_progress_and_a_possible_one_are_distinguished() {
        let holder = NodeId(2);
        let mut agent = with_one_holder(3, holder);
        let fault = SupplyFault::Unreachable;
        let asks = TaskToClient::SupplyFailed { datum: DATUM, from: NodeId::CATALOG, fault, why: String::new() };
        receive(&mut agent, NodeId(3), asks);
        // The wait for other servers ends.
        let fired = Input::Timer(AgentTimer::Batches.into());
        agent.handle(Time(SECOND_NS + SECOND_NS / 10), fired, &mut Vec::new());
        let (told, has_more) = copies(&mut agent, None);
        let before = format!("{agent:?}");
        assert!(!has_more && told.iter().map(|one| one.server.0).eq([3, 4]), "{told:?}");
        assert!(told[0].is_in_transfer && told[0].candidates[0].from == holder, "{told:?}");
        let (would, other) = (&told[1].candidates[0], &told[1].candidates[1]);
        assert!(!told[1].is_in_transfer && told[1].count == 2, "{told:?}");
        assert_eq!((would.verdict, would.hops + other.hops, would.basis), (Verdict::Taken, 3, LinkBasis::Unknown));
        let _ = copies(&mut agent, None);
        assert_eq!(format!("{agent:?}"), before, "no transfer has started");
        let unknown = explain(&mut agent, "mehs", None).unwrap_err();
        assert_eq!(unknown, NameError::Unknown { name: "mehs".into(), near: vec!["mesh".into()] });
    }

    #[test]
    fn a_server_that_would_join_slices_has_a_source_for_each() {
        let mut agent = with_one_holder(4, NodeId(2));
        let source = |node| Source { node: NodeId(node), hops: 1, end_s: 3.0 };
        for (slice, from) in DATUM.slices().into_iter().zip([2, 4]) {
            agent.names.searches().begin(slice, NodeId(3), source(from));
        }
        let (told, _) = copies(&mut agent, None);
        let of = |server| told.iter().find(|one| one.server == NodeId(server)).unwrap();
        assert!(of(3).is_in_transfer && of(3).count == 2, "{told:?}");
        assert!(!of(5).is_in_transfer && of(5).count == 2 && of(5).candidates.len() == 2, "{told:?}");
        // One candidate for each slice: the same server may be the best for both.
        assert!(of(5).candidates.iter().all(|one| one.verdict == Verdict::Taken), "{told:?}");
    }

    #[test]
    fn many_servers_are_reported_in_parts() {
        let mut agent = with_one_holder(100, NodeId(50));
        let (first, has_more) = copies(&mut agent, None);
        let (last, has_still_more) = copies(&mut agent, first.last().map(|one| one.server));
        assert_eq!((first.len(), has_more, last.len(), has_still_more), (SERVERS_PER_ANSWER_MAX, true, 35, false));
        assert!(last[0].server > first[63].server && !first.iter().chain(&last).any(|one| one.server == NodeId(50)));
        assert_eq!(agent.names.counts()[2], 0);
    }
}
