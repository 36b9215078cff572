//! Durable data: what a server writes to its disk is there when it starts again under its name.
//!
//! Writing takes size by the rate of the host's disk, as if nothing else used that.

use std::collections::BTreeMap;

use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, Named, NodeId, Time};
use gridloom_core::node::Input;
use gridloom_platform::HostId;

use crate::hosts::DISK_RATE_DEFAULT;
use crate::occurrence::Occurrence;
use crate::simulation::Simulation;
use crate::store::StoredValue;

/// The disks of all servers, by name.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    /// Bytes per second; others have the default.
    rates: BTreeMap<HostId, f64>,
    disks: BTreeMap<String, BTreeMap<DatumId, Written>>,
}

#[derive(Clone, Debug)]
struct Written {
    /// From then on it is whole.
    whole_at: Time,
    named: Named,
    value: StoredValue,
}

impl Durable {
    pub(crate) fn new(rates: BTreeMap<HostId, f64>) -> Durable {
        Durable { rates, disks: BTreeMap::new() }
    }

    /// What is whole on the disk of a server that starts. What is not is gone.
    pub(crate) fn start(&mut self, now: Time, server: &str) -> Vec<(Named, StoredValue)> {
        let Some(disk) = self.disks.get_mut(server) else { return Vec::new() };
        disk.retain(|_, written| written.whole_at <= now);
        disk.values().map(|written| (written.named.clone(), written.value.clone())).collect()
    }
}

impl Simulation {
    /// A datum is not to outlive that server.
    pub(crate) fn make_transient(&mut self, node: NodeId, datum: DatumId) {
        if datum.is_shared() {
            let name = &self.nodes.node(node).name;
            self.durable.disks.get_mut(name).map(|disk| disk.remove(&datum));
        }
    }

    pub(crate) fn make_durable(&mut self, node: NodeId, named: Named) {
        let (now, datum, state) = (self.now(), named.datum, self.nodes.node(node));
        let Some(value) = state.store.value(datum).cloned() else { return };
        let rate = self.durable.rates.get(&state.host).copied().unwrap_or(DISK_RATE_DEFAULT);
        let ns = value.meta.size_bytes() as f64 / rate * SECOND_NS as f64;
        let (whole_at, server) = (now + ns.ceil() as u64, state.name.clone());
        self.durable.disks.entry(server).or_default().insert(datum, Written { whole_at, named, value });
        let input = Box::new(Input::MadeDurable { datum, outcome: Ok(()) });
        self.kernel.push(whole_at, Occurrence::Deliver { node, input });
    }
}
