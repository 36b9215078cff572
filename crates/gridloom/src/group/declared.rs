//! Declared groups: their calls are declared beforehand and mapped at once, and run as the program makes them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use gridloom_base::{GroupId, Meta};
use gridloom_core::graph::{self, Source};

use super::{Group, Handle, Parts, Recorder, Submitted, handle_of};
use crate::call::Prepared;
use crate::declared::{Left, Matching, Verdict};
use crate::{Arg, Difference, Error, Function, Graph, GraphRef, Grid, Mapping, PlanRecord};

/// Options for the calls of a declared group.
#[derive(Clone, Debug, Default)]
pub struct GraphOptions {
    /// If set, a call that differs from the declaration is an error and is not made, and a missing call is an error
    /// too. Otherwise the difference is recorded ([`Group::differences`]), and the call is mapped separately.
    pub is_strict: bool,
    /// Inputs of the graph that are results already, so that the plan knows where they are.
    pub inputs: Vec<(String, Handle)>,
    /// Results that stay where they are made even if no call reads them.
    pub unwanted: Vec<GraphRef>,
}

impl Grid {
    /// Returns the agent's plan for a declared graph; nothing is run.
    ///
    /// # Errors
    /// If a function is not offered, a call does not fit its function, or the graph cannot be mapped.
    pub fn plan_of(&self, graph: &Graph, mapping: impl Into<Mapping>) -> Result<PlanRecord, Error> {
        let resolved = graph.resolve(self, &[])?;
        let by = mapping.into().by(self, &resolved.group)?;
        self.plan(resolved.group, by)
    }

    /// Creates a group with declared calls and maps it now. Each call runs as soon as it is made, at the planned place
    /// of the first matching declared call that was not made yet. So the program can look at results before the next
    /// call. After [`Group::finish`] no more calls are made.
    ///
    /// # Errors
    /// As for [`Grid::plan_of`]; also if the graph does not have a given input, or declares another size for it.
    pub fn group_of(&self, graph: &Graph, mapping: impl Into<Mapping>, options: GraphOptions) -> Result<Group, Error> {
        let mapping = mapping.into();
        for (_, handle) in &options.inputs {
            handle.launch()?;
        }
        let mut resolved = graph.resolve(self, &options.inputs)?;
        resolved.leave(&options.unwanted);
        let by = mapping.by(self, &resolved.group)?;
        let plan = self.plan_described(resolved.group.clone(), by)?;
        let matching = Matching::new(resolved, plan, options.is_strict)?;
        let parts = Parts::new(self);
        parts.add(matching.group());
        let (recording, matching) = (Mutex::default(), Some(Mutex::new(matching)));
        let recorder = Recorder { mapping, recording, parts, matching, held: None };
        Ok(Group { grid: self.clone(), recorder: Arc::new(recorder) })
    }
}

impl Group {
    /// Makes a call of a declared group ([`Grid::group_of`]) like [`Group::call_named`], for a program that awaits its
    /// completion without its results.
    ///
    /// # Errors
    /// If the arguments do not fit, or the group was not declared; nothing runs then.
    pub fn submit(&self, function: &Function, args: &[Arg], named: &[(String, Arg)]) -> Result<Submitted, Error> {
        let Some(matching) = &self.recorder.matching else {
            return Err(Error::Usage("only calls of a declared group run one by one; use call() and launch()".into()));
        };
        args.iter().chain(named.iter().map(|(_, arg)| arg)).filter_map(handle_of).try_for_each(Handle::check)?;
        self.call_described(matching, function, args, named)
    }

    /// The plan of a declared group.
    pub fn described_plan(&self) -> Option<PlanRecord> {
        self.matching(|matching| matching.plan().clone())
    }

    /// Maps the remaining calls of a declared group again, on the grid as it is now. Calls already made run where they
    /// are. The session does this itself where it pays off, when it learns that speeds, links or servers have changed,
    /// unless the group was given a plan.
    ///
    /// # Errors
    /// If the group was not declared, or no call is left; also as for [`Grid::plan_of`]. The previous plan then stays in use.
    pub fn map_again(&self) -> Result<PlanRecord, Error> {
        let Some(matching) = &self.recorder.matching else {
            let why =
                "only a declared group can be mapped again on request; other groups are mapped again automatically";
            return Err(Error::Usage(why.into()));
        };
        let left = matching.lock().expect("no panic while held").left();
        let left = left.ok_or_else(|| {
            let why = "no call of the group is left to map again: all declared calls have been made, or another \
            thread is mapping the rest";
            Error::Usage(why.into())
        })?;
        self.map_left(matching, left)
    }

    /// Maps the remaining calls again if facts on which the plan is based have changed.
    fn follow_news(&self, matching: &Mutex<Matching>) {
        let lock = || matching.lock().expect("no panic while held");
        let plan = lock().group();
        if self.recorder.mapping.is_plan() || !self.grid.take_stale(plan) {
            return;
        }
        let left = lock().left_if_it_pays(self.grid.now());
        // If that fails, the previous plan stays in use.
        let _ = left.map(|left| self.map_left(matching, left));
    }

