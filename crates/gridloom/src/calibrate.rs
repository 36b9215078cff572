//! Calibration: makes calls only to time them, until the models of functions are as exact as the program requires.
//!
//! The servers of a host take turns, so that they do not disturb each other; different hosts work at the same time. A
//! call is bound to its server, which runs it only while idle and aborts it when other work arrives. The call is then
//! repeated later. The server's models learn from these calls as from any others.

mod inputs;

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::time::Duration;

use gridloom_base::near::near_names;
use gridloom_base::{NodeId, TaskError};
use gridloom_perf::{Calibration, CalibrationGoal, CalibrationResult, ServerView, Size, host_of};
use serde::Serialize;

use crate::call::{Arg, Function, PendingCall};
use crate::session::{CONNECT_LIMIT, Session, await_models};
use crate::{Error, Value};
pub use inputs::{Make, Sizes};

/// Maximum duration of a call, as a fraction of the time for a server.
const CALL_FRACTION_MAX: f64 = 0.1;
/// Delay before a preempted call is repeated.
const PAUSE: Duration = Duration::from_millis(500);

/// Options of a calibration.
#[derive(Clone, Debug)]
pub struct CalibrateConfig {
    /// Ranges of size arguments, by name, both ends included; a fixed value is a range of one. They increase together,
    /// from their first to their last values. Sizes without a range go up to what fits into memory.
    pub sizes: BTreeMap<String, (i64, i64)>,
    /// Values of other arguments, by name.
    pub set: BTreeMap<String, Value>,
    /// Allowed error of predictions within the range, relative to the time.
    pub error: f64,
    /// Time for each server; calls predicted to take more than a tenth of it are not made.
    pub budget: Duration,
    /// Names of servers; empty for all.
    pub servers: Vec<String>,
}

impl Default for CalibrateConfig {
    fn default() -> CalibrateConfig {
        CalibrateConfig {
            sizes: BTreeMap::new(),
            set: BTreeMap::new(),
            error: 0.05,
            budget: Duration::from_secs(60),
            servers: Vec::new(),
        }
    }
}

/// The result of a calibration on one server.
#[derive(Clone, Debug, Serialize)]
pub struct Calibrated {
    pub function: String,
    pub server: String,
    /// Unit of sizes: `flop` or `B`.
    pub unit: &'static str,
    /// Measurements, by increasing size.
    pub points: Vec<CalibratedPoint>,
    /// Estimated error of predictions between the points, relative to the time; `None` if there are too few measurements.
    pub error: Option<f64>,
    /// True if the error is at most the requested one, except at jumps.
    pub reached_goal: bool,
    /// Sizes between which the time jumps and which a model cannot distinguish.
    pub jumps: Vec<UnpredictableSection>,
    /// Largest spread of the calls of one size, relative to their time.
    pub spread: f64,
    /// Number of measured calls.
    pub calls: usize,
    /// Number of calls preempted by other work.
    pub preempted: usize,
    pub seconds: f64,
    /// Why it stopped before the end of the range, or before its goal; or the error of a call.
    pub why: Option<String>,
    /// True if it stopped with the error of a call.
    pub has_failed: bool,
}

/// The measurements at one size.
#[derive(Clone, Debug, Serialize)]
pub struct CalibratedPoint {
    /// The size arguments.
    pub sizes: Sizes,
    /// The call's size as the models use it.
    pub size: f64,
    /// Median time, seconds.
    pub seconds: f64,
    /// Median absolute deviation, seconds.
    #[serde(rename = "spread_seconds")]
    pub spread_s: f64,
    pub calls: u64,
}

/// A section of the curve that cannot be predicted more exactly.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct UnpredictableSection {
    /// Lower end, as a size.
    pub from: f64,
    /// Upper end, as a size.
    pub to: f64,
    /// Error of predictions within it, relative to the time.
    pub error: f64,
}

/// A measured call, reported when it ends.
#[derive(Clone, Debug)]
pub struct CalibrationCall<'a> {
    pub server: &'a str,
    /// Its size arguments.
    pub sizes: &'a Sizes,
    /// Duration, seconds; `None` if it was preempted by other work.
    pub seconds: Option<f64>,
}

/// Receives each measured call; returning a break ends the calibration with the results so far.
pub type CallObserver<'a> = dyn FnMut(&CalibrationCall) -> ControlFlow<()> + 'a;

