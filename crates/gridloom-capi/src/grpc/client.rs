//! What calls need of a session: the grid, data that stand for pointers, results that stay remote, and settings.

use std::collections::BTreeMap;
use std::time::Duration;

use gridloom::Grid;
use gridloom::data::{Places, servers_named};
use gridloom_perf::{GridView, ServerView};

use super::code::{Failed, GRPC_SERVER_NOT_FOUND, Outcome};
use super::config::Config;
use super::elsewhere::Staying;
use super::remotes::Remotes;
use std::sync::Arc;

/// A client of the grid.
pub(super) struct Client {
    pub(super) grid: Grid,
    pub(super) remotes: Remotes,
    /// Results of mapped blocks that stay where they were made.
    pub(super) staying: Staying,
    /// Maps blocks that name no heuristic.
    pub(super) heuristic: String,
    /// Whether blocks fill buffers while their results are elsewhere.
    pub(super) is_debugged: bool,
    /// The time limit of calls through a handle that has none of its own.
    pub(super) limit: Option<Duration>,
    /// Addresses of servers by the names of the configuration.
    server_names: BTreeMap<String, String>,
    /// Whether the grid was started for this session.
    pub(super) is_own_grid: bool,
}

impl Client {
    pub(super) fn open(config: &Config) -> Outcome<Client> {
        let grid = config.open().map_err(|error| Failed::other(error.to_string()))?;
        Ok(Client {
            grid,
            remotes: Remotes::default(),
            staying: Staying::default(),
            heuristic: config.heuristic(),
            is_debugged: config.is_debugged(),
            limit: config.session_limit(),
            server_names: config.server_names(),
            is_own_grid: config.is_own_grid(),
        })
    }

    /// The places of the program's data.
    ///
    /// # Safety
    /// Memory that `memory:` URIs name is as the program described it, while the result is used.
    pub(super) unsafe fn places(&self) -> Places<'_> {
        Places { grid: &self.grid, server_names: &self.server_names, memory: &self.remotes }
    }

    /// The servers, of which there is at least one.
    pub(super) fn some_servers(&self) -> Outcome<Arc<GridView>> {
        let view = self.grid.servers();
        if view.servers.is_empty() {
            let text = "the grid has no server; start one with 'gridloom serve'";
            return Err(Failed::new(GRPC_SERVER_NOT_FOUND, text));
        }
        Ok(view)
    }

    /// The servers that a name means: one by its own name, one of the configuration or an address, or those of a host.
    pub(super) fn servers_named<'a>(&self, name: &str, servers: &'a [ServerView]) -> Outcome<Vec<&'a ServerView>> {
        Ok(servers_named(name, &self.server_names, servers)?)
    }
}
