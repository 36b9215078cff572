//! The catalog's reports on a name, for display.

use gridloom_base::{NamedDatum, NodeId};
use serde::{Deserialize, Serialize};

use super::Catalog;
use super::version::{Stage, Version};

/// Versions of one name that are reported. There are more only if many programs keep old ones.
const VERSIONS_REPORTED_MAX: usize = 16;

/// The state of a version as seen by requests for its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum VersionState {
    /// It is being put.
    BeingPut,
    /// Requests find it.
    Current,
    /// Requests no longer find it.
    Superseded,
}

/// One version of a name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VersionReport {
    pub named: NamedDatum,
    pub standing: VersionState,
    /// Servers with a copy.
    pub holders: Vec<NodeId>,
    /// The holders that keep it.
    pub keepers: Vec<NodeId>,
    /// Servers assigned to keep it that do not have it yet.
    pub assigned: Vec<NodeId>,
    /// Number of programs that read it.
    pub readers: u64,
    /// How its last copy was lost, if there is none.
    pub lost: Option<String>,
}

impl VersionReport {
    fn of(version: &Version) -> VersionReport {
        let standing = match version.stage {
            Stage::BeingPut(_) => VersionState::BeingPut,
            Stage::Current => VersionState::Current,
            Stage::Former => VersionState::Superseded,
        };
        VersionReport {
            named: version.named.clone(),
            standing,
            holders: version.holders.iter().copied().collect(),
            keepers: version.keepers.iter().copied().collect(),
            assigned: version.assigned.iter().copied().collect(),
            readers: version.readers.len() as u64,
            lost: version.lost.clone().filter(|_| version.holders.is_empty()),
        }
    }
}

impl Catalog {
    /// Returns the versions of a name, the latest first. Empty for an unknown name.
    pub fn reports(&self, name: &str) -> Vec<VersionReport> {
        let mut versions: Vec<&Version> = self.versions_of(name).collect();
        versions.sort_by_key(|version| (version.stage == Stage::Former, std::cmp::Reverse(version.rank())));
        versions.into_iter().take(VERSIONS_REPORTED_MAX).map(VersionReport::of).collect()
    }
}
