//! `gridloom chares resize`.

use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use gridloom::chares::{RunDescription, RunFolder};

use super::FOLDER_NAME;
use crate::commands::print_text;

/// Change the number of elements of a running program.
///
/// The program must have been started by 'gridloom chares run' on this machine. At its next checkpoint (cx.checkpoint,
/// in Python chares.checkpoint) it continues with this number of elements: more elements are started and join, or the
/// last ones leave. The chares are then placed by their placements for this number of elements. The run needs no
/// --checkpoint. This command ends when the program has continued. If the chares cannot be saved, the command fails,
/// and the program continues unchanged. To cancel a pending resize, give the current number of elements. The command
/// finds runs of the same user with the same folder for temporary files (TMPDIR).
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom chares resize 4")]
pub struct Options {
    /// Process number of the 'gridloom chares run', if there are several
    #[arg(long, value_name = "PROCESS")]
    run: Option<u32>,
    /// New number of processing elements
    #[arg(value_name = "NUMBER")]
    number: u32,
}

/// Interval between two checks of the run.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running program.
struct Run {
    process: u32,
    epochs: RunFolder,
    file: RunDescription,
}

impl Run {
    fn in_words(&self) -> String {
        format!("--run {} ({})", self.process, self.file.words())
    }
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let Options { number, .. } = *options;
    let Run { process, epochs, file } = chosen(options.run)?;
    if let Err(why) = file.bounds.check(number) {
        bail!("run {process} cannot continue with {number} elements: {why}");
    }
    let before = epochs.generation()?;
    let has = |number: u32| -> Result<bool> {
        let now = epochs.generation()?.map_or(file.elements, |generation| generation.elements.len() as u32);
        Ok(now == number)
    };
    if has(number)? {
        epochs.clear_request()?;
        print_text(&format!("run {process} has {number} elements\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !epochs.request_elements(number)? {
        let wanted = epochs.requested_elements()?.map_or("another number of".into(), |wanted| wanted.to_string());
        bail!("run {process} will already continue with {wanted} elements at its next checkpoint: wait for that");
    }
    loop {
        if epochs.generation()? != before && has(number)? {
            print_text(&format!("run {process} continues with {number} elements\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(why) = epochs.refusal()? {
            bail!("run {process} cannot continue with {number} elements: {why}");
        }
        ensure!(epochs.notify()?, "run {process} has ended");
        ensure!(!epochs.is_over()?, "run {process} has ended");
        let is_wanted = epochs.requested_elements()? == Some(number);
        if !is_wanted && epochs.refusal()?.is_none() && !has(number)? {
            bail!("run {process} will no longer continue with {number} elements: another resize has replaced this one");
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the run with that process number; without a number, the only run.
fn chosen(process: Option<u32>) -> Result<Run> {
    let mut runs = runs()?;
    let started = "'gridloom chares run' on this machine starts a program whose number of elements can be changed; a program on servers (--agent) keeps its slots";
    if let Some(process) = process {
        let known: Vec<String> = runs.iter().map(Run::in_words).collect();
        let known = if known.is_empty() { String::new() } else { format!("; these runs exist: {}", known.join(", ")) };
        let found = runs.into_iter().find(|run| run.process == process);
        return found
            .ok_or_else(|| anyhow::anyhow!("--run {process}: this process runs no chare program{known}; {started}"));
    }
    match runs.len() {
        0 => bail!(
            "no chare program of user {} is running here with the temporary folder {} (TMPDIR, which has to be that of the run): {started}",
            rustix::process::geteuid().as_raw(),
            std::env::temp_dir().display()
        ),
        1 => Ok(runs.remove(0)),
        _ => {
            let each: Vec<String> = runs.iter().map(Run::in_words).collect();
            bail!("which run? Give one of {}", each.join(", "))
        }
    }
}

/// Returns all runs of this user.
fn runs() -> Result<Vec<Run>> {
    let prefix = format!("gridloom-{FOLDER_NAME}-");
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(std::env::temp_dir())?.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(prefix.as_str()));
        let Some(process) = process.and_then(|process| process.trim_end_matches('x').parse().ok()) else { continue };
        let is_own = entry.metadata().is_ok_and(|of| of.is_dir() && of.uid() == rustix::process::geteuid().as_raw());
        let epochs = RunFolder::new(entry.path());
        // A command that was killed leaves its folder behind.
        if !is_own || !epochs.notify()? {
            continue;
        }
        if let Some(file) = epochs.description()? {
            runs.push(Run { process, epochs, file });
        }
    }
    runs.sort_by_key(|run| run.process);
    Ok(runs)
}
