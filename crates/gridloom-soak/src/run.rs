//! Runs one seed from beginning to end.
//!
//! First the programs do their work while faults are applied. When all programs have ended and all faults have been
//! applied, half of the seeds heal all cuts. Then all shared names are deleted. Nothing is requested during the following
//! [`QUIET_NS`], after which everything must have been freed.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gridloom_base::limits::{FETCH_UNKNOWN_NS_MAX, HEARTBEAT_NS, RECONNECT_NS_MAX, SILENCE_NS_MAX};
use gridloom_base::time::SECOND_NS;
use gridloom_base::{NameError, NodeId, SplitMix64, Time};
use gridloom_core::node::message::CatalogAnswer;
use gridloom_core::node::{Command, Event, NameCommand, Role, Server};
use gridloom_platform::HostId;

use super::driver::WorkloadDriver;
use super::grid::SoakGrid;
use super::invariants::{ALL, InvariantCheck};
use super::layout::AGENT_HOST;
use super::ledger::Ledger;
use super::workload::Hashes;
use gridloom_sim::Record;
use gridloom_sim::Simulation;
use gridloom_sim::faults::{Kind, Scenario, ScheduledFault};
use gridloom_sim::inspect::SimEvent;

/// Maximum number of faults of a seed without a scenario, and the time within which they are applied.
const FAULTS_MAX: u64 = 5;
const FAULTS_WITHIN_NS: u64 = 2 * SECOND_NS;
/// Time after the last fault by which all programs must have ended.
const PROGRAMS_NS_MAX: u64 = 300 * SECOND_NS;
/// Time within which servers notice that they were forgotten and register again.
const SETTLES_NS: u64 = SILENCE_NS_MAX + RECONNECT_NS_MAX + 5 * SECOND_NS;
/// Maximum time to answer a request about names if nothing is broken.
const ANSWER_NS_MAX: u64 = 5 * SECOND_NS;
/// Time within which silent peers are noticed, and requests for data that will not arrive are refused.
const QUIET_NS: u64 = FETCH_UNKNOWN_NS_MAX + SILENCE_NS_MAX + 5 * SECOND_NS;

type NameAnswer = Result<CatalogAnswer, NameError>;

/// Options of a run besides the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Faults to apply instead of random ones. Times count from the start of the programs.
    pub scenario: Option<&'a Scenario>,
    /// True to record all events as text.
    pub trace: bool,
}

/// The result of a run in which every invariant held.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Hash of the trace.
    pub hash: u64,
    /// Faults that were applied.
    pub faults: Vec<Kind>,
    /// States that were reached, with their counts.
    pub reached: BTreeMap<&'static str, u64>,
}

/// The violation of an invariant in a run.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    /// When the violation was noticed; `None` if something panicked.
    pub at: Option<Time>,
    pub invariant: &'static str,
    pub why: String,
    /// The faults, as lines of a scenario.
    pub faults: Vec<String>,
    /// All events, if they were recorded.
    pub records: Vec<Record>,
    /// Description of what each server was waiting for.
    pub situation: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, at, invariant, why, .. } = self;
        write!(f, "seed {seed}: {invariant}: {why}")?;
        at.map_or(Ok(()), |at| write!(f, " (at {at})"))
    }
}

/// Runs a seed.
///
/// # Errors
/// The first violation.
///
/// # Panics
/// Never: a panic of a machine or of the simulation is reported as a failure.
pub fn run(seed: u64, options: Options<'_>) -> Result<Outcome, Box<Failure>> {
    let mut run = Run::new(seed, options);
    let verdict = catch_unwind(AssertUnwindSafe(|| run.play()));
    let (invariant, why, at) = match verdict {
        Ok(Ok(())) => return Ok(run.outcome()),
        Ok(Err(Violation { invariant, why })) => (invariant, why, Some(run.sim.now())),
        Err(panic) => ("no panic", panic_message(panic.as_ref()), None),
    };
    let faults = run.faults.iter().map(ToString::to_string).collect();
    let records = run.sim.records().to_vec();
    let situation = run.sim.servers().flat_map(Server::stall_report).collect();
    Err(Box::new(Failure { seed, at, invariant, why, faults, records, situation }))
}

/// The violation of an invariant.
struct Violation {
    invariant: &'static str,
    why: String,
}

