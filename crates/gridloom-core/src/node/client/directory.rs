//! The directory, as the agent told of it last: servers, and what they offer.

use std::sync::Arc;

use super::unoffered::Unoffered;
use gridloom_idl::Signature;
use gridloom_perf::GridView;

#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Servers that are not lost.
    pub(super) grid: Arc<GridView>,
    /// A first one has come.
    pub(super) is_known: bool,
    pub(super) functions: Arc<Vec<Signature>>,
    pub(super) unoffered: Unoffered,
}
