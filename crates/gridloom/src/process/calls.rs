//! The functions that a process calls: connect, send, handle messages, wait, sleep, compute.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use gridloom_base::Time;
use gridloom_base::time::{MILLISECOND_NS, SECOND_NS};
use gridloom_net::processor_clock::processor_time;
use gridloom_process::TimerNumber;
use gridloom_process::{
    EventQueue, Incoming, Level, PeerId, ProcessError, ProcessEvent, ProcessMessage, ProcessSpec, ProcessWorld,
};

use super::settings::{log_accepts, setting};
use super::types::Types;
use crate::Error;

/// Delay between attempts to connect to a process that does not listen yet.
const RETRY_NS: u64 = 20 * MILLISECOND_NS;
/// Longer times cannot be added to the clock and count as infinite.
const FOREVER_NS: f64 = (u64::MAX / 4) as f64;
/// Maximum number of types and senders of unread messages that an error lists.
const UNREAD_LISTED_MAX: usize = 8;
/// Type of the message that reports a failed callback to the sender of its message.
const ERROR_KIND: &str = "gridloom:error";

/// The functions of a program, by name.
pub type ProcessFunctions = BTreeMap<String, Main>;

/// A process's function.
pub type Main = Arc<dyn Fn(Process) -> Result<(), Error> + Send + Sync>;

type OnMessage = Box<dyn FnMut(&mut Process, PeerId, ProcessMessage) -> Result<(), ProcessError> + Send>;
type OnTimer = Box<dyn FnMut(&mut Process) -> Result<(), ProcessError> + Send>;

/// How virtual time passes for a block of code that is timed on the real machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Measure {
    /// Times each run and charges its time.
    Always,
    /// Times the first run of that name, and charges that time for each run.
    Once,
    /// Does not run the block in simulation; charges `flops` floating-point operations.
    Skip { flops: f64 },
}

/// A process, as seen by its own code. Times are seconds, in virtual time if it is simulated.
pub struct Process {
    /// Also used directly by code that handles all messages itself.
    pub(crate) world: Box<dyn ProcessWorld>,
    agenda: EventQueue,
    callbacks: BTreeMap<String, Option<OnMessage>>,
    timers: BTreeMap<TimerNumber, Option<OnTimer>>,
    measured: BTreeMap<String, u64>,
    /// Number of measured blocks that have begun and not ended.
    blocks_open: u32,
    /// Processor time that is not charged to open blocks: that of nested blocks, and of other processes.
    excluded: Duration,
    pub(super) types: Types,
}

impl Process {
    /// Returns the configured value of that name, if any: from `--set NAME=VALUE`, else from the variable
    /// `GRIDLOOM_SET_NAME`, else from the file of `--config` or `GRIDLOOM_CONFIG`.
    ///
    /// # Errors
    /// If the value is not of that type.
    pub fn config<T: FromStr>(&self, name: &str) -> Result<Option<T>, ProcessError> {
        let Some(text) = setting(name) else { return Ok(None) };
        // Strings may begin or end with spaces, so the text is parsed unchanged first.
        let value = text.parse().or_else(|_| text.trim().parse());
        value.map(Some).map_err(|_: T::Err| {
            let wanted = std::any::type_name::<T>();
            ProcessError::Failed(format!(
                "the configuration's '{name}' is '{text}'; it has to be a value of type {wanted}"
            ))
        })
    }

    pub fn new(world: Box<dyn ProcessWorld>) -> Process {
        let (callbacks, timers, measured) = Default::default();
        let (blocks_open, excluded, types) = Default::default();
        Process { world, agenda: EventQueue::default(), callbacks, timers, measured, blocks_open, excluded, types }
    }

    /// Wraps the process's world, for language bindings.
    #[must_use]
    pub fn wrap_world(mut self, wrap: impl FnOnce(Box<dyn ProcessWorld>) -> Box<dyn ProcessWorld>) -> Process {
        self.world = wrap(self.world);
        self
    }

    /// The function, host and arguments of this process.
    pub fn spec(&self) -> &ProcessSpec {
        self.world.spec()
    }

    /// The current time: since 1970 for real, since the beginning in simulation.
    pub fn now(&self) -> f64 {
        self.world.now().seconds()
    }

    pub fn is_simulated(&self) -> bool {
        self.world.is_simulated()
    }

