//! Matches calls with the declared ones: each takes the place of the first declared call that it fits.
//!
//! A call fits if its function, the data that it reads and their extents, its results, work and server are those declared.
//! The values of numbers and short texts are free. A call that does not fit may still replace the expected declared call
//! (same function, same results read). It takes the names of that call, so that later calls may still fit.
//!
//! **Invariants:** a declared call is taken at most once; a result that replaces a declared one has its name.

mod again;

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::limits::EAGER_BYTES_MAX;
use gridloom_base::{DatumId, GroupId, Meta, NodeId};
use gridloom_core::graph::{Argument, Task};
use gridloom_idl::Signature;

pub(crate) use self::again::RemainingCalls;
use self::again::Remapping;
use super::resolve::{ResolvedGraph, same_type_and_shape};
use crate::difference::Difference;
use crate::launch::{PlannedCall, ValueKey};
use crate::plan::PlanRecord;
use crate::{Error, Value};

/// The result of matching a call.
pub(crate) enum MatchResult {
    /// It is that declared call.
    Fits(usize),
    /// It is not a declared call, but may replace one.
    Differs { difference: Difference, stands_for: Option<usize> },
}

/// A declared group while its calls are made: matches each call with a declared one, and with its place in the plan.
pub(crate) struct Matching {
    resolved: ResolvedGraph,
    plan: PlanRecord,
    places: PlannedPlaces,
    again: Remapping,
    /// Calls of each function that were not made yet, in order.
    open: BTreeMap<String, BTreeSet<usize>>,
    /// The passed datum of each declared input; `described` is the inverse.
    real: BTreeMap<DatumId, DatumId>,
    described: BTreeMap<DatumId, DatumId>,
    /// Data that earlier calls have sent to, or made at, a server.
    has: BTreeSet<(DatumId, NodeId)>,
    calls_made: usize,
    differences: Vec<Difference>,
    pub(crate) is_strict: bool,
    /// Values of the program that calls read, by identity of their bytes: kept until the end, so that each is sent once.
    pub(crate) values: BTreeMap<ValueKey, (DatumId, Value)>,
    /// Ids of these values.
    owned: BTreeSet<DatumId>,
}

/// Why a call does not match a declared one.
struct Mismatch {
    /// True if it reads other results: it may be a different call altogether.
    reads_others: bool,
    why: String,
}

/// Places of declared calls and data in a plan.
struct PlannedPlaces {
    /// Server of each call.
    servers: Vec<NodeId>,
    server_names: BTreeMap<NodeId, String>,
    /// The planned sender of a declared datum, by receiver.
    sources: BTreeMap<(DatumId, NodeId), NodeId>,
}

impl PlannedPlaces {
    fn new(resolved: &ResolvedGraph, plan: &PlanRecord) -> Result<PlannedPlaces, Error> {
        let data = resolved.data.keys().copied();
        PlannedPlaces::of(resolved.group.id.client, data, plan)
    }

    /// Returns the places of a plan with those data, for that client.
    fn of(client: NodeId, data: impl Iterator<Item = DatumId>, plan: &PlanRecord) -> Result<PlannedPlaces, Error> {
        let unknown = || Error::Input("the agent did not send the basis of the declared graph's plan".into());
        let basis = plan.basis.clone().ok_or_else(unknown)?;
        let mut nodes: BTreeMap<&str, NodeId> =
            basis.mapper_input.grid.servers.iter().map(|server| (server.name.as_str(), server.node)).collect();
        let server_names = nodes.iter().map(|(name, node)| (*node, (*name).to_string())).collect();
        nodes.entry("client").or_insert(client);
        let node = |name: &str| nodes.get(name).copied().ok_or_else(unknown);
        let servers = plan.tasks.iter().map(|task| node(&task.server)).collect::<Result<Vec<_>, _>>()?;
        let data: BTreeMap<String, DatumId> = data.map(|datum| (datum.serial.to_string(), datum)).collect();
        let mut sources = BTreeMap::new();
        for transfer in &plan.transfers {
            if let (Some(datum), Ok(from), Ok(to)) =
                (data.get(&transfer.datum), node(&transfer.from), node(&transfer.to))
            {
                sources.entry((*datum, to)).or_insert(from);
            }
        }
        Ok(PlannedPlaces { servers, server_names, sources })
    }
}

impl Matching {
    /// Starts matching.
    ///
    /// # Errors
    /// If the plan has no basis.
    pub(crate) fn new(resolved: ResolvedGraph, plan: PlanRecord, is_strict: bool) -> Result<Matching, Error> {
        let places = PlannedPlaces::new(&resolved, &plan)?;
        let mut open: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for (number, task) in resolved.group.tasks.iter().enumerate() {
            open.entry(task.name().to_string()).or_default().insert(number);
        }
        // Data passed as inputs have their own ids.
        let given = resolved.group.sources.iter().filter(|(_, source)| source.at.is_empty()).map(|(id, _)| (*id, *id));
        let real: BTreeMap<DatumId, DatumId> = given.collect();
        Ok(Matching {
            described: real.clone(),
            real,
            resolved,
            again: Remapping::default(),
            plan,
            places,
            open,
            has: BTreeSet::new(),
            calls_made: 0,
            differences: Vec::new(),
            is_strict,
            values: BTreeMap::new(),
            owned: BTreeSet::new(),
        })
    }

