//! Maps the rest of a declared group again: the calls that were not made yet, with the results of those before them.
//!
//! Calls already made stay where they are. As for recorded groups, this is done only as often as it pays off: mapping
//! takes no more than a small part of the remaining time ([`REMAP_PART_MAX`]), and then that part of the remaining time
//! passes before the next mapping; twice as much before each further one.

use std::collections::BTreeMap;

use gridloom_base::limits::REMAP_PART_MAX;
use gridloom_base::{DatumId, NodeId};
use gridloom_core::graph::{self, Argument, Source};

use super::{Matching, PlannedPlaces};
use crate::Error;
use crate::plan::PlanRecord;

/// State of repeated mapping.
#[derive(Default)]
pub(super) struct Remapping {
    /// True while another thread maps.
    is_mapping: bool,
    times: u32,
    /// Time of the earliest next mapping, seconds of the session's clock.
    pause_until: f64,
    /// The last plan made, with the numbers of its calls.
    last: Option<(Vec<usize>, PlanRecord)>,
}

/// Calls that were not made yet: their numbers, and the group that they form.
pub(crate) struct RemainingCalls {
    numbers: Vec<usize>,
    pub(crate) group: graph::Group,
}

impl Matching {
    /// Returns the remaining calls if it pays off to map them again now and no thread does.
    pub(crate) fn remaining_if_worthwhile(&mut self, now: f64) -> Option<RemainingCalls> {
        let left_s = self.left_seconds();
        let map_s = self.again.last.as_ref().map_or(&self.plan, |(_, plan)| plan).map_seconds;
        if now < self.again.pause_until || map_s > REMAP_PART_MAX * left_s {
            return None;
        }
        let left = self.take_remaining()?;
        self.again.pause_until = now + REMAP_PART_MAX * left_s * f64::from(self.again.times).exp2();
        self.again.times += 1;
        Some(left)
    }

    /// Returns the remaining calls and marks them as being mapped; `None` if there are none, or another thread maps them.
    pub(crate) fn take_remaining(&mut self) -> Option<RemainingCalls> {
        if self.again.is_mapping {
            return None;
        }
        let mut numbers: Vec<usize> = self.open.values().flatten().copied().collect();
        numbers.sort_unstable();
        let tasks: Vec<graph::Task> = numbers.iter().map(|number| self.with_real_inputs(*number)).collect();
        if tasks.is_empty() {
            return None;
        }
        let made: Vec<DatumId> = tasks.iter().flat_map(|task| &task.outputs).map(|output| output.datum).collect();
        let mut sources = BTreeMap::new();
        for datum in tasks.iter().flat_map(graph::Task::inputs).filter(|datum| !made.contains(datum)) {
            let described = self.described.get(&datum).unwrap_or(&datum);
            let known = self.resolved.data.get(described).map(|known| &known.meta);
            let meta = known.or_else(|| self.resolved.group.sources.get(described).map(|source| &source.meta));
            // The client knows where it is.
            sources.extend(meta.map(|meta| (datum, Source { meta: meta.clone(), at: Vec::new() })));
        }
        let wanted = self.resolved.group.wanted.iter().copied().filter(|datum| made.contains(datum)).collect();
        self.again.is_mapping = true;
        Some(RemainingCalls { numbers, group: graph::Group { id: self.group(), tasks, sources, wanted } })
    }

    /// Returns a declared call, with the passed data in place of declared inputs.
    fn with_real_inputs(&self, number: usize) -> graph::Task {
        let mut task = self.resolved.group.tasks[number].clone();
        for arg in &mut task.args {
            if let Argument::Datum(datum) = arg
                && let Some(real) = self.real.get(datum)
            {
                *datum = *real;
            }
        }
        task
    }

    /// Ends a repeated mapping. If it has succeeded, further calls use the new plan.
    pub(crate) fn mapped_again(&mut self, left: RemainingCalls, plan: Result<&PlanRecord, ()>) -> Result<(), Error> {
        self.again.is_mapping = false;
        let Ok(plan) = plan else { return Ok(()) };
        let made = left.group.tasks.iter().flat_map(|task| &task.outputs).map(|output| output.datum);
        let data = left.group.sources.keys().copied().chain(made);
        let places = PlannedPlaces::of(self.group().client, data, plan)?;
        for (number, server) in left.numbers.iter().zip(places.servers) {
            self.places.servers[*number] = server;
        }
        self.places.server_names.extend(places.server_names);
        let described = |datum: DatumId| self.described.get(&datum).copied().unwrap_or(datum);
        let sources = places.sources.into_iter().map(|((datum, to), from)| ((described(datum), to), from));
        self.places.sources = sources.collect();
        self.again.last = Some((left.numbers, plan.clone()));
        Ok(())
    }

    /// Planned duration of the remaining calls, seconds: from the first start to the last end on a server; the maximum over all
    /// servers.
    fn left_seconds(&self) -> f64 {
        let numbers: Vec<usize>;
        let (numbers, plan) = match &self.again.last {
            Some((numbers, plan)) => (numbers, plan),
            None => {
                numbers = (0..self.plan.tasks.len()).collect();
                (&numbers, &self.plan)
            }
        };
        let mut spans: BTreeMap<NodeId, (f64, f64)> = BTreeMap::new();
        let is_open = |number: &usize| self.open.values().any(|open| open.contains(number));
        for (number, task) in numbers.iter().zip(&plan.tasks).filter(|(number, _)| is_open(number)) {
            let span = spans.entry(self.places.servers[*number]).or_insert((f64::INFINITY, 0.0));
            *span = (span.0.min(task.start_seconds), span.1.max(task.end_seconds));
        }
        spans.values().map(|(start_s, end_s)| end_s - start_s).fold(0.0, f64::max)
    }
}
