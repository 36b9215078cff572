//! Runs a program's processes: one of them for real, or all of them in simulation.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gridloom_base::Time;
use gridloom_base::time::SECOND_NS;
use gridloom_net::descriptors::describe;
use gridloom_net::identity::Keys;
use gridloom_net::jobs::measure_speed;
use gridloom_net::process::{NetProcess, ProcessConfig, end_with_parent};
use gridloom_process::{Level, ProcessError, ProcessSpec};
use gridloom_sim::process::{Body, Runner, SimProcess, StackKind};
use gridloom_sim::{SimConfig, Simulation};

use super::measures::{Recorder, Replay};
use super::settings::read_once;
use super::threads::{ThreadBody, run_threads};
use super::{Main, Process, ProcessFunctions};
use crate::simulate::{ArgumentCheck, Deployment, SharedSimGrid, spec, unknown_function};
use crate::trace::Tracer;
use crate::{Error, SimulateConfig};

/// Set by `gridloom deploy` for each program that it starts.
pub use gridloom_net::process::{CHECK_VARIABLE, DEPLOY_VARIABLE, PROCESSOR_VARIABLE, READY_FILE_VARIABLE};

/// The error for programs in a language that runs one thread at a time.
const NO_THREADS: &str = "a program in Python runs each element in a process of its own, since one interpreter runs one thread at a \
     time: omit --ppn";

/// The result of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RunReport {
    /// Virtual seconds at the end; 0 for a real run.
    pub seconds: f64,
    /// Hash of all events, for a simulated run.
    pub trace_hash: Option<String>,
    /// Processes that failed, with the reason.
    pub failed: Vec<(ProcessSpec, String)>,
}

/// Runs the processes of this program: all of them under `gridloom simulate`, one under `gridloom deploy`.
///
/// # Errors
/// If neither command started this program; if the deployment does not fit; in simulation also if the processes are in
/// a deadlock, or one fails.
pub fn run(mains: &ProcessFunctions, kind: StackKind) -> Result<RunReport, Error> {
    run_checked(mains, kind, &|_| Ok(()))
}

/// Like [`run`], for a program that can check whether arguments fit a function: the whole deployment is checked before
/// a process runs.
///
/// # Errors
/// As for [`run`], and if some arguments do not fit.
pub fn run_checked(mains: &ProcessFunctions, kind: StackKind, fits: ArgumentCheck<'_>) -> Result<RunReport, Error> {
    read_once()?;
    if let Some(config) = config_from_environment()? {
        if kind == StackKind::Thread && !config.threads.is_empty() {
            return Err(Error::Usage(NO_THREADS.into()));
        }
        return run_real(mains, config, fits);
    }
    match SimulateConfig::from_environment(None)? {
        Some(config) => simulate_checked(&config, mains, kind, fits),
        None => Err(Error::Usage(
            "the processes of a program are started by a deployment: 'gridloom simulate -p PLATFORM -d DEPLOYMENT -- \
             PROGRAM', or 'gridloom deploy -d DEPLOYMENT -- PROGRAM' for real"
                .into(),
        )),
    }
}

/// Returns the configuration of this real process in a deployment; `None` if it is not part of one.
///
/// # Errors
/// If the configuration is invalid.
pub(crate) fn config_from_environment() -> Result<Option<ProcessConfig>, Error> {
    let Ok(text) = std::env::var(DEPLOY_VARIABLE) else { return Ok(None) };
    let wrong = |error| Error::Input(format!("{DEPLOY_VARIABLE} is not a valid configuration: {error}"));
    serde_json::from_str(&text).map(Some).map_err(wrong)
}

fn run_real(mains: &ProcessFunctions, config: ProcessConfig, fits: ArgumentCheck<'_>) -> Result<RunReport, Error> {
    if let Some(file) = std::env::var_os(CHECK_VARIABLE) {
        Deployment::read(Path::new(&file))?.check_program(mains, fits)?;
    }
    let specs: Vec<ProcessSpec> = std::iter::once(&config.spec).chain(&config.threads).cloned().collect();
    let main_of = |spec: &ProcessSpec| {
        fits(spec).map_err(Error::Input)?;
        let main = mains.get(&spec.function).ok_or_else(|| Error::Input(unknown_function(mains, &spec.function)))?;
        Ok(main.clone())
    };
    let all_mains = specs.iter().map(main_of).collect::<Result<Vec<Main>, Error>>()?;
    if let Some(file) = std::env::var_os(READY_FILE_VARIABLE) {
        let cannot = |error| Error::Input(format!("{READY_FILE_VARIABLE} is {}: {error}", file.to_string_lossy()));
        std::fs::write(&file, "").map_err(cannot)?;
    }
    end_with_parent().map_err(|error| Error::Connect(error.to_string()))?;
    let keys = Keys::find_or_make().map_err(|error| Error::Connect(error.to_string()))?;
    let processors = processors_to_use(specs.len())?;
    let configs = specs.into_iter().map(|spec| ProcessConfig { spec, threads: Vec::new(), ..config.clone() });
    let worlds = NetProcess::new_siblings(configs.collect(), &keys);
    let worlds = worlds.map_err(|error| Error::Connect(describe(&error)))?;
    let run = |(mut world, (main, processor)): (NetProcess, (Main, Option<usize>))| {
        if let Some(processor) = processor {
            let cannot = |error| Error::Usage(format!("processor {processor} cannot be used: {error}"));
            world.bind(processor).map_err(cannot)?;
        }
        main(Process::new(Box::new(world)))
    };
    let all = worlds.into_iter().zip(all_mains.into_iter().zip(processors));
    let mut parts: Vec<ThreadBody> = all.map(|one| Box::new(move || run(one)) as ThreadBody).collect();
    match parts.len() {
        1 => parts.remove(0)()?,
        _ => run_threads(parts)?,
    }
    Ok(RunReport::default())
}

