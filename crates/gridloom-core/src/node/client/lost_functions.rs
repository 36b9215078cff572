//! Functions that no server offers any more, each with the server that was lost with it. Used in errors.

use std::collections::BTreeMap;

use gridloom_base::NodeId;
use gridloom_perf::GridView;

/// Functions that are remembered.
const FUNCTIONS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct LostFunctions {
    /// Name of the lost server, and the reason for its loss, by function.
    lost: BTreeMap<String, (String, String)>,
}

impl LostFunctions {
    /// Records the functions that no server offers since that server of the grid was lost.
    pub(super) fn server_lost(&mut self, grid: &GridView, server: NodeId, why: &str) {
        let Some(lost) = grid.servers.iter().find(|one| one.node == server) else { return };
        let is_offered = |function: &str| {
            let mut others = grid.servers.iter().filter(|one| one.node != server);
            others.any(|one| one.functions.contains_key(function))
        };
        for function in lost.functions.keys().filter(|function| !is_offered(function)) {
            if self.lost.len() < FUNCTIONS_MAX || self.lost.contains_key(function) {
                self.lost.insert(function.clone(), (lost.name.clone(), why.to_string()));
            }
        }
    }

    /// Returns the text after "no server offers function 'f'" in an error; empty if no server was known to offer it.
    pub(super) fn lost_text(&self, function: &str) -> String {
        let lost = self.lost.get(function);
        lost.map_or_else(String::new, |(name, why)| format!(" any more: server '{name}' was lost ({why})"))
    }
}
