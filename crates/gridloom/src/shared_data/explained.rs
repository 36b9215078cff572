//! Explains shared names: where their versions are, and from where other servers would fetch them.

use std::collections::BTreeMap;

use gridloom_base::NodeId;
use gridloom_core::data::VersionReport;
use gridloom_core::node::NameCommand;
use gridloom_core::node::message::{CatalogAnswer, CopyReport};

use super::SharedData;
use crate::Error;

/// The agent's knowledge of a shared name: see [`SharedData::explain`].
#[derive(Clone, Debug)]
pub struct SharedDataReport {
    /// The latest one first.
    pub versions: Vec<VersionReport>,
    /// Servers that are not stateless and have no copy of the current version, by name: from where each fetches it, or would
    /// fetch it if it requested it now.
    pub copies: Vec<CopyReport>,
    names: BTreeMap<NodeId, String>,
}

impl SharedDataReport {
    /// Returns the name of a server.
    pub fn name_of(&self, server: NodeId) -> String {
        self.names.get(&server).cloned().unwrap_or_else(|| server.to_string())
    }
}

impl SharedData<'_> {
    /// Returns where the versions of a name are, and from where servers without a copy would fetch one, according to
    /// the sizes and links that the agent knows now. Transfers nothing.
    ///
    /// # Errors
    /// [`Error::Name`] if the name is unknown or invalid, or there is no agent.
    pub fn explain(&self, name: &str) -> Result<SharedDataReport, Error> {
        let mut copies: Vec<CopyReport> = Vec::new();
        loop {
            let after = copies.last().map(|last| last.server);
            let answer = self.request(NameCommand::Explain { name: self.stated(name), after }, None)?;
            let CatalogAnswer::Explained { versions, copies: more, has_more } = answer else {
                unreachable!("an explanation explains")
            };
            copies.extend(more);
            if !has_more {
                let names = self.0.state().directory.names().clone();
                let mut explained = SharedDataReport { versions, copies: Vec::new(), names };
                copies.sort_by_cached_key(|one| explained.name_of(one.server));
                explained.copies = copies;
                return Ok(explained);
            }
        }
    }
}