    /// Sleeps for `seconds`; not at all if that is negative. Messages received meanwhile are queued.
    ///
    /// # Errors
    /// If the process has to end, or `seconds` is not a valid time.
    pub fn sleep(&mut self, seconds: f64) -> Result<(), ProcessError> {
        let at = self.world.now() + duration_ns("sleep", seconds)?;
        self.blocking(|world| world.sleep_until(at))
    }

    /// Checks the argument of [`Process::sleep`], for a program that sleeps in parts.
    ///
    /// # Errors
    /// If `seconds` is not a valid time.
    pub fn check_sleep(seconds: f64) -> Result<(), ProcessError> {
        duration_ns("sleep", seconds).map(drop)
    }

    /// Takes the time of `flops` floating-point operations on one core of the simulated host; takes no time for real.
    ///
    /// # Errors
    /// If the process has to end, or `flops` is negative or not finite.
    pub fn compute(&mut self, flops: f64) -> Result<(), ProcessError> {
        if !(0.0..f64::INFINITY).contains(&flops) {
            return Err(wrong_number(
                "compute",
                flops,
                "floating-point operations",
                "a finite number that is not negative",
            ));
        }
        self.blocking(|world| world.account_flops(flops))
    }

    /// Runs a block of code, timed on the real machine; in simulation it takes as long as on the simulated host.
    /// Returns `None` if the block was not run. Time of nested blocks, and time spent waiting for others, is not charged to it.
    ///
    /// # Errors
    /// If the process has to end.
    pub fn measure<R>(
        &mut self,
        name: &str,
        how: Measure,
        block: impl FnOnce(&mut Process) -> R,
    ) -> Result<Option<R>, ProcessError> {
        if let (Measure::Skip { flops }, true) = (how, self.is_simulated()) {
            self.compute(flops)?;
            return Ok(None);
        }
        let began = self.begin_block();
        let result = block(self);
        self.end_block(name, how, began)?;
        Ok(Some(result))
    }

    /// Begins a measured block. Pass the result to [`Process::end_block`].
    pub fn begin_block(&mut self) -> Duration {
        self.blocks_open += 1;
        processor_time().saturating_sub(self.excluded)
    }

    /// Abandons a measured block; nothing is charged.
    pub fn drop_block(&mut self) {
        self.blocks_open = self.blocks_open.saturating_sub(1);
    }

    /// Ends a measured block: charges the time that it took on the real machine, without that of nested blocks.
    ///
    /// # Errors
    /// If the process has to end.
    pub fn end_block(&mut self, name: &str, how: Measure, began: Duration) -> Result<(), ProcessError> {
        let taken = processor_time().saturating_sub(self.excluded).saturating_sub(began);
        self.drop_block();
        // This time does not count for an enclosing block.
        self.excluded += taken;
        let taken_ns = taken.as_nanos() as u64;
        let charged_ns = match how {
            Measure::Once => *self.measured.entry(name.to_string()).or_insert(taken_ns),
            Measure::Always | Measure::Skip { .. } => taken_ns,
        };
        self.blocking(|world| world.account_computed(name, charged_ns)).map(|_| ())
    }

    /// Calls the world. Other processes may run meanwhile, perhaps on this thread; their time does not count for measured blocks.
    fn blocking<R>(&mut self, call: impl FnOnce(&mut dyn ProcessWorld) -> R) -> R {
        if self.blocks_open == 0 {
            return call(&mut *self.world);
        }
        let before = processor_time();
        let result = call(&mut *self.world);
        self.excluded += processor_time().saturating_sub(before);
        result
    }

    /// Writes a line to the log, if the log accepts that level and category (`--log`, `GRIDLOOM_LOG`).
    pub fn log(&mut self, level: Level, category: &str, text: &str) {
        if log_accepts(level, category) {
            self.world.log(level, category, text);
        }
    }

    // ---- connections

