//! Plain calls in progress: the choice of a server for each, its missing data, and its time limit.
//!
//! A plain call is mapped by itself when it is made, by minimum completion time (as in GridRPC): to the server where
//! the sum of the time for the work already sent there, the transfer there, the call and the transfer back is least.

mod callback;
mod deferral;
mod limits;
mod output;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::graph::{Failures, Task};
use gridloom_base::limits::EAGER_BYTES_MAX;
use gridloom_base::{DatumId, Meta, NodeId, TaskError, TaskId, Time};
use gridloom_perf::{GridView, LinkEstimate, ServerView, Size};
pub(crate) use limits::Deadlines;

pub use callback::{Callback, CallbackAnswer};
pub use deferral::Deferral;
pub use limits::{CallTimeouts, LimitKind};
pub use output::{OutputItem, TaskOutput};

/// How a call ended on its server: the descriptions of its results or the error, and the function's run time in
/// nanoseconds.
pub type Ended = (Result<Vec<(DatumId, Meta)>, TaskError>, u64);

/// Time for which a call of unknown duration is expected to delay others, in seconds.
const UNKNOWN_S: f64 = 0.1;

/// A program's call, independent of the server that runs it.
#[derive(Clone, Debug)]
pub struct Request {
    pub task: Arc<Task>,
    /// Its data arguments. The client has all of them.
    pub sources: Vec<(DatumId, Meta)>,
    pub limits: CallTimeouts,
    /// When the limit for the whole call expires.
    pub deadline: Option<Time>,
    /// How often it was resent because its server or a result was lost.
    pub losses: u32,
    /// The servers where it has failed.
    pub failures: Failures,
}

impl Request {
    pub fn new(now: Time, task: Task, sources: Vec<(DatumId, Meta)>, limits: CallTimeouts) -> Request {
        let failures = Failures::default();
        let mut request = Request { task: Arc::new(task), sources, limits, deadline: None, losses: 0, failures };
        request.begin_limit(now);
        request
    }

    /// Creates the request of a call for the backlog.
    pub fn deferred(
        now: Time,
        task: Task,
        sources: Vec<(DatumId, Meta)>,
        limits: CallTimeouts,
        deferral: Deferral,
    ) -> Request {
        let mut request = Request { failures: deferral.failures, ..Request::new(now, task, sources, limits) };
        if !deferral.limit_begins {
            request.deadline = None;
        }
        request
    }

    /// Has the limit for the whole call begin now, unless it has begun.
    pub fn begin_limit(&mut self, now: Time) {
        self.deadline = self.deadline.or_else(|| self.limits.whole_ns.map(|limit| now + limit));
    }

    /// Returns its size as the models use it, the bytes of its arguments, and the bytes of its results.
    pub fn size(&self) -> (Size, u64, u64) {
        let sent: u64 = self.sources.iter().map(|(_, meta)| meta.size_bytes()).fold(0, u64::saturating_add);
        let back: u64 = self.task.outputs.iter().map(|output| output.meta.size_bytes()).fold(0, u64::saturating_add);
        (Size::new(self.task.work_flops, sent.saturating_add(back)), sent, back)
    }
}

/// A call in progress.
#[derive(Clone, Debug)]
pub struct Call {
    pub request: Request,
    /// The server it was sent to.
    pub server: NodeId,
    /// The end that its server reported.
    pub ended: Option<Ended>,
    missing: BTreeSet<DatumId>,
    /// Large arguments that have not arrived at its server, as far as the client knows.
    pending_arguments: BTreeSet<DatumId>,
    /// The limited transfer in progress and the time at which its limit expires.
    transfer_deadline: Option<(Time, LimitKind)>,
    reserved_s: f64,
    /// How often each argument failed to arrive.
    failed_arguments: BTreeMap<DatumId, u32>,
    /// The error of a result whose transfer to the client was interrupted. The program gets it if the call cannot be
    /// resent.
    pub result_error: Option<TaskError>,
}

impl Call {
    /// True if the report and all results have arrived, or the call failed.
    pub fn is_complete(&self) -> bool {
        match &self.ended {
            Some((Ok(_), _)) => self.missing.is_empty(),
            Some((Err(_), _)) => true,
            None => false,
        }
    }

    fn late_at(&self) -> Option<Time> {
        self.transfer_deadline.map(|(at, _)| at)
    }

