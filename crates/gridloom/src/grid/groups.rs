//! Groups of a session: planned, run, followed and forgotten.

use std::collections::BTreeMap;

use gridloom_core::base::{DatumId, GroupId, TaskId};
use gridloom_core::graph;
use gridloom_core::map::MapBy;
use gridloom_core::node::Command;

use crate::described::Place;
use crate::group::Launches;
use crate::report::{Course, GroupRecord, PlanRecord, Report};
use crate::{Error, Grid};

impl Grid {
    pub(crate) fn cancel_group(&self, group: GroupId) {
        let tasks = self.state().groups.get(&group).map(|record| record.unfinished()).unwrap_or_default();
        self.cancel(tasks);
    }

    pub(crate) fn plan(&self, group: graph::Group, heuristic: MapBy) -> Result<PlanRecord, Error> {
        let id = group.id;
        let plan = self.ask_for_plan(group, heuristic, false);
        self.state().groups.remove(&id);
        plan
    }

    /// The same for a group whose calls will come one by one, until [`Grid::end_plan`]. It is remembered for the report.
    pub(crate) fn plan_to_follow(&self, group: graph::Group, heuristic: MapBy) -> Result<PlanRecord, Error> {
        let id = group.id;
        let plan = self.ask_for_plan(group, heuristic, true);
        let mut state = self.state();
        match &plan {
            Ok(_) => state.groups.get_mut(&id).expect("inserted to ask for it").only_planned(),
            Err(_) => drop(state.groups.remove(&id)),
        }
        plan
    }

    fn ask_for_plan(&self, group: graph::Group, heuristic: MapBy, is_followed: bool) -> Result<PlanRecord, Error> {
        let id = group.id;
        let functions = group.tasks.iter().map(|task| (task.id, task.function.clone())).collect();
        self.state().groups.insert(id, GroupRecord::new(functions));
        self.command(Command::Plan { group, heuristic, is_followed });
        Ok(self.wait(None, |state| state.plans.remove(&id))??)
    }

    /// No more calls come that follow the plan of that group, nor any that read those values.
    pub(crate) fn end_plan(&self, group: GroupId, values: Vec<DatumId>) {
        self.end_plan_later(group, values);
        self.0.backend.commands(self.take_releases());
    }

    /// The same, told with the next command.
    pub(crate) fn end_plan_later(&self, group: GroupId, values: Vec<DatumId>) {
        self.0.unfollowed.lock().expect("no panic while held").push(group);
        self.0.releases.lock().expect("no panic while held").extend(values);
    }

    pub(crate) fn launches(&self) -> &Launches {
        &self.0.launches
    }

    pub(crate) fn run(&self, group: graph::Group, heuristic: MapBy, release: Vec<DatumId>) {
        self.note(&group, None);
        let mut commands = self.take_releases();
        commands.push(Command::Run { group, heuristic });
        commands.push(Command::Release { data: release });
        self.0.backend.commands(commands);
    }

    /// Runs a call where the plan of another group has it.
    pub(crate) fn run_at(&self, group: graph::Group, place: Place, heuristic: MapBy, plan: GroupId) {
        self.note(&group, Some(plan));
        let Place { server, from } = place;
        self.command(Command::Follow { group, server, from, heuristic });
    }

    /// What happens to the group from now on is noted for its report.
    fn note(&self, group: &graph::Group, plan: Option<GroupId>) {
        let functions: BTreeMap<TaskId, String> =
            group.tasks.iter().map(|task| (task.id, task.function.clone())).collect();
        let unasked = std::mem::take(&mut *self.0.unasked.lock().expect("no panic while held"));
        let mut state = self.state();
        unasked.into_iter().for_each(|group| state.forget_group(group, &self.0.backend));
        let mut record = GroupRecord::new(functions);
        record.follows = plan.and_then(|plan| Some((plan, state.groups.get(&plan)?.planned_at()?)));
        for task in &group.tasks {
            state.group_of_task.insert(task.id, group.id);
        }
        let made = group.tasks.iter().flat_map(|task| &task.outputs).map(|output| output.datum);
        for datum in made.chain(group.sources.keys().copied()) {
            state.group_of_datum.entry(datum).or_insert_with(|| {
                record.data.push(datum);
                group.id
            });
        }
        state.groups.insert(group.id, record);
    }

    /// The program knows of failures in these groups.
    pub(crate) fn told(&self, groups: &[GroupId]) {
        let mut state = self.state();
        for group in groups {
            if let Some(record) = state.groups.get_mut(group) {
                record.is_told = true;
            }
        }
    }

    pub(crate) fn forget_groups_later(&self, groups: Vec<GroupId>) {
        self.0.unasked.lock().expect("no panic while held").extend(groups);
    }

    /// Waits until the group's tasks have ended, however they did.
    pub(crate) fn await_group(&self, group: GroupId) -> Result<(), Error> {
        self.wait(None, |state| state.groups.get(&group).is_none_or(GroupRecord::has_ended).then_some(()))
    }

    pub(crate) fn wait_group(&self, group: GroupId) -> Result<(), Error> {
        self.await_group(group)?;
        match self.state().groups.get(&group).and_then(GroupRecord::first_error) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    pub(crate) fn report(&self, heuristic: &str, parts: &[GroupId]) -> Report {
        self.absorb();
        let state = self.state();
        let records = parts.iter().filter_map(|part| state.groups.get(part));
        Report::new(heuristic, records, &[self.0.client], &state.names)
    }

    /// How a group went that was mapped, so far.
    pub(crate) fn course(&self, group: GroupId) -> Option<Course> {
        self.absorb();
        self.state().groups.get(&group).and_then(GroupRecord::course)
    }
}
