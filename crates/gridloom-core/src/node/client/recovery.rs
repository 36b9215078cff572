//! Recovery: what a lost server ran or held is run again elsewhere.
//!
//! ```text
//!  server lost
//!    |- its unfinished tasks ------------------------------------------.
//!    |- results that only it held and that somebody still needs -------+--> mapped again, among the servers that live
//!    |     '- their inputs, where these are gone too (and so on) ------'
//!    '- copies that other servers were to get from it: they say so (SupplyFailed) and are told of a new source
//! ```
//! Stateless tasks may so run more than once; a datum is immutable, so whichever copy comes first counts.

use super::*;
use crate::base::limits::TASK_ATTEMPTS_MAX;

/// How often a datum may break off on its way to the client before that is an error.
const BROKEN_MAX: u32 = 3;

impl Client {
    pub(super) fn on_server_lost(&mut self, now: Time, server: NodeId, why: &str, out: &mut Vec<Effect>) {
        if self.lost.contains_key(&server) {
            return;
        }
        self.lost.insert(server, Lost::default());
        let name = self.server_name(server);
        self.outbox.remove(&server);
        self.apart.retain(|(a, b)| *a != server && *b != server);
        let grid = Arc::make_mut(&mut self.grid);
        if let Some(index) = grid.server(server) {
            grid.servers.remove(index);
        }
        self.probe_over(now, server, out);
        self.calls_lost(now, server, why, out);
        self.unsupplied.retain(|(_, waiting)| *waiting != server);
        let mut broken_off = Vec::new();
        for (datum, run) in &mut self.data {
            run.holders.remove(&server);
            run.fetchers.remove(&server);
            if run.fetching == Some(server) {
                run.fetching = None;
                broken_off.push(*datum);
            }
        }
        let mut again = Vec::new();
        let mut hopeless = Vec::new();
        for (id, run) in &mut self.tasks {
            if run.status == Status::Sent(server) {
                run.status = Status::Unmapped;
                run.lost_with = Some((name.clone(), why.to_string()));
                if run.attempts >= TASK_ATTEMPTS_MAX { hopeless.push(*id) } else { again.push(*id) }
            }
        }
        for id in hopeless {
            let function = self.tasks[&id].task.function.clone();
            let error = TaskError::ServerLost { function, server: name.clone(), why: why.into() };
            self.fail_task(now, id, error, out);
        }
        let gone: Vec<DatumId> = self
            .data
            .iter()
            .filter(|(_, run)| {
                let needed = run.wanted || run.pending > 0 || !run.fetchers.is_empty();
                needed && !run.here && run.holders.is_empty() && run.error.is_none()
            })
            .map(|(datum, _)| *datum)
            .collect();
        for datum in gone {
            self.revive(now, datum, &mut again, out);
        }
        for datum in broken_off {
            if self.data.get(&datum).is_some_and(|run| run.wanted || !run.fetchers.is_empty()) {
                self.fetch_here(datum, out);
            }
        }
        // Inputs of tasks that run again, and that only the lost server held, are among `gone`: their pending readers
        // are these tasks.
        if !again.is_empty() {
            out.push(Effect::Emit(Event::ServerLost { server, name, why: why.into(), again: again.clone() }));
        }
        self.map_again(now, again, out);
    }

    /// Sets the task that makes a lost datum, and those that make its lost inputs, to run again. Appends them to
    /// `again`.
    fn revive(&mut self, now: Time, datum: DatumId, again: &mut Vec<TaskId>, out: &mut Vec<Effect>) {
        let mut work = vec![datum];
        while let Some(datum) = work.pop() {
            let Some(run) = self.data.get(&datum) else { continue };
            if run.here || !run.holders.is_empty() {
                continue;
            }
            let Some(id) = run.producer else {
                self.datum_lost(now, datum, "the only copy was on a server that is gone", out);
                continue;
            };
            let task = self.tasks.get_mut(&id).expect("the producer of a datum is remembered");
            if task.status != Status::Done {
                continue;
            }
            task.status = Status::Unmapped;
            let (task, group) = (task.task.clone(), task.group);
            again.push(id);
            self.groups.get_mut(&group).expect("a task's group is known").left += 1;
            let inputs: BTreeSet<DatumId> = task.inputs().collect();
            for input in inputs {
                if let Some(run) = self.data.get_mut(&input) {
                    run.pending += 1;
                    work.push(input);
                }
            }
        }
    }

    fn map_again(&mut self, now: Time, again: Vec<TaskId>, out: &mut Vec<Effect>) {
        let groups: BTreeSet<GroupId> = again.iter().filter_map(|id| self.tasks.get(id)).map(|run| run.group).collect();
        for group in groups {
            // In order of the calls, and with those that wait for a plan already.
            let tasks: Vec<TaskId> = self
                .tasks
                .iter()
                .filter(|(_, run)| run.group == group && run.status == Status::Unmapped)
                .map(|(id, _)| *id)
                .collect();
            self.request_map(now, group, tasks, out);
        }
    }