    fn map_left(&self, matching: &Mutex<Matching>, left: Left) -> Result<PlanRecord, Error> {
        // A custom heuristic may take long, and other threads make calls meanwhile.
        let by = self.recorder.mapping.again_by(&self.grid, &left.group);
        let plan = by.and_then(|by| self.grid.plan_again(left.group.clone(), by));
        let mut matching = matching.lock().expect("no panic while held");
        matching.mapped_again(left, plan.as_ref().map_err(|_| ()))?;
        plan
    }

    /// The differences between the calls made so far and the declared ones.
    pub fn differences(&self) -> Vec<Difference> {
        self.matching(|matching| matching.differences().to_vec()).unwrap_or_default()
    }

    /// Ends the calls of the group: launches the recorded calls, or delays them if the group is the body of a loop
    /// ([`Grid::regrouped`]). For a declared group, notes which calls are missing.
    ///
    /// # Errors
    /// [`Error::Differs`] if calls of a strict declared group are missing; also as for
    /// [`Group::launch`].
    pub fn finish(&self) -> Result<(), Error> {
        let missing = self.matching(|matching| matching.end().into_iter().next().filter(|_| matching.is_strict));
        self.end_plan();
        match missing.flatten() {
            Some(difference) => Err(Error::Differs(difference)),
            None if self.recorder.held.is_some() => self.hold(),
            None => self.launch(),
        }
    }

    /// Ends the plan: no more calls use it.
    pub(super) fn end_plan(&self) {
        self.matching(|matching| self.grid.end_plan(matching.group(), matching.take_values()));
    }

    fn matching<R>(&self, ask: impl FnOnce(&mut Matching) -> R) -> Option<R> {
        let matching = self.recorder.matching.as_ref()?;
        Some(ask(&mut matching.lock().expect("no panic while held")))
    }

    pub(super) fn call_described(
        &self,
        matching: &Mutex<Matching>,
        function: &Function,
        args: &[Arg],
        named: &[(String, Arg)],
    ) -> Result<Submitted, Error> {
        let lock = || matching.lock().expect("no panic while held");
        let mut fresh = Vec::new();
        let prepared = function.prepare(args, named, |value| {
            let key = value.identity().map(|(address, size)| (address, size, value.meta.to_string()));
            let known = key.as_ref().and_then(|key| lock().values.get(key).map(|(datum, _)| *datum));
            let again = fresh.iter().find(|(other, _)| key.is_some() && *other == key).map(|(_, datum)| *datum);
            let datum = known.or(again).unwrap_or_else(|| self.grid.new_datum());
            fresh.push((key, datum));
            (datum, value.clone())
        })?;
        let handles: Vec<&Handle> = args.iter().chain(named.iter().map(|(_, arg)| arg)).filter_map(handle_of).collect();
        for handle in &handles {
            handle.launch()?;
        }
        self.follow_news(matching);
        let Prepared { mut task, values, mut outputs } = prepared;
        let mut matching = lock();
        let metas: Vec<(_, Meta)> = values
            .iter()
            .map(|(datum, value)| (*datum, value.meta().clone()))
            .chain(handles.iter().map(|handle| (handle.datum(), handle.meta().clone())))
            .collect();
        let meta = |datum| metas.iter().find(|(known, _)| *known == datum).map(|(_, meta)| meta.clone());
        let (taken, difference) = match matching.judge(&task, &function.signature, &meta) {
            Verdict::Fits(number) => (Some(number), None),
            Verdict::Differs { difference, .. } if matching.is_strict => return Err(Error::Differs(difference)),
            Verdict::Differs { difference, stands_for } => (stands_for, Some(difference)),
        };
        for (datum, value) in values {
            if !matching.owns(datum) {
                self.grid.put(datum, &value);
                matching.own(datum, value);
            }
        }
        let place = taken.map(|number| matching.take(number, &mut task)).filter(|_| difference.is_none());
        matching.count(difference);
        for (output, (datum, _)) in task.outputs.iter().zip(&mut outputs) {
            *datum = output.datum;
        }
        let client = self.grid.client();
        let source = |(datum, meta): (_, Meta)| {
            let at = if matching.owns(datum) { vec![client] } else { Vec::new() };
            (datum, Source { meta, at })
        };
        let read: BTreeSet<_> = task.inputs().collect();
        let sources = metas.into_iter().filter(|(datum, _)| read.contains(datum)).map(source).collect();
        let mut sends = Vec::new();
        if let Some(place) = &place {
            matching.placed(&task, place.server);
            sends = matching.sends(&task, place.server);
        }
        let id = GroupId { client, serial: self.grid.next_serial() };
        let task_id = task.id;
        let group = graph::Group { id, tasks: vec![task], sources, wanted: Vec::new() };
        self.recorder.parts.add(id);
        let plan = matching.group();
        // A custom heuristic may take long.
        drop(matching);
        match place {
            Some(place) => self.grid.run_planned(group, place, self.recorder.mapping.again(), plan),
            None => {
                let by = self.recorder.mapping.again_by(&self.grid, &group)?;
                self.grid.run(group, by, Vec::new());
            }
        }
        let results = self.handles(function, outputs);
        for (datum, to, from) in sends {
            results.iter().filter(|handle| handle.datum() == datum).for_each(|handle| handle.send_ahead(to, from));
        }
        Ok(Submitted::new(self, task_id, results))
    }
}