/// Returns the processor that each thread has to itself, if processors are assigned.
///
/// # Errors
/// If the variable does not have one processor for each thread.
fn processors_to_use(threads: usize) -> Result<Vec<Option<usize>>, Error> {
    let Some(text) = std::env::var_os(PROCESSOR_VARIABLE) else { return Ok(vec![None; threads]) };
    let text = text.to_string_lossy();
    let numbers = text.split(',').map(|number| number.parse().ok()).collect::<Vec<Option<usize>>>();
    if numbers.len() == threads && numbers.iter().all(Option::is_some) {
        return Ok(numbers);
    }
    let remedy = "give one that the process may use, from 0 on, for each of its threads with commas between, or unset the variable";
    Err(Error::Input(format!("{PROCESSOR_VARIABLE} is '{text}', which is not the number of a processor: {remedy}")))
}

/// Runs all processes of a deployment in virtual time.
///
/// # Errors
/// As for [`run`].
pub fn simulate(config: &SimulateConfig, mains: &ProcessFunctions, kind: StackKind) -> Result<RunReport, Error> {
    simulate_checked(config, mains, kind, &|_| Ok(()))
}

fn simulate_checked(
    config: &SimulateConfig,
    mains: &ProcessFunctions,
    kind: StackKind,
    fits: ArgumentCheck<'_>,
) -> Result<RunReport, Error> {
    let platform = Arc::new(config.read_platform()?);
    let shared = Arc::new(SharedSimGrid::new(config.clone(), platform.clone()));
    let file = config.deployment.clone().ok_or_else(|| {
        Error::Usage("processes need a deployment file that places them on hosts: 'gridloom simulate -d FILE'".into())
    })?;
    let deployment = Deployment::read(&file)?;
    deployment.check_hosts(&platform)?;
    deployment.check_program(mains, fits)?;
    let processes = deployment.into_processes();
    let sim_config = SimConfig {
        reference_flops: match (config.reference_flops, &config.replay) {
            (Some(flops), _) => flops,
            // The times to charge are known already.
            (None, Some(_)) => SimConfig::default().reference_flops,
            (None, None) => measure_speed(),
        },
        ..config.sim_config(&platform)?
    };
    let mut simulation = Simulation::new(platform.clone(), sim_config);
    match (&config.record, &config.replay) {
        (Some(file), _) => simulation.set_measures(Box::new(Recorder::create(file)?)),
        (None, Some(file)) => simulation.set_measures(Box::new(Replay::read(file)?)),
        (None, None) => {}
    }
    if let Some(file) = &config.trace {
        simulation.set_observer(Box::new(Tracer::create(file, platform.clone())?));
    }
    if let Some(scenario) = config.read_faults()? {
        let clients = processes.iter().map(|process| (format!("{}@{}", process.function, process.host), &process.host));
        let clients = clients.map(|(name, host)| (name, host.clone())).collect();
        shared.schedule(&mut simulation, &scenario, clients)?;
    }
    if let Some(seconds) = config.until {
        simulation.run_until(Time((seconds.max(0.0) * SECOND_NS as f64) as u64));
    }
    let simulation = Arc::new(Mutex::new(simulation));
    let log = |at: Time, spec: &ProcessSpec, level: Level, category: &str, text: &str| {
        gridloom_base::stderr_line!("{:.6} {level} [{category}] {}@{}: {text}", at.seconds(), spec.function, spec.host);
    };
    let mut runner = Runner::new(simulation.clone(), Arc::new(log));
    runner.set_shared_data(shared.clone());
    let failed = Arc::new(Mutex::new(Vec::new()));
    for process in processes {
        let host = platform.host(&process.host).expect("the deployment's hosts are the platform's");
        let main = mains[&process.function].clone();
        let spec = spec(&process);
        let failed = failed.clone();
        let told = spec.clone();
        let make = move || -> Body {
            let (main, told, failed) = (main.clone(), told.clone(), failed.clone());
            Box::new(move |world: SimProcess| {
                let was_told_to_end = Box::new(world.end_watch());
                let why = Some("it panicked".into());
                let now = Box::new(world.clock());
                let mut unfinished = FailureGuard { spec: told, why, was_ended_by_world: was_told_to_end, now, failed };
                unfinished.why = match main(Process::new(Box::new(world))) {
                    Ok(()) | Err(Error::Process(ProcessError::Ended { .. })) => None,
                    Err(error) => Some(error.to_string()),
                };
            })
        };
        let at = |seconds: f64| Time((seconds.max(0.0) * SECOND_NS as f64) as u64);
        let no_stack = |error: std::io::Error| Error::Input(format!("no stack for a process: {error}"));
        let start = at(process.start_time.unwrap_or(0.0));
        let id = runner.add_restarting(host, spec, start, kind, Box::new(make), process.restart).map_err(no_stack)?;
        if let Some(seconds) = process.kill_time {
            runner.kill_at(id, at(seconds));
        }
    }
    let outcome = {
        let _watch = IdleWatch::start(&simulation);
        runner.run()
    };
    let mut simulation = simulation.lock().unwrap_or_else(PoisonError::into_inner);
    let finished = simulation.finish();
    let failed = std::mem::take(&mut *failed.lock().unwrap_or_else(PoisonError::into_inner));
    let hash = format!("{:016x}", simulation.trace_hash());
    let report = RunReport { seconds: simulation.now().seconds(), trace_hash: Some(hash), failed };
    if let Some(path) = &config.report {
        write_report(path, &report, &simulation, &shared)?;
    }
    if let Some(path) = &config.timeline {
        write(path, &shared.timeline())?;
    }
    finished.map_err(Error::Input)?;
    if let Some((spec, why)) = report.failed.first() {
        let why = format!("process {}@{} failed: {why}", spec.function, spec.host);
        return Err(Error::Process(ProcessError::Failed(why)));
    }
    outcome.map_err(|deadlock| Error::Stalled { seconds: deadlock.seconds, waiting: deadlock.to_string() })?;
    Ok(report)
}

