//! What the servers have told of the times of their functions.

use std::collections::BTreeMap;

use crate::base::limits::SPEED_FLOPS_DEFAULT;
use crate::perf::FunctionModel;

/// All models, by function. Servers of one host have the same processors, unless one is slowed down: what one learns holds for
/// all, and noise does not make equals unequal.
#[derive(Debug, Default)]
pub(super) struct Models {
    by_function: BTreeMap<String, BTreeMap<String, OfHost>>,
}

#[derive(Debug, Default)]
struct OfHost {
    by_server: BTreeMap<String, FunctionModel>,
    merged: FunctionModel,
}

impl Models {
    /// A server's model is now this.
    pub(super) fn take(&mut self, host: &str, server: &str, function: &str, model: FunctionModel) {
        let of_host = self.by_function.entry(function.into()).or_default().entry(host.into()).or_default();
        of_host.by_server.insert(server.into(), model);
        of_host.merged = FunctionModel::merge(of_host.by_server.values().map(|model| (model, 1.0)));
    }

    /// What is known of a function on a host: measured there, or else on the others, by the ratio of their speeds. A tuned
    /// library runs far above the yardstick of speeds everywhere, an interpreter below it.
    pub(super) fn of(&self, host: &str, function: &str, speeds: &BTreeMap<&str, f64>) -> FunctionModel {
        let Some(hosts) = self.by_function.get(function) else { return FunctionModel::default() };
        if let Some(known) = hosts.get(host) {
            return known.merged.clone();
        }
        let speed = |host: &str| speeds.get(host).copied().unwrap_or(SPEED_FLOPS_DEFAULT);
        let guessed = hosts.iter().map(|(other, known)| (&known.merged, speed(other) / speed(host)));
        // Nothing was measured here: only the shape of the curve is taken.
        let mut model = FunctionModel::merge(guessed);
        model.accuracy = Default::default();
        [&mut model.by_work, &mut model.by_bytes]
            .into_iter()
            .flat_map(|curve| &mut curve.points)
            .for_each(|point| point.calls = 0);
        model
    }
}
