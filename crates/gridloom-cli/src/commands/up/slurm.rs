//! Slurm: the nodes of an allocation, and how `srun` reaches one of them.
//!
//! All processes that a step of Slurm has started end with the step. So the step that starts a part keeps running
//! until the part has ended, and its `srun` keeps running on the machine where 'gridloom up' runs. Each later request
//! is a short step of its own. All steps overlap: they take no resources from the steps of the user's programs.
//!
//! Source: the manual pages of srun, squeue and scontrol, Slurm 22.05.

use std::ffi::OsString;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::fault::{CommandOutput, Fault, last_line};

/// The environment variable that names the allocation inside 'sbatch', 'salloc' and 'srun'.
pub const JOB_VARIABLE: &str = "SLURM_JOB_ID";
/// Environment variable of a step with the number of processors that the job has on the node.
pub const CPUS_VARIABLE: &str = "SLURM_CPUS_ON_NODE";

/// A node that is reached by a step of an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Number of the allocation's job.
    pub job: String,
    pub node: String,
}

/// A running allocation.
#[derive(Debug)]
pub struct Allocation {
    /// Names and addresses of its nodes.
    pub nodes: Vec<(String, String)>,
    /// Seconds until it ends; `None` if it has no time limit.
    pub left_s: Option<f64>,
}

/// Returns one of Slurm's commands, without the user's environment variables that would change its output.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(name);
    let is_setting = |name: &OsString| {
        let name = name.to_string_lossy();
        ["SQUEUE_", "SCANCEL_"].iter().any(|prefix| name.starts_with(prefix))
    };
    std::env::vars_os().map(|(name, _)| name).filter(is_setting).for_each(|name| _ = command.env_remove(name));
    command
}

impl Step {
    /// Returns the arguments that precede the command on the node. A single task gets everything that the job has on the node.
    pub fn command_prefix(&self) -> Vec<String> {
        let job = format!("--jobid={}", self.job);
        let node = format!("--nodelist={}", self.node);
        let name = "--job-name=gridloom";
        let words = ["srun", &job, &node, "--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", name, "sh", "-c"];
        words.map(str::to_string).to_vec()
    }

    /// Returns why there was no step; `None` if there was one and the command failed.
    pub fn failure(&self, said: &CommandOutput) -> Option<Fault> {
        // "n1: task 0: Exited with exit code 127" is about the command.
        let is_own = |line: &&str| line.starts_with("srun: error: ") && !line.contains(": task ");
        let own = said.errors.lines().rfind(is_own)?;
        if let Some(why) = self.lost() {
            let remedy = "take the grid down and start it in another allocation, or give it another one with --job";
            return Some(Fault::new(why, remedy));
        }
        let remedy = "try the same command by hand; 'sinfo -N' shows nodes that are down";
        Some(Fault {
            may_run: true,
            ..Fault::new(format!("srun failed: {}", own.trim_start_matches("srun: error: ")), remedy)
        })
    }

    /// Returns why nothing can run there any more, if that is so: Slurm has ended all processes of the allocation, or
    /// those on that node.
    pub fn lost(&self) -> Option<String> {
        let Ok(found) = JobInfo::of(&self.job) else { return None };
        let job = &self.job;
        match found {
            None => Some(format!("its allocation {job} has ended")),
            Some(found) if found.state == "COMPLETING" => Some(format!("its allocation {job} is ending")),
            Some(found) if !found.runs() => Some(format!("its allocation {job} has ended: {}", found.state)),
            Some(found) => {
                let nodes = nodes(&found.nodes).ok()?;
                let has_left = nodes.iter().all(|(node, _)| *node != self.node);
                has_left.then(|| format!("the allocation {job} has no node '{}' any more", self.node))
            }
        }
    }
}

impl Allocation {
    /// Looks up a job. Returns `None` if it has ended.
    ///
    /// # Errors
    /// If Slurm does not answer, or if the job has not started.
    pub fn find(job: &str) -> Result<Option<Allocation>> {
        ensure!(!job.is_empty() && job.chars().all(|c| c.is_ascii_digit()), "'{job}' is not the number of a Slurm job");
        let Some(found) = JobInfo::of(job)? else { return Ok(None) };
        if ["PENDING", "CONFIGURING"].contains(&found.state.as_str()) {
            bail!("the allocation {job} has not begun: {}; run this in its script, or when it runs", found.state);
        }
        if !found.runs() {
            return Ok(None);
        }
        let left_s = found.end_s.map(|end_s| end_s - now_s());
        Ok(Some(Allocation { nodes: nodes(&found.nodes)?, left_s }))
    }
}

/// squeue's answer about a job.
struct JobInfo {
    state: String,
    /// Seconds since 1970.
    end_s: Option<f64>,
    /// A list such as `node[1-3,7]`.
    nodes: String,
}

impl JobInfo {
    fn of(job: &str) -> Result<Option<JobInfo>> {
        let output = command("squeue")
            .args(["--noheader", "--states=all", "--jobs", job, "--format=%T|%e|%N"])
            .env("SLURM_TIME_FORMAT", "%s")
            .output()
            .context("cannot run Slurm's command 'squeue'")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        match String::from_utf8_lossy(&output.stdout).lines().next() {
            Some(line) => Ok(Some(JobInfo::read(line).with_context(|| format!("squeue printed '{line}'"))?)),
            // Slurm forgets a job some minutes after its end.
            None if output.status.success() || errors.contains("Invalid job id") => Ok(None),
            None => bail!("Slurm does not report what happened to job {job}: {}", last_line(&errors)),
        }
    }

    fn read(line: &str) -> Option<JobInfo> {
        let mut fields = line.split('|');
        let (state, end, nodes) = (fields.next()?, fields.next()?, fields.next()?);
        Some(JobInfo { state: state.into(), end_s: end.parse().ok(), nodes: nodes.into() })
    }

    fn runs(&self) -> bool {
        ["RUNNING", "SUSPENDED", "RESIZING", "SIGNALING", "STAGE_OUT"].contains(&self.state.as_str())
    }
}

/// Returns the names and addresses of the nodes in a list.
fn nodes(list: &str) -> Result<Vec<(String, String)>> {
    let output = command("scontrol").args(["--oneliner", "show", "node", list]).output();
    let output = output.context("cannot run Slurm's command 'scontrol'")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let field = |line: &str, key: &str| {
        line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key).map(str::to_string))
    };
    let nodes: Vec<(String, String)> =
        text.lines().filter_map(|line| Some((field(line, "NodeName=")?, field(line, "NodeAddr=")?))).collect();
    if !output.status.success() || nodes.is_empty() {
        bail!("Slurm names no nodes '{list}': {}", last_line(&String::from_utf8_lossy(&output.stderr)));
    }
    Ok(nodes)
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_squeue_has_state_end_and_nodes() {
        let found = JobInfo::read("RUNNING|1795752540|n[1-2]").unwrap();
        assert!(found.runs() && found.end_s == Some(1795752540.0) && found.nodes == "n[1-2]");
        let found = JobInfo::read("CANCELLED|N/A|").unwrap();
        assert!(!found.runs() && found.end_s.is_none());
        assert!(JobInfo::read("slurm_load_jobs error").is_none());
    }
}