    pub(crate) fn plan(&self) -> &PlanRecord {
        &self.plan
    }

    pub(crate) fn group(&self) -> GroupId {
        self.resolved.group.id
    }

    pub(crate) fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// Takes the ids of all values that were put into the client's store for the group.
    pub(crate) fn take_values(&mut self) -> Vec<DatumId> {
        self.values.clear();
        std::mem::take(&mut self.owned).into_iter().collect()
    }

    /// Notes a value that a call reads and that is put into the client's store.
    pub(crate) fn own(&mut self, datum: DatumId, value: Value) {
        self.owned.insert(datum);
        if let Some((address, size)) = value.identity() {
            self.values.insert((address, size, value.meta.to_string()), (datum, value));
        }
    }

    /// True if a value is already in the client's store.
    pub(crate) fn owns(&self, datum: DatumId) -> bool {
        self.owned.contains(&datum)
    }

    /// Matches a call, without changing anything.
    pub(crate) fn match_call(
        &self,
        task: &Task,
        signature: &Signature,
        meta: &dyn Fn(DatumId) -> Option<Meta>,
    ) -> MatchResult {
        let none = BTreeSet::new();
        let open = self.open.get(task.name()).unwrap_or(&none);
        // The first call that it could be meant for, and the first one at all.
        let (mut meant, mut first) = (None, None);
        for number in open {
            match self.fits(*number, task, signature, meta) {
                Ok(()) => return MatchResult::Fits(*number),
                Err(misfit) if misfit.reads_others => first = first.or(Some((*number, misfit.why))),
                Err(misfit) => meant = meant.or(Some((*number, misfit.why))),
            }
        }
        let stands_for = meant.as_ref().map(|(number, _)| *number);
        let (described, why) = match meant.or(first) {
            Some((number, why)) => (Some(self.resolved.names[number].clone()), why),
            None => (None, self.unexpected(task)),
        };
        let call = Some(self.calls_made + 1);
        let difference = Difference { call, function: task.name().to_string(), described, why };
        MatchResult::Differs { difference, stands_for }
    }

    /// Returns why no call of that function is expected.
    fn unexpected(&self, task: &Task) -> String {
        let count = self.resolved.names.len();
        let Some(next) = self.open.values().filter_map(|open| open.first()).min() else {
            return format!("all {count} declared calls have been made");
        };
        let (name, function) = (&self.resolved.names[*next], self.resolved.group.tasks[*next].name());
        let known = self.open.contains_key(task.name());
        let have = if known { "all declared calls of that function have been made; " } else { "" };
        format!("{have}the next declared call is '{name}', of '{function}'")
    }

    fn fits(
        &self,
        number: usize,
        task: &Task,
        signature: &Signature,
        meta: &dyn Fn(DatumId) -> Option<Meta>,
    ) -> Result<(), Mismatch> {
        let expected = &self.resolved.group.tasks[number];
        let inputs: Vec<&str> =
            signature.params.iter().filter(|param| param.is_input()).map(|param| param.name.as_str()).collect();
        let mut passed: BTreeMap<DatumId, DatumId> = BTreeMap::new();
        for (at, (described, came)) in expected.args.iter().zip(&task.args).enumerate() {
            let (Argument::Datum(described), Argument::Datum(came)) = (described, came) else { continue };
            let Some(datum) = self.resolved.data.get(described).filter(|d| !matches!(d.meta, Meta::Scalar { .. }))
            else {
                continue;
            };
            let argument = inputs.get(at).copied().unwrap_or_default();
            let is = |what: String, reads_others: bool| {
                let kind = if datum.is_result { "the result" } else { "input" };
                let why = format!("argument '{argument}' is {what}, but was declared as {kind} '{}'", datum.name);
                Err(Mismatch { reads_others, why })
            };
            let known_as = match self.resolved.data.get(came).filter(|known| known.is_result) {
                Some(known) => Some(format!("the result '{}'", known.name)),
                None => self.described.get(came).map(|d| format!("input '{}'", self.resolved.data[d].name)),
            };
            if datum.is_result {
                if came != described {
                    return is(known_as.unwrap_or_else(|| "something else".into()), true);
                }
                continue;
            }
            match self.real.get(described).or_else(|| passed.get(described)) {
                Some(real) if real == came => continue,
                Some(_) => {
                    let other =
                        known_as.unwrap_or_else(|| "not what was passed for it before (or it was changed)".into());
                    return is(other, false);
                }
                None => {}
            }
            if let Some(known) = known_as {
                return is(known, true);
            }
            if let Some(meta) = meta(*came).filter(|meta| !same_type_and_shape(meta, &datum.meta)) {
                let (name, wanted) = (&datum.name, &datum.meta);
                let why = format!("argument '{argument}' is {meta}, but was declared as input '{name}', {wanted}");
                return Err(Mismatch { reads_others: false, why });
            }
            passed.insert(*described, *came);
        }
        for (described, came) in expected.outputs.iter().zip(&task.outputs) {
            if !same_type_and_shape(&described.meta, &came.meta) {
                let why = format!("it returns {}, but was declared to return {}", came.meta, described.meta);
                return Err(Mismatch { reads_others: false, why });
            }
        }
        if expected.options.bound_to != task.options.bound_to {
            let told = |only: Option<NodeId>| only.map_or("no server".into(), |server| self.server_name(server));
            let why = format!(
                "it is bound to {}, but was declared as bound to {}",
                told(task.options.bound_to),
                told(expected.options.bound_to)
            );
            return Err(Mismatch { reads_others: false, why });
        }
        if expected.work_flops != task.work_flops {
            let told = |work: Option<f64>| work.map_or("unknown work".into(), |work| format!("{work:.4e} operations"));
            let why =
                format!("it takes {}, but was declared to take {}", told(task.work_flops), told(expected.work_flops));
            return Err(Mismatch { reads_others: false, why });
        }
        Ok(())
    }

