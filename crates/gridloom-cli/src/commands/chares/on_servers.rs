//! `gridloom chares run --agent`: the elements of a program that servers offer.
//!
//! The command requests slots from one server after the other, in the order of their numbers, and starts the elements
//! when all servers have granted theirs. Each server grants all requested slots or none. So a waiting gang holds slots
//! only of servers that precede the one it waits for, and no two gangs can wait for each other.

use gridloom_base::EscapedBytes;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gridloom::{Error, Function, Grid};
use gridloom_base::TaskError;
use gridloom_base::near::{did_you_mean, near_names};
use gridloom_core::call::OutputItem;
use gridloom_core::node::message::ServerStatus;
use gridloom_idl::program::{PROGRAMS_MODULE, function_of};
use gridloom_net::worker::GangRequest;
use gridloom_perf::{ServerView, host_of};
use gridloom_testbed::run_output::OutputFormat;

use self::gang::{Gang, GangRun, Share};
use super::{Run, TimelineFile, check_number, run_number};
use crate::commands::AGENT_VARIABLE;
use crate::commands::simulated_programs::SimulatedPrograms;

mod gang;
mod simulated;

/// How long servers have to report their status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn run(options: &Run, agent: &str) -> Result<ExitCode> {
    check_number(options.number)?;
    if let Some(simulated) = SimulatedPrograms::of_environment()? {
        return simulated::run(options, simulated);
    }
    let agent = address(agent)?;
    let (checkpoint, restart) = (name_of(&options.checkpoint)?, name_of(&options.restart)?);
    let wanted = GangRequest { checkpoint, restart, binds: options.bind, run: run_number()?, start: 0 };
    let (name, arguments) = options.program.split_first().context("which program? '-- NAME' names one")?;
    let output_format = if options.json { OutputFormat::Json } else { OutputFormat::Text };
    let timeline = options.trace.as_deref().map(TimelineFile::claim).transpose()?;
    let grid = Grid::connect(&agent)?;
    let name = name_of_program(name)?;
    let function = find(&grid, name)?;
    grid.listen(move |spoken| {
        if let OutputItem::Text { is_error, text } = &spoken.output {
            text.lines().for_each(|line| print_line_of_element(output_format, *is_error, line));
        }
    });
    let arguments = arguments.iter().map(|argument| argument.as_bytes()).collect();
    let until = options.until.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let gang_run = GangRun { grid: &grid, options, function, arguments, wanted, timeline, output_format, until };
    let mut run = 0;
    let status = loop {
        let shares = divide_elements(options.number, name, servers(name, grid.statuses(STATUS_TIMEOUT)?))?;
        let left = options.restarts - run;
        let status = match Gang::new(&gang_run, shares, run).run() {
            Err(error) if left > 0 && is_lost(&error) => {
                output_format.message(&format!("{error}"));
                1
            }
            ended => ended?,
        };
        if status == 0 || left == 0 || until.is_some_and(|until| until <= Instant::now()) {
            break status;
        }
        run += 1;
        output_format.message(&format!("restarts all elements; {} restarts left", left - 1));
    };
    if let Some(timeline) = &gang_run.timeline {
        timeline.write(&vec![options.number as u32; run as usize + 1])?;
    }
    output_format.done(status);
    Ok(ExitCode::from(status))
}

fn name_of_program(word: &OsStr) -> Result<&str> {
    word.to_str()
        .with_context(|| format!("no program can have the name '{}', which is not UTF-8", EscapedBytes::of(word)))
}

/// Returns the agent's address, from the environment if none is given.
fn address(given: &str) -> Result<String> {
    if !given.is_empty() {
        return Ok(given.to_string());
    }
    let remedy = || format!("--agent: which agent? Give HOST:PORT, or set {AGENT_VARIABLE}");
    std::env::var(AGENT_VARIABLE).ok().filter(|address| !address.is_empty()).with_context(remedy)
}

/// Returns the name of the checkpoints. Checkpoints on servers have a name: the servers' operators choose the folder.
fn name_of(option: &Option<std::path::PathBuf>) -> Result<Option<String>> {
    let Some(path) = option else { return Ok(None) };
    ensure!(
        path != Path::new("memory"),
        "--checkpoint memory: this command would have to restart lost elements, which it can do on its own machine \
         only: with --agent use a name, and start servers with their folder ('gridloom serve --checkpoints DIR')"
    );
    let name = path.to_str().context("a name of checkpoints is UTF-8")?;
    Ok(Some(name.to_string()))
}

/// True if a server or its worker was lost; other servers may still be able to run the program.
fn is_lost(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Task(TaskError::ServerLost { .. } | TaskError::Crashed { .. })))
}

/// Returns the program's function.
fn find(grid: &Grid, name: &str) -> Result<Function> {
    let functions = grid.functions();
    let module = format!("{PROGRAMS_MODULE}/");
    let programs: Vec<&str> =
        functions.iter().filter_map(|signature| signature.name.strip_prefix(module.as_str())).collect();
    if programs.contains(&name) {
        return Ok(grid.function(&function_of(name))?);
    }
    bail!("{}", unknown(name, &programs, "gridloom serve"))
}

/// Returns an error message for an unknown program. `offers` is the command with which a server offers one.
fn unknown(name: &str, programs: &[&str], offers: &str) -> String {
    match programs.is_empty() {
        true => format!("no server offers a program '{name}', nor any other: '{offers} --program {name}=PATH' does"),
        false => {
            let near = did_you_mean(&near_names(name, programs.iter().copied()));
            format!("no server offers a program '{name}'; there are: {}{near}", programs.join(", "))
        }
    }
}

/// Returns the servers that offer the program, each with its load and its number of slots.
fn servers(name: &str, statuses: Vec<(ServerView, Option<ServerStatus>)>) -> Vec<(u64, u32, Share)> {
    let function = function_of(name);
    let offers = statuses.into_iter().filter(|(server, _)| server.functions.contains_key(&function));
    let server = |(server, status): (ServerView, Option<ServerStatus>)| {
        let host = host_of(&server.address).trim_matches(['[', ']']).to_string();
        let share = Share { server: server.node, name: server.name, host, first: 0, count: 0 };
        (status.map_or(u64::MAX, |status| status.count), server.slots, share)
    };
    offers.map(server).collect()
}

/// Divides the elements among the servers, the least loaded first. Returns the shares in the order of the servers' numbers.
fn divide_elements(number: usize, name: &str, mut servers: Vec<(u64, u32, Share)>) -> Result<Vec<Share>> {
    let slots: usize = servers.iter().map(|(_, slots, _)| *slots as usize).sum();
    if number > slots {
        let each: Vec<String> = servers.iter().map(|(_, slots, share)| format!("{} {slots}", share.name)).collect();
        bail!(
            "-n {number}: the servers that offer '{name}' have {slots} slots ({}); give -n {slots} or fewer, or start servers with \
             more --slots",
            each.join(", ")
        );
    }
    servers.sort_by(|a, b| (a.0, &a.2.name).cmp(&(b.0, &b.2.name)));
    let mut left = number;
    let mut shares = Vec::new();
    for (_, slots, share) in servers {
        let count = left.min(slots as usize);
        left -= count;
        if count > 0 {
            shares.push(Share { count, ..share });
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

/// Prints a line of an element; the line begins with the element's name.
fn print_line_of_element(output_format: OutputFormat, is_error: bool, line: &str) {
    match line.split_once("| ") {
        Some((label, text)) => output_format.line(label, is_error, text),
        None => output_format.message(line),
    }
}
