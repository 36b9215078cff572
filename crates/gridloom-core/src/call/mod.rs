//! Plain calls under way: the choice of a server for each, what is still missing of it, and its time limit.
//!
//! A plain call is mapped when it is made, alone, by minimum completion time (GridRPC's way): the server where what was
//! already sent to it, the way there, the call and the way back take the least.

mod back;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::graph::Task;
use gridloom_base::{DatumId, Meta, NodeId, TaskError, TaskId, Time};
use gridloom_perf::{GridView, LinkEstimate, Size};

pub use back::{CallBack, CallBackAnswer, Halt};

/// How a call ended on its server: results' descriptions or the error, and the nanoseconds that the function ran.
pub type Ended = (Result<Vec<(DatumId, Meta)>, TaskError>, u64);

/// What a call of unknown duration is expected to hold up others, seconds.
const UNKNOWN_S: f64 = 0.1;

/// How the server of a call is chosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    /// No other will do.
    pub only: Option<NodeId>,
    /// The call is to be measured there.
    pub calibrates: bool,
    /// It runs at most once: it calls the program back.
    pub is_once: bool,
}

/// A call under way.
#[derive(Clone, Debug)]
pub struct Call {
    pub task: Arc<Task>,
    /// Its data arguments, all at the client.
    pub sources: Vec<(DatumId, Meta)>,
    /// Where it was sent.
    pub server: NodeId,
    /// How its server is chosen.
    pub way: Way,
    /// How often it was sent.
    pub attempts: u32,
    /// Its limit, nanoseconds.
    pub limit_ns: Option<u64>,
    /// When the limit runs out.
    pub deadline: Option<Time>,
    /// How the server says that it ended.
    pub ended: Option<Ended>,
    missing: BTreeSet<DatumId>,
    promised_s: f64,
    /// How often an argument did not arrive.
    astray: BTreeMap<DatumId, u32>,
    /// A result broke off on its way to the client.
    is_broken: bool,
}

impl Call {
    /// Whether the report and all results are here, or it failed.
    pub fn is_complete(&self) -> bool {
        match &self.ended {
            Some((Ok(_), _)) => self.missing.is_empty(),
            Some((Err(_), _)) => true,
            None => false,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    calls: u32,
    promised_s: f64,
}

/// The calls under way of one client.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    calls: BTreeMap<TaskId, Call>,
    of_datum: BTreeMap<DatumId, TaskId>,
    loads: BTreeMap<NodeId, Load>,
    deadlines: BTreeSet<(Time, TaskId)>,
    any_broken: bool,
}

impl Calls {
    /// The server where a call is predicted to be back first, `only` that one if no other will do; `None` if none
    /// offers the function. Ties go to the first name.
    pub fn choose(
        &self,
        grid: &GridView,
        links: &BTreeMap<NodeId, LinkEstimate>,
        task: &Task,
        sent_bytes: u64,
        only: Option<NodeId>,
    ) -> Option<(NodeId, f64)> {
        let back_bytes: u64 = task.outputs.iter().map(|output| output.meta.size_bytes()).sum();
        let size = Size::new(task.work_flops, sent_bytes.saturating_add(back_bytes));
        let mut best: Option<(f64, NodeId, f64)> = None;
        for server in grid.servers.iter().filter(|server| only.is_none_or(|only| server.node == only)) {
            let Some(model) = server.functions.get(task.name()) else { continue };
            let predicted = model.predict(size, server.speed_flops).map(|predicted| predicted.seconds);
            let run_s = predicted.unwrap_or_else(|| model.seconds(size, server.speed_flops)) * server.pace;
            let link = links.get(&server.node).copied().unwrap_or(LinkEstimate::UNMEASURED);
            let load = self.loads.get(&server.node).copied().unwrap_or_default();
            // Calls already there share its slots; what they were predicted to take is worked off evenly.
            let wait_s = match load.calls < server.slots {
                true => 0.0,
                false => load.promised_s / f64::from(server.slots),
            };
            // A call that waits behind one of unknown duration waits long, for all that is known.
            let promised_s = if predicted.is_some() { run_s } else { run_s.max(UNKNOWN_S) };
            // Equal servers are told apart by what was sent to them, so that a burst spreads.
            let tie_s = f64::from(load.calls) * 1e-9;
            let end_s = wait_s + link.seconds(sent_bytes) + run_s + link.seconds(back_bytes) + tie_s;
            if best.is_none_or(|(least, _, _)| end_s < least) {
                best = Some((end_s, server.node, promised_s));
            }
        }
        best.map(|(_, node, promised_s)| (node, promised_s))
    }

