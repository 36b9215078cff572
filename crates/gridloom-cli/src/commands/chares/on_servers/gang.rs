//! One run of a gang: requests slots from the servers, starts the elements, and waits until they have ended.

use std::collections::{BTreeSet, VecDeque};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use gridloom::chares::{CheckpointOptions, ELEMENT_FUNCTION, ElementPlacement, Records, Restart};
use gridloom::process::ProcessSpec;
use gridloom::{Arg, Error, Function, GangCallback, Grid, PendingCall, Value};
use gridloom_base::{NodeId, TaskId, list};
use gridloom_net::process::ProcessConfig;
use gridloom_net::worker::{FAILED, GANG_GRACE, GangRequest, GangStart, ProcessEnd, READY, Reading, Ready, ReplyTimes};
use gridloom_testbed::run_output::OutputFormat;

use crate::commands::chares::{Run, TimelineFile};

/// A gang that waits longer than this for slots prints that it waits.
const WAIT_REPORTED_AFTER: Duration = Duration::from_secs(1);
/// Interval between two checks for output of the elements.
const OUTPUT_PAUSE: Duration = Duration::from_millis(50);
/// Extra time after the grace period in which a server kills its elements, for its report to arrive.
const REPORT_GRACE: Duration = Duration::from_secs(1);

/// The part of a gang that one server runs.
pub(super) struct Share {
    pub(super) server: NodeId,
    pub(super) name: String,
    pub(super) host: String,
    /// Number of its first element; `count` is the number of its elements.
    pub(super) first: usize,
    pub(super) count: usize,
}

impl Share {
    fn labels(&self) -> Vec<String> {
        (self.first..self.first + self.count).map(|element| format!("{ELEMENT_FUNCTION}@{element}")).collect()
    }
}

/// The common data of all runs of a program.
pub(super) struct GangRun<'a> {
    pub(super) grid: &'a Grid,
    pub(super) options: &'a Run,
    pub(super) function: Function,
    /// Arguments of the program.
    pub(super) arguments: Vec<&'a [u8]>,
    /// Names of the checkpoints.
    pub(super) wanted: GangRequest,
    pub(super) timeline: Option<TimelineFile>,
    pub(super) output_format: OutputFormat,
    pub(super) until: Option<Instant>,
}

impl GangRun<'_> {
    /// Returns the single argument of a call; `start` is the number of starts before this one.
    fn argument(&self, start: u32) -> Result<Arg> {
        let wanted = serde_json::to_vec(&GangRequest { start, ..self.wanted.clone() })?;
        let items: Vec<Option<&[u8]>> =
            std::iter::once(&wanted[..]).chain(self.arguments.iter().copied()).map(Some).collect();
        Ok(Value::list(items.into_iter()).into())
    }
}

/// Something that the gang waits for.
enum Event {
    /// A call of the gang has called back, at that time.
    CalledBack(GangCallback, Reading),
    Ended(TaskId),
    /// Nothing happened before the deadline.
    TimedOut,
}

pub(super) struct Gang<'a> {
    request: &'a GangRun<'a>,
    /// Shares, in the order in which the servers are asked.
    shares: Vec<Share>,
    /// Number of runs before this one.
    run: u32,
    to: Sender<GangCallback>,
    callbacks: Receiver<GangCallback>,
    ended: VecDeque<TaskId>,
    /// Calls, in the order of the shares.
    calls: Vec<Option<PendingCall>>,
    /// Elements whose failure has been reported.
    failed: BTreeSet<String>,
    status: u8,
    /// When the remaining elements are ended.
    ends_at: Option<Instant>,
}

