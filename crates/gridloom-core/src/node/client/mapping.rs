//! Mapping: sends the part of a group that can be mapped now to the agent, and distributes the plan to the servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::remapping::{Remapping, is_steadfast};
use super::{Client, GroupRun, LostServer, Mapping, Question, Status, TaskRun, send};
use crate::graph::{Group, Outlined, Source, Task};
use crate::node::message::{MapRequest, MapToAgent, Purpose, TaskToServer};
use crate::node::protocol::{Effect, Event};
use gridloom_base::limits::{HOPS_MAX, TASKS_PER_MESSAGE};
use gridloom_base::{DatumId, GroupId, Method, NodeId, TaskError, TaskId, Time};
use gridloom_map::{MapperInput, MappingMethod, Outline, Plan};

/// Why a call fails although other servers could run it.
pub(super) const BOUND: &str = "it is not in the grid";

/// A mapping request that waits to be sent.
enum Waiting {
    Early(Question),
    Group(GroupId),
}

impl Client {
    pub(super) fn plan_only(
        &mut self,
        now: Time,
        Question { mut group, heuristic, purpose, mut vain }: Question,
        out: &mut Vec<Effect>,
    ) {
        self.want_links(out);
        let has_agent = self.contacts.agent().is_some() && !self.contacts.awaits_list(now);
        let has_to_wait = vain.is_suspect() && self.awaits_suspect();
        let is_early = has_agent && (!self.links.are_known() || has_to_wait || self.reads_unplaced(&group));
        if is_early || !has_agent && self.contacts.awaits_nodes(now) {
            self.early_plans.push(Question { group, heuristic, purpose, vain });
            if !self.links.are_known() {
                self.links.wait(now, out);
            }
            return;
        }
        for (datum, source) in &mut group.sources {
            source.at = self.location(*datum).unwrap_or_else(|| vec![self.config.id]);
        }
        let outlined = self.outlined(&group);
        let tasks = group.tasks.iter().map(|task| task.id).collect();
        self.round += 1;
        let names = outlined.names();
        let (round, asked, data) = (self.round, Some(now), outlined.data);
        let is_asked = self.contacts.agent().is_some_and(|agent| vain.asks(agent));
        let mapping = Mapping { round, asked, tasks, data, names, vain };
        let run = GroupRun {
            heuristic: heuristic.clone(),
            is_given: false,
            left: 0,
            remembered: 0,
            mapping: Some(mapping),
            question: None,
            remapping: Remapping::default(),
            follows: None,
        };
        let id = group.id;
        let question = Question { group, heuristic: heuristic.clone(), purpose, vain };
        let run = GroupRun { question: Some(Box::new(question)), ..run };
        self.groups.insert(id, run);
        match self.contacts.agent().filter(|_| is_asked) {
            Some(agent) => {
                let request = self.map_request(id, outlined.outline, heuristic);
                let busy = self.busy_following(now, id);
                send(out, agent, MapToAgent::MapGroup(Box::new(MapRequest { purpose, busy, ..request })));
                let vain = self.follow_with_ping(now, vain, out);
                self.groups.get_mut(&id).and_then(|run| run.mapping.as_mut()).expect("inserted above").vain = vain;
            }
            None => {
                self.mapping_failed(now, id, self.agent_lost(), out);
            }
        }
    }

    /// True if a group reads the result of a task that has no plan yet: its location must be known first.
    fn reads_unplaced(&self, group: &Group) -> bool {
        let makers = group.sources.keys().filter_map(|datum| self.data.get(datum)?.producer);
        makers.into_iter().any(|task| self.tasks.get(&task).is_some_and(|run| run.status == Status::Unmapped))
    }

    /// Returns a group as a mapper sees it.
    fn outlined(&self, group: &Group) -> Outlined {
        let mut outlined = group.outline();
        let found = outlined.outline.data.iter_mut().zip(&outlined.data);
        // For data that functions get and put by name, the functions and the catalog determine the method.
        for (datum, id) in found.filter(|(datum, id)| datum.name.is_none() && id.is_shared()) {
            datum.method = self.names.method_of(*id);
        }
        outlined
    }

