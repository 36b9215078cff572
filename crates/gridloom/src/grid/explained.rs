//! Shared names explained: where their versions are, and from whom other servers would get them.

use std::collections::BTreeMap;

use gridloom_base::NodeId;
use gridloom_core::data::VersionReport;
use gridloom_core::node::NameCommand;
use gridloom_core::node::message::{CatalogAnswer, CopyReport};

use super::SharedData;
use crate::Error;

/// What the agent knows of a shared name: see [`SharedData::explain`].
#[derive(Clone, Debug)]
pub struct SharedExplained {
    /// The last one first.
    pub versions: Vec<VersionReport>,
    /// Servers that talk to others and have no copy of the current version, in order of name: from whom each gets one, or would get
    /// one if it asked now.
    pub copies: Vec<CopyReport>,
    names: BTreeMap<NodeId, String>,
}

impl SharedExplained {
    /// The name of a server.
    pub fn name_of(&self, server: NodeId) -> String {
        self.names.get(&server).cloned().unwrap_or_else(|| server.to_string())
    }
}

impl SharedData<'_> {
    /// Where the versions of a name are, and from whom servers without a copy would get one: by the sizes and links that the agent
    /// knows now. Nothing moves.
    ///
    /// # Errors
    /// [`Error::Name`] if the name is unknown, is no name, or there is no agent.
    pub fn explain(&self, name: &str) -> Result<SharedExplained, Error> {
        let mut copies: Vec<CopyReport> = Vec::new();
        loop {
            let after = copies.last().map(|last| last.server);
            let answer = self.ask(NameCommand::Explain { name: name.into(), after }, None)?;
            let CatalogAnswer::Explained { versions, copies: more, has_more } = answer else {
                unreachable!("an explanation explains")
            };
            copies.extend(more);
            if !has_more {
                let names = self.0.state().directory.names().clone();
                let mut explained = SharedExplained { versions, copies: Vec::new(), names };
                copies.sort_by_cached_key(|one| explained.name_of(one.server));
                explained.copies = copies;
                return Ok(explained);
            }
        }
    }
}