/// Measures a function on its servers, each while it is otherwise idle, until the model of its time is as exact as
/// requested, or the time is over. `make` makes the arguments; without it they are random. `tell` receives each
/// measured call.
///
/// # Errors
/// If the function, a server or a size is unknown, or no arguments can be made. A call that fails ends the
/// calibration of its server, and its error is part of that server's result.
pub(crate) fn calibrate(
    session: &Session,
    function: &str,
    config: &CalibrateConfig,
    make: Option<&mut Make<'_>>,
    tell: &mut CallObserver<'_>,
) -> Result<Vec<Calibrated>, Error> {
    let function = Function::named(session, function)?;
    let servers = chosen(session, &function, &config.servers)?;
    let is_made = make.is_some();
    let mut range = Range::new(&function, config, make, &servers)?;
    let mut waiting: BTreeMap<String, VecDeque<&ServerView>> = BTreeMap::new();
    for server in &servers {
        waiting.entry(host_of(&server.address).to_string()).or_default().push_back(server);
    }
    let mut done = Vec::new();
    let mut under_way: Vec<Run> = Vec::new();
    let mut is_stopped = false;
    while !is_stopped {
        let is_running = |host: &str, runs: &[Run]| runs.iter().any(|run| run.host == host);
        for (host, queue) in &mut waiting {
            if !is_running(host, &under_way)
                && let Some(server) = queue.pop_front()
            {
                under_way.push(Run::new(host, server, config, session.now()));
            }
        }
        if under_way.is_empty() {
            break;
        }
        let mut still = Vec::new();
        for mut run in under_way {
            match run.step(session, &function, &mut range, tell) {
                Ok(()) => still.push(run),
                Err(end) => {
                    is_stopped |= matches!(end, CalibrationEnd::Stopped);
                    done.push(run.calibrated(&mut range, end, is_made, session.now()));
                }
            }
        }
        under_way = still;
        let calls: Vec<_> = under_way.iter().filter_map(|run| Some(run.call.as_ref()?.0.task())).collect();
        if !under_way.is_empty() && !is_stopped {
            PendingCall::await_any(session, &calls, PAUSE)?;
        }
    }
    for run in under_way {
        done.push(run.calibrated(&mut range, CalibrationEnd::Stopped, is_made, session.now()));
    }
    let nodes: Vec<NodeId> = servers.iter().map(|server| server.node).collect();
    await_models(session, &nodes, CONNECT_LIMIT)?;
    done.sort_by(|a, b| a.server.cmp(&b.server));
    Ok(done)
}
/// Arguments by name.
type Named = Vec<(String, Arg)>;

/// Returns the servers to calibrate.
fn chosen(session: &Session, function: &Function, names: &[String]) -> Result<Vec<ServerView>, Error> {
    let view = session.servers();
    for name in names {
        let Some(server) = view.servers.iter().find(|server| server.name == *name) else {
            let known: Vec<&str> = view.servers.iter().map(|server| server.name.as_str()).collect();
            return Err(Error::Usage(format!("no server '{name}'; there are: {}", known.join(", "))));
        };
        if !server.functions.contains_key(function.name()) {
            return Err(Error::Usage(format!("server '{name}' does not offer '{}'", function.name())));
        }
    }
    let is_meant = |server: &&ServerView| {
        server.functions.contains_key(function.name()) && (names.is_empty() || names.contains(&server.name))
    };
    Ok(view.servers.iter().filter(is_meant).cloned().collect())
}

/// The range of calls: maps positions from 0 to 1 to calls.
struct Range<'a, 'm> {
    function: &'a Function,
    sizes: BTreeMap<String, (i64, i64)>,
    set: &'a BTreeMap<String, Value>,
    make: Option<&'a mut Make<'m>>,
}