struct Run {
    sim: Simulation,
    ledger: Ledger,
    drivers: Vec<WorkloadDriver>,
    /// Clients that start later.
    later: Vec<(Time, String, HostId)>,
    /// Addresses of the servers when the programs began.
    servers: Vec<String>,
    random: SplitMix64,
    elements: u64,
    hashes: Hashes,
    /// All faults in time order, with absolute times.
    faults: Vec<ScheduledFault>,
    applied: usize,
    heals: bool,
    checks: Vec<(&'static str, Box<dyn InvariantCheck>)>,
}

impl Run {
    fn new(seed: u64, options: Options<'_>) -> Run {
        let mut random = SplitMix64::new(seed);
        let mut ledger = Ledger::default();
        let SoakGrid { mut sim, targets: field, first_client, later_clients: later, elements, hashes } =
            SoakGrid::new(seed, &mut random, &mut ledger);
        if options.trace {
            sim.keep_records();
        }
        let now = sim.now();
        let faults = match options.scenario {
            Some(scenario) => scenario.strikes(&field, &mut random, now),
            None => {
                let count = random.below(FAULTS_MAX + 1);
                field.draw(&mut random, count, now, FAULTS_WITHIN_NS)
            }
        };
        let heals = random.below(2) == 0;
        ledger.deadline = faults.last().map_or(now, |last| last.at) + PROGRAMS_NS_MAX;
        let own = SplitMix64::new(random.next_u64());
        let drivers = vec![WorkloadDriver::new(now, first_client, own, elements, hashes)];
        let later = later.into_iter().map(|(after_ns, name, host)| (now + after_ns, name, host)).collect();
        let checks = ALL.iter().map(|invariant| (invariant.name, (invariant.new_check)())).collect();
        let servers = SoakGrid::running(&sim, Role::Server).map(|node| sim.address(node).to_string()).collect();
        Run { servers, sim, ledger, drivers, later, random, elements, hashes, faults, applied: 0, heals, checks }
    }

    fn play(&mut self) -> Result<(), Violation> {
        while !self.is_over() {
            self.next_action(Time::NEVER)?;
        }
        if self.heals {
            self.sim.heal_all();
        }
        self.ledger.deadline = Time::NEVER;
        self.end_stuck_sessions();
        if self.ledger.shared.is_used() {
            self.delete_names()?;
        }
        self.run_for(QUIET_NS)?;
        self.sim.check();
        // Nobody waits on behalf of functions whose servers have ended.
        let sessions = self.ledger.shared.sessions.keys().copied();
        self.ledger.killed.extend(sessions.filter(|session| self.sim.is_dead(*session)));
        for (invariant, check) in &mut self.checks {
            check.end(&self.sim, &self.ledger).map_err(|why| Violation { invariant, why })?;
        }
        Ok(())
    }

    /// Functions of hung or paused servers wait for names as long as their servers do, so their sessions are ended here.
    fn end_stuck_sessions(&mut self) {
        let runs: Vec<NodeId> = SoakGrid::running(&self.sim, Role::Server).collect();
        let stuck = self.ledger.shared.sessions.iter().filter(|(_, server)| !runs.contains(server));
        let stuck: Vec<NodeId> =
            stuck.map(|(session, _)| *session).filter(|session| !self.sim.is_dead(*session)).collect();
        stuck.into_iter().for_each(|session| self.sim.kill(session));
    }

    fn run_for(&mut self, ns: u64) -> Result<(), Violation> {
        let until = self.sim.now() + ns;
        while self.sim.next_at().is_some_and(|at| at <= until) {
            self.next_action(until)?;
        }
        self.sim.advance_clock(until);
        Ok(())
    }

    /// Deletes all names through another client, once all reachable servers have registered again. The client is on
    /// the agent's host, so that no cut separates the two.
    fn delete_names(&mut self) -> Result<(), Violation> {
        self.run_for(SETTLES_NS)?;
        if SoakGrid::running(&self.sim, Role::Agent).next().is_none() {
            return Ok(());
        }
        let janitor = SoakGrid::add_client(&mut self.sim, HostId(AGENT_HOST), "janitor");
        self.run_for(3 * HEARTBEAT_NS)?;
        for ask in 0.. {
            let list = NameCommand::List { prefix: String::new(), after: String::new() };
            let listed = match self.answer(janitor, 2 * ask, list)? {
                Ok(CatalogAnswer::Listed { names, .. }) => names,
                other => {
                    return Err(Violation {
                        invariant: "names are answered",
                        why: format!("a list request returned {other:?}"),
                    });
                }
            };
            let Some(first) = listed.into_iter().next() else { break };
            let name = first.named.name;
            let deleted = self.answer(janitor, 2 * ask + 1, NameCommand::Delete { name: name.clone() })?;
            if deleted != Ok(CatalogAnswer::Deleted) {
                let why = format!("'{name}' is listed, but deleting it returns {deleted:?}");
                return Err(Violation { invariant: "names are answered", why });
            }
        }
        self.ledger.shared.are_deleted = true;
        Ok(())
    }

    fn answer(&mut self, node: NodeId, ask: u64, command: NameCommand) -> Result<NameAnswer, Violation> {
        let (until, what) = (self.sim.now() + ANSWER_NS_MAX, format!("{command:?}"));
        self.sim.command(node, Command::Name { request: ask, command });
        while self.sim.now() < until {
            self.next_action(until)?;
            while let Some(event) = self.sim.take_event(node) {
                if let Event::NameResult { request: answered, answer } = event
                    && answered == ask
                {
                    return Ok(answer);
                }
            }
        }
        Err(Violation { invariant: "names are answered", why: format!("{what} has no answer") })
    }