    /// Whether a datum's task has run (or the datum came from the program).
    pub(super) fn is_made(&self, datum: DatumId) -> bool {
        let producer = self.data.get(&datum).and_then(|run| run.producer).and_then(|id| self.tasks.get(&id));
        producer.is_none_or(|task| task.status == Status::Done)
    }

    /// A datum was not where it should be: finds another copy, or computes it again.
    pub(super) fn missing(&mut self, now: Time, datum: DatumId, why: &str, out: &mut Vec<Effect>) {
        if self.fetch_here(datum, out) {
            return;
        }
        if !self.is_made(datum) {
            return;
        }
        if self.data.get(&datum).is_some_and(|run| run.producer.is_none()) {
            self.datum_lost(now, datum, why, out);
            return;
        }
        let mut again = Vec::new();
        self.revive(now, datum, &mut again, out);
        self.map_again(now, again, out);
    }

    fn datum_lost(&mut self, now: Time, datum: DatumId, why: &str, out: &mut Vec<Effect>) {
        let Some(run) = self.data.get_mut(&datum) else { return };
        let error = TaskError::DatumLost { datum, why: why.into() };
        run.error = Some(error.clone());
        let consumers = run.consumers.clone();
        if std::mem::take(&mut run.wanted) {
            out.push(Effect::Emit(Event::DatumLost { datum, error: error.clone() }));
        }
        for consumer in consumers {
            self.fail_task(now, consumer, error.clone(), out);
        }
        self.tidy(datum, out);
    }

    pub(super) fn on_supply_failed(
        &mut self,
        now: Time,
        server: NodeId,
        datum: DatumId,
        source: NodeId,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        if !self.data.contains_key(&datum) {
            return;
        }
        let name = self.server_name(server);
        let line = format!("server '{name}' cannot get {datum} from '{}': {why}", self.server_name(source));
        out.push(Effect::Emit(Event::Log(line)));
        // Who waits for it will not send it either.
        let run = self.data.get_mut(&datum).expect("checked above");
        if run.fetching == Some(server) {
            run.fetching = None;
        }
        if why.contains("dropped") || source == server {
            self.data.get_mut(&datum).expect("checked above").holders.remove(&source);
        } else {
            self.apart.insert((server, source));
        }
        self.resupply(now, datum, server, Some(source), out);
    }

    /// Names a new source of a datum to a server that waits for it: another holder, else the client itself as a relay,
    /// else whoever makes it (again).
    pub(super) fn resupply(
        &mut self,
        now: Time,
        datum: DatumId,
        server: NodeId,
        failed: Option<NodeId>,
        out: &mut Vec<Effect>,
    ) {
        let Some(run) = self.data.get(&datum) else { return };
        if self.lost.contains_key(&server) || run.error.is_some() {
            return;
        }
        let maker = self.maker(run);
        if maker == Some(server) {
            // It will be there when that task has ended; unless it is given up again before: then it is asked for here.
            self.unsupplied.insert((datum, server));
            return;
        }
        let usable = |node: &NodeId| {
            let together = !self.apart.contains(&(server, *node));
            *node != server && Some(*node) != failed && !self.lost.contains_key(node) && together
        };
        let holder = run.holders.iter().copied().find(usable).or(maker.filter(usable));
        let reachable = |node: &NodeId| self.members.is_up(*node) && !self.lost.contains_key(node);
        let relay = run.here || run.holders.iter().any(reachable) || maker.as_ref().is_some_and(reachable);
        let from = match holder {
            Some(holder) if !run.here => holder,
            _ if relay => self.config.id,
            _ => {
                self.unsupplied.insert((datum, server));
                self.missing(now, datum, "no copy is left", out);
                return;
            }
        };
        let supplies = vec![self.supply(datum, from)];
        self.post(server, Parcel::Message(Message::Resupply { supplies }), out);
    }

    /// A datum has come to a place, or its task was sent to one: servers that nobody could give it are told.
    pub(super) fn supply_waiting(&mut self, now: Time, datum: DatumId, out: &mut Vec<Effect>) {
        let waiting: Vec<NodeId> = self
            .unsupplied
            .range((datum, NodeId(u64::MIN))..=(datum, NodeId(u64::MAX)))
            .map(|(_, server)| *server)
            .collect();
        for server in waiting {
            self.unsupplied.remove(&(datum, server));
            self.resupply(now, datum, server, None, out);
        }
    }

    pub(super) fn on_broken(&mut self, now: Time, from: NodeId, datum: DatumId, why: &str, out: &mut Vec<Effect>) {
        let Some(run) = self.data.get_mut(&datum) else { return };
        if run.fetching != Some(from) {
            return;
        }
        run.fetching = None;
        run.broken += 1;
        if run.broken > BROKEN_MAX {
            self.datum_lost(now, datum, &format!("it broke off {BROKEN_MAX} times on its way: {why}"), out);
        } else {
            self.missing(now, datum, why, out);
        }
    }
}
