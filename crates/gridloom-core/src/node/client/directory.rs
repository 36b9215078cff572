//! The agent's latest directory: servers and their functions.

use std::sync::Arc;

use super::lost_functions::LostFunctions;
use gridloom_idl::Signature;
use gridloom_perf::{GridView, ServerView};

#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Servers listed by the agent in order of name, including those that are lost here.
    pub(super) listed: Vec<ServerView>,
    /// Servers that are not lost.
    pub(super) grid: Arc<GridView>,
    /// True once the first directory has arrived.
    pub(super) is_known: bool,
    pub(super) functions: Arc<Vec<Signature>>,
    pub(super) unoffered: LostFunctions,
}