    fn is_over(&self) -> bool {
        let all_came = self.later.is_empty() && self.applied == self.faults.len();
        let all_went = self.ledger.malicious_clients.iter().all(|insider| self.sim.is_dead(*insider));
        all_came && all_went && self.drivers.iter().all(|player| player.is_over)
    }

    /// Performs the next action: a fault, a client's start, an action of a program, or a step of the simulation.
    fn next_action(&mut self, until: Time) -> Result<(), Violation> {
        let fault_at = self.faults.get(self.applied).map(|strike| strike.at);
        let comes_at = self.later.iter().map(|(at, ..)| *at).min();
        let acts_at = self.drivers.iter().filter_map(WorkloadDriver::next_at).min();
        let outside_at = fault_at.into_iter().chain(comes_at).chain(acts_at).min();
        let inside_at = self.sim.next_at();
        match outside_at {
            Some(at) if inside_at.is_none_or(|inside| at <= inside) => {
                self.sim.advance_clock(at);
                if fault_at == Some(at) {
                    self.strike();
                } else if comes_at == Some(at) {
                    self.come(at);
                } else {
                    let Run { sim, ledger, drivers: players, .. } = self;
                    players.iter_mut().filter(|player| !player.is_over).for_each(|player| player.act(sim, ledger));
                }
            }
            Some(_) | None => {
                if !self.sim.step() {
                    self.sim.advance_clock(until);
                }
            }
        }
        self.check_invariants()?;
        let Run { sim, ledger, drivers: players, .. } = self;
        players.iter_mut().filter(|player| !player.is_over).for_each(|player| player.handle_events(sim, ledger));
        Ok(())
    }

    fn strike(&mut self) {
        let fault = self.faults[self.applied].fault.clone();
        self.applied += 1;
        self.ledger.damage.record_fault(self.sim.now(), &fault);
        self.sim.apply_fault(&fault);
        self.sim.check();
        for player in self.drivers.iter_mut().filter(|player| !player.was_killed) {
            if self.sim.is_dead(player.node) {
                player.kill();
                self.ledger.killed.insert(player.node);
            }
        }
    }

    fn come(&mut self, at: Time) {
        let index = self.later.iter().position(|(when, ..)| *when == at).expect("a client starts now");
        let (_, name, host) = self.later.remove(index);
        let mut own = SplitMix64::new(self.random.next_u64());
        let is_independent = own.below(4) == 0;
        let node: NodeId = if is_independent {
            let node = self.sim.add_independent(host, &name, self.servers.clone());
            SoakGrid::set_user(&mut self.sim, node);
            node
        } else {
            SoakGrid::add_client(&mut self.sim, host, &name)
        };
        let player = WorkloadDriver::new(at, node, own, self.elements, self.hashes);
        self.drivers.push(if is_independent { player.waiting_for_servers(at) } else { player });
    }

    /// Checks the invariants.
    fn check_invariants(&mut self) -> Result<(), Violation> {
        let mut events = self.sim.take_events();
        for (at, event) in &events {
            match event {
                SimEvent::Starts { node } => {
                    let server = self.sim.session_server(*node);
                    self.ledger.shared.sessions.extend(server.map(|server| (*node, server)));
                }
                SimEvent::Placed { node, ask, named, server } => {
                    self.ledger.shared.placed((*node, *ask), named, *server)
                }
                SimEvent::Corrupted { is_lost: true } => self.ledger.damage.connection_lost(),
                SimEvent::Corrupted { is_lost: false } => self.ledger.damage.datum_changed(),
                SimEvent::Reported { node, event: Event::NameResult { request: ask, answer } } => {
                    self.ledger.shared.answered.insert((*node, *ask), (*at, answer.is_ok()));
                }
                _ => {}
            }
        }
        let (sim, ledger) = (&self.sim, &self.ledger);
        events.retain(
            |(_, event)| !matches!(event, SimEvent::Stored { node, .. } if ledger.malicious_clients.contains(node)),
        );
        for (invariant, check) in &mut self.checks {
            let seen = events.iter().try_for_each(|(at, event)| check.observe(sim, ledger, *at, event));
            seen.and_then(|()| check.step(sim, ledger)).map_err(|why| Violation { invariant, why })?;
        }
        if sim.now() > ledger.deadline {
            let waiting = self.drivers.iter().filter(|player| !player.is_over).map(WorkloadDriver::waits_for);
            let why = waiting.collect::<Vec<_>>().join("; ");
            return Err(Violation { invariant: "no stand-still", why });
        }
        Ok(())
    }

    fn outcome(&self) -> Outcome {
        let mut reached = BTreeMap::from([("a mapping took long", self.sim.slow_mappings())]);
        for (_, check) in &self.checks {
            for (state, times) in check.reached() {
                *reached.entry(state).or_default() += times;
            }
        }
        Outcome { hash: self.sim.trace_hash(), faults: self.ledger.damage.struck().to_vec(), reached }
    }
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}
