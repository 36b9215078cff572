//! Run time models of functions, as reported by the servers.

use std::collections::BTreeMap;

use gridloom_base::limits::{SPEED_FLOPS_DEFAULT, TIME_SLICE_NOISE_S};
use gridloom_perf::{Curve, FunctionModel, Size};

/// Number of hosts, the first ones by name, from which models are guessed for all others in a large grid.
const GUESSED_FROM_MAX: usize = 64;

/// All models, by function. Servers of one host have the same processors, unless one is slowed down: a model of one
/// applies to all, so noise does not make equal servers look different.
#[derive(Debug, Default)]
pub(super) struct Models {
    by_function: BTreeMap<String, BTreeMap<String, MeasuredModels>>,
    /// Hash of the current signature of each function.
    signatures: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
struct MeasuredModels {
    by_server: BTreeMap<String, FunctionModel>,
    merged: FunctionModel,
}

impl Models {
    /// Records that a function is offered with this signature. Models of the function with another signature are discarded.
    /// Returns true if there were any.
    pub(super) fn offered(&mut self, function: &str, signature: u64) -> bool {
        let has_changed = self.signatures.insert(function.into(), signature).is_some_and(|known| known != signature);
        has_changed && self.by_function.remove(function).is_some()
    }

    /// Updates a server's model. Returns the factor by which the time of the model's largest call has changed, or 1 if
    /// the change may be noise. `before`: the model of the function on the server's host until now. `speed`: that of the host.
    pub(super) fn learn(
        &mut self,
        (host, server): (&str, &str),
        function: &str,
        model: FunctionModel,
        before: &FunctionModel,
        speed: Option<f64>,
    ) -> f64 {
        let largest = |curve: &Curve, size: fn(f64) -> Size| curve.points.last().map(|point| size(point.size));
        let size = largest(&model.by_work, Size::Work).or(largest(&model.by_bytes, |bytes| Size::Bytes(bytes as u64)));
        let times_s = size.map(|size| (before.seconds(size, speed), model.seconds(size, speed)));
        self.update(host, server, function, model);
        match times_s.map(|(before_s, after_s)| (after_s / before_s, (after_s - before_s).abs())) {
            Some((change, by_s)) if change.is_finite() && change > 0.0 && by_s >= TIME_SLICE_NOISE_S => change,
            Some(_) | None => 1.0,
        }
    }

    fn update(&mut self, host: &str, server: &str, function: &str, model: FunctionModel) {
        let of_host = self.by_function.entry(function.into()).or_default().entry(host.into()).or_default();
        let calls = model.calls();
        let before = of_host.by_server.insert(server.into(), model);
        if let Some(before) = before.filter(|before| before.calls() > calls) {
            // The server was restarted: its previous model still applies until calls show otherwise.
            of_host.by_server.insert(format!("{server}, before"), before.as_one_call());
        }
        of_host.merged = FunctionModel::merge(of_host.by_server.values().map(|model| (model, 1.0)));
    }

    /// Returns the model of a function on a host: the one measured there, or otherwise (also for much larger calls)
    /// the one of the other hosts, scaled by the ratio of their speeds. Relative to the speed benchmark, a tuned
    /// library is much faster on every host, and an interpreter is slower.
    pub(super) fn model_of(&self, host: &str, function: &str, speeds: &BTreeMap<String, f64>) -> FunctionModel {
        let Some(hosts) = self.by_function.get(function) else { return FunctionModel::default() };
        let known = hosts.get(host).map(|known| known.merged.clone()).unwrap_or_default();
        if hosts.len() == usize::from(hosts.contains_key(host)) {
            return known;
        }
        let speed = |host: &str| speeds.get(host).copied().unwrap_or(SPEED_FLOPS_DEFAULT);
        let others = hosts.iter().filter(|(other, _)| *other != host);
        let guessed = others.map(|(other, known)| (&known.merged, speed(other) / speed(host)));
        let guess = as_guess(FunctionModel::merge(guessed));
        if known.is_empty() { with_perturbation(guess, &known) } else { known.extended(&guess) }
    }

    /// Returns the models of functions on hosts with these speeds. In a large grid, the same hosts are used for the guesses of
    /// all others: comparing each host with all others takes time that grows with the square of their number.
    pub(super) fn by_host<'a>(&'a self, speeds: &'a BTreeMap<String, f64>, is_large: bool) -> HostModels<'a> {
        HostModels { models: self, speeds, is_large, guesses: BTreeMap::new() }
    }

    /// Returns the guess of a function in a large grid, for a host that makes one floating-point operation per second.
    fn guess(&self, function: &str, speeds: &BTreeMap<String, f64>) -> FunctionModel {
        let speed = |host: &str| speeds.get(host).copied().unwrap_or(SPEED_FLOPS_DEFAULT);
        let sources = self.by_function.get(function).into_iter().flatten().take(GUESSED_FROM_MAX);
        as_guess(FunctionModel::merge(sources.map(|(host, known)| (&known.merged, speed(host)))))
    }

    /// True if models of other hosts than these processors depend on its models and its speed.
    pub(super) fn are_guessed_from(&self, host: &str, is_large: bool) -> bool {
        let limit = if is_large { GUESSED_FROM_MAX } else { usize::MAX };
        self.by_function.values().any(|hosts| {
            hosts.contains_key(host) && (hosts.len() <= limit || hosts.keys().take(limit).any(|source| source == host))
        })
    }
}

/// The models of functions on hosts at one time.
pub(super) struct HostModels<'a> {
    models: &'a Models,
    speeds: &'a BTreeMap<String, f64>,
    is_large: bool,
    /// Guesses in a large grid, by function.
    guesses: BTreeMap<String, FunctionModel>,
}