    /// Returns the limit that has expired.
    fn expired(&self, now: Time) -> LimitKind {
        match (self.request.deadline, self.transfer_deadline) {
            (Some(deadline), _) if deadline <= now => LimitKind::Whole,
            (_, Some((_, limit))) => limit,
            (_, None) => LimitKind::Whole,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    calls: u32,
    /// Calls that have ended there and whose results are still being sent.
    ended: u32,
    promised_s: f64,
}

/// The calls in progress of one client.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Boxed, because the map moves neighbouring entries on insertion and removal.
    calls: BTreeMap<TaskId, Box<Call>>,
    of_datum: BTreeMap<DatumId, TaskId>,
    loads: BTreeMap<NodeId, Load>,
    /// Deadlines of whole calls.
    deadlines: Deadlines,
    /// Deadlines of transfers in progress.
    transfers: Deadlines,
    /// Functions that a server could not run, until the next directory.
    unable: BTreeMap<NodeId, BTreeSet<String>>,
    any_broken: bool,
}

impl Calls {
    /// Returns the server with the earliest predicted end of the call, and the seconds for which the call keeps it
    /// busy. `None` if no server that may run it offers the function. Servers where it failed are considered last.
    /// Ties go to the first name.
    pub fn choose(
        &self,
        grid: &GridView,
        links: &BTreeMap<NodeId, LinkEstimate>,
        request: &Request,
    ) -> Option<(NodeId, f64)> {
        match request.task.options.bound_to {
            Some(only) => self.choose_among(grid, links, request, |server| server == only),
            None if request.failures.is_empty() && self.unable.is_empty() => {
                self.choose_among(grid, links, request, |_| true)
            }
            None => self
                .choose_among(grid, links, request, |server| {
                    !request.failures.at(server) && !self.is_unable(server, request.task.name())
                })
                .or_else(|| self.choose_among(grid, links, request, |server| !request.failures.at(server)))
                .or_else(|| self.choose_among(grid, links, request, |server| !request.failures.is_unable(server)))
                .or_else(|| self.choose_among(grid, links, request, |_| true)),
        }
    }

    /// Records that a server could not run a function: its calls go to other servers if there are any.
    pub fn record_cannot_run(&mut self, server: NodeId, function: &str) {
        self.unable.entry(server).or_default().insert(function.to_string());
    }

    fn is_unable(&self, server: NodeId, function: &str) -> bool {
        self.unable.get(&server).is_some_and(|functions| functions.contains(function))
    }

    /// Forgets failed servers, because a new directory lists where functions cannot run.
    pub fn clear_cannot_run(&mut self) {
        self.unable.clear();
    }

    /// Like [`Calls::choose`], among the servers that `may_run` accepts.
    pub fn choose_among(
        &self,
        grid: &GridView,
        links: &BTreeMap<NodeId, LinkEstimate>,
        request: &Request,
        may_run: impl Fn(NodeId) -> bool,
    ) -> Option<(NodeId, f64)> {
        let (size, sent_bytes, back_bytes) = request.size();
        let mut best: Option<(f64, NodeId, f64)> = None;
        // A stateless server keeps no objects.
        let keeps = |server: &&ServerView| !server.stateless || request.task.object().is_none();
        for server in grid.servers.iter().filter(|server| may_run(server.node)).filter(keeps) {
            let Some(model) = server.functions.get(request.task.name()) else { continue };
            // Nothing is known about a function that the program sends with the call.
            let model = (!request.task.is_unpredictable()).then_some(model);
            let predicted = model.and_then(|model| model.predict(size, server.speed_flops)).map(|found| found.seconds);
            let guessed = || model.map_or(0.0, |model| model.seconds(size, server.speed_flops));
            let run_s = predicted.unwrap_or_else(guessed) * server.pace;
            let link = links.get(&server.node).copied().unwrap_or(LinkEstimate::UNMEASURED);
            let load = self.loads.get(&server.node).copied().unwrap_or_default();
            // Earlier calls share the server's slots. Their predicted time is assumed to be spread evenly over them.
            let wait_s = match load.calls < server.slots {
                true => 0.0,
                false => load.promised_s / f64::from(server.slots),
            };
            // A call behind one of unknown duration is expected to wait long.
            let promised_s = if predicted.is_some() { run_s } else { run_s.max(UNKNOWN_S) };
            // Ties between equal servers are broken by the number of calls sent to them, so that a burst is spread.
            let tie_s = f64::from(load.calls) * 1e-9;
            let end_s = wait_s + link.seconds(sent_bytes) + run_s + link.seconds(back_bytes) + tie_s;
            if best.is_none_or(|(least, _, _)| end_s < least) {
                best = Some((end_s, server.node, promised_s));
            }
        }
        best.map(|(_, node, promised_s)| (node, promised_s))
    }

