//! What fat trees, tori and dragonflies share: their hosts by position, and how their links are laid.

use std::collections::BTreeMap;

use super::point::PointId;
use crate::element::LinkId;
use crate::error::PlatformError;

/// Lays the links of one cluster, with its names and speeds.
pub(crate) trait Cabling {
    /// A link of so many cables: there and back.
    fn cable(&mut self, name: &str, cables: usize) -> Result<(LinkId, LinkId), PlatformError>;
    /// What limits the host or switch of that number, if the cluster has such links.
    fn limiter(&mut self, number: usize) -> Result<Option<LinkId>, PlatformError>;
}

/// The hosts of a cluster, by position; its switches are no points of the platform.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaves {
    pub(crate) positions: BTreeMap<PointId, usize>,
    pub(crate) loopbacks: Vec<LinkId>,
    pub(crate) limiters: Vec<LinkId>,
}

impl Leaves {
    /// What everything that a host sends or receives, or that passes it, has to cross.
    pub(crate) fn limiter(&self, position: usize) -> Option<LinkId> {
        self.limiters.get(position).copied()
    }
}
