//! Records of the grids that `gridloom up` has started, by which `status`, `drain` and `down` find them from another shell.
//!
//! ```text
//!  $XDG_STATE_HOME/gridloom/up/     ~/.local/state without the variable
//!    GRID.json                      hosts, how they are reached, their parts
//!    GRID.lock                      locked by 'up' and 'down' of that grid
//!    GRID.steps/HOST.log            output of 'srun' for the step that runs its parts, in an allocation of Slurm
//! ```
//!
//! **Invariants:** a part is recorded before it is started, so that none is lost when 'up' is interrupted. No
//! private key is recorded.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use gridloom_net::identity::random;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::allocate;
use super::folders::{folder, path};
use super::pbs;
use super::plan::AGENT;
use super::remote::{Connection, Target};
use super::request::{Action, Request, VERSION};
use super::slurm::JOB_VARIABLE;

/// A grid that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    pub name: String,
    /// See `Request`.
    pub id: String,
    /// The file of hosts.
    pub file: PathBuf,
    /// Address of the agent, once it runs.
    pub agent: Option<String>,
    /// Number of the Slurm job that was requested for the grid, and that ends with it.
    #[serde(default)]
    pub job: Option<String>,
    pub hosts: Vec<Host>,
}

/// A host of the grid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    pub target: Target,
    /// Labels of its parts.
    pub labels: Vec<String>,
}

impl Grid {
    /// Returns a grid of which nothing runs yet.
    pub fn new(name: &str, file: PathBuf) -> Result<Grid> {
        let id: [u8; 8] = random()?;
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Grid { name: name.into(), id, file, agent: None, job: None, hosts: Vec::new() })
    }

    /// Returns the grid of that name; without a name, that of the job that this command runs in, or the only one.
    pub fn find(name: Option<&str>) -> Result<Grid> {
        let names = names()?;
        let known = || names.join(", ");
        let own = names.iter().find(|name| is_of_own_job(name));
        let name = match (name.or(own.map(String::as_str)), &names[..]) {
            (Some(name), names) if names.iter().any(|known| known == name) => name,
            (_, []) => bail!("no grid was started here; 'gridloom up FILE' starts one"),
            (Some(name), _) => bail!("no grid '{name}' was started here; there is: {}", known()),
            (None, [only]) => only,
            (None, _) => bail!("which grid? These were started here: {}", known()),
        };
        Grid::read(name)?.with_context(|| format!("the grid '{name}' was just taken down"))
    }

    /// Returns the grid of that name, if there is one.
    pub fn read(name: &str) -> Result<Option<Grid>> {
        let path = path(name, "json")?;
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
            Ok(text) => serde_json::from_str(&text).map(Some).with_context(|| {
                format!("'{}' was written by another version of Gridloom, or damaged", path.display())
            }),
        }
    }

    /// Returns a request to a host of the grid.
    pub fn request(&self, action: Action) -> Request {
        Request { version: VERSION.into(), grid: self.name.clone(), grid_id: self.id.clone(), action }
    }

    /// Writes the record atomically.
    pub fn write(&self) -> Result<()> {
        let (whole, part) = (path(&self.name, "json")?, path(&self.name, "part")?);
        let write = || fs::write(&part, serde_json::to_string_pretty(self)?).and_then(|()| fs::rename(&part, &whole));
        write().with_context(|| whole.display().to_string())
    }

    /// Removes the record: nothing of the grid is left. Ends a job that was requested for it.
    pub fn remove(&self) -> Result<()> {
        if let Some(job) = &self.job {
            allocate::release(job)?;
            gridloom_base::stderr_line!("gridloom: the job {job} of Slurm has ended");
        }
        let steps = path(&self.name, "steps")?;
        match fs::remove_dir_all(&steps) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| steps.display().to_string());
            }
            _ => {}
        }
        let path = path(&self.name, "json")?;
        fs::remove_file(&path).with_context(|| path.display().to_string())
    }

    /// Returns the host that runs the agent.
    pub fn agent_host(&self) -> Option<&Host> {
        self.hosts.iter().find(|host| host.labels.iter().any(|label| label == AGENT))
    }

    /// Returns the host with that connection.
    pub fn host_of(&self, way: &Connection) -> Option<&Host> {
        self.hosts.iter().find(|host| host.target.connection == *way)
    }

    /// Returns the numbers of the Slurm allocations that it uses, the first one first.
    pub fn jobs(&self) -> Vec<&str> {
        let mut jobs = Vec::new();
        jobs.extend(self.job.as_deref());
        for host in &self.hosts {
            if let Connection::Slurm(step) = &host.target.connection
                && !jobs.contains(&step.job.as_str())
            {
                jobs.push(step.job.as_str());
            }
        }
        jobs
    }
}

/// Locks that grid until the result is dropped, so that no other command changes it.
pub fn lock(name: &str) -> Result<File> {
    let path = path(name, "lock")?;
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!("another command is starting or ending the grid '{name}'; wait for it")
        }
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder()?)? {
        let name = entry?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".json")).map(str::to_string));
    }
    names.sort();
    Ok(names)
}

/// True if a grid of that name was started in the job that this command runs in.
fn is_of_own_job(name: &str) -> bool {
    let of_slurm = std::env::var(JOB_VARIABLE).ok();
    let mut jobs = of_slurm.into_iter().chain(pbs::job().ok());
    jobs.any(|job| name.ends_with(&format!("-{job}")))
}

#[cfg(test)]
mod tests {
    use crate::key_paths::key_paths;

    use super::super::remote::Connection;
    use super::super::slurm::Step;
    use super::super::ssh::Ssh;
    use super::*;

    /// A later release reads the file of a grid that an earlier one started.
    #[test]
    fn the_names_in_the_file_of_a_grid_are_fixed() {
        let host = |connection| Host {
            name: "h".into(),
            target: Target { connection, gridloom: "gridloom".into(), is_sent: true },
            labels: vec!["agent".into()],
        };
        let ssh =
            Ssh { ssh: vec!["ssh".into()], destination: "h".into(), user: None, port: None, jump: None, connect_s: 1 };
        let mut grid = Grid::new("g", PathBuf::from("hosts.toml")).unwrap();
        grid.hosts =
            vec![host(Connection::Ssh(ssh)), host(Connection::Slurm(Step { job: "1".into(), node: "n".into() }))];
        let text = serde_json::to_string(&grid).unwrap();
        assert_eq!(key_paths(&text), include_str!("../../../tests/formats/up_grid.keys"));
    }
}
