//! The common part of fat trees, tori and dragonflies: their hosts by position, and the creation of their links.

use std::collections::BTreeMap;

use super::point::PointId;
use crate::element::LinkId;
use crate::error::PlatformError;

/// Creates the links of one cluster, with its names and speeds.
pub(crate) trait LinkFactory {
    /// Creates a link of `cables` parallel cables, in both directions.
    fn cable(&mut self, name: &str, cables: usize) -> Result<(LinkId, LinkId), PlatformError>;
    /// Creates the limiter of the host or switch of that number, if the cluster has limiters.
    fn limiter(&mut self, number: usize) -> Result<Option<LinkId>, PlatformError>;
}

/// The hosts of a cluster, by position. Its switches are not points of the platform.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaves {
    pub(crate) positions: BTreeMap<PointId, usize>,
    pub(crate) loopbacks: Vec<LinkId>,
    pub(crate) limiters: Vec<LinkId>,
}

impl Leaves {
    /// The link that everything sent, received or forwarded by a host has to cross.
    pub(crate) fn limiter(&self, position: usize) -> Option<LinkId> {
        self.limiters.get(position).copied()
    }
}
