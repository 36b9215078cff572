//! An allocation of Slurm that `gridloom up` requests itself, and that `gridloom down` releases.
//!
//! It is an `sbatch` job with a script that only waits: some partitions accept only such jobs, and the job does not
//! depend on this command. If the command is interrupted while the job waits, `up` continues with the same job, and
//! `down` cancels it.
//!
//! Source: the manual pages of sbatch, squeue and scancel, Slurm 22.05.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gridloom_testbed::spec::read_platform;

use super::fault::last_line;
use super::slurm::command;

/// The host property with the arguments of 'sbatch'.
pub const PROPERTY: &str = "sbatch";
/// Options that would create another kind of job, or a job on another cluster.
const OTHER_JOBS: [&str; 5] = ["--array", "--clusters", "--test-only", "--wait", "--wrap"];
const OTHER_LETTERS: [&str; 3] = ["-a", "-M", "-W"];
/// Environment variables that would do the same.
const OTHER_VARIABLES: [&str; 3] = ["SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_WAIT"];
/// A script that runs as long as its allocation.
const SCRIPT: &str = "sleep infinity";
/// Interval between requests to Slurm, at first and after [`FAST_POLL_TIME`].
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];
/// Many jobs start within this time.
const FAST_POLL_TIME: Duration = Duration::from_secs(10);
/// Interval at which the reason for waiting is repeated.
const REASON_INTERVAL: Duration = Duration::from_secs(60);
/// Reasons that waiting does not resolve, from squeue's manual page.
const PERMANENT_REASONS: [&str; 8] = [
    "AccountNotAllowed",
    "BadConstraints",
    "DependencyNeverSatisfied",
    "InvalidAccount",
    "InvalidQOS",
    "PartitionTimeLimit",
    "QOSNotAllowed",
    "QOSTimeLimit",
];

/// The job requests more nodes than its partition has, or nodes that are down and may return.
const NODE_LIMIT: &str = "PartitionNodeLimit";

/// Returns the arguments of 'sbatch' in a file of hosts: those of the first host that has the property.
pub fn sbatch_arguments(file: &Path) -> Result<Vec<String>> {
    let platform = read_platform(file)?;
    let found = platform.hosts().iter().find_map(|host| host.properties.get(PROPERTY));
    let text = found.with_context(|| {
        format!(
            "there is no allocation of Slurm here, and {0} requests none: give a host the property sbatch = \"--nodes=4 --time=60\", run this \
             in the script of 'sbatch', or name a job with --job",
            file.display()
        )
    })?;
    let words = shlex::split(text).with_context(|| format!("sbatch = '{text}': a quotation mark is not closed"))?;
    if let Some(word) = words.iter().find(|word| makes_other_job(word)) {
        bail!(
            "sbatch has {word}: 'gridloom up' requests one job, and runs its own script in it; leave this option out"
        );
    }
    Ok(words)
}

/// True if the argument would create another kind of job. sbatch accepts abbreviated long options, and values directly
/// after short options.
fn makes_other_job(word: &str) -> bool {
    let long = word.split('=').next().filter(|long| long.len() > 2 && long.starts_with("--"));
    let is_other = long.is_some_and(|long| OTHER_JOBS.iter().any(|other| other.starts_with(long)));
    word == ":" || is_other || OTHER_LETTERS.iter().any(|letter| word.starts_with(letter))
}

/// Submits a job and returns its number.
pub fn submit(words: &[String]) -> Result<String> {
    let own = ["--parsable", "--job-name=gridloom", "--output=/dev/null", "--wrap", SCRIPT];
    let mut command = command("sbatch");
    OTHER_VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    // Its servers would be missing if the job were requeued.
    command.args(own).args(words).arg("--no-requeue");
    let output = output_of(command)?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // The output is NUMBER, or NUMBER;CLUSTER.
    let job = said.trim().split(';').next().unwrap_or_default();
    let is_number = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit());
    ensure!(
        output.status.success() && is_number,
        "Slurm refuses the job: {}\n  tried: sbatch {}\n  remedy: correct the property 'sbatch'; 'sinfo' shows partitions, nodes and limits",
        last_line(&errors).trim_start_matches("sbatch: error: "),
        words.join(" ")
    );
    Ok(job.to_string())
}