/// Reports once on standard error that only timeouts have fired in a run for a long time. Such a run may continue forever, and
/// nothing else would show it. Watches until it is dropped.
struct IdleWatch {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl IdleWatch {
    fn start(simulation: &Arc<Mutex<Simulation>>) -> IdleWatch {
        let (end, ended) = channel();
        let simulation = simulation.clone();
        let watch = move || {
            let mut since = None;
            while ended.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let (idle, now, waiting) = {
                    let simulation = simulation.lock().unwrap_or_else(PoisonError::into_inner);
                    (simulation.idle(), simulation.now(), simulation.waiting())
                };
                let (seen, looks) = since.filter(|(seen, _)| *seen == idle.since).unwrap_or((idle.since, 0));
                since = Some((seen, looks + 1));
                if looks + 1 > IDLE_CHECKS && idle.limits > 0 && now > idle.since {
                    let who = waiting.join(", ");
                    gridloom_base::stderr_line!(
                        "gridloom: only timeouts have fired since {} s of virtual time, which is now {} s: {who}; \
                         'gridloom simulate --until SECONDS' ends such a run",
                        idle.since.seconds(),
                        now.seconds()
                    );
                    return;
                }
            }
        };
        // Without a thread nothing is reported.
        let thread = thread::Builder::new().name("idle".into()).spawn(watch).ok();
        IdleWatch { end: Some(end), thread }
    }
}

impl Drop for IdleWatch {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

/// Real time between two checks of a run.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of successive checks with nothing but timeouts after which the report is made.
const IDLE_CHECKS: u32 = 10;

/// Reports and notes a process that fails or panics; but not if its world made it end, in a deadlock for
/// instance: then the deadlock is reported.
struct FailureGuard {
    spec: ProcessSpec,
    why: Option<String>,
    was_ended_by_world: Box<dyn Fn() -> bool + Send>,
    now: Box<dyn Fn() -> Time + Send>,
    failed: Arc<Mutex<Vec<(ProcessSpec, String)>>>,
}

impl Drop for FailureGuard {
    fn drop(&mut self) {
        if let Some(why) = self.why.take().filter(|_| !(self.was_ended_by_world)()) {
            let (ProcessSpec { function, host, .. }, at_s) = (&self.spec, (self.now)().seconds());
            gridloom_base::stderr_line!("gridloom: {function}@{host} failed at {at_s:.6} s: {why}");
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).push((self.spec.clone(), why));
        }
    }
}

fn write_report(path: &Path, report: &RunReport, simulation: &Simulation, shared: &SharedSimGrid) -> Result<(), Error> {
    let summary = crate::SimulationReport {
        seconds: report.seconds,
        trace_hash: report.trace_hash.clone().unwrap_or_default(),
        groups: shared.summaries(),
        // A failure is reported to the program.
        ..crate::SimulationReport::new(simulation, &shared.names())
    };
    write(path, &serde_json::to_string(&summary).expect("plain values"))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|error| Error::Input(format!("{}: {error}", path.display())))
}