    /// Records a call that was sent to a server and keeps it busy for `promised_s` seconds. Returns true if all
    /// arguments are there or travel with the call.
    pub fn record_sent(&mut self, request: Request, server: NodeId, promised_s: f64) -> bool {
        let Request { task, sources, deadline, .. } = &request;
        let load = self.loads.entry(server).or_default();
        load.calls += 1;
        load.promised_s += promised_s;
        let missing: BTreeSet<DatumId> = task.outputs.iter().map(|output| output.datum).collect();
        for datum in missing.iter().chain(sources.iter().map(|(datum, _)| datum)) {
            self.of_datum.insert(*datum, task.id);
        }
        self.deadlines.add(*deadline, task.id);
        let id = task.id;
        let is_large = |(_, meta): &&(DatumId, Meta)| meta.size_bytes() > EAGER_BYTES_MAX;
        let coming: BTreeSet<DatumId> = sources.iter().filter(is_large).map(|(datum, _)| *datum).collect();
        let is_there = coming.is_empty();
        let astray = BTreeMap::new();
        let call = Call {
            request,
            server,
            ended: None,
            missing,
            pending_arguments: coming,
            transfer_deadline: None,
            reserved_s: promised_s,
            failed_arguments: astray,
            result_error: None,
        };
        self.calls.insert(id, Box::new(call));
        is_there
    }

    /// Records that an argument has arrived at that server. Returns the task of its call if that was the last one.
    pub fn argument_arrived(&mut self, datum: DatumId, server: NodeId) -> Option<Arc<Task>> {
        let task = *self.of_datum.get(&datum)?;
        let call = self.calls.get_mut(&task).filter(|call| call.server == server)?;
        let are_there = call.pending_arguments.remove(&datum) && call.pending_arguments.is_empty();
        if are_there && matches!(call.transfer_deadline, Some((_, LimitKind::Arguments))) {
            self.transfers.remove(call.late_at(), task);
            call.transfer_deadline = None;
        }
        are_there.then(|| call.request.task.clone())
    }

    /// Records that a transfer of the call begins. Returns true if it has a time limit.
    pub fn transfer_begins(&mut self, now: Time, task: TaskId, transfer: LimitKind) -> bool {
        let Some(call) = self.calls.get_mut(&task) else { return false };
        self.transfers.remove(call.late_at(), task);
        call.transfer_deadline = call.request.limits.deadline_of(now, transfer).map(|at| (at, transfer));
        self.transfers.add(call.late_at(), task);
        call.transfer_deadline.is_some()
    }

    /// Returns the call if it is in progress.
    pub fn get(&self, task: TaskId) -> Option<&Call> {
        self.calls.get(&task).map(|call| &**call)
    }

    /// Returns the call that has this datum as an argument or result.
    pub fn of_datum(&self, datum: DatumId) -> Option<&Call> {
        self.of_datum.get(&datum).and_then(|task| self.get(*task))
    }

    /// Records that an argument failed to arrive at that server. Returns the call and the number of failures, or
    /// `None` if the call is not there.
    pub fn argument_failed(&mut self, datum: DatumId, server: NodeId) -> Option<(TaskId, u32)> {
        let task = *self.of_datum.get(&datum)?;
        let call = self.calls.get_mut(&task).filter(|call| call.server == server)?;
        let times = call.failed_arguments.entry(datum).or_default();
        *times += 1;
        Some((task, *times))
    }

    /// Records that the transfer of a result from that server was interrupted.
    pub fn result_broken(&mut self, datum: DatumId, server: NodeId, error: TaskError) {
        let call = self.of_datum.get(&datum).and_then(|task| self.calls.get_mut(task));
        if let Some(call) = call.filter(|call| call.server == server && call.missing.contains(&datum)) {
            call.result_error = Some(error);
            self.any_broken = true;
        }
    }

    /// Removes all calls with a result whose transfer was interrupted.
    pub fn take_interrupted(&mut self) -> Vec<Call> {
        if !std::mem::take(&mut self.any_broken) {
            return Vec::new();
        }
        let tasks: Vec<TaskId> =
            self.calls.iter().filter(|(_, c)| c.result_error.is_some()).map(|(task, _)| *task).collect();
        tasks.into_iter().filter_map(|task| self.remove(task)).collect()
    }