    /// Returns the mapping request of this round.
    fn map_request(&self, group: GroupId, outline: Outline, heuristic: MappingMethod) -> MapRequest {
        MapRequest {
            group,
            round: self.round,
            outline,
            heuristic,
            purpose: Purpose::Run,
            client_links: self.links.estimates().iter().map(|(node, link)| (*node, *link)).collect(),
            unmeasured: self.links.guessed().clone(),
            excluded_servers: self.contacts.lost().collect(),
            busy: Vec::new(),
        }
    }

    /// Has these tasks of a group mapped as soon as possible.
    pub(super) fn request_map(&mut self, now: Time, group: GroupId, tasks: Vec<TaskId>, out: &mut Vec<Effect>) {
        let (placements, tasks): (Vec<TaskId>, Vec<TaskId>) =
            tasks.into_iter().partition(|id| self.tasks.get(id).is_some_and(|run| run.task.is_replicate()));
        for id in placements {
            self.cannot_place(now, id, out);
        }
        if let Some(run) = self.groups.get_mut(&group) {
            // A plan in progress becomes void: tasks that wait for it are added to this request.
            let (waiting, vain) =
                run.mapping.take().map_or_else(Default::default, |mapping| (mapping.tasks, mapping.vain));
            let tasks: BTreeSet<TaskId> = tasks.into_iter().chain(waiting).collect();
            let (tasks, data, names) = (tasks.into_iter().collect(), Vec::new(), BTreeMap::new());
            run.mapping = Some(Mapping { round: 0, asked: None, tasks, data, names, vain });
        }
        self.try_map(now, group, out);
    }

    /// True if an answer belongs to the last mapping request of that group.
    pub(super) fn is_current(&self, group: GroupId, round: u64) -> bool {
        let mapping = self.groups.get(&group).and_then(|run| run.mapping.as_ref());
        mapping.is_some_and(|mapping| mapping.asked.is_some() && mapping.round == round)
    }

