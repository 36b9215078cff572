//! PBS: the nodes of a job, from its node file. They are reached by ssh, which PBS and similar systems allow to the user of a job.
//!
//! Source: the User's Guide of OpenPBS 20, "PBS_NODEFILE": a line for each MPI process, with the name of its host.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// The environment variable that names the node file inside a job.
const NODE_FILE_VARIABLE: &str = "PBS_NODEFILE";
/// The environment variable with the job's number, such as `17.head`.
const JOB_VARIABLE: &str = "PBS_JOBID";

/// Returns the number of this job.
pub fn job() -> Result<String> {
    let job = std::env::var(JOB_VARIABLE).context("--pbs is for the script of a job of PBS: PBS_JOBID is not set")?;
    Ok(job.split('.').next().unwrap_or_default().to_string())
}

/// Returns the names of this job's nodes, each once.
pub fn nodes() -> Result<Vec<String>> {
    let file = std::env::var_os(NODE_FILE_VARIABLE).map(PathBuf::from);
    let file = file.context("--pbs is for the script of a job of PBS: PBS_NODEFILE is not set")?;
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let mut nodes: Vec<String> = Vec::new();
    for name in text.split_ascii_whitespace() {
        ensure!(!name.starts_with('-'), "{}: '{name}' is not the name of a host", file.display());
        if nodes.iter().all(|node| node != name) {
            nodes.push(name.into());
        }
    }
    ensure!(!nodes.is_empty(), "{}: it names no host", file.display());
    Ok(nodes)
}
