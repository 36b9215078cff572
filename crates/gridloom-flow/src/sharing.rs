//! The current penalty and bound of an action: those of its start, updated by later changes.

use super::cpu::{self, Execution};
use super::network::{NetworkModel, Transfer};
use super::resources::{HostIndex, Resources};

/// The parameters with which an action shares its resources.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharing {
    /// Its penalty, even if it is not used yet.
    pub(super) penalty: f64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Transfer { narrowest: f64, latency_s: f64 },
    Execution { host: HostIndex, threads: u32, bound_flops: f64 },
}

impl Sharing {
    pub(super) fn of_transfer(model: &NetworkModel, resources: &Resources, transfer: &Transfer<'_>) -> Sharing {
        let bandwidths = transfer.links.iter().map(|link| resources.link(*link).bandwidth);
        let penalty = model.penalty(transfer.latency_s, bandwidths.clone());
        let narrowest = bandwidths.fold(f64::INFINITY, f64::min);
        let narrowest = narrowest.min(transfer.rate_max / model.bandwidth_factor);
        Sharing { penalty, kind: Kind::Transfer { narrowest, latency_s: transfer.latency_s } }
    }

    pub(super) fn of_execution(execution: &Execution) -> Sharing {
        let Execution { host, threads, bound_flops, .. } = *execution;
        Sharing { penalty: execution.penalty(), kind: Kind::Execution { host, threads, bound_flops } }
    }

    pub(super) fn bound(&self, model: &NetworkModel, resources: &Resources) -> f64 {
        match self.kind {
            Kind::Transfer { narrowest, latency_s } => model.bound(latency_s, narrowest),
            Kind::Execution { host, threads, bound_flops } => cpu::bound(resources.host(host), threads, bound_flops),
        }
    }
    /// Increases the latency of a transfer's route.
    pub(super) fn add_latency(&mut self, delta_s: f64) {
        if let Kind::Transfer { latency_s, .. } = &mut self.kind {
            *latency_s += delta_s;
        }
    }
}