    /// Records the end that the server reported. Returns the call if that makes it complete.
    pub fn ended(&mut self, task: TaskId, from: NodeId, ended: Ended) -> Option<Call> {
        let call = self.calls.get_mut(&task).filter(|call| call.server == from)?;
        if call.ended.replace(ended).is_none()
            && let Some(load) = self.loads.get_mut(&from)
        {
            load.ended += 1;
        }
        call.is_complete().then(|| self.remove(task)).flatten()
    }

    /// Records that a result has arrived. Returns the call if that makes it complete.
    pub fn arrived(&mut self, datum: DatumId) -> Option<Call> {
        let task = *self.of_datum.get(&datum)?;
        let call = self.calls.get_mut(&task)?;
        call.missing.remove(&datum);
        call.is_complete().then(|| self.remove(task)).flatten()
    }

    /// Removes a call.
    pub fn remove(&mut self, task: TaskId) -> Option<Call> {
        let call = *self.calls.remove(&task)?;
        if let Some(load) = self.loads.get_mut(&call.server) {
            load.calls -= 1;
            load.ended -= u32::from(call.ended.is_some());
            load.promised_s = if load.calls == 0 { 0.0 } else { load.promised_s - call.reserved_s };
        }
        for output in &call.request.task.outputs {
            self.of_datum.remove(&output.datum);
        }
        for (datum, _) in &call.request.sources {
            self.of_datum.remove(datum);
        }
        self.deadlines.remove(call.request.deadline, task);
        self.transfers.remove(call.late_at(), task);
        Some(call)
    }

    /// Returns the number of calls at a server that have not ended there.
    pub fn of_server(&self, server: NodeId) -> usize {
        self.loads.get(&server).map_or(0, |load| (load.calls - load.ended) as usize)
    }

    /// Removes all calls that were sent to a server.
    pub fn take_of_server(&mut self, server: NodeId) -> Vec<Call> {
        let tasks: Vec<TaskId> = self.calls.iter().filter(|(_, c)| c.server == server).map(|(t, _)| *t).collect();
        let calls = tasks.into_iter().filter_map(|task| self.remove(task)).collect();
        self.loads.remove(&server);
        calls
    }

    /// Removes the calls with an expired limit. Returns each with that limit.
    pub fn take_expired(&mut self, now: Time) -> Vec<(Call, LimitKind)> {
        let past = [self.deadlines.past(now), self.transfers.past(now)].concat();
        let taken = past.into_iter().filter_map(|task| self.remove(task));
        taken.map(|call| (call.expired(now), call)).map(|(limit, call)| (call, limit)).collect()
    }

    /// Returns the time at which the next limit expires.
    pub fn next_deadline(&self) -> Option<Time> {
        [self.deadlines.next(), self.transfers.next()].into_iter().flatten().min()
    }

    /// Returns the number of calls in progress.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the number of data of calls in progress.
    pub fn data(&self) -> usize {
        self.of_datum.len()
    }

    /// True if no call is in progress.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::TaskKind;
    use gridloom_perf::FunctionModel;

    fn server(name: &str, node: u64, flops: f64) -> ServerView {
        ServerView {
            node: NodeId(node),
            name: name.into(),
            address: String::new(),
            slots: 1,
            stateless: false,
            memory_bytes: 1 << 30,
            speed_flops: Some(flops),
            pace: 1.0,
            functions: BTreeMap::from([("m/f".to_string(), FunctionModel::default())]),
            busy_s: vec![0.0],
            release: String::new(),
            protocol: 0,
        }
    }

    fn request(serial: u64, limit_ns: Option<u64>) -> Request {
        let task = Task {
            id: TaskId { client: NodeId(1), serial },
            kind: TaskKind::call("m/f", 0),
            args: vec![],
            outputs: vec![],
            work_flops: Some(1e9),
            options: Default::default(),
        };
        Request::new(Time(0), task, vec![], limit_ns.into())
    }

    #[test]
    fn calls_go_where_they_end_first() {
        let grid = GridView { servers: vec![server("a", 2, 1e9), server("b", 3, 4e9)], ..GridView::default() };
        let links = BTreeMap::new();
        let mut calls = Calls::default();
        let mut order = Vec::new();
        for serial in 0..5 {
            let request = request(serial, None);
            let (node, run_s) = calls.choose(&grid, &links, &request).unwrap();
            order.push(node.0);
            calls.record_sent(request, node, run_s);
        }
        assert_eq!(order, [3, 3, 3, 2, 3]);
    }

