//! The command that runs seeds. It is a tool for developers of Gridloom: neither the installed program nor the wheel has it.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use gridloom_sim::faults::{Kind, Scenario};
use gridloom_soak::{self as soak, Failure, Outcome};
use serde_json::json;

/// Run random work under random faults in simulation, and check all invariants.
///
/// Each seed draws a grid of an agent, four servers and up to three clients, the work of the clients' programs, and
/// faults. Processes are killed, hang, stop for a while or restart. Links are cut or lose one direction. Connections
/// break at one end or both, hosts are slow, stores are full. All invariants are checked after every step
/// (--invariants lists them). When everything is released, no node may have any state left. The command ends with
/// status 1 at the first seed that fails, and prints how to replay it: the same seed gives the same run.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:\n  gridloom-soak --seeds 20000\n  gridloom-soak --seed 4711 --trace\n  \
gridloom-soak --scenario crash.faults --seeds 100"
)]
struct Options {
    /// Number of seeds
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// First seed
    #[arg(long, value_name = "S", default_value_t = 0)]
    from: u64,
    /// Run this seed alone
    #[arg(long, value_name = "S", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// File with faults to use instead of random ones; its times count from the start of the work
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// If a seed fails, print its whole trace
    #[arg(long)]
    trace: bool,
    /// Number of seeds that run at a time [default: the machine's processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// List the invariants and exit
    #[arg(long)]
    invariants: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    run(&Options::parse()).unwrap_or_else(|error| {
        gridloom_base::stderr_line!("gridloom-soak: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(options: &Options) -> Result<ExitCode> {
    if options.invariants {
        return list(options.json);
    }
    let scenario = match &options.scenario {
        None => None,
        Some(file) => {
            let name = file.display().to_string();
            let text = std::fs::read_to_string(file).with_context(|| name.clone())?;
            let scenario = Scenario::parse(&text, &name)?;
            soak::check(&scenario)?;
            Some(scenario)
        }
    };
    let (from, seeds) = options.seed.map_or((options.from, options.seeds), |seed| (seed, 1));
    let Some(end) = from.checked_add(seeds) else {
        bail!("--from {from} --seeds {seeds}: seeds end at {}; take fewer", u64::MAX);
    };
    // The report of a failing seed contains its panic message.
    std::panic::set_hook(Box::new(|_| {}));
    let began = Instant::now();
    let tally = soak_all(options, scenario.as_ref(), from, end);
    drop(std::panic::take_hook());
    report(options, &tally?, began.elapsed())
}

/// The sums over all seeds.
#[derive(Default)]
struct Tally {
    seeds: u64,
    faults: BTreeMap<&'static str, u64>,
    reached: BTreeMap<&'static str, u64>,
    failure: Option<Box<Failure>>,
}

impl Tally {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        outcome.faults.into_iter().for_each(|kind| *self.faults.entry(kind.name()).or_default() += 1);
        outcome.reached.into_iter().for_each(|(state, times)| *self.reached.entry(state).or_default() += times);
    }

    /// Records a failure, and keeps the one with the lowest seed.
    fn fail(&mut self, failure: Box<Failure>) {
        self.seeds += 1;
        if self.failure.as_ref().is_none_or(|known| failure.seed < known.seed) {
            self.failure = Some(failure);
        }
    }
}

/// Runs the seeds, several at a time. Seeds below a failing one run to their end, so that the lowest failing seed is found.
fn soak_all(options: &Options, scenario: Option<&Scenario>, from: u64, end: u64) -> Result<Tally> {
    let jobs = match options.jobs {
        Some(jobs) => usize::from(jobs),
        None => gridloom_resources::processors(),
    };
    let (next, end, is_done) = (AtomicU64::new(from), AtomicU64::new(end), AtomicBool::new(false));
    let tally = Mutex::new(Tally::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end.load(Ordering::Relaxed) {
                return;
            }
            let verdict = soak::run(seed, soak::Options { scenario, trace: options.trace });
            let mut tally = tally.lock().expect("no panic while held");
            match verdict {
                Ok(outcome) => tally.add(outcome),
                Err(failure) => {
                    end.fetch_min(seed, Ordering::Relaxed);
                    tally.fail(failure);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        scope.spawn(|| show_progress(&tally, &is_done));
        for worker in workers {
            worker.join().expect("a soak does not panic");
        }
        is_done.store(true, Ordering::Relaxed);
    });
    Ok(tally.into_inner().expect("no panic while held"))
}

/// Shows the progress, if standard error is a terminal.
fn show_progress(tally: &Mutex<Tally>, is_done: &AtomicBool) {
    let mut out = std::io::stderr();
    if !out.is_terminal() {
        return;
    }
    while !is_done.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(200));
        let seeds = tally.lock().expect("no panic while held").seeds;
        // If the terminal is gone, nobody needs the progress.
        let _ = write!(out, "\r{seeds} seeds").and_then(|()| out.flush());
    }
    let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
}

fn report(options: &Options, tally: &Tally, took: Duration) -> Result<ExitCode> {
    let Tally { seeds, faults, reached, failure } = tally;
    if options.json {
        let failure = failure.as_ref().map(|f| {
            json!({ "seed": f.seed, "invariant": f.invariant, "why": f.why, "faults": f.faults,
                    "replay": replay(options, f.seed) })
        });
        print_line(&json!({ "seeds": seeds, "faults": faults, "reached": reached, "failure": failure }).to_string())?;
    } else {
        let drawn: Vec<String> = faults.iter().map(|(kind, times)| format!("{kind} {times}")).collect();
        print_line(&format!("seeds: {seeds}, in {:.1} s", took.as_secs_f64()))?;
        print_line(&format!("faults: {}", if drawn.is_empty() { "none".into() } else { drawn.join(", ") }))?;
        for (state, times) in reached {
            print_line(&format!("{state}: {times}"))?;
        }
    }
    let Some(failure) = failure else {
        return Ok(ExitCode::SUCCESS);
    };
    for record in &failure.records {
        gridloom_base::stderr_line!("{} {} {}", record.at, record.node, record.what);
    }
    if options.trace {
        failure.situation.iter().for_each(|line| gridloom_base::stderr_line!("{line}"));
    }
    gridloom_base::stderr_line!("gridloom-soak: {failure}");
    failure.faults.iter().for_each(|fault| gridloom_base::stderr_line!("  {fault}"));
    gridloom_base::stderr_line!("replay: {}", replay(options, failure.seed));
    Ok(ExitCode::FAILURE)
}

/// Returns the command that runs that seed again.
fn replay(options: &Options, seed: u64) -> String {
    let scenario = options.scenario.as_ref().map(|file| format!(" --scenario {}", quoted(&file.display().to_string())));
    format!("cargo run --release -p gridloom-soak -- --seed {seed}{} --trace", scenario.unwrap_or_default())
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./+:=,@%".contains(letter);
    if word.chars().all(is_plain) { word.to_string() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

fn list(as_json: bool) -> Result<ExitCode> {
    if as_json {
        let all = soak::ALL.iter().map(|invariant| json!({ "name": invariant.name, "about": invariant.about }));
        let faults =
            Kind::ALL.iter().map(|(_, name, form, about)| json!({ "name": name, "form": form, "about": about }));
        print_line(
            &json!({ "invariants": all.collect::<Vec<_>>(), "faults": faults.collect::<Vec<_>>() }).to_string(),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    for invariant in soak::ALL {
        print_line(&format!("{}\n    {}", invariant.name, invariant.about))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints one line on standard output, and flushes it.
fn print_line(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush().context("standard output")
}
