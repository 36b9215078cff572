//! Declared groups: their calls are declared beforehand and mapped at once, and run as the program makes them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use gridloom_base::Meta;
use gridloom_core::graph::{self, Source};

use super::{Group, handle_of};
use crate::Error;
use crate::call::{Arg, Function, Handle, IntoArgs, Prepared, Submitted};
use crate::declared::{Graph, GraphRef, MatchResult, Matching, RemainingCalls};
use crate::difference::Difference;
use crate::launch::{Mapping, Recorder, plan, plan_again, plan_declared, run, run_planned};
use crate::plan::PlanRecord;
use crate::session::Session;

/// Options for the calls of a declared group.
#[derive(Clone, Debug, Default)]
pub struct GraphOptions {
    /// If set, a call that differs from the declaration is an error and is not made, and a missing call is an error
    /// too. Otherwise the difference is recorded ([`Group::differences`]), and the call is mapped separately.
    pub is_strict: bool,
    /// Inputs of the graph that are results already, so that the plan knows where they are.
    pub inputs: Vec<(String, Handle)>,
    /// Results that stay where they are made even if no call reads them.
    pub not_fetched: Vec<GraphRef>,
}

/// The declaration of a group, with its calls so far. The plan is ended with the last group that refers to it.
pub(super) struct Declared {
    session: Session,
    matching: Mutex<Matching>,
}

impl Declared {
    pub(super) fn matching(&self) -> MutexGuard<'_, Matching> {
        self.matching.lock().expect("no panic while held")
    }
}

impl Drop for Declared {
    fn drop(&mut self) {
        let matching = self.matching.get_mut().expect("no panic while held");
        self.session.end_plan_later(matching.group(), matching.take_values());
    }
}

/// See [`Grid::plan_of`](crate::Grid::plan_of).
pub(crate) fn plan_of(session: &Session, graph: &Graph, mapping: &Mapping) -> Result<PlanRecord, Error> {
    let resolved = graph.resolve(session, &[])?;
    let by = mapping.to_send(session, &resolved.group)?;
    plan(session, resolved.group, by)
}

/// See [`Grid::group_of`](crate::Grid::group_of).
pub(crate) fn declared(
    session: &Session,
    graph: &Graph,
    mapping: Mapping,
    options: GraphOptions,
) -> Result<Group, Error> {
    for (_, handle) in &options.inputs {
        handle.launch()?;
    }
    let mut resolved = graph.resolve(session, &options.inputs)?;
    resolved.drop_wanted(&options.not_fetched);
    let by = mapping.to_send(session, &resolved.group)?;
    let plan = plan_declared(session, resolved.group.clone(), by)?;
    let matching = Matching::new(resolved, plan, options.is_strict)?;
    let recorder = Recorder::new(session, mapping, None);
    recorder.parts.add(matching.group());
    let declared = Declared { session: session.clone(), matching: Mutex::new(matching) };
    Ok(Group { session: session.clone(), recorder, declared: Some(Arc::new(declared)), priority: None })
}

impl Group {
    /// Makes a call of a declared group ([`Grid::group_of`](crate::Grid::group_of)) like [`Group::call_named`], for a program that awaits its
    /// completion without its results.
    ///
    /// # Errors
    /// If the arguments do not fit, or the group was not declared; nothing runs then.
    pub fn submit(
        &self,
        function: &Function,
        args: impl IntoArgs,
        named: &[(String, Arg)],
    ) -> Result<Submitted, Error> {
        let Some(declared) = &self.declared else {
            return Err(Error::Usage("only calls of a declared group run one by one; use call() and launch()".into()));
        };
        let args = args.into_args();
        args.iter().chain(named.iter().map(|(_, arg)| arg)).filter_map(handle_of).try_for_each(Handle::check)?;
        self.call_declared(declared, function, &args, named)
    }

    /// The plan of a declared group.
    pub fn declared_plan(&self) -> Option<PlanRecord> {
        self.matching(|matching| matching.plan().clone())
    }

    /// Maps the remaining calls of a declared group again, on the grid as it is now. Calls already made run where they
    /// are. The session does this itself where it pays off, when it learns that speeds, links or servers have changed,
    /// unless the group was given a plan.
    ///
    /// # Errors
    /// If the group was not declared, or no call is left; also as for [`Grid::plan_of`](crate::Grid::plan_of). The previous plan then stays in use.
    pub fn map_again(&self) -> Result<PlanRecord, Error> {
        let Some(declared) = &self.declared else {
            let why =
                "only a declared group can be mapped again on request; other groups are mapped again automatically";
            return Err(Error::Usage(why.into()));
        };
        let left = declared.matching().take_remaining();
        let left = left.ok_or_else(|| {
            let why = "no call of the group is left to map again: all declared calls have been made, or another \
            thread is mapping the rest";
            Error::Usage(why.into())
        })?;
        self.map_left(declared, left)
    }

    /// Maps the remaining calls again if facts on which the plan is based have changed.
    fn map_again_if_stale(&self, declared: &Declared) {
        let plan = declared.matching().group();
        if self.recorder.mapping.is_plan() || !self.session.state_now().groups.take_stale(plan) {
            return;
        }
        let left = declared.matching().remaining_if_worthwhile(self.session.now());
        // If that fails, the previous plan stays in use.
        let _ = left.map(|left| self.map_left(declared, left));
    }