impl<'a> Gang<'a> {
    pub(super) fn new(request: &'a GangRun<'a>, shares: Vec<Share>, run: u32) -> Gang<'a> {
        let (to, callbacks) = channel();
        let (ended, calls, failed) = (VecDeque::new(), Vec::new(), BTreeSet::new());
        Gang { request, shares, run, to, callbacks, ended, calls, failed, status: 0, ends_at: request.until }
    }

    /// Runs the gang to its end. Returns the status of the element that failed first, else 0.
    ///
    /// # Errors
    /// If a server does not grant its slots, or if its answer is invalid.
    pub(super) fn run(mut self) -> Result<u8> {
        let Some(ready) = self.gather()? else { return Ok(1) };
        let started = self.start(&ready)?;
        self.request.output_format.message(&started);
        self.wait()
    }

    /// Waits for the next event, at most until `until`. Output of the elements is printed at the end of each wait.
    fn next(&mut self, until: Option<Instant>) -> Result<Event> {
        let (ended, asks, calls) = (&mut self.ended, &self.callbacks, &self.calls);
        loop {
            let left = until.map_or(OUTPUT_PAUSE, |at| at.saturating_duration_since(Instant::now()));
            let waited = self.request.grid.await_ends(Some(left.min(OUTPUT_PAUSE)), |ends| {
                record_ends(ended, ends, |task| calls.iter().flatten().any(|call| call.task() == task));
                let asks = asks.try_recv().ok().map(|asking| Event::CalledBack(asking, Reading::now()));
                asks.or_else(|| ended.pop_front().map(Event::Ended))
            });
            match waited {
                Err(Error::TimedOut { .. }) if left > OUTPUT_PAUSE || until.is_none() => {}
                Err(Error::TimedOut { .. }) => return Ok(Event::TimedOut),
                other => return Ok(other?),
            }
        }
    }

    /// Waits until all servers have granted their slots. Returns `None` if the time of the run ends first.
    fn gather(&mut self) -> Result<Option<Vec<(GangCallback, Reading)>>> {
        let mut ready = Vec::new();
        let until = self.request.until;
        for at in 0..self.shares.len() {
            let share = &self.shares[at];
            let slots = share.count as u32;
            let argument = self.request.argument(self.run)?;
            let call = self.request.function.submit_gang(share.server, slots, [argument], self.to.clone())?;
            call.note_end();
            self.calls.push(Some(call));
            let name = share.name.clone();
            let mut tell_at = Some(Instant::now() + WAIT_REPORTED_AFTER);
            loop {
                match self.next(tell_at.into_iter().chain(until).min())? {
                    Event::CalledBack(asking, came) => {
                        ready.push((asking, came));
                        break;
                    }
                    Event::Ended(task) => return Err(self.refused(task)),
                    Event::TimedOut if until.is_some_and(|at| at <= Instant::now()) => {
                        self.request
                            .output_format
                            .message(&format!("ended at the end of --until: '{name}' had not granted slots"));
                        self.cancel();
                        return Ok(None);
                    }
                    Event::TimedOut if tell_at.take().is_some() => {
                        self.request
                            .output_format
                            .message(&format!("waits for {slots} slots of '{name}', which are in use"));
                    }
                    Event::TimedOut => {}
                }
            }
        }
        Ok(Some(ready))
    }

    /// Returns why a server does not grant its slots. Cancels the other calls, which need not hold theirs.
    fn refused(&mut self, task: TaskId) -> anyhow::Error {
        let Some((at, call)) = self.at(task).and_then(|at| Some((at, self.calls[at].take()?))) else {
            return anyhow!("an unknown call of the gang has ended");
        };
        self.cancel();
        match call.wait() {
            Ok(_) => anyhow!("'{}' has ended the elements before they began", self.shares[at].name),
            Err(error) => error.into(),
        }
    }

    /// Returns the share that this call runs.
    fn at(&self, task: TaskId) -> Option<usize> {
        self.calls.iter().position(|call| call.as_ref().is_some_and(|call| call.task() == task))
    }

    fn cancel(&self) {
        self.calls.iter().flatten().for_each(PendingCall::cancel);
    }

    /// Sends the places of the elements to all servers. Returns a description of them.
    fn start(&mut self, asked: &[(GangCallback, Reading)]) -> Result<String> {
        let (options, timeline) = (self.request.options, &self.request.timeline);
        let wrong = |share: &Share| format!("server '{}' sent an invalid answer about its slots", share.name);
        let mut ready: Vec<Ready> = Vec::new();
        for (share, (asking, _)) in self.shares.iter().zip(asked) {
            ensure!(asking.callback == READY, wrong(share));
            let one: Ready = serde_json::from_slice(&asking.text).with_context(|| wrong(share))?;
            ensure!(one.ports.len() == share.count, "{}: {} ports for {}", wrong(share), one.ports.len(), share.count);
            ready.push(one);
        }
        let names: BTreeSet<&str> = ready.iter().map(|one| one.site.as_str()).collect();
        let site = |one: &Ready| names.iter().position(|name| *name == one.site).expect("it is one of them") as u32;
        let filters = options.apart.filters_between(names.len())?;
        let order = number_elements(&mut self.shares, |at| site(&ready[at]));
        let elements = order.iter().flat_map(|at| {
            let (share, one) = (&self.shares[*at], &ready[*at]);
            one.ports.iter().map(|port| ((share.host.clone(), site(one)), *port))
        });
        let (elements, ports) = elements.unzip();
        let (restart, from) = self.from(&ready)?;
        let next = ready.iter().map(|one| one.next).max().unwrap_or_default();
        let GangRequest { checkpoint, run, .. } = &self.request.wanted;
        let keep = |name: String| CheckpointOptions { folder: name.into(), every: options.every, run: *run, next };
        let places = ElementPlacement {
            elements,
            ports,
            filters,
            balance: options.balance.clone(),
            checkpoint: checkpoint.clone().map(keep),
            restart,
            records: timeline.as_ref().map(|_| Records { run: self.run, ..Records::default() }),
            ..ElementPlacement::default()
        };
        for (share, (asking, came)) in self.shares.iter().zip(asked) {
            let arguments = vec![places.to_argument()];
            let spec = ProcessSpec { function: ELEMENT_FUNCTION.into(), host: share.host.clone(), arguments };
            let own = (share.first..share.first + share.count).map(|element| element.to_string()).collect();
            let config = ProcessConfig { spec, ..ProcessConfig::default() };
            let records = timeline.as_ref().map(|_| ReplyTimes { received: came.clone(), sent: Reading::now() });
            let start = GangStart { config, own, records };
            self.request.grid.answer(asking, serde_json::to_vec(&start)?);
        }
        let in_words = |at: &usize| format!("{} on '{}'", self.shares[*at].count, self.shares[*at].name);
        let each: Vec<String> = order.iter().map(in_words).collect();
        Ok(format!("starts {} elements: {}{from}", places.elements.len(), each.join(", ")))
    }

    /// Returns the checkpoint from which the elements restart, and a description of it.
    fn from(&self, ready: &[Ready]) -> Result<(Option<Restart>, String)> {
        // The first server has left a mark in its folder, and the others have looked for it.
        if let Some((other, _)) = self.shares.iter().zip(ready).skip(1).find(|(_, one)| one.shares == Some(false)) {
            bail!(
                "servers '{}' and '{}' keep checkpoints in different folders: start all that offer the program with --checkpoints \
                 and the one folder that they share",
                self.shares[0].name,
                other.name
            );
        }
        // A server's view of a shared folder may be stale: the latest checkpoint that any of them sees exists.
        let last = |which: usize| ready.iter().filter_map(|one| one.last[which]).max();
        let GangRequest { checkpoint, restart, .. } = &self.request.wanted;
        let own = checkpoint.as_ref().zip(last(0));
        let (name, number) = match (own, restart) {
            (Some(own), _) => own,
            (None, Some(name)) => {
                let number = last(1);
                (
                    name,
                    number.with_context(|| {
                        format!("--restart {name}: the servers have no complete checkpoint of that name")
                    })?,
                )
            }
            (None, None) => return Ok((None, String::new())),
        };
        let from = format!(", from the last checkpoint of '{name}'");
        Ok((Some(Restart { folder: name.into(), number: Some(number) }), from))
    }

    /// Waits until all elements have ended. Returns the status of the one that failed first.
    fn wait(mut self) -> Result<u8> {
        let mut is_cancelled = false;
        while self.calls.iter().any(Option::is_some) {
            let task = match self.next(if is_cancelled { None } else { self.ends_at })? {
                Event::Ended(task) => task,
                Event::CalledBack(asking, _) if asking.callback == FAILED => {
                    self.request.grid.answer(&asking, Vec::new());
                    if let Some(at) = self.at(asking.task) {
                        let end: ProcessEnd = serde_json::from_slice(&asking.text).with_context(|| self.wrong(at))?;
                        self.report_end(at, end)?;
                    }
                    continue;
                }
                Event::CalledBack(..) => continue,
                Event::TimedOut => {
                    let why = if self.status == 0 { "at the end of --until" } else { "after the failure" };
                    let left = self.shares.iter().zip(&self.calls).filter(|(_, call)| call.is_some());
                    let left: Vec<String> = left.flat_map(|(share, _)| share.labels()).collect();
                    self.request.output_format.message(&format!("ended {why}: {}", left.join(", ")));
                    self.record_failure(1);
                    is_cancelled = true;
                    self.cancel();
                    continue;
                }
            };
            let Some((at, call)) = self.at(task).and_then(|at| Some((at, self.calls[at].take()?))) else { continue };
            match call.wait() {
                Ok(values) => self.ended(at, &values)?,
                Err(_) if is_cancelled => {}
                Err(error) => {
                    let share = &self.shares[at];
                    let lost = share.labels().join(", ");
                    self.request.output_format.message(&format!("{lost} on '{}' failed: {error}", share.name));
                    self.record_failure(1);
                }
            }
        }
        Ok(self.status)
    }

    /// Handles the end of a share's elements.
    fn ended(&mut self, at: usize, values: &[Value]) -> Result<()> {
        let bytes = |which: usize| values.get(which).and_then(Value::payload).with_context(|| self.wrong(at));
        let ends: Vec<ProcessEnd> = serde_json::from_slice(bytes(0)?.bytes()).with_context(|| self.wrong(at))?;
        if let Some(timeline) = &self.request.timeline {
            let records = bytes(1)?;
            let records = list::unpack(records.bytes()).with_context(|| self.wrong(at))?;
            let elements = self.shares[at].first..self.shares[at].first + self.shares[at].count;
            for (element, record) in elements.zip(records) {
                timeline.keep(self.run, element, record.unwrap_or_default())?;
            }
        }
        ends.into_iter().try_for_each(|end| self.report_end(at, end))
    }

    /// Reports the end of one element of a share.
    fn report_end(&mut self, at: usize, end: ProcessEnd) -> Result<()> {
        let (labels, telling) = (self.shares[at].labels(), self.request.output_format);
        let label = labels.get(end.process).with_context(|| self.wrong(at))?;
        let how = ExitStatus::from_raw(end.wait_status);
        if end.has_failed() && !self.failed.insert(label.clone()) {
            return Ok(());
        }
        telling.ended(label, how, end.was_killed);
        if end.has_failed() {
            if how.success() {
                telling.never_read_config(label);
            }
            let code = how.code().filter(|code| *code != 0).or_else(|| how.signal().map(|signal| 128 + signal));
            self.record_failure(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
        }
        Ok(())
    }

    /// Records a failure. The first one determines the status, and when the other elements are ended.
    fn record_failure(&mut self, status: u8) {
        if self.status == 0 {
            self.status = status;
            let grace = Instant::now() + GANG_GRACE + REPORT_GRACE;
            self.ends_at = Some(self.ends_at.map_or(grace, |at| at.min(grace)));
        }
    }

    fn wrong(&self, at: usize) -> String {
        format!("server '{}' sent an invalid report of the ends of its elements", self.shares[at].name)
    }
}

