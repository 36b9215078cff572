//! When all handles are released and the grid is quiet, everything has been freed. Stores are empty, and clients,
//! servers and the agent remember nothing of tasks and data.
//!
//! A server remembers the names of data that it dropped, up to `DROPPED_REMEMBERED`, and every node remembers its
//! peers; both are bounded. Stopped and lost nodes are not checked. Neither are servers with shared data that no agent
//! can reach: they keep the data for an agent that returns.
//!
//! DESIGN.md, 3.

use gridloom_base::NodeId;
use gridloom_core::node::Role;

use super::{Invariant, InvariantCheck};
use crate::grid::SoakGrid;
use crate::ledger::Ledger;
use gridloom_sim::Simulation;
use gridloom_sim::inspect::NodeState;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "everything is given back",
    about: "when everything is released and quiet, stores are empty and no node remembers tasks or data",
    new_check: || Box::new(GivenBack),
};

struct GivenBack;

impl InvariantCheck for GivenBack {
    fn end(&mut self, sim: &Simulation, ledger: &Ledger) -> Result<(), String> {
        for node in SoakGrid::running(sim, Role::Agent) {
            remembers(sim, node, &sim.agent(node).map(|agent| agent.leak_counts()).unwrap_or_default())?;
        }
        for node in SoakGrid::running(sim, Role::Server) {
            if ledger.shared.is_used() && is_out_of_reach(sim, node) {
                continue;
            }
            remembers(sim, node, &sim.server(node).map(|server| server.leak_counts()).unwrap_or_default())?;
        }
        for node in SoakGrid::running(sim, Role::Client) {
            if let Some(client) = sim.client(node) {
                client.check();
            }
            remembers(sim, node, &sim.client(node).map(|client| client.leak_counts()).unwrap_or_default())?;
        }
        match sim.all_incoming().find(|(node, _)| sim.state(*node) == NodeState::Running) {
            Some((node, datum)) => Err(format!("'{}' is still receiving {datum}", sim.name(node))),
            None => Ok(()),
        }
    }
}

/// Reports whether no agent can notify a server that a name was deleted.
fn is_out_of_reach(sim: &Simulation, server: NodeId) -> bool {
    !SoakGrid::running(sim, Role::Agent).any(|agent| sim.is_connected(agent, server))
}

fn remembers(sim: &Simulation, node: NodeId, leftovers: &[(&'static str, usize)]) -> Result<(), String> {
    let left: Vec<String> =
        leftovers.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{what}: {count}")).collect();
    match (left.is_empty(), sim.stored(node).len()) {
        (true, 0) => Ok(()),
        (_, stored) => {
            let name = sim.name(node);
            let some: Vec<String> = sim.stored(node).take(4).map(|datum| datum.to_string()).collect();
            let some = some.join(", ");
            Err(format!("'{name}' has {stored} values in its store ({some}) and remembers {}", left.join(", ")))
        }
    }
}