impl HostModels<'_> {
    /// Returns the model of a function on a host. See [`Models::model_of`].
    pub(super) fn of(&mut self, host: &str, function: &str) -> FunctionModel {
        if !self.is_large {
            return self.models.model_of(host, function, self.speeds);
        }
        let Some(hosts) = self.models.by_function.get(function) else { return FunctionModel::default() };
        if !self.guesses.contains_key(function) {
            self.guesses.insert(function.to_string(), self.models.guess(function, self.speeds));
        }
        let guess = &self.guesses[function];
        let speed = self.speeds.get(host).copied().unwrap_or(SPEED_FLOPS_DEFAULT);
        let guessed = || FunctionModel::merge([(guess, 1.0 / speed)].into_iter());
        match hosts.get(host).map(|known| &known.merged) {
            Some(known) if known.is_empty() => with_perturbation(guessed(), known),
            Some(known) => known.clone().extended(&guessed()),
            None => guessed(),
        }
    }
}

/// Returns a guess for a host of which only the perturbation is known.
fn with_perturbation(guess: FunctionModel, known: &FunctionModel) -> FunctionModel {
    FunctionModel { perturbation: known.perturbation.clone(), ..guess }
}

/// Nothing was measured on the host itself, so only the shape of the curve is used. How much tasks slow one another down
/// depends on the number of processors.
fn as_guess(mut model: FunctionModel) -> FunctionModel {
    model.accuracy = Default::default();
    model.perturbation = Default::default();
    let points = [&mut model.by_work, &mut model.by_bytes].into_iter().flat_map(|curve| &mut curve.points);
    points.for_each(|point| point.calls = 0);
    model
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::registry::tests::registration;
    use super::super::*;
    use crate::node::message::Registration;
    use crate::node::version::VERSIONS;
    use gridloom_perf::{FunctionModel, Learner, Size};
    use std::collections::BTreeMap;

    pub(in super::super) fn agent() -> Agent {
        Agent::new(AgentConfig {
            id: NodeId(1),
            name: "agent".into(),
            is_shared: true,
            identifier_key: Default::default(),
        })
    }

    /// Registers a server at this address whose call of 1 Gflop takes `seconds`.
    pub(in super::super) fn register(agent: &mut Agent, node: u64, address: &str, slowdown: f64, seconds: f64) {
        let mut handle = |input: Input| agent.handle(Time(node), input, &mut Vec::new());
        let (peer, name) = (NodeId(node), format!("server-{node}"));
        let (role, version) = (crate::node::Role::Server, VERSIONS.1);
        handle(Input::PeerUp {
            peer,
            role,
            name: name.clone(),
            origin: Origin::default(),
            address: address.into(),
            version,
        });
        let registration = Registration { slowdown, ..registration(&name, address, &[("m/f", node)]) };
        handle(Input::Received { from: peer, message: DirectoryToAgent::Register(registration).into() });
        handle(Input::Received { from: peer, message: DirectoryToAgent::Speed { flops: 1e9 / slowdown }.into() });
        let mut learner = Learner::default();
        learner.learn(Size::Work(1e9), seconds, 1.0, false);
        let message = DirectoryToAgent::Model { function: "m/f".into(), model: learner.model() }.into();
        handle(Input::Received { from: peer, message });
    }

    fn seconds(agent: &Agent, server: usize) -> f64 {
        let view = &agent.grid_view(Time(100)).servers[server];
        let model: &FunctionModel = &view.functions["m/f"];
        model.seconds(Size::Work(1e9), view.speed_flops)
    }

    #[test]
    fn models_of_a_servers_previous_run_still_apply() {
        let model = |calls: usize, seconds: f64| {
            let mut learner = Learner::default();
            (0..calls).for_each(|_| learner.learn(Size::Work(1e9), seconds, 1.0, false));
            learner.model()
        };
        let (mut models, speeds) = (super::Models::default(), BTreeMap::new());
        let seconds = |models: &super::Models| models.model_of("host", "m/f", &speeds).seconds(Size::Work(1e9), None);
        assert!(!models.offered("m/f", 7));
        models.update("host", "a", "m/f", model(300, 2.0));
        models.update("host", "a", "m/f", model(1, 4.0));
        assert_eq!(seconds(&models), 3.0, "one call of each run");
        models.update("host", "a", "m/f", model(9, 4.0));
        assert!((3.7..4.0).contains(&seconds(&models)), "{}", seconds(&models));
        models.offered("m/f", 7);
        assert!(seconds(&models) > 3.0);
        assert!(models.offered("m/f", 8));
        assert!(models.model_of("host", "m/f", &speeds).is_empty());
    }

    #[test]
    fn servers_of_a_host_share_models_and_a_slowed_one_has_its_own() {
        let mut agent = agent();
        register(&mut agent, 2, "host:1", 1.0, 1.0);
        register(&mut agent, 3, "host:2", 1.0, 1.2);
        register(&mut agent, 4, "host:3", 4.0, 4.0);
        assert_eq!(seconds(&agent, 0), seconds(&agent, 1));
        assert!((1.0..=1.2).contains(&seconds(&agent, 0)), "{}", seconds(&agent, 0));
        assert_eq!(seconds(&agent, 2), 4.0);
        let speeds: Vec<_> = agent.grid_view(Time(100)).servers.iter().map(|s| s.speed_flops).collect();
        assert_eq!(speeds, [Some(1e9), Some(1e9), Some(2.5e8)]);
    }
}
