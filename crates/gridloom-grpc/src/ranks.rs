//! Numbers of ranks that a configuration sets for the calls of handles, by server and function.

use std::collections::BTreeMap;

/// The settings of one server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RanksOfServer {
    /// Number of ranks of all functions that have no number of their own.
    pub(crate) all: Option<u32>,
    pub(crate) functions: BTreeMap<String, u32>,
}

/// The settings of all servers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ConfiguredRanks {
    /// Settings by the name of the server.
    servers: BTreeMap<String, RanksOfServer>,
    /// A name of the first server. Its settings apply to handles that name no server, because Ninf-G makes these there.
    first: Option<String>,
    /// Settings of servers that have none of their own.
    pub(crate) default: RanksOfServer,
}

impl RanksOfServer {
    fn of(&self, function: &str) -> Option<u32> {
        self.functions.get(function).copied().or(self.all)
    }
}

impl ConfiguredRanks {
    /// Adds a server with its names. Earlier settings of a name are replaced.
    #[cfg(feature = "ninfg")]
    pub(crate) fn add_server(&mut self, names: impl Iterator<Item = String>, ranks: &RanksOfServer) {
        for name in names {
            self.first.get_or_insert_with(|| name.clone());
            self.servers.insert(name, ranks.clone());
        }
    }

    /// Adds the settings of another configuration, which take precedence.
    pub(crate) fn extend(&mut self, other: ConfiguredRanks) {
        self.servers.extend(other.servers);
        self.first = self.first.take().or(other.first);
        if other.default != RanksOfServer::default() {
            self.default = other.default;
        }
    }

    /// Returns the number of ranks for the calls of a handle; 0 for the server's own number.
    pub(crate) fn of(&self, server: Option<&str>, function: &str) -> u32 {
        let server = server.or(self.first.as_deref()).and_then(|name| self.servers.get(name));
        let own = server.and_then(|server| server.of(function));
        own.or_else(|| self.default.of(function)).unwrap_or(0)
    }
}