    fn map_left(&self, declared: &Declared, left: RemainingCalls) -> Result<PlanRecord, Error> {
        // A custom heuristic may take long, and other threads make calls meanwhile.
        let by = self.recorder.mapping.remap_by(&self.session, &left.group);
        let plan = by.and_then(|by| plan_again(&self.session, left.group.clone(), by));
        declared.matching().mapped_again(left, plan.as_ref().map_err(|_| ()))?;
        plan
    }

    /// The differences between the calls made so far and the declared ones.
    pub fn differences(&self) -> Vec<Difference> {
        self.matching(|matching| matching.differences().to_vec()).unwrap_or_default()
    }

    /// Ends the calls of the group: launches the recorded calls, or delays them if the group is the body of a loop
    /// ([`Grid::regrouped`](crate::Grid::regrouped)). For a declared group, notes which calls are missing.
    ///
    /// # Errors
    /// [`Error::DiffersFromDeclared`] if calls of a strict declared group are missing; also as for
    /// [`Group::launch`].
    pub fn finish(&self) -> Result<(), Error> {
        let missing = self.matching(|matching| matching.end().into_iter().next().filter(|_| matching.is_strict));
        self.end_plan();
        match missing.flatten() {
            Some(difference) => Err(Error::DiffersFromDeclared(difference)),
            None if self.recorder.held.is_some() => self.hold(),
            None => self.launch(),
        }
    }

    /// Ends the plan: no more calls use it.
    pub(super) fn end_plan(&self) {
        self.matching(|matching| self.session.end_plan(matching.group(), matching.take_values()));
    }

    fn matching<R>(&self, ask: impl FnOnce(&mut Matching) -> R) -> Option<R> {
        Some(ask(&mut self.declared.as_ref()?.matching()))
    }

    pub(super) fn call_declared(
        &self,
        declared: &Declared,
        function: &Function,
        args: &[Arg],
        named: &[(String, Arg)],
    ) -> Result<Submitted, Error> {
        let lock = || declared.matching();
        let mut fresh = Vec::new();
        let prepared = function.prepare(args, named, |value| {
            let key = value.identity().map(|(address, size)| (address, size, value.meta.to_string()));
            let known = key.as_ref().and_then(|key| lock().values.get(key).map(|(datum, _)| *datum));
            let again = fresh.iter().find(|(other, _)| key.is_some() && *other == key).map(|(_, datum)| *datum);
            let datum = known.or(again).unwrap_or_else(|| self.session.new_datum());
            fresh.push((key, datum));
            (datum, value.clone())
        })?;
        let handles: Vec<&Handle> = args.iter().chain(named.iter().map(|(_, arg)| arg)).filter_map(handle_of).collect();
        for handle in &handles {
            handle.launch()?;
        }
        self.map_again_if_stale(declared);
        let Prepared { mut task, values, mut outputs } = prepared;
        let mut matching = lock();
        let metas: Vec<(_, Meta)> = values
            .iter()
            .map(|(datum, value)| (*datum, value.meta().clone()))
            .chain(handles.iter().map(|handle| (handle.datum(), handle.meta().clone())))
            .collect();
        let meta = |datum| metas.iter().find(|(known, _)| *known == datum).map(|(_, meta)| meta.clone());
        let (taken, difference) = match matching.match_call(&task, function.signature(), &meta) {
            MatchResult::Fits(number) => (Some(number), None),
            MatchResult::Differs { difference, .. } if matching.is_strict => {
                return Err(Error::DiffersFromDeclared(difference));
            }
            MatchResult::Differs { difference, stands_for } => (stands_for, Some(difference)),
        };
        for (datum, value) in values {
            if !matching.owns(datum) {
                self.session.put(datum, &value);
                matching.own(datum, value);
            }
        }
        let place = taken.map(|number| matching.take_place(number, &mut task)).filter(|_| difference.is_none());
        matching.count(difference);
        for (output, (datum, _)) in task.outputs.iter().zip(&mut outputs) {
            *datum = output.datum;
        }
        let client = self.session.client();
        let source = |(datum, meta): (_, Meta)| {
            let at = if matching.owns(datum) { vec![client] } else { Vec::new() };
            (datum, Source { meta, at })
        };
        let read: BTreeSet<_> = task.inputs().collect();
        let sources = metas.into_iter().filter(|(datum, _)| read.contains(datum)).map(source).collect();
        let mut sends = Vec::new();
        if let Some(place) = &place {
            matching.note_placed(&task, place.server);
            sends = matching.sends(&task, place.server);
        }
        let id = self.session.new_group();
        let task_id = task.id;
        let group = graph::Group { id, tasks: vec![task], sources, wanted: Vec::new() };
        self.recorder.parts.add(id);
        let plan = matching.group();
        // A custom heuristic may take long.
        drop(matching);
        match place {
            Some(place) => run_planned(&self.session, group, place, self.recorder.mapping.remap_heuristic(), plan),
            None => {
                let by = self.recorder.mapping.remap_by(&self.session, &group)?;
                run(&self.session, group, by, Vec::new());
            }
        }
        let results = self.handles(function, outputs);
        for (datum, to, from) in sends {
            results.iter().filter(|handle| handle.datum() == datum).for_each(|handle| handle.prefetch_to(to, from));
        }
        Ok(Submitted::new(&self.session, task_id, results, &self.recorder.parts))
    }
}
