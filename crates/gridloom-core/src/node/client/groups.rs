//! Groups: mapped by the agent, handed to the servers, followed to their end, forgotten when nothing needs them.

use super::*;
use crate::base::limits::TASKS_PER_MESSAGE;
use crate::graph::Source;
use crate::map::Plan;
use crate::node::message::Supply;

impl Client {
    pub(super) fn on_run(
        &mut self,
        now: Time,
        group: Group,
        heuristic: String,
        plan_only: bool,
        out: &mut Vec<Effect>,
    ) {
        let id = group.id;
        let count = group.tasks.len();
        if plan_only {
            self.plan_only(now, group, heuristic, out);
            return;
        }
        let tasks: Vec<TaskId> = group.tasks.iter().map(|task| task.id).collect();
        let refusal = is_valid(&group).err();
        self.register(group);
        let run = GroupRun { heuristic, left: count, remembered: count, mapping: None, plan_only };
        self.groups.insert(id, run);
        if let Some(why) = refusal {
            for task in tasks {
                self.fail_task(now, task, TaskError::NotMapped { why: why.clone() }, out);
            }
            return;
        }
        for task in &tasks {
            if let Some(error) = self.input_error(*task) {
                self.fail_task(now, *task, error, out);
            }
        }
        if count == 0 {
            self.group_ended(now, id, out);
            return;
        }
        self.request_map(now, id, tasks, out);
    }

    fn register(&mut self, group: Group) {
        let id = group.id;
        for (datum, source) in group.sources {
            self.data.entry(datum).or_insert_with(|| datum_run(source.meta, None, true));
        }
        for task in group.tasks {
            let task = Arc::new(task);
            for output in &task.outputs {
                self.data.insert(output.datum, datum_run(output.meta.clone(), Some(task.id), false));
            }
            for datum in task.inputs() {
                if let Some(run) = self.data.get_mut(&datum)
                    && run.consumers.insert(task.id)
                {
                    run.pending += 1;
                }
            }
            let run = TaskRun { group: id, status: Status::Unmapped, attempts: 0, lost_with: None, task };
            self.tasks.insert(run.task.id, run);
        }
        for datum in group.wanted {
            if let Some(run) = self.data.get_mut(&datum) {
                run.presumed = true;
            }
        }
    }

    /// The error of the first argument that cannot be had.
    fn input_error(&self, id: TaskId) -> Option<TaskError> {
        let run = self.tasks.get(&id)?;
        run.task.inputs().find_map(|datum| match self.data.get(&datum) {
            None => Some(TaskError::DatumLost { datum, why: "it was released before this call".into() }),
            Some(data) => data.error.clone().map(|error| match (data.producer, error) {
                (_, nested @ TaskError::DependencyFailed { .. }) => nested,
                (Some(task), error) => TaskError::DependencyFailed { task, why: error.to_string() },
                (None, error) => error,
            }),
        })
    }

    pub(super) fn plan_only(&mut self, now: Time, mut group: Group, heuristic: String, out: &mut Vec<Effect>) {
        if self.agent.is_some() && !self.links_known() {
            self.early_plans.push((group, heuristic));
            self.wait_for_links(now, out);
            return;
        }
        for (datum, source) in &mut group.sources {
            source.at = self.location(*datum).unwrap_or_else(|| vec![self.config.id]);
        }
        let outlined = group.outline();
        let tasks = group.tasks.iter().map(|task| task.id).collect();
        self.round += 1;
        let mapping = Mapping { round: self.round, asked: Some(now), tasks, data: outlined.data };
        let run =
            GroupRun { heuristic: heuristic.clone(), left: 0, remembered: 0, mapping: Some(mapping), plan_only: true };
        self.groups.insert(group.id, run);
        match self.agent {
            Some(agent) => send(
                out,
                agent,
                Message::MapGroup {
                    group: group.id,
                    round: self.round,
                    outline: outlined.outline,
                    heuristic,
                    client_links: self.links.iter().map(|(node, link)| (*node, *link)).collect(),
                    without: self.lost.keys().copied().collect(),
                },
            ),
            None => {
                let address = self.config.agent.clone();
                self.mapping_failed(now, group.id, TaskError::AgentLost { address, why: "not connected".into() }, out);
            }
        }
    }

