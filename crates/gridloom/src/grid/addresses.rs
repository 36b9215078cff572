//! Servers by address: those that a session without an agent was given.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::NodeId;

use super::{CONNECT_LIMIT, State};
use crate::backend::NetBackend;
use crate::{Error, Grid};

/// The addresses that a session without an agent was given.
#[derive(Default)]
pub(super) struct Addresses {
    given: BTreeSet<String>,
    /// The server at each address that has answered, or why it cannot be used.
    answers: BTreeMap<String, Result<NodeId, String>>,
}

impl Addresses {
    pub(super) fn on_answer(&mut self, address: String, answer: Result<NodeId, String>) {
        self.answers.insert(address, answer);
    }
}

/// True if all addresses have answered. A server has answered when it is in the directory, too.
fn have_answered(state: &State) -> bool {
    let has_answered = |address: &String| match state.addresses.answers.get(address) {
        Some(Ok(server)) => state.directory.has(*server),
        Some(Err(_)) => true,
        None => false,
    };
    state.addresses.given.iter().all(has_answered)
}

impl Grid {
    /// Connects to those servers (`host:port`) without an agent: the session maps calls itself, from the servers' reports.
    /// Two such sessions do not know each other's reservations.
    ///
    /// Servers that answer are used; [`Grid::unreachable`] lists the others, which are dialled again while the
    /// session lasts.
    ///
    /// # Errors
    /// If an address is invalid; if none of them can be used, with the reason for each.
    pub fn connect_servers(servers: &[String]) -> Result<Grid, Error> {
        if let Some(grid) = Grid::from_environment(None)? {
            return Ok(grid);
        }
        let addresses: BTreeSet<String> = servers.iter().map(|address| address.trim().to_string()).collect();
        if addresses.is_empty() {
            return Err(Error::Usage("no server is named; expected HOST:PORT of each".into()));
        }
        if addresses.contains("") {
            let why = "one of the servers' addresses is empty; expected HOST:PORT of each, with one comma between two";
            return Err(Error::Usage(why.into()));
        }
        let servers: Vec<String> = addresses.iter().cloned().collect();
        let grid = Grid::open(NetBackend::connect_servers(&servers)?, None)?;
        grid.state().addresses.given = addresses;
        match grid.wait(Some(CONNECT_LIMIT), |state| have_answered(state).then_some(())) {
            Ok(()) | Err(Error::TimedOut { .. }) => {}
            Err(error) => return Err(error),
        }
        let nodes: Vec<NodeId> = grid.servers().servers.iter().map(|server| server.node).collect();
        if nodes.is_empty() {
            let one = |(address, why): &(String, String)| format!("cannot use the server at {address}: {why}");
            let all: Vec<String> = grid.unreachable().iter().map(one).collect();
            return Err(Error::Connect(format!("{}; start one with 'gridloom serve --no-agent'", all.join("; "))));
        }
        grid.await_models(&nodes, CONNECT_LIMIT)?;
        Ok(grid)
    }

    /// In a session without an agent: returns the servers that it was given and cannot use now, with the reasons.
    pub fn unreachable(&self) -> Vec<(String, String)> {
        self.absorb();
        let state = self.state();
        let Addresses { given, answers } = &state.addresses;
        let why = |(address, answer): (&String, &Result<NodeId, String>)| match answer {
            Ok(server) if state.directory.has(*server) => None,
            Ok(_) => Some((address.clone(), "it has not sent its functions, or is gone".to_string())),
            Err(why) => Some((address.clone(), why.clone())),
        };
        let silent = given.iter().filter(|address| !answers.contains_key(*address));
        let seconds = CONNECT_LIMIT.as_secs();
        let silent = silent.map(|address| (address.clone(), format!("no answer within {seconds} s")));
        answers.iter().filter_map(why).chain(silent).collect()
    }
}
