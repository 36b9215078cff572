//! `gridloom chares run --agent`: the elements of a program that servers offer.
//!
//! The command asks one server after the other for its slots, in the order of their numbers, and starts the elements when all have given
//! theirs. Each server gives all slots that it is asked for or none. So a gang that waits has slots only of servers before the one that it
//! waits for, and no two gangs wait for each other.

use std::collections::{BTreeSet, VecDeque};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use gridloom::chares::{ELEMENT_FUNCTION, Places};
use gridloom::process::ProcessSpec;
use gridloom::{Arg, Asking, Error, Function, Grid, Pending, Value};
use gridloom_base::near::{did_you_mean, near_names};
use gridloom_base::{NodeId, TaskId};
use gridloom_core::call::Saying;
use gridloom_core::node::message::ServerStatus;
use gridloom_idl::program::{PROGRAMS_MODULE, function_of};
use gridloom_net::process::ProcessConfig;
use gridloom_net::worker::{GANG_GRACE, ProcessEnd, Ready, Start};
use gridloom_perf::{ServerView, host_of};
use gridloom_testbed::telling::Telling;

use super::{Run, check_number};

/// For so long servers have to say what they do.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// A gang that waits longer for slots says so.
const WAITS_TOLD: Duration = Duration::from_secs(1);

/// Between two looks at what elements have printed.
const OUTPUT_PAUSE: Duration = Duration::from_millis(50);

/// The part of a gang that one server runs.
struct Share {
    server: NodeId,
    name: String,
    host: String,
    /// Its first element, and how many.
    first: usize,
    count: usize,
}

impl Share {
    fn labels(&self) -> Vec<String> {
        (self.first..self.first + self.count).map(|element| format!("{ELEMENT_FUNCTION}@{element}")).collect()
    }
}

pub(super) fn run(options: &Run, agent: &str) -> Result<ExitCode> {
    check_number(options.number)?;
    let (name, arguments) = options.program.split_first().context("which program? '-- NAME' names one")?;
    let telling = if options.json { Telling::Json } else { Telling::Text };
    let grid = Grid::connect(agent)?;
    let function = find(&grid, name)?;
    grid.listen(move |spoken| {
        if let Saying::Text { is_error, text } = &spoken.saying {
            text.lines().for_each(|line| tell(telling, *is_error, line));
        }
    });
    let shares = divide(options.number, name, grid.statuses(STATUS_TIMEOUT)?)?;
    let arguments = Value::list(arguments.iter().map(|argument| Some(argument.as_bytes())));
    let mut gang = Gang::new(&grid, function, arguments.into(), telling, options.until);
    let status = match gang.gather(&shares)? {
        Some(asked) => {
            let places = gang.start(&shares, &asked, options)?;
            gang.telling.message(&places);
            gang.wait(&shares)?
        }
        None => 1,
    };
    telling.done(status);
    Ok(ExitCode::from(status))
}

/// The program's function.
fn find(grid: &Grid, name: &str) -> Result<Function> {
    let functions = grid.functions();
    let module = format!("{PROGRAMS_MODULE}/");
    let programs: Vec<&str> =
        functions.iter().filter_map(|signature| signature.name.strip_prefix(module.as_str())).collect();
    if programs.contains(&name) {
        return Ok(grid.function(&function_of(name))?);
    }
    let near = did_you_mean(&near_names(name, programs.iter().copied()));
    match programs.is_empty() {
        true => {
            bail!("no server offers a program '{name}', nor any other: 'gridloom serve --program {name}=PATH' does")
        }
        false => bail!("no server offers a program '{name}'; there are: {}{near}", programs.join(", ")),
    }
}

/// Which server runs which elements: those with the least to do first. The shares are in the order of the servers' numbers.
fn divide(number: usize, name: &str, statuses: Vec<(ServerView, Option<ServerStatus>)>) -> Result<Vec<Share>> {
    let function = function_of(name);
    let mut servers: Vec<(u64, ServerView)> = statuses
        .into_iter()
        .filter(|(server, _)| server.functions.contains_key(&function))
        .map(|(server, status)| (status.map_or(u64::MAX, |status| status.count), server))
        .collect();
    let slots: usize = servers.iter().map(|(_, server)| server.slots as usize).sum();
    if number > slots {
        let each: Vec<String> = servers.iter().map(|(_, server)| format!("{} {}", server.name, server.slots)).collect();
        bail!(
            "-n {number}: the servers that offer '{name}' have {slots} slots ({}); give -n {slots} or fewer, or start servers with \
             more --slots",
            each.join(", ")
        );
    }
    servers.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
    let mut left = number;
    let mut shares = Vec::new();
    for (_, server) in servers {
        let count = left.min(server.slots as usize);
        left -= count;
        if count > 0 {
            let host = host_of(&server.address).trim_matches(['[', ']']).to_string();
            shares.push(Share { server: server.node, name: server.name, host, first: 0, count });
        }
    }
    shares.sort_by_key(|share| share.server);
    let mut first = 0;
    for share in &mut shares {
        share.first = first;
        first += share.count;
    }
    Ok(shares)
}