    // ---- mapping

    /// Has these tasks of a group mapped as soon as that can be.
    pub(super) fn request_map(&mut self, now: Time, group: GroupId, tasks: Vec<TaskId>, out: &mut Vec<Effect>) {
        if let Some(run) = self.groups.get_mut(&group) {
            run.mapping = Some(Mapping { round: 0, asked: None, tasks, data: Vec::new() });
        }
        self.try_map(now, group, out);
    }

    /// Whether an answer is to the last request for a plan of that group.
    pub(super) fn is_current(&self, group: GroupId, round: u64) -> bool {
        let mapping = self.groups.get(&group).and_then(|run| run.mapping.as_ref());
        mapping.is_some_and(|mapping| mapping.asked.is_some() && mapping.round == round)
    }

    /// Sends requests for plans that had to wait.
    pub(super) fn map_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        for (group, heuristic) in std::mem::take(&mut self.early_plans) {
            self.plan_only(now, group, heuristic, out);
        }
        let waiting: Vec<GroupId> = self
            .groups
            .iter()
            .filter(|(_, run)| run.mapping.as_ref().is_some_and(|mapping| mapping.asked.is_none()))
            .map(|(id, _)| *id)
            .collect();
        for group in waiting {
            self.try_map(now, group, out);
        }
    }

    fn try_map(&mut self, now: Time, group: GroupId, out: &mut Vec<Effect>) {
        let Some(agent) = self.agent else {
            if self.agent_was_lost {
                let address = self.config.agent.clone();
                let error = TaskError::AgentLost { address, why: "not connected".into() };
                self.mapping_failed(now, group, error, out);
            }
            return;
        };
        if !self.has_directory {
            return;
        }
        if !self.links_known() {
            self.wait_for_links(now, out);
            return;
        }
        let Some(mut mapping) = self.groups.get_mut(&group).and_then(|run| run.mapping.take()) else { return };
        mapping.tasks.retain(|task| self.tasks.get(task).is_some_and(|run| run.status == Status::Unmapped));
        if mapping.tasks.is_empty() {
            return;
        }
        let part = self.part(group, &mapping.tasks);
        let lost = if part.is_none() { self.without_a_place(&mapping.tasks) } else { Vec::new() };
        let run = self.groups.get_mut(&group).expect("found above");
        if let Some(part) = part {
            let outlined = part.outline();
            self.round += 1;
            mapping.round = self.round;
            mapping.asked = Some(now);
            mapping.data = outlined.data;
            send(
                out,
                agent,
                Message::MapGroup {
                    group,
                    round: self.round,
                    outline: outlined.outline,
                    heuristic: run.heuristic.clone(),
                    client_links: self.links.iter().map(|(node, link)| (*node, *link)).collect(),
                    without: self.lost.keys().copied().collect(),
                },
            );
        }
        run.mapping = Some(mapping);
        for datum in lost {
            self.missing(now, datum, "no server holds it any more", out);
        }
    }

    /// What those tasks read that was made and is nowhere any more.
    fn without_a_place(&self, tasks: &[TaskId]) -> Vec<DatumId> {
        let inputs: BTreeSet<DatumId> = tasks.iter().flat_map(|task| self.tasks[task].task.inputs()).collect();
        inputs.into_iter().filter(|datum| self.location(*datum).is_none() && self.is_made(*datum)).collect()
    }

    /// The part of a group that those tasks are, or `None` if one reads a datum whose place is not yet decided.
    fn part(&self, id: GroupId, tasks: &[TaskId]) -> Option<Group> {
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

    /// Where a datum is, or will be when its task has run.
    fn location(&self, datum: DatumId) -> Option<Vec<NodeId>> {
        let run = self.data.get(&datum)?;
        let mut at: Vec<NodeId> = run.holders.iter().copied().collect();
        if run.here {
            at.push(self.config.id);
        }
        if at.is_empty() {
            at.extend(self.maker(run));
        }
        (!at.is_empty()).then_some(at)
    }

    /// The server that a datum's task was sent to and has not ended on.
    pub(super) fn maker(&self, run: &DatumRun) -> Option<NodeId> {
        match self.tasks.get(&run.producer?)?.status {
            Status::Sent(server) => Some(server),
            Status::Unmapped | Status::Done | Status::Failed(_) => None,
        }
    }

    pub(super) fn mapping_failed(&mut self, now: Time, group: GroupId, error: TaskError, out: &mut Vec<Effect>) {
        let Some(run) = self.groups.get_mut(&group) else { return };
        if run.plan_only {
            self.groups.remove(&group);
            out.push(Effect::Emit(Event::GroupNotMapped { group, error }));
            return;
        }
        let Some(mapping) = run.mapping.take() else { return };
        for id in mapping.tasks {
            let Some(task) = self.tasks.get(&id).filter(|task| task.status == Status::Unmapped) else { continue };
            let error = match (&task.lost_with, &error) {
                (Some((server, why)), TaskError::NotMapped { .. }) => TaskError::ServerLost {
                    function: task.task.function.clone(),
                    server: server.clone(),
                    why: why.clone(),
                },
                _ => error.clone(),
            };
            self.fail_task(now, id, error, out);
        }
    }

    pub(super) fn on_mapped(&mut self, now: Time, group: GroupId, plan: Plan, out: &mut Vec<Effect>) {
        let Some(mapping) = self.groups.get_mut(&group).and_then(|run| run.mapping.take()) else { return };
        if plan.tasks.len() != mapping.tasks.len()
            || plan.transfers.iter().any(|t| t.datum as usize >= mapping.data.len())
        {
            let why = "the agent's plan does not fit the group".to_string();
            self.groups.get_mut(&group).expect("found above").mapping = Some(mapping);
            self.mapping_failed(now, group, TaskError::NotMapped { why }, out);
            return;
        }
        if plan.tasks.iter().any(|task| self.lost.contains_key(&task.server)) {
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
            map_ns: now.since(mapping.asked.unwrap_or(now)),
        }));
        if self.groups[&group].plan_only {
            self.groups.remove(&group);
            if let Some(agent) = self.agent {
                send(out, agent, Message::GroupEnded { group });
            }
            return;
        }
        self.dispatch(&plan, &mapping, out);
        self.after_dispatch(now, out);
    }

    /// Hands each server its tasks, in the plan's order, with the places where their inputs come from.
    fn dispatch(&mut self, plan: &Plan, mapping: &Mapping, out: &mut Vec<Effect>) {
        let mut from: BTreeMap<(NodeId, DatumId), NodeId> = BTreeMap::new();
        for transfer in &plan.transfers {
            from.entry((transfer.to, mapping.data[transfer.datum as usize])).or_insert(transfer.from);
        }
        let mut parts: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (index, assignment) in plan.tasks.iter().enumerate() {
            let Some(run) = self.tasks.get_mut(&mapping.tasks[index]) else { continue };
            if run.status == Status::Unmapped {
                run.status = Status::Sent(assignment.server);
                run.attempts += 1;
                parts.entry(assignment.server).or_default().push(index);
            }
        }
        for (server, mut indices) in parts {
            indices.sort_by(|a, b| plan.tasks[*a].start_s.total_cmp(&plan.tasks[*b].start_s).then(a.cmp(b)));
            let mut supplied = BTreeSet::new();
            for chunk in indices.chunks(TASKS_PER_MESSAGE) {
                let tasks: Vec<Arc<Task>> = chunk.iter().map(|i| self.tasks[&mapping.tasks[*i]].task.clone()).collect();
                let inputs = tasks.iter().flat_map(|task| task.inputs());
                let inputs: Vec<DatumId> = inputs.filter(|datum| supplied.insert(*datum)).collect();
                let supplies = inputs
                    .into_iter()
                    .filter_map(|datum| from.get(&(server, datum)).map(|from| self.supply(datum, *from)))
                    .collect();
                let tasks = tasks.iter().map(|task| (**task).clone()).collect();
                self.post(server, Parcel::Message(Message::RunTasks { tasks, supplies }), out);
            }
        }
    }

    pub(super) fn supply(&self, datum: DatumId, from: NodeId) -> Supply {
        let address = match from == self.config.id {
            true => String::new(),
            false => self.addresses.get(&from).cloned().unwrap_or_default(),
        };
        Supply { datum, meta: self.data[&datum].meta.clone(), from, address }
    }

    /// New places are known: what waited for them can go on.
    fn after_dispatch(&mut self, now: Time, out: &mut Vec<Effect>) {
        let waiting: Vec<DatumId> = self
            .data
            .iter()
            .filter(|(_, run)| run.fetching.is_none() && !run.here && (run.wanted || !run.fetchers.is_empty()))
            .map(|(datum, _)| *datum)
            .collect();
        for datum in waiting {
            self.fetch_here(datum, out);
        }
        let unsupplied: BTreeSet<DatumId> = self.unsupplied.iter().map(|(datum, _)| *datum).collect();
        for datum in unsupplied {
            self.supply_waiting(now, datum, out);
        }
        self.map_waiting(now, out);
    }

    /// Has a datum come to the client. False if its place is not known.
    pub(super) fn fetch_here(&mut self, datum: DatumId, out: &mut Vec<Effect>) -> bool {
        let Some(run) = self.data.get(&datum) else { return false };
        if run.here || run.fetching.is_some() {
            return true;
        }
        let holder = run.holders.iter().copied().find(|node| !self.lost.contains_key(node));
        let Some(from) = holder.or_else(|| self.maker(run)) else { return false };
        self.data.get_mut(&datum).expect("found above").fetching = Some(from);
        self.post(from, Parcel::Message(Message::Fetch { datum }), out);
        true
    }

    // ---- ends

    pub(super) fn on_task_report(&mut self, now: Time, from: NodeId, report: TaskReport, out: &mut Vec<Effect>) {
        let Some(run) = self.tasks.get_mut(&report.task) else { return };
        if run.status != Status::Sent(from) {
            return;
        }
        let at = now - report.timing.age_ns;
        match &report.outcome {
            Ok(results) => {
                run.status = Status::Done;
                run.attempts = 0;
                let (task, group) = (run.task.clone(), run.group);
                for (datum, meta) in results {
                    if let Some(data) = self.data.get_mut(datum).filter(|data| data.producer == Some(task.id)) {
                        data.meta = meta.clone();
                        data.holders.insert(from);
                    }
                }
                out.push(Effect::Emit(Event::TaskEnded { at, server: Some(from), report }));
                for output in &task.outputs {
                    self.supply_waiting(now, output.datum, out);
                }
                self.ended(now, &task, group, out);
            }
            Err(error) => {
                let error = error.clone();
                self.fail_task_at(at, report.task, error, Some(from), out);
            }
        }
    }

    /// A task has ended, one way or the other: its inputs have a reader less.
    fn ended(&mut self, now: Time, task: &Task, group: GroupId, out: &mut Vec<Effect>) {
        let inputs: BTreeSet<DatumId> = task.inputs().collect();
        for datum in &inputs {
            if let Some(run) = self.data.get_mut(datum) {
                run.pending -= 1;
            }
        }
        let run = self.groups.get_mut(&group).expect("a task's group is known");
        run.left -= 1;
        if run.left == 0 {
            self.group_ended(now, group, out);
        }
        for datum in inputs {
            self.tidy(datum, out);
        }
        for output in &task.outputs {
            self.tidy(output.datum, out);
        }
        if task.outputs.is_empty() {
            self.forget_if_settled(task.id, &mut Vec::new());
        }
    }

    fn group_ended(&mut self, now: Time, group: GroupId, out: &mut Vec<Effect>) {
        out.push(Effect::Emit(Event::GroupEnded { at: now, group }));
        if let Some(agent) = self.agent {
            send(out, agent, Message::GroupEnded { group });
        }
        if self.groups.get(&group).is_some_and(|run| run.remembered == 0) {
            self.groups.remove(&group);
        }
    }

    /// A task will give no result; nor will those that depend on it.
    pub(super) fn fail_task(&mut self, now: Time, id: TaskId, error: TaskError, out: &mut Vec<Effect>) {
        self.fail_task_at(now, id, error, None, out);
    }

    fn fail_task_at(
        &mut self,
        at: Time,
        id: TaskId,
        error: TaskError,
        reported_by: Option<NodeId>,
        out: &mut Vec<Effect>,
    ) {
        let why = error.to_string();
        let mut work = vec![(id, error)];
        while let Some((id, error)) = work.pop() {
            let Some(run) = self.tasks.get_mut(&id) else { continue };
            let server = match run.status {
                Status::Done | Status::Failed(_) => continue,
                Status::Sent(server) => Some(server),
                Status::Unmapped => None,
            };
            run.status = Status::Failed(error.clone());
            let (task, group) = (run.task.clone(), run.group);
            self.emit_task_ended(at, server, id, error.clone(), out);
            if let Some(server) = server.filter(|_| reported_by.is_none() || id != work_root(&error, id)) {
                self.post(server, Parcel::Message(Message::Cancel { tasks: vec![id] }), out);
            }
            for output in &task.outputs {
                let Some(data) = self.data.get_mut(&output.datum) else { continue };
                data.error = Some(error.clone());
                if std::mem::take(&mut data.wanted) {
                    out.push(Effect::Emit(Event::DatumLost { datum: output.datum, error: error.clone() }));
                }
                let root = work_root(&error, id);
                let nested = TaskError::DependencyFailed { task: root, why: why.clone() };
                work.extend(data.consumers.iter().map(|consumer| (*consumer, nested.clone())));
            }
            self.ended(at, &task, group, out);
        }
    }

    // ---- forgetting

    /// Gives up what nobody needs any more, from this datum upwards.
    pub(super) fn tidy(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        let mut work = vec![datum];
        while let Some(datum) = work.pop() {
            let Some(run) = self.data.get_mut(&datum) else { continue };
            if run.held || run.wanted || run.pending > 0 || !run.fetchers.is_empty() {
                // Needed; but a result that is here needs its task no longer.
                if let Some(producer) = run.producer.filter(|_| run.here || run.error.is_some()) {
                    self.forget_if_settled(producer, &mut work);
                }
                continue;
            }
            for holder in std::mem::take(&mut run.holders) {
                if !self.lost.contains_key(&holder) {
                    self.post(holder, Parcel::Message(Message::Release { data: vec![datum] }), out);
                }
            }
            if let Some(producer) = self.data[&datum].producer {
                self.forget_if_settled(producer, &mut work);
            }
            let Some(run) = self.data.get(&datum) else { continue };
            if run.producer.is_none() && run.consumers.is_empty() {
                if run.here {
                    out.push(Effect::DropDatum { datum });
                }
                self.data.remove(&datum);
            }
        }
    }

    /// Forgets a task that will not have to run again; its data are looked at next.
    fn forget_if_settled(&mut self, id: TaskId, work: &mut Vec<DatumId>) {
        let Some(run) = self.tasks.get(&id) else { return };
        if !matches!(run.status, Status::Done | Status::Failed(_)) {
            return;
        }
        let settled = run.task.outputs.iter().all(|output| {
            self.data.get(&output.datum).is_none_or(|data| {
                data.here || data.error.is_some() || (!data.held && !data.wanted && data.consumers.is_empty())
            })
        });
        if !settled {
            return;
        }
        let run = self.tasks.remove(&id).expect("found above");
        for output in &run.task.outputs {
            if let Some(data) = self.data.get_mut(&output.datum) {
                data.producer = None;
                work.push(output.datum);
            }
        }
        for datum in run.task.inputs() {
            if let Some(data) = self.data.get_mut(&datum)
                && data.consumers.remove(&id)
            {
                work.push(datum);
            }
        }
        if let Some(group) = self.groups.get_mut(&run.group) {
            group.remembered -= 1;
            if group.remembered == 0 && group.left == 0 {
                self.groups.remove(&run.group);
            }
        }
    }
}

/// The task that failed first.
fn work_root(error: &TaskError, id: TaskId) -> TaskId {
    match error {
        TaskError::DependencyFailed { task, .. } => *task,
        _ => id,
    }
}