/// Waits until the job runs. Prints the reason for waiting.
///
/// # Errors
/// If the job ends, if Slurm reports that it can never run, or after `limit`. While Slurm does not answer, the job may still wait.
pub fn wait(job: &str, limit: Option<Duration>) -> Result<()> {
    let (begun, mut said) = (Instant::now(), None::<(String, Instant)>);
    loop {
        let (state, reason, is_never) = match state_of(job)? {
            SlurmAnswer::Job(found) => {
                let is_never = PERMANENT_REASONS.contains(&found.reason.as_str())
                    || found.reason == NODE_LIMIT && found.is_too_large();
                (found.state, found.reason, is_never)
            }
            SlurmAnswer::Nothing(why) => ("PENDING".into(), format!("Slurm does not answer: {why}"), false),
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
                "the job {job} has not started within {} s: {reason}\n  remedy: raise --queue-wait, or request less \
                 in the property 'sbatch'",
                limit.as_secs_f64()
            );
        }
        let is_known = |(known, at): &(String, Instant)| *known == reason && at.elapsed() < REASON_INTERVAL;
        if !said.as_ref().is_some_and(is_known) {
            gridloom_base::stderr_line!(
                "gridloom: the job {job} has been waiting for {} s: {reason}",
                waited.as_secs()
            );
            said = Some((reason, Instant::now()));
        }
        std::thread::sleep(POLL_INTERVALS[usize::from(waited > FAST_POLL_TIME)]);
    }
}

/// Ends the job, and everything that runs in it.
pub fn release(job: &str) -> Result<()> {
    let mut command = command("scancel");
    command.arg(job);
    let output = output_of(command)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    // It may have ended by itself, or with the last process in it.
    ensure!(
        output.status.success() || errors.contains("Invalid job id"),
        "Slurm cannot cancel the job {job}: {}",
        last_line(&errors)
    );
    Ok(())
}

/// Slurm's answer about a job.
enum SlurmAnswer {
    Job(JobState),
    /// Slurm does not answer.
    Nothing(String),
}

struct JobState {
    state: String,
    reason: String,
    /// Minimum number of nodes that it requests.
    nodes: u64,
    /// Partitions in which it may run.
    partitions: Vec<String>,
}

impl JobState {
    fn read(line: &str) -> Option<JobState> {
        let [state, reason, nodes, partitions] = line.split('|').collect::<Vec<_>>()[..] else { return None };
        let partitions = partitions.split(',').map(str::to_string).collect();
        Some(JobState { state: state.into(), reason: reason.into(), nodes: nodes.parse().unwrap_or(0), partitions })
    }

    /// True if each of its partitions has too few nodes, or does not allow a job to have that many. Limits that Slurm
    /// does not report may change.
    fn is_too_large(&self) -> bool {
        self.partitions.iter().all(|partition| nodes_at_most(partition).is_some_and(|most| self.nodes > most))
    }
}

/// Returns the number of nodes of a partition that a job can have when all of them are up.
fn nodes_at_most(partition: &str) -> Option<u64> {
    let mut command = command("scontrol");
    command.args(["--oneliner", "show", "partition", partition]);
    let output = output_of(command).ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let field = |key: &str| text.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.parse::<u64>().ok());
    let total = field("TotalNodes=")?;
    Some(field("MaxNodes=").map_or(total, |most| most.min(total)))
}

/// Returns the state of a job and its reason.
fn state_of(job: &str) -> Result<SlurmAnswer> {
    let mut command = command("squeue");
    command.args(["--noheader", "--states=all", "--jobs", job, "--format=%T|%r|%D|%P"]);
    let output = output_of(command)?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if let Some(found) = said.lines().next().and_then(JobState::read) {
        return Ok(SlurmAnswer::Job(found));
    }
    ensure!(
        !output.status.success() && !errors.contains("Invalid job id"),
        "Slurm no longer knows the job {job}: it has ended"
    );
    Ok(SlurmAnswer::Nothing(last_line(&errors).to_string()))
}

fn output_of(mut command: std::process::Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).output().with_context(|| format!("cannot run Slurm's command '{name}'"))
}
