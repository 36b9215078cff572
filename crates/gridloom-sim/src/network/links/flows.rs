//! Bulk transfers as flows of the engine, and their invariants.

use gridloom_base::NodeId;
use gridloom_base::limits::PASSED_ON_MAX;
use gridloom_flow::{ActionId, LinkIndex, Transfer};

use super::{Links, Moving};
use crate::kernel::{Kernel, Purpose};
use crate::network::cargo::Cargo;
use crate::network::routes::{HostPair, Routes};
use crate::observe::Moved;

impl Links {
    /// Panics if an invariant does not hold.
    pub(crate) fn check(&self, kernel: &Kernel) {
        for ((owner, peer), end) in &self.ends {
            assert!(end.connection <= self.made, "{owner} has a connection that was never made");
            if let Some(other) = self.ends.get(&(*peer, *owner)).filter(|other| other.connection == end.connection) {
                assert_eq!(
                    other.way,
                    (end.way.1, end.way.0),
                    "{owner} and {peer} see one connection between their hosts"
                );
            }
            let passed_on = end.moving.iter().filter(|moving| moving.is_passed_on).count();
            assert!(passed_on <= PASSED_ON_MAX && end.moving.len() <= passed_on + 1, "{owner} sends too much at once");
            for moving in &end.moving {
                let Some(action) = moving.action else {
                    assert!(moving.load.is_coming, "{owner} holds back complete cargo");
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

/// Starts a flow of some bytes over a connection, part of whose latency has already passed.
pub(super) fn flow(
    kernel: &mut Kernel,
    routes: &mut Routes,
    (pair, transfer): ((NodeId, NodeId), u64),
    way: HostPair,
    (bytes, under_way_s): (u64, f64),
) -> ActionId {
    let path = routes.path(way);
    let links: Vec<LinkIndex> = path.links.iter().copied().chain(routes.upload(way)).collect();
    let flow = Transfer::new(&links, path.latency_s, bytes as f64);
    let flow = Transfer { way_back: &path.way_back, under_way_s, ..flow };
    kernel.start_transfer(&flow, Purpose::Bulk { pair, transfer })
}

pub(super) fn stop(kernel: &mut Kernel, moving: &Moving) {
    moving.action.into_iter().for_each(|action| kernel.cancel(action));
}

/// Records that cargo begins to flow. Returns the transfer's number.
pub(super) fn begins(
    kernel: &mut Kernel,
    routes: &mut Routes,
    (from, to): (NodeId, NodeId),
    way: HostPair,
    (cargo, bytes): (&Cargo, u64),
) -> u64 {
    let moved = match cargo {
        Cargo::Datum { datum, .. } => Moved::Datum { datum: *datum, from, to },
        Cargo::Probe { .. } => Moved::Probe,
    };
    kernel.begins(moved, bytes, &routes.path(way).links)
}

/// Reports whether a route crosses a link.
pub(crate) fn is_crossed(routes: &mut Routes, way: HostPair, link: LinkIndex) -> bool {
    routes.path(way).crossed().any(|crossed| *crossed == link)
}