/// Records the ends of this gang's calls. A cancelled call of an earlier gang may still end late.
fn record_ends(ended: &mut VecDeque<TaskId>, ends: &[TaskId], is_own: impl Fn(TaskId) -> bool) {
    ended.extend(ends.iter().copied().filter(|task| is_own(*task)));
}

/// Numbers the elements of these shares by site, then by server, and returns that order. Servers are asked in the
/// order of their node numbers, which are random: neighbouring numbers can be in different sites.
fn number_elements(shares: &mut [Share], site: impl Fn(usize) -> u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_key(|at| (site(*at), shares[*at].name.clone(), shares[*at].server));
    let mut first = 0;
    for at in &order {
        shares[*at].first = first;
        first += shares[*at].count;
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_late_end_of_an_earlier_gang_is_none_of_the_next() {
        let task = |serial| TaskId { client: NodeId(1), serial };
        let mut ended = VecDeque::new();
        record_ends(&mut ended, &[task(1), task(2)], |own| own == task(2));
        assert_eq!(ended, [task(2)]);
    }

    #[test]
    fn elements_of_a_site_follow_one_another() {
        let share = |number: u64, name: &str, count| Share {
            server: NodeId(number),
            name: name.into(),
            host: String::new(),
            first: 0,
            count,
        };
        let mut shares = [share(1, "c", 2), share(2, "b", 1), share(3, "a", 3)];
        assert_eq!(number_elements(&mut shares, |at| [0, 1, 0][at]), [2, 0, 1]);
        assert_eq!(shares.map(|share| share.first), [3, 5, 0]);
    }
}
