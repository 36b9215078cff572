//! The report of a simulated run.

use std::collections::BTreeMap;

use gridloom_base::NodeId;
use gridloom_sim::Simulation;
use serde::{Deserialize, Serialize};

/// The report of a simulated run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimulationReport {
    /// Virtual seconds at the end.
    pub seconds: f64,
    /// Hash of all events in order: equal for equal programs, platforms and seeds.
    pub trace_hash: String,
    /// Bytes of data over each link of the platform.
    pub bytes_by_link: BTreeMap<String, f64>,
    /// Bytes of data by pair of nodes, sender first.
    pub bytes_by_pair: BTreeMap<String, u64>,
    /// Groups in order: heuristic, predicted and simulated makespan in seconds.
    pub groups: Vec<(String, f64, f64)>,
    /// Why files written during the run are incomplete, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl SimulationReport {
    /// Makes the report of a simulation, without groups; those are added by its sessions.
    pub(crate) fn new(simulation: &Simulation, names: &BTreeMap<NodeId, String>) -> SimulationReport {
        // Sessions of functions are not in `names`.
        let known = simulation.names();
        let other = |node: &NodeId| known.get(node.0 as usize - 1).map_or_else(|| node.to_string(), Clone::clone);
        let name = |node: &NodeId| names.get(node).cloned().unwrap_or_else(|| other(node));
        let by_pair = simulation.bytes_by_pair().iter();
        SimulationReport {
            seconds: simulation.now().seconds(),
            trace_hash: format!("{:016x}", simulation.trace_hash()),
            bytes_by_link: simulation.bytes_by_link().into_iter().filter(|(_, bytes)| *bytes > 0.0).collect(),
            bytes_by_pair: by_pair.map(|((from, to), n)| (format!("{} -> {}", name(from), name(to)), *n)).collect(),
            groups: Vec::new(),
            failure: None,
        }
    }
}
