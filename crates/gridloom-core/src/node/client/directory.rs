//! The directory, as the agent told of it last: servers, and what they offer.

use std::sync::Arc;

use super::unoffered::Unoffered;
use gridloom_idl::Signature;
use gridloom_perf::{GridView, ServerView};

#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Servers as the agent told of them, also those that are lost here, in order of name.
    pub(super) told: Vec<ServerView>,
    /// Servers that are not lost.
    pub(super) grid: Arc<GridView>,
    /// A first one has come.
    pub(super) is_known: bool,
    pub(super) functions: Arc<Vec<Signature>>,
    pub(super) unoffered: Unoffered,
}