    fn server_name(&self, server: NodeId) -> String {
        self.places.server_names.get(&server).map_or_else(|| server.to_string(), |name| format!("'{name}'"))
    }

    /// Lets a call take the place of a declared one: it gets its ids. Returns where it runs, if it is as declared.
    pub(crate) fn take_place(&mut self, number: usize, task: &mut Task) -> PlannedCall {
        let expected = &self.resolved.group.tasks[number];
        task.id = expected.id;
        for (output, described) in task.outputs.iter_mut().zip(&expected.outputs) {
            output.datum = described.datum;
        }
        for (described, came) in expected.args.iter().zip(&task.args) {
            let (Argument::Datum(described), Argument::Datum(came)) = (described, came) else { continue };
            if self.resolved.data.get(described).is_some_and(|datum| !datum.is_result) {
                self.real.entry(*described).or_insert(*came);
                self.described.entry(*came).or_insert(*described);
            }
        }
        if let Some(open) = self.open.get_mut(task.name()) {
            open.remove(&number);
        }
        let server = self.places.servers[number];
        let mut from = BTreeMap::new();
        for datum in task.inputs() {
            let described = self.described.get(&datum).copied().unwrap_or(datum);
            let is_result = self.resolved.data.get(&described).is_some_and(|known| known.is_result);
            if let Some(planned) = self.places.sources.get(&(described, server)) {
                // A planned source counts only once it has the datum; the client forwards results.
                let client_has = *planned == self.group().client && (is_result || self.owned.contains(&datum));
                if client_has || self.has.contains(&(datum, *planned)) {
                    from.insert(datum, *planned);
                }
            }
        }
        PlannedCall { server, from }
    }

    /// Notes where a call will run.
    pub(crate) fn note_placed(&mut self, task: &Task, server: NodeId) {
        let data = task.inputs().chain(task.outputs.iter().map(|output| output.datum));
        self.has.extend(data.map(|datum| (datum, server)));
    }

    /// Returns the planned transfers of large results of a call from its server to calls that were not made yet: the
    /// result, its destination, and its source if that has it.
    pub(crate) fn sends(&mut self, task: &Task, server: NodeId) -> Vec<(DatumId, NodeId, Option<NodeId>)> {
        let mut planned_transfers = Vec::new();
        for datum in task.outputs.iter().map(|output| output.datum) {
            let size_bytes = self.resolved.data.get(&datum).map_or(0, |data| data.meta.size_bytes());
            if size_bytes <= EAGER_BYTES_MAX {
                continue;
            }
            let to_all = self.places.sources.range((datum, NodeId(u64::MIN))..=(datum, NodeId(u64::MAX)));
            let mut to: Vec<(NodeId, NodeId)> = to_all.map(|((_, to), from)| (*to, *from)).collect();
            to.retain(|(to, _)| *to != server && *to != self.group().client);
            // Copies from which others are made go first.
            to.sort_by_key(|(_, from)| *from != server);
            for (to, from) in to {
                let from = Some(from).filter(|from| self.has.contains(&(datum, *from)));
                self.has.insert((datum, to));
                planned_transfers.push((datum, to, from));
            }
        }
        planned_transfers
    }

    /// Counts a call.
    pub(crate) fn count(&mut self, difference: Option<Difference>) {
        self.calls_made += 1;
        self.differences.extend(difference);
    }

    /// Ends the calls: notes the missing declared calls, once.
    pub(crate) fn end(&mut self) -> Vec<Difference> {
        let mut missing: Vec<usize> = std::mem::take(&mut self.open).into_values().flatten().collect();
        missing.retain(|number| !self.resolved.is_optional[*number]);
        missing.sort_unstable();
        let difference = |number: usize| Difference {
            call: None,
            function: self.resolved.group.tasks[number].name().to_string(),
            described: Some(self.resolved.names[number].clone()),
            why: "it was never made".into(),
        };
        let missing: Vec<Difference> = missing.into_iter().map(difference).collect();
        self.differences.extend(missing.iter().cloned());
        missing
    }
}
