//! `gridloom deploy`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gridloom::process::{DEPLOY_VARIABLE, ProcessSpec};
use gridloom_core::platform::deployment::{self, Process};
use gridloom_net::process::{Addresses, ProcessConfig};

/// Run the processes of a program for real, as a deployment says.
///
/// Starts the program once for each process of the deployment, all on this machine: each host has a loopback address of
/// its own, so that processes of different hosts may listen on the same port. Their output comes line by line, each line
/// with the name of its process. Start and kill times count from now. Ends with the first exit status that is not 0, when
/// all have ended.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom deploy -d two-processes.toml -- python program.py")]
pub struct Options {
    /// Deployment file: which function runs on which host with which arguments
    #[arg(short, long, value_name = "FILE")]
    deployment: PathBuf,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<String>,
}

type Running = Arc<Mutex<Vec<(ProcessSpec, Child, Option<Instant>)>>>;

pub fn run(options: &Options) -> Result<ExitCode> {
    let name = options.deployment.display().to_string();
    let text = std::fs::read_to_string(&options.deployment).with_context(|| name.clone())?;
    let mut processes = deployment::parse(&text, &name)?;
    ensure!(!processes.is_empty(), "{name}: no process is deployed");
    processes.sort_by(|a, b| a.start_time.unwrap_or(0.0).total_cmp(&b.start_time.unwrap_or(0.0)));
    let addresses = addresses(&processes);
    let begin = Instant::now();
    let running = Running::default();
    end_all_on_signals(running.clone())?;
    let mut outputs = Vec::new();
    for process in &processes {
        let at = |seconds: f64| begin + Duration::from_secs_f64(seconds.max(0.0));
        let start = at(process.start_time.unwrap_or(0.0));
        thread::sleep(start.saturating_duration_since(Instant::now()));
        let (spec, child, threads) = start_one(options, process, &addresses)?;
        outputs.extend(threads);
        lock(&running).push((spec, child, process.kill_time.map(at)));
    }
    let status = wait_for_all(&running)?;
    for output in outputs {
        // A panic there was printed.
        let _ = output.join();
    }
    Ok(ExitCode::from(status))
}

/// A loopback address for each host: 127.x.y.z, with x and y from this process's number, so that two runs do not meet.
fn addresses(processes: &[Process]) -> Addresses {
    let hosts: BTreeMap<&str, ()> = processes.iter().map(|process| (process.host.as_str(), ())).collect();
    let pid = std::process::id();
    let address = |number: usize| {
        let [high, low] = (number as u16 + 1).to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(127, 64 + (pid % 128) as u8, high ^ (pid >> 7) as u8, low))
    };
    hosts.keys().enumerate().map(|(number, host)| ((*host).to_string(), address(number))).collect()
}

type Threads = Vec<thread::JoinHandle<()>>;

fn start_one(options: &Options, process: &Process, addresses: &Addresses) -> Result<(ProcessSpec, Child, Threads)> {
    let Process { host, function, arguments, .. } = process.clone();
    let spec = ProcessSpec { function, host, arguments };
    let config = ProcessConfig { spec: spec.clone(), addresses: addresses.clone() };
    let mut command = Command::new(&options.program[0]);
    command.args(&options.program[1..]).env(DEPLOY_VARIABLE, serde_json::to_string(&config)?);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run '{}'", options.program[0]))?;
    let label = format!("{}@{}", spec.function, spec.host);
    let (out, error) = (child.stdout.take().expect("it is piped"), child.stderr.take().expect("it is piped"));
    let told = label.clone();
    let threads = vec![
        thread::spawn(move || copy(out, &told, &mut std::io::stdout())),
        thread::spawn(move || copy(error, &label, &mut std::io::stderr())),
    ];
    Ok((spec, child, threads))
}

fn copy(from: impl std::io::Read, label: &str, to: &mut impl Write) {
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        // Nobody reads on: the process still runs to its end.
        let _ = writeln!(to, "{label}| {}", String::from_utf8_lossy(&line)).and_then(|()| to.flush());
    }
}

/// The first status that is not 0, by order of the ends.
fn wait_for_all(running: &Running) -> Result<u8> {
    let mut status = 0;
    loop {
        let mut left = lock(running);
        let mut index = 0;
        while index < left.len() {
            let (spec, child, kill_at) = &mut left[index];
            let was_due = kill_at.is_some_and(|at| Instant::now() >= at);
            if was_due {
                // It fails only if it has ended.
                let _ = child.kill();
            }
            match child.try_wait()? {
                None => index += 1,
                Some(ended) => {
                    if !ended.success() && !was_due {
                        eprintln!("gridloom: {}@{} ended with {ended}", spec.function, spec.host);
                        let code = ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
                        status = if status == 0 { code } else { status };
                    }
                    left.remove(index);
                }
            }
        }
        if left.is_empty() {
            return Ok(status);
        }
        drop(left);
        thread::sleep(Duration::from_millis(10));
    }
}

fn end_all_on_signals(running: Running) -> Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    thread::spawn(move || {
        for _ in signals.forever() {
            for (_, child, _) in lock(&running).iter_mut() {
                // It fails only if it has ended.
                let _ = child.kill();
            }
        }
    });
    Ok(())
}

fn lock(running: &Running) -> std::sync::MutexGuard<'_, Vec<(ProcessSpec, Child, Option<Instant>)>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
