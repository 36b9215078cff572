//! Sources of a grid's hosts: the file of hosts itself, an allocation of Slurm, or a job of PBS.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::allocate;
use super::pbs;
use super::plan::{AgentAt, ConnectOptions, HostPlan, Node, plan, plan_nodes};
use super::remote::Connection;
use super::request::StayOptions;
use super::slurm::{Allocation, JOB_VARIABLE, Step};
use super::state::Grid;

/// Options for the hosts of an allocation.
#[derive(clap::Args)]
pub struct Source {
    /// Use the nodes of a Slurm allocation as hosts: that of --job, the one that this command runs in, or else a new
    /// one that is requested as the property 'sbatch' of the file defines
    #[arg(long)]
    slurm: bool,
    /// Number of the allocation's job. If the grid already uses another allocation, this one is added
    #[arg(long, value_name = "NUMBER", requires = "slurm")]
    job: Option<String>,
    /// Seconds that Slurm has to start the requested job; after that it is cancelled [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = crate::commands::simulate::seconds, requires = "slurm")]
    queue_wait: Option<f64>,
    /// Drain servers this many seconds before their allocation ends
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = crate::commands::simulate::seconds, requires = "slurm")]
    drain_before: f64,
    /// Use the hosts in the node file of the PBS job that this command runs in, reached by ssh
    #[arg(long, conflicts_with = "slurm")]
    pbs: bool,
}

/// The hosts to start, and those that no longer exist.
pub struct HostsToStart {
    pub hosts: Vec<HostPlan>,
    /// Hosts of the grid that are no longer in its allocations.
    pub removed_hosts: Vec<String>,
}

impl Source {
    /// Returns the number of the job, which is part of the grid's name: the same script may run in several jobs at the same time.
    pub fn job(&self) -> Result<Option<String>> {
        match (self.slurm, self.pbs) {
            (true, _) => Ok(self.given_job()),
            (false, true) => pbs::job().map(Some),
            (false, false) => Ok(None),
        }
    }

    /// Returns the number of a job that exists independently of this command.
    fn given_job(&self) -> Option<String> {
        self.job.clone().or_else(|| std::env::var(JOB_VARIABLE).ok())
    }

    /// Requests an allocation, unless there is one. `grid` is recorded as soon as the job has a number, so that 'down'
    /// can release it. `check` finds mistakes in the file before a possibly long wait.
    pub fn allocate(&self, grid: &mut Grid, check: impl Fn() -> Result<()>) -> Result<()> {
        if !self.slurm || self.given_job().is_some() {
            return Ok(());
        }
        let job = match &grid.job {
            Some(job) => job.clone(),
            None => {
                ensure!(
                    grid.hosts.is_empty(),
                    "the grid '{0}' runs on hosts outside of an allocation that it requested: name a job with \
                     --job, or run 'gridloom down {0}' first",
                    grid.name
                );
                let words = allocate::sbatch_arguments(&grid.file)?;
                check()?;
                let job = allocate::submit(&words)?;
                grid.job = Some(job.clone());
                if let Err(error) = grid.write() {
                    // Without a record nobody would find the job again.
                    let left = allocate::release(&job).err().map(|left| format!("; {left:#}"));
                    return Err(error.context(format!("the job {job} was not recorded{}", left.unwrap_or_default())));
                }
                gridloom_base::stderr_line!(
                    "gridloom: Slurm has accepted the job {job}; to release it, end this command, then run 'gridloom down {}'",
                    grid.name
                );
                job
            }
        };
        if grid.hosts.is_empty() {
            return allocate::wait(&job, self.queue_wait.map(Duration::from_secs_f64));
        }
        Ok(())
    }

    /// Returns what to start on which hosts of a file. `before` is the recorded grid.
    pub fn find(&self, file: &Path, before: &Grid, reach: &ConnectOptions) -> Result<HostsToStart> {
        if !self.slurm && !self.pbs {
            let address = before.agent.as_deref();
            let agent = before.agent_host().map(|host| AgentAt { host: &host.name, address });
            return Ok(HostsToStart { hosts: plan(file, agent, reach)?, removed_hosts: Vec::new() });
        }
        let nodes = match self.pbs {
            true => pbs::nodes()?.into_iter().map(|name| Node { address: name.clone(), name, step: None }).collect(),
            false => self.nodes_of_slurm(before)?,
        };
        let is_there = |name: &String| nodes.iter().any(|node| node.name == *name);
        let known = before.hosts.iter();
        let gone = known.filter(|host| !is_there(&host.name)).map(|host| host.name.clone()).collect::<Vec<String>>();
        let agent = before.agent_host();
        if let Some(agent) = agent.filter(|agent| gone.contains(&agent.name)) {
            bail!(
                "the allocation of the agent's host '{}' has ended: run 'gridloom down {}', then start the grid again",
                agent.name,
                before.name
            );
        }
        let address = before.agent.as_deref();
        let agent = agent.map(|host| AgentAt { host: &host.name, address });
        Ok(HostsToStart { hosts: plan_nodes(file, &nodes, agent, reach)?, removed_hosts: gone })
    }

    /// Returns the nodes of the grid's allocations, and of the given one.
    fn nodes_of_slurm(&self, before: &Grid) -> Result<Vec<Node>> {
        let own = before.job.clone();
        let given = self.given_job().or(own).context("there is no allocation of Slurm here")?;
        let mut jobs = before.jobs();
        if !jobs.contains(&given.as_str()) {
            jobs.push(&given);
        }
        let mut nodes: Vec<Node> = Vec::new();
        for job in jobs {
            let Some(allocation) = Allocation::find(job)? else {
                ensure!(
                    job != given,
                    "the allocation {job} has ended: run 'gridloom down {}', then start the grid again",
                    before.name
                );
                continue;
            };
            if let Some(left_s) = allocation.left_s.filter(|left_s| *left_s < self.drain_before && job == given) {
                bail!(
                    "the allocation {job} ends in {left_s:.0} s, and its servers would drain {} s before: request a \
                     longer one, or lower --drain-before",
                    self.drain_before
                );
            }
            for (node, address) in allocation.nodes {
                let step = Step { job: job.into(), node: node.clone() };
                let is_taken = nodes.iter().any(|other| other.name == node);
                let name = match before.host_of(&Connection::Slurm(step.clone())) {
                    Some(known) => known.name.clone(),
                    // Two allocations may share a node.
                    None if is_taken => format!("{node}-{job}"),
                    None => node,
                };
                nodes.push(Node { name, address, step: Some(step) });
            }
        }
        Ok(nodes)
    }

    /// Returns how long the command that starts parts on a host has to keep running there.
    pub fn stay_options(&self, host: &HostPlan) -> Option<StayOptions> {
        match &host.target.connection {
            Connection::Slurm(step) => Some(StayOptions { job: step.job.clone(), drain_s: self.drain_before }),
            Connection::Ssh(_) => None,
        }
    }
}