    #[test]
    fn functions_of_programs_go_to_free_slots() {
        // A free slot is preferred, whatever the model of the function that runs all of them predicts.
        let mut slow = server("b", 3, 1e9);
        slow.pace = 100.0;
        let grid = GridView { servers: vec![server("a", 2, 1e9), slow], ..GridView::default() };
        let (links, mut calls, mut order) = (BTreeMap::new(), Calls::default(), Vec::new());
        for serial in 0..4 {
            let mut request = request(serial, None);
            Arc::make_mut(&mut request.task).options.label = Some("program:f".into());
            let (node, run_s) = calls.choose(&grid, &links, &request).unwrap();
            order.push(node.0);
            calls.record_sent(request, node, run_s);
        }
        assert_eq!(order, [2, 3, 2, 3]);
    }

    #[test]
    fn a_failed_call_moves_to_another_server_if_there_is_one() {
        let mut grid = GridView { servers: vec![server("a", 2, 1e9), server("b", 3, 4e9)], ..GridView::default() };
        let (links, calls, mut request) = (BTreeMap::new(), Calls::default(), request(1, None));
        request.failures.push(NodeId(3), &TaskError::Cancelled);
        let chosen = |grid: &GridView| calls.choose(grid, &links, &request).unwrap().0;
        assert_eq!(chosen(&grid), NodeId(2));
        grid.servers.remove(0);
        assert_eq!(chosen(&grid), NodeId(3));
    }

    #[test]
    fn limits_run_out_in_order() {
        let mut calls = Calls::default();
        calls.record_sent(request(1, Some(20)), NodeId(2), 0.0);
        calls.record_sent(request(2, Some(10)), NodeId(2), 0.0);
        assert_eq!(calls.next_deadline(), Some(Time(10)));
        let expired = calls.take_expired(Time(15));
        assert!(matches!(&expired[..], [(call, LimitKind::Whole)] if call.request.task.id.serial == 2));
        assert_eq!(calls.next_deadline(), Some(Time(20)));
    }

    /// Returns a call with a large argument, a large result and these limits.
    fn transferring(limits: CallTimeouts) -> (Calls, TaskId, DatumId) {
        let mut calls = Calls::default();
        let [x, y] = [8, 9].map(|serial| DatumId { client: NodeId(1), serial });
        let mut request = request(1, None);
        let id = request.task.id;
        let meta = Meta::Bytes { size_bytes: EAGER_BYTES_MAX + 1 };
        Arc::make_mut(&mut request.task).outputs.push(crate::graph::Output { datum: y, meta: meta.clone() });
        (request.limits, request.sources) = (limits, vec![(x, meta)]);
        assert!(!calls.record_sent(request, NodeId(2), 0.0), "its argument is not there");
        (calls, id, x)
    }

    #[test]
    fn arguments_that_are_late_end_a_call() {
        let (mut calls, id, x) = transferring(CallTimeouts { arguments_ns: Some(10), ..CallTimeouts::default() });
        assert!(calls.transfer_begins(Time(5), id, LimitKind::Arguments));
        let late = Time(15 + gridloom_base::limits::RATE_REPORT_NS);
        assert_eq!(calls.next_deadline(), Some(late));
        let mut other = calls.clone();
        assert!(matches!(&other.take_expired(late)[..], [(_, LimitKind::Arguments)]));
        assert!(calls.argument_arrived(x, NodeId(3)).is_none(), "it is at another server");
        assert!(calls.argument_arrived(x, NodeId(2)).is_some());
        assert_eq!((calls.next_deadline(), calls.take_expired(late).len()), (None, 0));
        assert!(!calls.transfer_begins(late, id, LimitKind::Results), "there is no limit");
    }

    #[test]
    fn results_that_are_late_end_a_call() {
        let (mut calls, id, x) = transferring(CallTimeouts { results_ns: Some(10), ..CallTimeouts::default() });
        assert!(!calls.transfer_begins(Time(5), id, LimitKind::Arguments), "there is no limit");
        assert!(calls.ended(id, NodeId(2), (Ok(vec![]), 1)).is_none(), "its result is not here");
        assert!(calls.transfer_begins(Time(20), id, LimitKind::Results));
        assert!(calls.argument_arrived(x, NodeId(2)).is_some(), "its server reports it late");
        assert_eq!(calls.take_expired(Time(29)).len(), 0);
        assert!(matches!(&calls.take_expired(Time(30))[..], [(_, LimitKind::Results)]));
        assert!(calls.is_empty() && calls.next_deadline().is_none());
    }
}
