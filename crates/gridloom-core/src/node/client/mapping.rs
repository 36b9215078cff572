//! Mapping: sends the part of a group that can be mapped now to the agent, and distributes the plan to the servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::graph::{LostServer, TaskState};
use super::plans::{Mapping, Question, Waiting};
use super::poison::LossCounter;
use super::{Client, send};
use crate::graph::{Group, Outlined, Task};
use crate::node::message::{LinkMessage, MapRequest, MapToAgent, Purpose, TaskToServer};
use crate::node::protocol::{Effect, Event};
use gridloom_base::limits::{HOPS_MAX, TASKS_PER_MESSAGE};
use gridloom_base::{DatumId, GroupId, Method, NodeId, TaskError, TaskId, Time};
use gridloom_map::{MapperInput, MappingMethod, Outline, Plan};

/// Why a call fails although other servers could run it.
pub(super) const NOT_IN_GRID: &str = "it is not in the grid";

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
        let is_early = has_agent && (!self.links.are_known() || has_to_wait || self.reads_unplanned(&group));
        if is_early || !has_agent && self.contacts.expects_nodes(now) {
            self.plans.plan_later(Question { group, heuristic, purpose, vain });
            if !self.links.are_known() {
                self.links.wait(now, out);
            }
            return;
        }
        for (datum, source) in &mut group.sources {
            source.at = self.graph.location(*datum).unwrap_or_else(|| vec![self.config.id]);
        }
        let outlined = self.outlined(&group);
        let tasks = group.tasks.iter().map(|task| task.id).collect();
        let (round, names) = (self.plans.next_round(), outlined.names());
        let (asked, data) = (Some(now), outlined.data);
        let is_asked = self.contacts.agent().is_some_and(|agent| vain.record_sent(agent));
        let mapping = Mapping { round, asked, tasks, data, names, vain };
        let id = group.id;
        self.plans.ask(Question { group, heuristic: heuristic.clone(), purpose, vain }, mapping);
        match self.contacts.agent().filter(|_| is_asked) {
            Some(agent) => {
                let request = self.map_request((id, round), outlined.outline, heuristic);
                let busy = self.busy_following(now, id);
                send(out, agent, MapToAgent::MapGroup(Box::new(MapRequest { purpose, busy, ..request })));
                let vain = self.send_ping_behind(now, vain, out);
                self.plans.set_losses(id, vain);
            }
            None => {
                self.mapping_failed(now, id, self.agent_lost(), out);
            }
        }
    }

    /// True if a group reads the result of a task that has no plan yet: its location must be known first.
    fn reads_unplanned(&self, group: &Group) -> bool {
        group.sources.keys().any(|datum| self.graph.is_unplaced(*datum))
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

    /// Returns the mapping request of a group in that round.
    fn map_request(&self, (group, round): (GroupId, u64), outline: Outline, heuristic: MappingMethod) -> MapRequest {
        MapRequest {
            group,
            round,
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
        let (placements, tasks): (Vec<TaskId>, Vec<TaskId>) = tasks.into_iter().partition(|id| self.is_placement(*id));
        for id in placements {
            self.cannot_place(now, id, None, out);
        }
        self.plans.request(group, tasks);
        self.try_map(now, group, out);
    }

    /// Sends requests that had to wait: for plans, and those that were lost with the agent.
    pub(super) fn map_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.place_waiting(now, out);
        self.ask_suspects(now, out);
        for waiting in self.plans.take_waiting() {
            match waiting {
                Waiting::Early(question) => self.plan_only(now, question, out),
                Waiting::Group(group) => self.try_map(now, group, out),
            }
        }
    }

    fn try_map(&mut self, now: Time, group: GroupId, out: &mut Vec<Effect>) {
        let Some(agent) = self.contacts.agent() else {
            if self.contacts.agent_was_lost() && !self.contacts.expects_nodes(now) {
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
        let Some(mut mapping) = self.plans.take(group) else { return };
        if mapping.vain.is_suspect() && self.awaits_suspect() {
            self.plans.put_back(group, mapping);
            return;
        }
        mapping.tasks.retain(|task| self.is_unmapped(*task));
        self.fail_bound_to_absent(now, &mapping.tasks, out);
        mapping.tasks.retain(|task| self.is_unmapped(*task));
        if mapping.tasks.is_empty() {
            return;
        }
        if !mapping.vain.record_sent(agent) {
            self.plans.put_back(group, mapping);
            return self.mapping_failed(now, group, self.agent_lost(), out);
        }
        let part = self.graph.part(group, &mapping.tasks);
        let lost = if part.is_none() { self.graph.inputs_without_location(&mapping.tasks) } else { Vec::new() };
        if let Some(part) = part {
            let outlined = self.outlined(&part);
            mapping.round = self.plans.next_round();
            mapping.asked = Some(now);
            mapping.names = outlined.names();
            mapping.data = outlined.data;
            let heuristic = self.plans.take_heuristic(group);
            let request = self.map_request((group, mapping.round), outlined.outline, heuristic);
            let request = MapRequest { busy: self.busy(now, group), ..request };
            send(out, agent, MapToAgent::MapGroup(Box::new(request)));
            mapping.vain = self.send_ping_behind(now, mapping.vain, out);
        }
        self.plans.put_back(group, mapping);
        for datum in lost {
            self.recover_datum(now, datum, "no server holds it any more", out);
        }
    }

    fn is_unmapped(&self, task: TaskId) -> bool {
        self.graph.task(task).is_some_and(TaskState::is_unmapped)
    }

    /// Fails those tasks that only an absent server may run; the others can be mapped without them.
    fn fail_bound_to_absent(&mut self, now: Time, tasks: &[TaskId], out: &mut Vec<Effect>) {
        for id in tasks {
            let only = self.graph.task(*id).and_then(|run| run.task().options.bound_to);
            // A connected server may be unknown to an agent that restarted; it will be known again.
            let is_away = |server: NodeId| {
                let may_come = self.contacts.is_up(server) || self.contacts.may_return(now, server);
                self.directory.grid.server(server).is_none() && !may_come
            };
            if only.is_some_and(is_away) {
                let error = self.bound_server_lost(*id);
                self.fail_task(now, *id, error, out);
            }
        }
    }

    /// Returns the error of a task that is bound to a server that is absent.
    pub(super) fn bound_server_lost(&self, id: TaskId) -> TaskError {
        let run = self.graph.task(id).expect("it is remembered");
        let (task, lost_with) = (run.task(), run.lost_with());
        let server = task.options.bound_to.map_or_else(String::new, |server| self.contacts.name_of(server));
        let why = lost_with.map(|lost| lost.why.clone());
        let (function, is_bound) = (task.function_lost_with_server(), task.object().is_none());
        TaskError::ServerLost { function, server, why: why.unwrap_or_else(|| NOT_IN_GRID.into()), is_bound }
    }

    pub(super) fn mapping_failed(&mut self, now: Time, group: GroupId, error: TaskError, out: &mut Vec<Effect>) {
        if self.plans.take_question(group).is_some() {
            out.push(Effect::Emit(Event::GroupNotMapped { group, error }));
            return;
        }
        let Some(mut mapping) = self.plans.take(group) else { return };
        let is_lost = |id: &TaskId| self.graph.task(*id).is_some_and(|task| task.lost_with().is_some());
        if !mapping.tasks.iter().any(is_lost) {
            // Readers precede the tasks that they read from, so that each gets this error and not that of a call it
            // depends on.
            mapping.tasks.reverse();
        }
        for id in mapping.tasks {
            let Some(task) = self.graph.task(id).filter(|task| task.is_unmapped()) else { continue };
            let error = match (task.lost_with(), &error) {
                (Some(LostServer { name, why, .. }), TaskError::NotMapped { .. }) => TaskError::ServerLost {
                    function: task.task().function_lost_with_server(),
                    server: name.clone(),
                    why: why.clone(),
                    is_bound: task.task().is_bound(),
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
        let Some(mapping) = self.plans.take(group) else { return };
        // The next suspect may have waited for this plan.
        self.has_less_to_map |= mapping.vain.is_suspect();
        if plan.tasks.len() != mapping.tasks.len()
            || plan.transfers.iter().any(|t| t.datum as usize >= mapping.data.len())
        {
            let why = "the agent's plan does not match the group".to_string();
            self.plans.put_back(group, mapping);
            self.mapping_failed(now, group, TaskError::NotMapped { why }, out);
            return;
        }
        if plan.tasks.iter().any(|task| self.contacts.is_lost(task.server)) {
            match self.plans.take_question(group) {
                Some(question) => self.plan_only(now, question, out),
                None => self.request_map(now, group, mapping.tasks, out),
            }
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
        if self.plans.answered(group) {
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
            if self.graph.sent(mapping.tasks[index], assignment.server) {
                parts.entry(assignment.server).or_default().push(index);
            }
        }
        for indices in parts.values_mut() {
            indices.sort_by(|a, b| plan.tasks[*a].start_s.total_cmp(&plan.tasks[*b].start_s).then(a.cmp(b)));
            indices.iter().for_each(|index| self.queue_if_ready(now, mapping.tasks[*index]));
        }
        let hops: BTreeMap<(NodeId, DatumId), u16> =
            from.keys().map(|(server, datum)| ((*server, *datum), self.hops(*server, *datum, &from))).collect();
        for ((server, datum), hops) in hops.iter().filter(|((_, datum), _)| self.graph.datum(*datum).is_some()) {
            self.supplies.set_hops(*datum, *server, *hops);
        }
        for (server, indices) in parts {
            let mut supplied = BTreeSet::new();
            for chunk in indices.chunks(TASKS_PER_MESSAGE) {
                let tasks: Vec<Arc<Task>> =
                    chunk.iter().filter_map(|i| Some(self.graph.task(mapping.tasks[*i])?.task().clone())).collect();
                if self.is_stateless(server) {
                    self.run_on_stateless(server, &tasks, out);
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
        let run = self.graph.datum(datum);
        let has_it = run.is_none_or(|run| run.holders().contains(&at) || self.graph.producer_server(run) == Some(at));
        let has_it = has_it || at == self.config.id;
        hops.saturating_add(if has_it { 0 } else { self.supplies.hops(datum, at) }).clamp(1, HOPS_MAX)
    }

    /// Resumes operations that waited for locations which are known now.
    pub(super) fn after_dispatch(&mut self, now: Time, out: &mut Vec<Effect>) {
        let waiting: Vec<DatumId> = self.graph.elsewhere().filter(|datum| self.is_needed_here(*datum)).collect();
        for datum in waiting {
            self.fetch_here(datum, out);
        }
        let unsupplied: BTreeSet<DatumId> = self.supplies.awaited();
        for datum in unsupplied {
            self.supply_waiting(now, datum, out);
        }
        self.map_waiting(now, out);
    }

    // ---- requests that may have broken the connection to the agent

    /// True if a suspect is pending, so that no other one may be sent.
    pub(super) fn awaits_suspect(&self) -> bool {
        self.names.requests.awaits_suspect() || self.plans.awaits_suspect()
    }

    /// Sends the next suspects, if there are any.
    pub(super) fn send_suspects(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.plans.has_waiting_suspect() || !self.names.requests.waiting_suspects().is_empty() {
            self.map_waiting(now, out);
        }
    }

    /// Sends a ping after the last message to the agent.
    pub(super) fn ping_agent(&mut self, now: Time, out: &mut Vec<Effect>) -> Option<u64> {
        let agent = self.contacts.agent()?;
        let token = self.contacts.members_mut().ping(now, agent)?;
        send(out, agent, LinkMessage::Ping { token });
        Some(token)
    }

    /// Sends a ping after a mapping request that was lost before, to learn whether it is read.
    pub(super) fn send_ping_behind(&mut self, now: Time, mut vain: LossCounter, out: &mut Vec<Effect>) -> LossCounter {
        if vain.is_suspect() {
            vain.pinged(self.ping_agent(now, out));
        }
        vain
    }

    /// Handles the agent's answer to a ping: it has read everything sent before.
    pub(super) fn agent_has_read(&mut self, now: Time, token: u64, out: &mut Vec<Effect>) {
        self.names.requests.answer(token);
        self.plans.agent_has_read(token);
        self.send_suspects(now, out);
    }

    // ---- nodes that are lost and may return

    /// Returns the error for operations that fail without an agent.
    pub(super) fn agent_lost(&self) -> TaskError {
        let (address, fault) = (self.config.agent.clone(), self.contacts.agent_fault());
        TaskError::AgentLost { address, fault, why: self.contacts.why_agent_lost().into() }
    }

    /// Prepares to repeat the mapping requests that a lost agent will not answer. Groups whose requests were lost too
    /// often fail.
    pub(super) fn repeat_requests(&mut self, now: Time, out: &mut Vec<Effect>) {
        for id in self.plans.agent_lost() {
            self.mapping_failed(now, id, self.agent_lost(), out);
        }
    }

    /// Handles the agent's answer that it cannot map a group on the available servers.
    pub(super) fn not_mapped(&mut self, now: Time, group: GroupId, why: String, out: &mut Vec<Effect>) {
        match self.contacts.expects_nodes(now) && self.plans.wait_for_nodes(group) {
            true => {}
            false => self.mapping_failed(now, group, TaskError::NotMapped { why }, out),
        }
    }

    /// Retries operations for the last time when the wait has ended, and fails those that still cannot proceed.
    pub(super) fn end_waiting_if_due(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.contacts.take_wait_end(now) {
            self.end_waiting(now, out);
        }
    }

    pub(super) fn end_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.directory.is_known || self.contacts.agent_was_lost() {
            self.send_waiting(now, out);
        }
        self.map_waiting(now, out);
    }
}