    /// A call was sent.
    #[allow(clippy::too_many_arguments)]
    pub fn sent(
        &mut self,
        task: Arc<Task>,
        sources: Vec<(DatumId, Meta)>,
        server: NodeId,
        promised_s: f64,
        way: Way,
        attempts: u32,
        limit_ns: Option<u64>,
        deadline: Option<Time>,
    ) {
        let load = self.loads.entry(server).or_default();
        load.calls += 1;
        load.promised_s += promised_s;
        let missing: BTreeSet<DatumId> = task.outputs.iter().map(|output| output.datum).collect();
        for datum in missing.iter().chain(sources.iter().map(|(datum, _)| datum)) {
            self.of_datum.insert(*datum, task.id);
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, task.id));
        }
        let id = task.id;
        let call = Call {
            task,
            sources,
            server,
            way,
            attempts,
            limit_ns,
            deadline,
            ended: None,
            missing,
            promised_s,
            astray: BTreeMap::new(),
            is_broken: false,
        };
        self.calls.insert(id, call);
    }

    /// The call, if under way.
    pub fn get(&self, task: TaskId) -> Option<&Call> {
        self.calls.get(&task)
    }

    /// The call that a datum belongs to, as argument or result.
    pub fn of_datum(&self, datum: DatumId) -> Option<&Call> {
        self.of_datum.get(&datum).and_then(|task| self.calls.get(task))
    }

    /// An argument did not arrive at that server: the call and how often that was so; `None` if the call is not there.
    pub fn astray(&mut self, datum: DatumId, server: NodeId) -> Option<(TaskId, u32)> {
        let task = *self.of_datum.get(&datum)?;
        let call = self.calls.get_mut(&task).filter(|call| call.server == server)?;
        let times = call.astray.entry(datum).or_default();
        *times += 1;
        Some((task, *times))
    }

    /// A result broke off on its way from that server.
    pub fn result_broken(&mut self, datum: DatumId, server: NodeId) {
        let call = self.of_datum.get(&datum).and_then(|task| self.calls.get_mut(task));
        if let Some(call) = call.filter(|call| call.server == server && call.missing.contains(&datum)) {
            call.is_broken = true;
            self.any_broken = true;
        }
    }

    /// Takes out all calls of which a result broke off.
    pub fn take_broken(&mut self) -> Vec<Call> {
        if !std::mem::take(&mut self.any_broken) {
            return Vec::new();
        }
        let tasks: Vec<TaskId> = self.calls.iter().filter(|(_, c)| c.is_broken).map(|(task, _)| *task).collect();
        tasks.into_iter().filter_map(|task| self.remove(task)).collect()
    }

    /// Its server says that it ended; the call, if that makes it complete.
    pub fn ended(&mut self, task: TaskId, from: NodeId, ended: Ended) -> Option<Call> {
        let call = self.calls.get_mut(&task).filter(|call| call.server == from)?;
        call.ended = Some(ended);
        call.is_complete().then(|| self.remove(task)).flatten()
    }

    /// A result is here; the call, if that makes it complete.
    pub fn arrived(&mut self, datum: DatumId) -> Option<Call> {
        let task = *self.of_datum.get(&datum)?;
        let call = self.calls.get_mut(&task)?;
        call.missing.remove(&datum);
        call.is_complete().then(|| self.remove(task)).flatten()
    }

    /// Takes a call out.
    pub fn remove(&mut self, task: TaskId) -> Option<Call> {
        let call = self.calls.remove(&task)?;
        if let Some(load) = self.loads.get_mut(&call.server) {
            load.calls -= 1;
            load.promised_s = if load.calls == 0 { 0.0 } else { load.promised_s - call.promised_s };
        }
        for output in &call.task.outputs {
            self.of_datum.remove(&output.datum);
        }
        for (datum, _) in &call.sources {
            self.of_datum.remove(datum);
        }
        if let Some(deadline) = call.deadline {
            self.deadlines.remove(&(deadline, task));
        }
        Some(call)
    }

    /// How many calls are under way at a server.
    pub fn of_server(&self, server: NodeId) -> usize {
        self.loads.get(&server).map_or(0, |load| load.calls as usize)
    }

    /// Takes out all calls sent to a server.
    pub fn take_of_server(&mut self, server: NodeId) -> Vec<Call> {
        let tasks: Vec<TaskId> = self.calls.iter().filter(|(_, c)| c.server == server).map(|(t, _)| *t).collect();
        let calls = tasks.into_iter().filter_map(|task| self.remove(task)).collect();
        self.loads.remove(&server);
        calls
    }

    /// Takes out the calls that are past their deadline.
    pub fn take_expired(&mut self, now: Time) -> Vec<Call> {
        let tasks: Vec<TaskId> =
            self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now).map(|(_, task)| *task).collect();
        tasks.into_iter().filter_map(|task| self.remove(task)).collect()
    }

    /// The next limit to run out.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Calls under way.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Data of the calls under way.
    pub fn data(&self) -> usize {
        self.of_datum.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::TaskKind;
    use gridloom_perf::{FunctionModel, ServerView};

    fn server(name: &str, node: u64, flops: f64) -> ServerView {
        ServerView {
            node: NodeId(node),
            name: name.into(),
            address: String::new(),
            slots: 1,
            plain: false,
            memory_bytes: 1 << 30,
            speed_flops: Some(flops),
            pace: 1.0,
            functions: BTreeMap::from([("m/f".to_string(), FunctionModel::default())]),
            busy_s: vec![0.0],
        }
    }

    fn task(serial: u64) -> Arc<Task> {
        Arc::new(Task {
            id: TaskId { client: NodeId(1), serial },
            kind: TaskKind::call("m/f", 0),
            args: vec![],
            outputs: vec![],
            work_flops: Some(1e9),
            only: None,
        })
    }

    #[test]
    fn calls_go_where_they_end_first() {
        let grid = GridView { servers: vec![server("a", 2, 1e9), server("b", 3, 4e9)], ..GridView::default() };
        let links = BTreeMap::new();
        let mut calls = Calls::default();
        let mut order = Vec::new();
        for serial in 0..5 {
            let task = task(serial);
            let (node, run_s) = calls.choose(&grid, &links, &task, 0, None).unwrap();
            order.push(node.0);
            calls.sent(task, vec![], node, run_s, Way::default(), 1, None, None);
        }
        assert_eq!(order, [3, 3, 3, 2, 3]);
    }

    #[test]
    fn limits_run_out_in_order() {
        let mut calls = Calls::default();
        calls.sent(task(1), vec![], NodeId(2), 0.0, Way::default(), 1, None, Some(Time(20)));
        calls.sent(task(2), vec![], NodeId(2), 0.0, Way::default(), 1, None, Some(Time(10)));
        assert_eq!(calls.next_deadline(), Some(Time(10)));
        assert_eq!(calls.take_expired(Time(15)).len(), 1);
        assert_eq!(calls.next_deadline(), Some(Time(20)));
    }
}
