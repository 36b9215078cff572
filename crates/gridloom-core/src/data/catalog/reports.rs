//! What the catalog says of a name to people.

use gridloom_base::{Named, NodeId};
use serde::{Deserialize, Serialize};

use super::Catalog;
use super::version::{Stage, Version};

/// Versions of one name that are told: more are there only if many programs keep old ones.
const VERSIONS_TOLD_MAX: usize = 16;

/// What a version is to those that ask for its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Standing {
    /// It is being put.
    Coming,
    /// They find it.
    Current,
    /// They do not find it any more.
    Former,
}

/// One version of a name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VersionReport {
    pub named: Named,
    pub standing: Standing,
    /// Servers with a copy.
    pub holders: Vec<NodeId>,
    /// Those of them that keep it.
    pub keepers: Vec<NodeId>,
    /// Servers that are to keep it, and have it not yet.
    pub coming_to: Vec<NodeId>,
    /// Programs that read it.
    pub readers: u64,
    /// How its last copy was lost, if none is there.
    pub lost: Option<String>,
}

impl VersionReport {
    fn of(version: &Version) -> VersionReport {
        let standing = match version.stage {
            Stage::Coming(_) => Standing::Coming,
            Stage::Current => Standing::Current,
            Stage::Former => Standing::Former,
        };
        VersionReport {
            named: version.named.clone(),
            standing,
            holders: version.holders.iter().copied().collect(),
            keepers: version.keepers.iter().copied().collect(),
            coming_to: version.coming_to.iter().copied().collect(),
            readers: version.readers.len() as u64,
            lost: version.lost.clone().filter(|_| version.holders.is_empty()),
        }
    }
}

impl Catalog {
    /// The versions of a name, the last one first. None of an unknown name.
    pub fn reports(&self, name: &str) -> Vec<VersionReport> {
        let mut versions: Vec<&Version> = self.versions_of(name).collect();
        versions.sort_by_key(|version| (version.stage == Stage::Former, std::cmp::Reverse(version.rank())));
        versions.into_iter().take(VERSIONS_TOLD_MAX).map(VersionReport::of).collect()
    }
}
