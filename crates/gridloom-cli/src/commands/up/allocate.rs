//! An allocation of Slurm that `gridloom up` asks for itself, and that `gridloom down` gives back.
//!
//! It is a job of `sbatch` with a script that only waits: partitions take such jobs where they take no others, and the job does not hang on
//! this command. If the command is interrupted while the job waits, `up` goes on with the same job, and `down` cancels it.
//!
//! Source: the manual pages of sbatch, squeue and scancel, Slurm 22.05.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gridloom_net::identity::SECRET_VARIABLE;
use gridloom_testbed::spec::read_platform;

use super::fault::last;
use super::slurm::command;

/// The property with the words of 'sbatch'.
pub const PROPERTY: &str = "sbatch";
/// Words that would make another kind of job, or one of another cluster.
const OTHER_JOBS: [&str; 5] = ["--array", "--clusters", "--test-only", "--wait", "--wrap"];
const OTHER_LETTERS: [&str; 3] = ["-a", "-M", "-W"];
/// Variables that would make one.
const OTHER_VARIABLES: [&str; 3] = ["SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_WAIT"];
/// The job lasts as long as its allocation.
const SCRIPT: &str = "sleep infinity";
/// How often Slurm is asked at first, and after [`SOON`].
const ASKED_EVERY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];
/// Many jobs start within.
const SOON: Duration = Duration::from_secs(10);
/// The reason is said again after.
const SAID_EVERY: Duration = Duration::from_secs(60);
/// Reasons that no waiting changes, by squeue's manual page.
const NEVER: [&str; 8] = [
    "AccountNotAllowed",
    "BadConstraints",
    "DependencyNeverSatisfied",
    "InvalidAccount",
    "InvalidQOS",
    "PartitionTimeLimit",
    "QOSNotAllowed",
    "QOSTimeLimit",
];

/// The job asks for more nodes than its partition has, or for some that are down and may come back.
const NODE_LIMIT: &str = "PartitionNodeLimit";

/// The words of 'sbatch' in a file of hosts: those of the first host that has some.
pub fn words(file: &Path) -> Result<Vec<String>> {
    let platform = read_platform(file)?;
    let found = platform.hosts().iter().find_map(|host| host.properties.get(PROPERTY));
    let text = found.with_context(|| {
        format!(
            "there is no allocation of Slurm here, and {0} asks for none: give a host the property sbatch = \"--nodes=4 --time=60\", run this \
             in the script of 'sbatch', or name a job with --job",
            file.display()
        )
    })?;
    let words = shlex::split(text).with_context(|| format!("sbatch = '{text}': a quotation mark is not closed"))?;
    if let Some(word) = words.iter().find(|word| makes_other_job(word)) {
        bail!("sbatch has {word}: 'gridloom up' asks for one job, and runs its own script in it; leave that out");
    }
    Ok(words)
}

/// sbatch takes a long option by its first letters, too, and a value right behind a short one.
fn makes_other_job(word: &str) -> bool {
    let long = word.split('=').next().filter(|long| long.len() > 2 && long.starts_with("--"));
    let is_other = long.is_some_and(|long| OTHER_JOBS.iter().any(|other| other.starts_with(long)));
    word == ":" || is_other || OTHER_LETTERS.iter().any(|letter| word.starts_with(letter))
}

/// Asks for a job, and gives its number.
pub fn submit(words: &[String]) -> Result<String> {
    let own = ["--parsable", "--job-name=gridloom", "--output=/dev/null", "--wrap", SCRIPT];
    let mut command = command("sbatch");
    OTHER_VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    // A job that starts again finds its servers gone.
    command.args(own).args(words).arg("--no-requeue");
    let output = output_of(command)?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // NUMBER, or NUMBER;CLUSTER.
    let job = said.trim().split(';').next().unwrap_or_default();
    let is_number = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit());
    ensure!(
        output.status.success() && is_number,
        "Slurm refuses the job: {}\n  tried: sbatch {}\n  remedy: correct the property 'sbatch'; 'sinfo' shows partitions, nodes and limits",
        last(&errors).trim_start_matches("sbatch: error: "),
        words.join(" ")
    );
    Ok(job.to_string())
}