impl<'a, 'm> Range<'a, 'm> {
    fn new(
        function: &'a Function,
        config: &'a CalibrateConfig,
        make: Option<&'a mut Make<'m>>,
        servers: &[ServerView],
    ) -> Result<Range<'a, 'm>, Error> {
        let CalibrateConfig { sizes, set, error, budget, .. } = config;
        if !(error.is_finite() && *error > 0.0) {
            return Err(Error::Usage(format!("an error of {error}; expected more than 0, such as 0.05")));
        }
        if budget.is_zero() {
            return Err(Error::Usage("a budget of 0 s; expected more".into()));
        }
        let params = &function.signature().params;
        let mut sizes = sizes.clone();
        if make.is_none() {
            let is_size = |name: &str| params.iter().any(|param| inputs::is_size(param) && param.name == name);
            if let Some(unknown) = sizes.keys().find(|name| !is_size(name)) {
                let names = inputs::size_names(function.signature());
                let known =
                    if names.is_empty() { "it has none".into() } else { format!("its sizes are {}", names.join(", ")) };
                return Err(Error::Usage(format!("{} has no size argument '{unknown}'; {known}", function.name())));
            }
            let is_input = |name: &str| params.iter().any(|param| param.is_input() && param.name == name);
            if let Some(unknown) = set.keys().find(|name| !is_input(name)) {
                let near = near_names(unknown, params.iter().map(|param| param.name.as_str()));
                let near =
                    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) };
                return Err(Error::Usage(format!("{} has no argument '{unknown}'{near}", function.name())));
            }
            let fixed =
                sizes.iter().filter(|(_, (low, high))| low == high).map(|(name, (low, _))| (name.clone(), *low));
            let memory_bytes = servers.iter().map(|server| server.memory_bytes).min().unwrap_or(u64::MAX);
            let missing: Vec<String> =
                inputs::size_names(function.signature()).into_iter().filter(|name| !sizes.contains_key(name)).collect();
            if !missing.is_empty() {
                let usual = inputs::default_range(function, &fixed.collect(), set, memory_bytes);
                sizes.extend(missing.into_iter().map(|name| (name, usual)));
            }
        } else if sizes.is_empty() {
            return Err(Error::Usage("custom arguments need ranges for their sizes".into()));
        }
        for (name, (low, high)) in &sizes {
            if low > high || (*low < 1 && low != high) {
                return Err(Error::Usage(format!(
                    "sizes {name}={low}..{high}; expected FROM..TO with 1 <= FROM <= TO"
                )));
            }
        }
        let mut range = Range { function, sizes, set, make };
        // Invalid arguments are reported before anything is measured.
        range.arguments(0.0, false)?;
        Ok(range)
    }

    fn at(&self, position: f64) -> Sizes {
        let value = |(low, high): &(i64, i64)| match low == high {
            true => *low,
            false => ((*low as f64) * (*high as f64 / *low as f64).powf(position)).round() as i64,
        };
        self.sizes.iter().map(|(name, ends)| (name.clone(), value(ends))).collect()
    }

    fn arguments(&mut self, position: f64, has_content: bool) -> Result<(Named, Size), Error> {
        let sizes = self.at(position);
        let args = match &mut self.make {
            Some(make) => make(&sizes)?,
            None => inputs::arguments(self.function, &sizes, self.set, has_content)?,
        };
        let (size, _) = inputs::call_size(self.function, &args)?;
        Ok((args, size))
    }

    /// Returns the size of the call at a position; NaN if the call is not possible, which is reported when it is made.
    fn size_at(&mut self, position: f64) -> f64 {
        self.arguments(position, false).map_or(f64::NAN, |(_, size)| number(size))
    }
}

fn number(size: Size) -> f64 {
    match size {
        Size::Work(work) => work.max(1.0),
        Size::Bytes(bytes) => (bytes as f64).max(1.0),
    }
}

/// Why the calibration of a server has ended.
enum CalibrationEnd {
    /// The goal is reached, or cannot be approached further.
    Complete,
    TimeUp,
    /// The caller stopped it.
    Stopped,
    Failed(Error),
}

/// The calibration of one server.
struct Run {
    host: String,
    server: String,
    node: NodeId,
    calibration: Calibration,
    since: f64,
    budget: Duration,
    error: f64,
    /// Number of warm-up calls left, which do not count: one for each slot, which loads what later calls need.
    cold_left: u32,
    call: Option<(PendingCall, f64)>,
    /// The arguments of the last position.
    last: Option<(f64, Named, Size)>,
    not_before: f64,
    gave_way: usize,
    unit: &'static str,
}

impl Run {
    fn new(host: &str, server: &ServerView, config: &CalibrateConfig, now: f64) -> Run {
        let goal = CalibrationGoal { error: config.error, call_s_max: CALL_FRACTION_MAX * config.budget.as_secs_f64() };
        Run {
            host: host.to_string(),
            server: server.name.clone(),
            node: server.node,
            calibration: Calibration::new(goal),
            since: now,
            budget: config.budget,
            error: config.error,
            cold_left: server.slots,
            call: None,
            last: None,
            not_before: now,
            gave_way: 0,
            unit: "flop",
        }
    }

    /// Processes a call that has ended and makes the next one.
    fn step(
        &mut self,
        session: &Session,
        function: &Function,
        range: &mut Range,
        tell: &mut CallObserver<'_>,
    ) -> Result<(), CalibrationEnd> {
        if let Some((pending, position)) = self.call.take() {
            match pending.take_seconds() {
                Err(pending) => {
                    self.call = Some((pending, position));
                    return Ok(());
                }
                Ok(outcome) => self.ended(outcome, &range.at(position), session.now(), tell)?,
            }
        }
        let now = session.now();
        let left = self.budget.as_secs_f64() - (now - self.since);
        if left <= 0.0 {
            return Err(CalibrationEnd::TimeUp);
        }
        if now < self.not_before {
            return Ok(());
        }
        let next = match self.cold_left {
            0 => {
                let sizes = std::cell::RefCell::new(&mut *range);
                self.calibration
                    .next(&|position| sizes.borrow_mut().size_at(position))
                    .ok_or(CalibrationEnd::Complete)?
            }
            _ => 0.0,
        };
        if self.last.as_ref().is_none_or(|(position, _, _)| *position != next) {
            // The old arguments are dropped first: both may not fit into memory.
            self.last = None;
            let (args, size) = range.arguments(next, session.has_content()).map_err(CalibrationEnd::Failed)?;
            self.unit = if matches!(size, Size::Work(_)) { "flop" } else { "B" };
            self.last = Some((next, args, size));
        }
        let (_, args, _) = self.last.as_ref().expect("made above");
        let limit = Some(Duration::from_secs_f64(left.max(1.0)));
        self.call = Some((function.submit_measured(self.node, args, limit).map_err(CalibrationEnd::Failed)?, next));
        Ok(())
    }