    /// Listens on a port of its host (0: any free port), and returns the port.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn listen(&mut self, port: u16) -> Result<u16, ProcessError> {
        self.world.listen(port)
    }

    /// Connects to the process that listens on that port of that host. Retries for `patience` seconds while none does, so that
    /// processes may start in any order.
    ///
    /// # Errors
    /// If there is no such host, or nobody listened in time.
    pub fn connect(&mut self, host: &str, port: u16, patience: f64) -> Result<PeerId, ProcessError> {
        let until = self.until("connect", patience)?;
        loop {
            match self.blocking(|world| world.connect(host, port)) {
                Err(ProcessError::CannotConnect { .. }) if self.world.now() + RETRY_NS <= until => {
                    let at = self.world.now() + RETRY_NS;
                    self.blocking(|world| world.sleep_until(at))?;
                }
                outcome => return outcome,
            }
        }
    }

    /// Closes a connection; messages sent before still arrive.
    pub fn close(&mut self, peer: PeerId) {
        self.types.forget(peer);
        self.world.close(peer);
    }

    /// Describes the process at the other end: `function@host`, and the port if it was dialled.
    pub fn describe(&self, peer: PeerId) -> String {
        self.world.describe(peer)
    }

    /// Sends bytes as a message of a named type. Returns once they are handed to the connection.
    ///
    /// # Errors
    /// If the connection is closed, or the message too large.
    pub fn send_bytes(&mut self, peer: PeerId, kind: &str, payload: Vec<u8>) -> Result<(), ProcessError> {
        self.blocking(|world| world.send(peer, ProcessMessage { kind: kind.into(), payload }))
    }

    /// Like [`Process::send_bytes`], but does not wait. If there is no room, it returns the bytes.
    /// Accepted bytes are transmitted while the process sends, receives, sleeps or closes.
    ///
    /// # Errors
    /// As [`Process::send_bytes`].
    pub fn offer_bytes(&mut self, peer: PeerId, kind: &str, payload: Vec<u8>) -> Result<Option<Vec<u8>>, ProcessError> {
        let refused = self.blocking(|world| world.offer(peer, ProcessMessage { kind: kind.into(), payload }))?;
        Ok(refused.map(|letter| letter.payload))
    }

    /// Sends a short message ahead of those queued for that peer. Returns once it is handed to the connection.
    ///
    /// # Errors
    /// If the connection is closed, or the message larger than 64 KiB.
    pub fn send_urgent_bytes(&mut self, peer: PeerId, kind: &str, payload: Vec<u8>) -> Result<(), ProcessError> {
        self.blocking(|world| world.send_urgent(peer, ProcessMessage { kind: kind.into(), payload }))
    }

    /// Returns an empty buffer for [`Process::send_bytes`], with the memory of an earlier message if one is available.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.world.take_buffer()
    }

    /// Returns the buffer of a processed message to the pool, where a later message may reuse it.
    pub fn recycle(&mut self, payload: Vec<u8>) {
        self.world.return_buffer(payload);
    }

    // ---- handling

    /// Registers a callback, which [`Process::handle`] calls for messages of the type of that name. An error that it
    /// returns is logged and sent to the sender of the message, which receives it where it waits for an answer.
    pub fn on_bytes(
        &mut self,
        kind: &str,
        callback: impl FnMut(&mut Process, PeerId, ProcessMessage) -> Result<(), ProcessError> + Send + 'static,
    ) {
        self.callbacks.insert(kind.into(), Some(Box::new(callback)));
    }

    /// Sets a timer: [`Process::handle`] calls `callback` after `seconds`, and with `repeat` again after every further
    /// `seconds`. Times that pass while another callback runs are skipped.
    ///
    /// # Errors
    /// If `seconds` is not a valid time, or is 0 for a repeating timer.
    pub fn set_timer(
        &mut self,
        seconds: f64,
        repeat: bool,
        callback: impl FnMut(&mut Process) -> Result<(), ProcessError> + Send + 'static,
    ) -> Result<TimerNumber, ProcessError> {
        let number = self.set_bare_timer(seconds, repeat)?;
        self.timers.insert(number, Some(Box::new(callback)));
        Ok(number)
    }

    /// Sets a timer without a callback; [`Process::next`] reports it.
    ///
    /// # Errors
    /// As [`Process::set_timer`].
    pub fn set_bare_timer(&mut self, seconds: f64, repeat: bool) -> Result<TimerNumber, ProcessError> {
        let ns = duration_ns("timer", seconds)?;
        if repeat && ns == 0 {
            return Err(wrong_number("timer that repeats", seconds, "seconds", "a period of at least a nanosecond"));
        }
        Ok(self.agenda.set_timer(self.world.now() + ns, repeat.then_some(ns)))
    }

    /// Cancels a timer. Returns whether it was set.
    pub fn cancel_timer(&mut self, number: TimerNumber) -> bool {
        self.timers.remove(&number);
        self.agenda.cancel_timer(number)
    }

    /// Handles one message that has a callback, or one timer; waits for it for at most `seconds`. Returns whether there was one.
    ///
    /// # Errors
    /// If the process has to end, or a timer's callback fails.
    pub fn handle(&mut self, seconds: Option<f64>) -> Result<bool, ProcessError> {
        let until = seconds.map(|seconds| self.until("handle", seconds)).transpose()?;
        self.handle_until(until)
    }

    fn handle_until(&mut self, until: Option<Time>) -> Result<bool, ProcessError> {
        // If a callback that runs now waits in here, messages for that callback are handled after it.
        let idle = self.callbacks.iter().filter(|(_, callback)| callback.is_some());
        let kinds: Vec<String> = idle.map(|(kind, _)| kind.clone()).collect();
        let wants = |kind: &str| kinds.binary_search_by(|known| known.as_str().cmp(kind)).is_ok();
        loop {
            match self.next_until(wants, until)? {
                None => return Ok(false),
                Some(ProcessEvent::Closed { .. }) => {}
                Some(ProcessEvent::Timer(number)) => {
                    let Some(mut callback) = self.timers.get_mut(&number).and_then(Option::take) else { continue };
                    let outcome = callback(self);
                    if let Some(place) = self.timers.get_mut(&number) {
                        *place = Some(callback);
                    }
                    return outcome.map(|()| true);
                }
                Some(ProcessEvent::Message { from, letter }) => {
                    let kind = letter.kind.clone();
                    let Some(mut callback) = self.callbacks.get_mut(&*kind).and_then(Option::take) else { continue };
                    let outcome = callback(self, from, letter);
                    if let Some(place) = self.callbacks.get_mut(&*kind).filter(|place| place.is_none()) {
                        *place = Some(callback);
                    }
                    match outcome {
                        Err(error @ ProcessError::Ended { .. }) => return Err(error),
                        Err(error) => self.report_failure(from, &kind, &error.to_string()),
                        Ok(()) => {}
                    }
                    return Ok(true);
                }
            }
        }
    }

    /// Handles messages and timers for `seconds`. A callback in progress is finished, and queued messages stay queued.
    ///
    /// # Errors
    /// As [`Process::handle`].
    pub fn handle_for(&mut self, seconds: f64) -> Result<(), ProcessError> {
        let until = self.until("handle_for", seconds)?;
        // In simulation many messages may be handled at one time.
        while self.handle_until(Some(until))? && self.world.now() <= until {}
        Ok(())
    }

    /// Reports to the sender of a message, and to the log, that its callback failed here.
    pub fn report_failure(&mut self, peer: PeerId, kind: &str, why: &str) {
        let sender = self.describe(peer);
        self.log(Level::Error, "gridloom", &format!("message '{kind}' of {sender} failed: {why}"));
        // If the sender is gone, nobody needs the error.
        let _ = self.send_bytes(peer, ERROR_KIND, why.as_bytes().to_vec());
    }

    /// Waits for a message of the type of that name, from that peer if one is given, for at most `seconds`. Other
    /// messages are queued meanwhile.
    ///
    /// # Errors
    /// [`ProcessError::TimedOut`]; [`ProcessError::Remote`] if a callback of that peer failed; [`ProcessError::Closed`]
    /// if that peer closed the connection.
    pub fn wait_for(
        &mut self,
        kind: &str,
        from: Option<PeerId>,
        seconds: Option<f64>,
    ) -> Result<(PeerId, Vec<u8>), ProcessError> {
        let until = seconds.map(|seconds| self.until("wait", seconds)).transpose()?;
        loop {
            if let Some((from, letter)) = self.agenda.letter(kind, from) {
                return Ok((from, letter.payload));
            }
            if let Some((peer, letter)) = self.agenda.letter(ERROR_KIND, from) {
                let why = String::from_utf8_lossy(&letter.payload).into_owned();
                return Err(ProcessError::Remote { peer: self.describe(peer), why });
            }
            if let Some((peer, why)) = from.and_then(|peer| self.agenda.closed(peer).map(|why| (peer, why))) {
                return Err(ProcessError::Closed { peer: self.describe(peer), why });
            }
            if let Some(peer) = from.filter(|peer| self.world.is_closed(*peer)) {
                let why = self.world.why_closed(peer);
                return Err(ProcessError::Closed { peer: self.describe(peer), why });
            }
            self.world.set_expected(Some(kind), from);
            match self.blocking(|world| world.receive(until))? {
                Some(incoming) => self.on_incoming(incoming),
                None => return Err(self.timed_out(kind, from, seconds.unwrap_or_default())),
            }
        }
    }

    /// Returns the error for a message that was not received in time. It lists received messages that nobody has taken.
    pub fn timed_out(&self, kind: &str, from: Option<PeerId>, seconds: f64) -> ProcessError {
        let sender = from.map_or(String::new(), |peer| format!(" of {}", self.describe(peer)));
        let awaited = format!("message '{kind}'{sender}");
        ProcessError::TimedOut { awaited, seconds, unread: self.unread() }
    }

    /// Lists received messages that nobody has taken, as text: `1 'B' of client@desk, 2 'C' of server@node`; empty if
    /// there are none.
    pub fn unread(&self) -> String {
        let unread = self.agenda.unread();
        let one = |((kind, peer), count): (&(&str, PeerId), &usize)| match *kind {
            ERROR_KIND => format!("{count} failure of {}", self.describe(*peer)),
            kind => format!("{count} '{kind}' of {}", self.describe(*peer)),
        };
        let mut told: Vec<String> = unread.iter().take(UNREAD_LISTED_MAX).map(one).collect();
        if unread.len() > UNREAD_LISTED_MAX {
            let rest: usize = unread.values().skip(UNREAD_LISTED_MAX).sum();
            told.push(format!("{rest} others"));
        }
        told.join(", ")
    }

    /// Returns the next timer, closed connection, or message of a wanted type; `None` after the time limit.
    ///
    /// # Errors
    /// If the process has to end.
    pub fn next(
        &mut self,
        wants: impl Fn(&str) -> bool,
        seconds: Option<f64>,
    ) -> Result<Option<ProcessEvent>, ProcessError> {
        let until = seconds.map(|seconds| self.until("handle", seconds)).transpose()?;
        self.next_until(wants, until)
    }

    fn on_incoming(&mut self, incoming: Incoming) {
        if let Incoming::Closed { peer, .. } = &incoming {
            self.types.forget(*peer);
        }
        self.agenda.put(incoming);
    }

    fn next_until(
        &mut self,
        wants: impl Fn(&str) -> bool,
        until: Option<Time>,
    ) -> Result<Option<ProcessEvent>, ProcessError> {
        loop {
            let now = self.world.now();
            // Timers that are always due must not hide received messages.
            if self.agenda.next_timer_at().is_some_and(|at| at <= now)
                && let Some(incoming) = self.blocking(|world| world.receive(Some(now)))?
            {
                self.on_incoming(incoming);
            }
            if let Some(happening) = self.agenda.next(now, &wants) {
                return Ok(Some(happening));
            }
            if until.is_some_and(|until| self.world.now() >= until) {
                return Ok(None);
            }
            self.world.set_expected(None, None);
            let due = [until, self.agenda.next_timer_at()].into_iter().flatten().min();
            if let Some(incoming) = self.blocking(|world| world.receive(due))? {
                self.on_incoming(incoming);
            }
        }
    }

    /// The number of queued messages of each type.
    pub fn waiting(&self) -> Vec<(&str, usize)> {
        self.agenda.waiting()
    }

    /// Returns the time after `seconds`: now if that is negative, never if it is infinite.
    fn until(&self, what: &str, seconds: f64) -> Result<Time, ProcessError> {
        if seconds.is_nan() {
            return Err(wrong_number(what, seconds, "seconds", "a time"));
        }
        let ns = seconds.max(0.0) * SECOND_NS as f64;
        // Times beyond the clock's range mean forever.
        Ok(if ns >= FOREVER_NS { Time::NEVER } else { self.world.now() + ns as u64 })
    }
}

/// Converts a finite time to nanoseconds; 0 if it is negative.
fn duration_ns(what: &str, seconds: f64) -> Result<u64, ProcessError> {
    let ns = seconds.max(0.0) * SECOND_NS as f64;
    match seconds.is_nan() || ns >= FOREVER_NS {
        true => Err(wrong_number(what, seconds, "seconds", "a finite time")),
        false => Ok(ns as u64),
    }
}

fn wrong_number(what: &str, value: f64, unit: &str, remedy: &str) -> ProcessError {
    ProcessError::WrongNumber { what: what.into(), value, unit: unit.into(), remedy: remedy.into() }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("spec", self.spec()).finish_non_exhaustive()
    }
}