/// Waits until the job runs. Says what it waits for.
///
/// # Errors
/// If it ends, if Slurm says that it can never run, or after `limit`. While Slurm does not answer, the job may still wait.
pub fn wait(job: &str, limit: Option<Duration>) -> Result<()> {
    let (begun, mut said) = (Instant::now(), None::<(String, Instant)>);
    loop {
        let (state, reason, is_never) = match state_of(job)? {
            Told::Job(found) => {
                let is_never =
                    NEVER.contains(&found.reason.as_str()) || found.reason == NODE_LIMIT && found.is_too_large();
                (found.state, found.reason, is_never)
            }
            Told::Nothing(why) => ("PENDING".into(), format!("Slurm does not answer: {why}"), false),
        };
        match state.as_str() {
            "RUNNING" => return Ok(()),
            "PENDING" | "CONFIGURING" => {}
            _ => bail!("the job {job} has ended before it could be used: {state}"),
        }
        ensure!(
            !is_never,
            "Slurm never starts the job {job}: {reason}\n  remedy: correct the property 'sbatch'; 'sinfo' shows partitions, nodes and limits"
        );
        let waited = begun.elapsed();
        if let Some(limit) = limit.filter(|limit| waited > *limit) {
            bail!(
                "the job {job} has not started within {} s: {reason}\n  remedy: raise --queue-wait, or ask for less in the property 'sbatch'",
                limit.as_secs_f64()
            );
        }
        let is_known = |(known, at): &(String, Instant)| *known == reason && at.elapsed() < SAID_EVERY;
        if !said.as_ref().is_some_and(is_known) {
            gridloom_base::say!("gridloom: the job {job} waits since {} s: {reason}", waited.as_secs());
            said = Some((reason, Instant::now()));
        }
        std::thread::sleep(ASKED_EVERY[usize::from(waited > SOON)]);
    }
}

/// Ends the job, and all that runs in it.
pub fn release(job: &str) -> Result<()> {
    let mut command = command("scancel");
    command.arg(job);
    let output = output_of(command)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    // It may have ended by itself, or with the last process in it.
    ensure!(
        output.status.success() || errors.contains("Invalid job id"),
        "Slurm does not end the job {job}: {}",
        last(&errors)
    );
    Ok(())
}

/// What Slurm says of a job.
enum Told {
    Job(Found),
    /// It does not answer.
    Nothing(String),
}

struct Found {
    state: String,
    reason: String,
    /// Nodes that it asks for, at least.
    nodes: u64,
    /// The partitions that may have it.
    partitions: Vec<String>,
}

impl Found {
    fn read(line: &str) -> Option<Found> {
        let [state, reason, nodes, partitions] = line.split('|').collect::<Vec<_>>()[..] else { return None };
        let partitions = partitions.split(',').map(str::to_string).collect();
        Some(Found { state: state.into(), reason: reason.into(), nodes: nodes.parse().unwrap_or(0), partitions })
    }

    /// Whether none of its partitions has so many nodes, or lets a job have them. What Slurm does not tell may change.
    fn is_too_large(&self) -> bool {
        self.partitions.iter().all(|partition| nodes_at_most(partition).is_some_and(|most| self.nodes > most))
    }
}

/// Nodes that a job can have of a partition when all of them are up.
fn nodes_at_most(partition: &str) -> Option<u64> {
    let mut command = command("scontrol");
    command.args(["--oneliner", "show", "partition", partition]);
    let output = output_of(command).ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let field = |key: &str| text.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.parse::<u64>().ok());
    let total = field("TotalNodes=")?;
    Some(field("MaxNodes=").map_or(total, |most| most.min(total)))
}

/// State and reason.
fn state_of(job: &str) -> Result<Told> {
    let mut command = command("squeue");
    command.args(["--noheader", "--states=all", "--jobs", job, "--format=%T|%r|%D|%P"]);
    let output = output_of(command)?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if let Some(found) = said.lines().next().and_then(Found::read) {
        return Ok(Told::Job(found));
    }
    ensure!(
        !output.status.success() && !errors.contains("Invalid job id"),
        "Slurm knows the job {job} no longer: it has ended"
    );
    Ok(Told::Nothing(last(&errors).to_string()))
}

/// Slurm keeps the environment of 'sbatch': the grid's secret does not belong there.
fn output_of(mut command: std::process::Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.env_remove(SECRET_VARIABLE).stdin(Stdio::null());
    command.output().with_context(|| format!("cannot run Slurm's command '{name}'"))
}