    fn ended(
        &mut self,
        outcome: Result<f64, TaskError>,
        sizes: &Sizes,
        now: f64,
        tell: &mut CallObserver<'_>,
    ) -> Result<(), CalibrationEnd> {
        let is_cold = self.cold_left > 0;
        match outcome {
            Ok(_) if is_cold => self.cold_left -= 1,
            Ok(seconds) => {
                let (_, _, size) = self.last.as_ref().expect("the call's");
                self.calibration.record_call(number(*size), seconds);
                self.report_call(sizes, Some(seconds), tell)?;
            }
            Err(TaskError::Preempted { .. }) => {
                self.gave_way += 1;
                self.not_before = now + PAUSE.as_secs_f64();
                self.report_call(sizes, None, tell)?;
            }
            Err(TaskError::StoreFull { .. } | TaskError::DeadlineExceeded { .. })
                if !is_cold && !self.calibration.curve().points.is_empty() =>
            {
                self.calibration.too_large();
            }
            Err(error) => return Err(CalibrationEnd::Failed(error.into())),
        }
        Ok(())
    }

    fn report_call(
        &self,
        sizes: &Sizes,
        seconds: Option<f64>,
        tell: &mut CallObserver<'_>,
    ) -> Result<(), CalibrationEnd> {
        match tell(&CalibrationCall { server: &self.server, sizes, seconds }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CalibrationEnd::Stopped),
        }
    }

    fn calibrated(&self, range: &mut Range, end: CalibrationEnd, is_made: bool, now: f64) -> Calibrated {
        let points = self.calibration.points().map(|(position, point)| CalibratedPoint {
            sizes: range.at(position),
            size: point.size,
            seconds: point.seconds,
            spread_s: point.spread_s,
            calls: point.calls,
        });
        let points: Vec<CalibratedPoint> = points.collect();
        let function = range.function.name().to_string();
        let sizes = std::cell::RefCell::new(range);
        let reached = self.calibration.result(&|position| sizes.borrow_mut().size_at(position));
        let budget_s = self.budget.as_secs_f64();
        let CalibrationResult { error, jumps, spread, calls, end: last } = reached;
        let is_reached = matches!(end, CalibrationEnd::Complete) && error <= self.error;
        let has_failed = matches!(end, CalibrationEnd::Failed(_));
        let why = match end {
            CalibrationEnd::Failed(error) if is_made => Some(error.to_string()),
            CalibrationEnd::Failed(error) => Some(format!(
                "{error}; if the function cannot take random arguments, make them yourself (make of Grid.calibrate \
                    in Python, Grid::calibrate in Rust)"
            )),
            CalibrationEnd::TimeUp if self.gave_way > 0 => {
                Some(format!("the {budget_s} s are over; {} calls were preempted by other work", self.gave_way))
            }
            CalibrationEnd::TimeUp => Some(format!("the {budget_s} s are over; give a larger budget")),
            CalibrationEnd::Stopped => Some("it was stopped".to_string()),
            CalibrationEnd::Complete if last < 1.0 => {
                let most_s = CALL_FRACTION_MAX * budget_s;
                Some(format!(
                    "larger calls take longer than {most_s} s, or do not fit the server's store; give a larger budget"
                ))
            }
            CalibrationEnd::Complete => {
                (!is_reached).then(|| "the model cannot take more points; choose a smaller range".to_string())
            }
        };
        let jump = |piece: gridloom_perf::MispredictedPiece| UnpredictableSection {
            from: piece.from,
            to: piece.to,
            error: piece.error,
        };
        Calibrated {
            function,
            server: self.server.clone(),
            unit: self.unit,
            points,
            error: error.is_finite().then_some(error),
            reached_goal: is_reached,
            jumps: jumps.into_iter().map(jump).collect(),
            spread,
            calls,
            preempted: self.gave_way,
            seconds: now - self.since,
            why,
            has_failed,
        }
    }
}