    /// Sends requests that had to wait: for plans, and those that were lost with the agent.
    pub(super) fn map_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.place_waiting(now, out);
        self.ask_suspects(now, out);
        let early = std::mem::take(&mut self.early_plans).into_iter();
        let waiting = self.groups.iter().filter_map(|(id, run)| Some((*id, run.mapping.as_ref()?)));
        let waiting = waiting.filter(|(_, mapping)| mapping.asked.is_none());
        let waiting = waiting.map(|(id, mapping)| (mapping.vain.count(), Waiting::Group(id)));
        let early = early.map(|question| (question.vain.count(), Waiting::Early(question)));
        let mut waiting: Vec<(u32, Waiting)> = early.chain(waiting).collect();
        waiting.sort_by_key(|(losses, _)| *losses);
        for (_, waiting) in waiting {
            match waiting {
                Waiting::Early(question) => self.plan_only(now, question, out),
                Waiting::Group(group) => self.try_map(now, group, out),
            }
        }
    }

    fn try_map(&mut self, now: Time, group: GroupId, out: &mut Vec<Effect>) {
        let Some(agent) = self.contacts.agent() else {
            if self.contacts.agent_was_lost() && !self.contacts.awaits_nodes(now) {
                self.mapping_failed(now, group, self.agent_lost(), out);
            }
            return;
        };
        if !self.directory.is_known || self.contacts.awaits_list(now) {
            return;
        }
        self.want_links(out);
        if !self.links.are_known() {
            self.links.wait(now, out);
            return;
        }
        let Some(mut mapping) = self.groups.get_mut(&group).and_then(|run| run.mapping.take()) else { return };
        if mapping.vain.is_suspect() && self.awaits_suspect() {
            self.groups.get_mut(&group).expect("found above").mapping = Some(mapping);
            return;
        }
        mapping.tasks.retain(|task| self.is_unmapped(*task));
        self.fail_bound_to_nobody(now, &mapping.tasks, out);
        mapping.tasks.retain(|task| self.is_unmapped(*task));
        if mapping.tasks.is_empty() {
            return;
        }
        if !mapping.vain.asks(agent) {
            self.groups.get_mut(&group).expect("found above").mapping = Some(mapping);
            return self.mapping_failed(now, group, self.agent_lost(), out);
        }
        let part = self.part(group, &mapping.tasks);
        let lost = if part.is_none() { self.without_a_place(&mapping.tasks) } else { Vec::new() };
        if let Some(part) = part {
            let outlined = self.outlined(&part);
            self.round += 1;
            mapping.round = self.round;
            mapping.asked = Some(now);
            mapping.names = outlined.names();
            mapping.data = outlined.data;
            let heuristic = self.groups.get_mut(&group).expect("found above").heuristic.take();
            let request = self.map_request(group, outlined.outline, heuristic);
            let request = MapRequest { busy: self.busy(now, group), ..request };
            send(out, agent, MapToAgent::MapGroup(Box::new(request)));
            mapping.vain = self.follow_with_ping(now, mapping.vain, out);
        }
        self.groups.get_mut(&group).expect("found above").mapping = Some(mapping);
        for datum in lost {
            self.missing(now, datum, "no server holds it any more", out);
        }
    }

    fn is_unmapped(&self, task: TaskId) -> bool {
        self.tasks.get(&task).is_some_and(|run| run.status == Status::Unmapped)
    }

    /// Fails those tasks that only an absent server may run; the others can be mapped without them.
    fn fail_bound_to_nobody(&mut self, now: Time, tasks: &[TaskId], out: &mut Vec<Effect>) {
        for id in tasks {
            let only = self.tasks.get(id).and_then(|run| run.task.options.bound_to);
            // A connected server may be unknown to an agent that restarted; it will be known again.
            let is_away = |server: NodeId| {
                let may_come = self.contacts.is_up(server) || self.contacts.may_return(now, server);
                self.directory.grid.server(server).is_none() && !may_come
            };
            if only.is_some_and(is_away) {
                let error = self.bound_to_nobody(*id);
                self.fail_task(now, *id, error, out);
            }
        }
    }

    /// Returns the error of a task that is bound to a server that is absent.
    pub(super) fn bound_to_nobody(&self, id: TaskId) -> TaskError {
        let TaskRun { task, lost_with, .. } = &self.tasks[&id];
        let server = task.options.bound_to.map_or_else(String::new, |server| self.contacts.name_of(server));
        let why = lost_with.as_ref().map(|lost| lost.why.clone());
        let (function, is_bound) = (task.name().to_string(), task.object().is_none());
        TaskError::ServerLost { function, server, why: why.unwrap_or_else(|| BOUND.into()), is_bound }
    }

    /// Returns the inputs of those tasks that were produced and have no copy any more.
    pub(super) fn without_a_place(&self, tasks: &[TaskId]) -> Vec<DatumId> {
        let inputs: BTreeSet<DatumId> = tasks.iter().flat_map(|task| self.tasks[task].task.inputs()).collect();
        inputs.into_iter().filter(|datum| self.location(*datum).is_none() && self.is_made(*datum)).collect()
    }

    /// Returns the part of a group that consists of those tasks, or `None` if one reads a datum without a location.
    pub(super) fn part(&self, id: GroupId, tasks: &[TaskId]) -> Option<Group> {
        let made: BTreeSet<DatumId> =
            tasks.iter().flat_map(|task| self.tasks[task].task.outputs.iter().map(|output| output.datum)).collect();
        let mut sources = BTreeMap::new();
        for datum in tasks.iter().flat_map(|task| self.tasks[task].task.inputs()) {
            if !made.contains(&datum) && !sources.contains_key(&datum) {
                let meta = self.data[&datum].meta.clone();
                sources.insert(datum, Source { meta, at: self.location(datum)? });
            }
        }
        let wanted = made.iter().copied().filter(|datum| self.data[datum].presumed || self.data[datum].wanted);
        Some(Group {
            id,
            wanted: wanted.collect(),
            tasks: tasks.iter().map(|task| (*self.tasks[task].task).clone()).collect(),
            sources,
        })
    }

    /// Returns where a datum is, or will be after its task has run.
    fn location(&self, datum: DatumId) -> Option<Vec<NodeId>> {
        let run = self.data.get(&datum)?;
        let mut at: Vec<NodeId> = run.holders.iter().copied().collect();
        if run.here && !datum.is_shared() {
            at.push(self.config.id);
        }
        if at.is_empty() {
            at.extend(self.maker(run));
        }
        (!at.is_empty()).then_some(at)
    }

    pub(super) fn mapping_failed(&mut self, now: Time, group: GroupId, error: TaskError, out: &mut Vec<Effect>) {
        let Some(run) = self.groups.get_mut(&group) else { return };
        if run.question.is_some() {
            self.groups.remove(&group);
            out.push(Effect::Emit(Event::GroupNotMapped { group, error }));
            return;
        }
        let Some(mut mapping) = run.mapping.take() else { return };
        let is_lost = |id: &TaskId| self.tasks.get(id).is_some_and(|task| task.lost_with.is_some());
        if !mapping.tasks.iter().any(is_lost) {
            // Readers precede the tasks that they read from, so that each gets this error and not that of a call it
            // depends on.
            mapping.tasks.reverse();
        }
        for id in mapping.tasks {
            let Some(task) = self.tasks.get(&id).filter(|task| task.status == Status::Unmapped) else { continue };
            let error = match (&task.lost_with, &error) {
                (Some(LostServer { name, why, .. }), TaskError::NotMapped { .. }) => TaskError::ServerLost {
                    function: task.task.name().to_string(),
                    server: name.clone(),
                    why: why.clone(),
                    is_bound: task.task.is_bound(),
                },
                _ => error.clone(),
            };
            self.fail_task(now, id, error, out);
        }
    }

    pub(super) fn on_mapped(
        &mut self,
        now: Time,
        group: GroupId,
        plan: Plan,
        seen: Option<Box<MapperInput>>,
        out: &mut Vec<Effect>,
    ) {
        let Some(mapping) = self.groups.get_mut(&group).and_then(|run| run.mapping.take()) else { return };
        // The next suspect may have waited for this plan.
        self.has_less_to_map |= mapping.vain.is_suspect();
        if plan.tasks.len() != mapping.tasks.len()
            || plan.transfers.iter().any(|t| t.datum as usize >= mapping.data.len())
        {
            let why = "the agent's plan does not match the group".to_string();
            self.groups.get_mut(&group).expect("found above").mapping = Some(mapping);
            self.mapping_failed(now, group, TaskError::NotMapped { why }, out);
            return;
        }
        if plan.tasks.iter().any(|task| self.contacts.is_lost(task.server)) {
            self.request_map(now, group, mapping.tasks, out);
            return;
        }
        let plan = Arc::new(plan);
        out.push(Effect::Emit(Event::GroupPlanned {
            at: now,
            group,
            plan: plan.clone(),
            tasks: mapping.tasks.clone(),
            data: mapping.data.clone(),
            names: mapping.names.clone(),
            map_ns: now.since(mapping.asked.unwrap_or(now)),
            seen: seen.map(Arc::from),
        }));
        if let Some(question) = &self.groups[&group].question {
            if question.purpose == Purpose::Reserve && !is_steadfast(&question.heuristic) {
                self.following.groups.insert(group);
            }
            self.groups.remove(&group);
            return;
        }
        self.planned(now, group, now.since(mapping.asked.unwrap_or(now)), plan.makespan_s);
        self.dispatch(now, &plan, &mapping, out);
        self.after_dispatch(now, out);
    }

    /// Sends each server its tasks, in the plan's order, with the sources of their inputs.
    pub(super) fn dispatch(&mut self, now: Time, plan: &Plan, mapping: &Mapping, out: &mut Vec<Effect>) {
        let mut from: BTreeMap<(NodeId, DatumId), NodeId> = BTreeMap::new();
        for transfer in &plan.transfers {
            let datum = mapping.data[transfer.datum as usize];
            // For data that are sent in slices or through a storage the catalog chooses the source: the server asks
            // it. An agent of version 46 does not report the method.
            let method = Some(transfer.method).filter(|method| *method != Method::Auto);
            let method = method.unwrap_or_else(|| self.names.method_of(datum));
            let is_catalogs = matches!(method, Method::Swarm | Method::Storage);
            let source = if is_catalogs { transfer.to } else { transfer.from };
            from.entry((transfer.to, datum)).or_insert(source);
        }
        let mut parts: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (index, assignment) in plan.tasks.iter().enumerate() {
            let Some(run) = self.tasks.get_mut(&mapping.tasks[index]) else { continue };
            if run.status == Status::Unmapped {
                run.status = Status::Sent(assignment.server);
                run.attempts += 1;
                run.since = None;
                parts.entry(assignment.server).or_default().push(index);
            }
        }
        for indices in parts.values_mut() {
            indices.sort_by(|a, b| plan.tasks[*a].start_s.total_cmp(&plan.tasks[*b].start_s).then(a.cmp(b)));
            indices.iter().for_each(|index| self.sent(now, mapping.tasks[*index]));
        }
        let hops: BTreeMap<(NodeId, DatumId), u16> =
            from.keys().map(|(server, datum)| ((*server, *datum), self.hops(*server, *datum, &from))).collect();
        for ((server, datum), hops) in hops.iter().filter(|((_, datum), _)| self.data.contains_key(datum)) {
            self.supplies.set_hops(*datum, *server, *hops);
        }
        for (server, indices) in parts {
            let mut supplied = BTreeSet::new();
            for chunk in indices.chunks(TASKS_PER_MESSAGE) {
                let tasks: Vec<Arc<Task>> = chunk.iter().map(|i| self.tasks[&mapping.tasks[*i]].task.clone()).collect();
                if self.is_plain(server) {
                    self.run_on_plain(server, &tasks, out);
                    continue;
                }
                let inputs = tasks.iter().flat_map(|task| task.inputs());
                let inputs: Vec<DatumId> = inputs.filter(|datum| supplied.insert(*datum)).collect();
                let supplies = inputs
                    .into_iter()
                    .filter_map(|datum| Some(self.supply(datum, *from.get(&(server, datum))?, hops[&(server, datum)])))
                    .collect();
                let tasks = tasks.iter().map(|task| (**task).clone()).collect();
                self.contacts.post(server, TaskToServer::RunTasks { tasks, supplies }, out);
            }
        }
    }

    /// Returns the number of sends until a datum reaches a server from where it is stored or produced, given those
    /// sources: a source may itself be waiting for it.
    fn hops(&self, server: NodeId, datum: DatumId, from: &BTreeMap<(NodeId, DatumId), NodeId>) -> u16 {
        let (mut hops, mut at) = (0, server);
        while let Some(source) = from.get(&(at, datum)).filter(|source| **source != at && hops < HOPS_MAX) {
            (hops, at) = (hops + 1, *source);
        }
        // A datum that was forgotten meanwhile is read by no task that is sent.
        let run = self.data.get(&datum);
        let has_it = run.is_none_or(|run| run.holders.contains(&at) || self.maker(run) == Some(at));
        let has_it = has_it || at == self.config.id;
        hops.saturating_add(if has_it { 0 } else { self.supplies.hops(datum, at) }).clamp(1, HOPS_MAX)
    }

    /// Records a task that was sent to a server. It is listed there once all its inputs have been produced.
    fn sent(&mut self, now: Time, id: TaskId) {
        let inputs: BTreeSet<DatumId> = self.tasks[&id].task.inputs().collect();
        let is_to_be_made = |datum: &&DatumId| {
            let producer = self.data.get(datum).and_then(|run| self.tasks.get(&run.producer?));
            producer.is_some_and(|run| matches!(run.status, Status::Unmapped | Status::Sent(_)))
        };
        let missing = inputs.iter().filter(is_to_be_made).count() as u32;
        self.tasks.get_mut(&id).expect("it is sent").missing = missing;
        self.queue_if_ready(now, id);
    }

    /// Resumes operations that waited for locations which are known now.
    pub(super) fn after_dispatch(&mut self, now: Time, out: &mut Vec<Effect>) {
        let waiting: Vec<DatumId> = self
            .data
            .iter()
            .filter(|(_, run)| run.fetching.is_none() && !run.here)
            .map(|(datum, _)| *datum)
            .filter(|datum| self.is_to_come_here(*datum))
            .collect();
        for datum in waiting {
            self.fetch_here(datum, out);
        }
        let unsupplied: BTreeSet<DatumId> = self.supplies.awaited();
        for datum in unsupplied {
            self.supply_waiting(now, datum, out);
        }
        self.map_waiting(now, out);
    }
}
