//! Bulk transfers as flows of the engine, and their invariants.

use gridloom_base::NodeId;
use gridloom_base::limits::FORWARDS_MAX;
use gridloom_flow::{ActionId, LinkIndex, Transfer};

use super::{CargoInTransit, Links};
use crate::kernel::{Kernel, Purpose};
use crate::network::cargo::Cargo;
use crate::network::routes::{Route, Routes};
use crate::observe::TransferContents;

impl Links {
    /// Panics if an invariant does not hold.
    pub(crate) fn check(&self, kernel: &Kernel) {
        for ((owner, peer), end) in &self.ends {
            assert!(end.connection <= self.made, "{owner} has a connection that was never made");
            if let Some(other) = self.ends.get(&(*peer, *owner)).filter(|other| other.connection == end.connection) {
                assert_eq!(
                    other.route,
                    (end.route.1, end.route.0),
                    "{owner} and {peer} see one connection between their hosts"
                );
            }
            let passed_on = end.in_transit.iter().filter(|moving| moving.is_forwarded).count();
            assert!(
                passed_on <= FORWARDS_MAX && end.in_transit.len() <= passed_on + 1,
                "{owner} sends too much at once"
            );
            for moving in &end.in_transit {
                let Some(action) = moving.action else {
                    assert!(moving.load.is_incoming, "{owner} holds back complete cargo");
                    continue;
                };
                let purpose = kernel.purpose(action);
                let expected = ((*owner, *peer), moving.transfer);
                let is_its =
                    matches!(purpose, Some(Purpose::Bulk { pair, transfer }) if (*pair, *transfer) == expected);
                assert!(is_its, "{owner} moves cargo to {peer} in a flow with the purpose {purpose:?}");
            }
        }
    }
}

/// Starts a flow of some bytes of cargo over a connection, part of whose latency has already passed.
pub(super) fn flow(
    kernel: &mut Kernel,
    routes: &mut Routes,
    (pair, transfer): ((NodeId, NodeId), u64),
    way: Route,
    cargo: &Cargo,
    (bytes, under_way_s): (u64, f64),
) -> ActionId {
    let path = routes.path(way);
    let links: Vec<LinkIndex> = path.links.iter().copied().chain(routes.upload(way)).collect();
    let flow = Transfer::new(&links, path.latency_s, bytes as f64);
    let swaps = match cargo {
        Cargo::Datum { value, .. } => routes.swaps(way, value.meta.size_bytes()),
        Cargo::Probe { .. } => Vec::new(),
    };
    let flow = Transfer { return_links: &path.return_links, beside: &swaps, latency_passed_s: under_way_s, ..flow };
    kernel.start_transfer(&flow, Purpose::Bulk { pair, transfer })
}

pub(super) fn stop(kernel: &mut Kernel, moving: &CargoInTransit) {
    moving.action.into_iter().for_each(|action| kernel.cancel(action));
}

/// Records that cargo begins to flow. Returns the transfer's number.
pub(super) fn begins(
    kernel: &mut Kernel,
    routes: &mut Routes,
    (from, to): (NodeId, NodeId),
    way: Route,
    (cargo, bytes): (&Cargo, u64),
) -> u64 {
    let moved = match cargo {
        Cargo::Datum { datum, .. } => TransferContents::Datum { datum: *datum, from, to },
        Cargo::Probe { .. } => TransferContents::Probe,
    };
    kernel.begin_transfer(moved, bytes, &routes.path(way).links)
}

/// Reports whether a route crosses a link.
pub(crate) fn is_crossed(routes: &mut Routes, way: Route, link: LinkIndex) -> bool {
    routes.path(way).crossed().any(|crossed| *crossed == link)
}
