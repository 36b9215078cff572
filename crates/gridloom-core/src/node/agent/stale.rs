//! Changes that affect current plans: models and paces that have changed much, and new servers.

use super::directory::{DIRECTORY_PAUSE_NS, MODELS_PAUSE_NS};
use super::{Agent, send};
use crate::node::message::MapToClient;
use crate::node::message::Registration;
use crate::node::protocol::Effect;
use gridloom_base::limits::{STALE_FACTOR, SURPRISE_FACTOR, TIME_SLICE_NOISE_S};
use gridloom_base::{GroupId, NodeId, Time};
use gridloom_perf::{Curve, FunctionModel, Size};
use std::collections::BTreeSet;

impl Agent {
    pub(super) fn on_model(
        &mut self,
        now: Time,
        from: NodeId,
        function: &str,
        model: FunctionModel,
        out: &mut Vec<Effect>,
    ) {
        let Some(server) = self.servers.get(&from) else { return };
        let Registration { name, functions, .. } = &server.registration;
        if !model.is_sane() || !functions.iter().any(|known| known.name == function) {
            return;
        }
        let (name, processors) = (name.clone(), server.processors.clone());
        let change = self.learned(&processors, &name, function, model);
        if !(1.0 / SURPRISE_FACTOR..SURPRISE_FACTOR).contains(&change) {
            let why = format!("'{function}' takes {change:.1} times as long on '{name}' as its model predicted");
            self.notify_stale(&processors, &why, out);
        }
        self.schedule_push(now + MODELS_PAUSE_NS, out);
    }

    /// Stores a model. Returns the factor by which the time of its largest call has changed, or 1 if the change may be noise.
    fn learned(&mut self, processors: &str, server: &str, function: &str, model: FunctionModel) -> f64 {
        let speeds = self.speeds();
        let speed = speeds.get(processors).copied();
        let before = self.models.model_of(processors, function, &speeds);
        let largest = |curve: &Curve, size: fn(f64) -> Size| curve.points.last().map(|point| size(point.size));
        let size = largest(&model.by_work, Size::Work).or(largest(&model.by_bytes, |bytes| Size::Bytes(bytes as u64)));
        let times_s = size.map(|size| (before.seconds(size, speed), model.seconds(size, speed)));
        self.models.update(processors, server, function, model);
        match times_s.map(|(before_s, after_s)| (after_s / before_s, (after_s - before_s).abs())) {
            Some((change, by_s)) if change.is_finite() && change > 0.0 && by_s >= TIME_SLICE_NOISE_S => change,
            Some(_) | None => 1.0,
        }
    }

    /// Notifies the clients of groups on servers with these processors that the assumptions of their plans have changed.
    fn notify_stale(&self, processors: &str, why: &str, out: &mut Vec<Effect>) {
        let there = self.servers.values().filter(|server| server.processors == processors);
        let groups: BTreeSet<GroupId> = there.flat_map(|server| server.reservations.keys().copied()).collect();
        for group in groups {
            send(out, group.client, MapToClient::Stale { group, why: why.to_string() });
        }
    }

    pub(super) fn on_pace(&mut self, now: Time, from: NodeId, pace: f64, out: &mut Vec<Effect>) {
        let Some(server) = self.servers.get_mut(&from) else { return };
        server.pace = pace;
        let name = &server.registration.name;
        for (group, promise) in &mut server.reservations {
            let change = pace / promise.pace;
            if !(1.0 / STALE_FACTOR..STALE_FACTOR).contains(&change) {
                promise.pace = pace;
                let why =
                    format!("calls on server '{name}' take {change:.1} times as long as when the group was mapped");
                send(out, group.client, MapToClient::Stale { group: *group, why });
            }
        }
        self.schedule_push(now + DIRECTORY_PAUSE_NS, out);
    }

    /// Notifies clients that a new server can be used, or that its measurements have become known: their current plans
    /// could use it.
    pub(super) fn notify_newly_usable(&mut self, node: NodeId, out: &mut Vec<Effect>) {
        let Some(server) = self.servers.get(&node).filter(|s| s.links_done && s.speed_flops.is_some()) else { return };
        let why = format!("server '{}' has joined", server.registration.name);
        let groups: BTreeSet<GroupId> = self.servers.values().flat_map(|s| s.reservations.keys().copied()).collect();
        for group in groups.into_iter().filter(|group| !server.reservations.contains_key(group)) {
            send(out, group.client, MapToClient::Stale { group, why: why.clone() });
        }
    }
}