/// A line that an element prints, which begins with its name.
fn tell(telling: Telling, is_error: bool, line: &str) {
    match line.split_once("| ") {
        Some((label, text)) => telling.line(label, is_error, text),
        None => telling.message(line),
    }
}

/// What has happened.
enum Event {
    Asks(Asking),
    Ended(TaskId),
    /// Nothing, until the time was up.
    Late,
}

struct Gang<'a> {
    grid: &'a Grid,
    function: Function,
    arguments: Arg,
    telling: Telling,
    until: Option<Instant>,
    to: Sender<Asking>,
    asked: Receiver<Asking>,
    ended: VecDeque<TaskId>,
    /// The calls, in the order of the shares.
    calls: Vec<Option<Pending>>,
}

impl<'a> Gang<'a> {
    fn new(grid: &'a Grid, function: Function, arguments: Arg, telling: Telling, until: Option<f64>) -> Gang<'a> {
        let (to, asked) = channel();
        let until = until.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
        let (ended, calls) = (VecDeque::new(), Vec::new());
        Gang { grid, function, arguments, telling, until, to, asked, ended, calls }
    }

    /// Waits for what happens next, no longer than until that time. What elements print is told at the end of each wait.
    fn next(&mut self, until: Option<Instant>) -> Result<Event> {
        let (ended, asked) = (&mut self.ended, &self.asked);
        loop {
            let left = until.map_or(OUTPUT_PAUSE, |at| at.saturating_duration_since(Instant::now()));
            let waited = self.grid.await_ends(Some(left.min(OUTPUT_PAUSE)), |ends| {
                ended.extend(ends);
                let asks = asked.try_recv().ok().map(Event::Asks);
                asks.or_else(|| ended.pop_front().map(Event::Ended))
            });
            match waited {
                Err(Error::TimedOut { .. }) if left > OUTPUT_PAUSE || until.is_none() => {}
                Err(Error::TimedOut { .. }) => return Ok(Event::Late),
                other => return Ok(other?),
            }
        }
    }

    /// Waits until all servers have given their slots; none if the time of the run is over before.
    ///
    /// # Errors
    /// If a server does not give them, or is lost.
    fn gather(&mut self, shares: &[Share]) -> Result<Option<Vec<Asking>>> {
        let mut asked = Vec::new();
        for share in shares {
            let slots = share.count as u32;
            let arguments = [self.arguments.clone()];
            let call = self.function.submit_gang(share.server, slots, &arguments, self.to.clone())?;
            call.note_end();
            self.calls.push(Some(call));
            let mut tell_at = Some(Instant::now() + WAITS_TOLD);
            loop {
                match self.next(tell_at.into_iter().chain(self.until).min())? {
                    Event::Asks(asking) => {
                        asked.push(asking);
                        break;
                    }
                    Event::Ended(task) => return Err(self.refused(task, shares)),
                    Event::Late if self.until.is_some_and(|at| at <= Instant::now()) => {
                        self.telling
                            .message(&format!("ended at the end of --until: '{}' had not given slots", share.name));
                        self.cancel();
                        return Ok(None);
                    }
                    Event::Late if tell_at.take().is_some() => {
                        self.telling.message(&format!("waits for {slots} slots of '{}', which are in use", share.name));
                    }
                    Event::Late => {}
                }
            }
        }
        Ok(Some(asked))
    }

    /// Why a server does not give its slots. The others need not keep theirs.
    fn refused(&mut self, task: TaskId, shares: &[Share]) -> anyhow::Error {
        let at = self.calls.iter().position(|call| call.as_ref().is_some_and(|call| call.task() == task));
        let Some((at, call)) = at.and_then(|at| Some((at, self.calls[at].take()?))) else {
            return anyhow!("a call of the gang has ended that is none of it");
        };
        self.cancel();
        match call.wait() {
            Ok(_) => anyhow!("'{}' has ended the elements before they began", shares[at].name),
            Err(error) => error.into(),
        }
    }

    fn cancel(&self) {
        self.calls.iter().flatten().for_each(Pending::cancel);
    }

    /// Tells all servers where the elements are. Says the same in words.
    fn start(&self, shares: &[Share], asked: &[Asking], options: &Run) -> Result<String> {
        let wrong = |share: &Share| format!("what server '{}' says of its slots is wrong", share.name);
        let mut ready: Vec<Ready> = Vec::new();
        for (share, asking) in shares.iter().zip(asked) {
            let one: Ready = serde_json::from_slice(&asking.text).with_context(|| wrong(share))?;
            ensure!(one.ports.len() == share.count, "{}: {} ports for {}", wrong(share), one.ports.len(), share.count);
            ready.push(one);
        }
        let names: BTreeSet<&str> = ready.iter().map(|one| one.site.as_str()).collect();
        let site = |one: &Ready| names.iter().position(|name| *name == one.site).expect("it is one of them") as u32;
        let filters = options.apart.filters_between(names.len())?;
        let elements = shares.iter().zip(&ready).flat_map(|(share, one)| {
            let place = (share.host.clone(), site(one));
            std::iter::repeat_n(place, share.count)
        });
        let places = Places {
            elements: elements.collect(),
            ports: ready.iter().flat_map(|one| one.ports.iter().copied()).collect(),
            filters,
            balance: options.balance.clone(),
            ..Places::default()
        };
        for (share, asking) in shares.iter().zip(asked) {
            let arguments = vec![places.to_argument()];
            let spec = ProcessSpec { function: ELEMENT_FUNCTION.into(), host: share.host.clone(), arguments };
            let own = (share.first..share.first + share.count).map(|element| element.to_string()).collect();
            let start = Start { config: ProcessConfig { spec, ..ProcessConfig::default() }, own };
            self.grid.answer(asking, serde_json::to_vec(&start)?);
        }
        let each: Vec<String> = shares.iter().map(|share| format!("{} on '{}'", share.count, share.name)).collect();
        Ok(format!("starts {} elements: {}", places.elements.len(), each.join(", ")))
    }

    /// Waits until all elements have ended; the first status that is not 0.
    fn wait(&mut self, shares: &[Share]) -> Result<u8> {
        let (mut status, mut ends_at, mut is_cancelled) = (0, self.until, false);
        while self.calls.iter().any(Option::is_some) {
            let task = match self.next(if is_cancelled { None } else { ends_at })? {
                Event::Ended(task) => task,
                Event::Asks(_) => continue,
                Event::Late => {
                    let why = if status == 0 { "at the end of --until" } else { "after the failure" };
                    let left = shares.iter().zip(&self.calls).filter(|(_, call)| call.is_some());
                    let left: Vec<String> = left.flat_map(|(share, _)| share.labels()).collect();
                    self.telling.message(&format!("ended {why}: {}", left.join(", ")));
                    status = status.max(1);
                    is_cancelled = true;
                    self.cancel();
                    continue;
                }
            };
            for (share, call) in shares.iter().zip(&mut self.calls) {
                let Some(call) = call.take_if(|call| call.task() == task) else { continue };
                let failed = match call.wait() {
                    Ok(values) => ended(share, &values, self.telling)?,
                    Err(_) if is_cancelled => 1,
                    Err(error) => {
                        let lost = share.labels().join(", ");
                        self.telling.message(&format!("{lost} on '{}' failed: {error}", share.name));
                        1
                    }
                };
                if status == 0 && failed != 0 {
                    status = failed;
                    let grace = Instant::now() + GANG_GRACE;
                    ends_at = Some(ends_at.map_or(grace, |at| at.min(grace)));
                }
            }
        }
        Ok(status)
    }
}

/// Tells how the elements of a share have ended; the first status that is not 0.
fn ended(share: &Share, values: &[Value], telling: Telling) -> Result<u8> {
    let wrong = || format!("what server '{}' says of the ends of its elements is wrong", share.name);
    let text = values.first().and_then(Value::payload).with_context(wrong)?;
    let ends: Vec<ProcessEnd> = serde_json::from_slice(text.bytes()).with_context(wrong)?;
    let mut status = 0;
    let labels = share.labels();
    for end in ends {
        let how = ExitStatus::from_raw(end.wait_status);
        let label = labels.get(end.process).with_context(wrong)?;
        telling.ended(label, how, end.was_killed);
        if end.was_killed {
            continue;
        }
        let code = match how.code() {
            Some(0) if end.has_asked => 0,
            Some(0) => {
                telling.never_asked(label);
                1
            }
            code => code.or_else(|| how.signal().map(|signal| 128 + signal)).unwrap_or(1),
        };
        if status == 0 {
            status = u8::try_from(code).unwrap_or(1);
        }
    }
    Ok(status)
}
