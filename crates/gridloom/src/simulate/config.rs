//! The configuration of a simulated grid, and the files that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use gridloom_base::near::{did_you_mean, near_names};
use gridloom_base::size::parse_size;
use gridloom_flow::NetworkModel;
use gridloom_platform::{HostId, LinkId, Platform, units};
use gridloom_sim::faults::Scenario;
use gridloom_sim::{HostMemory, SimConfig};
use serde::{Deserialize, Serialize};

use super::deployment::Deployment;
use super::roles::{GRID_ROLES, Roles, read_deployment};
use crate::{Error, LocalConfig, read_text};

/// Maximum start time of a program, seconds: a day, so that virtual time does not overflow with the starts of a long run.
const PROGRAM_START_S_MAX: f64 = 86_400.0;

/// Set by `gridloom simulate` for the program that it runs.
pub(super) const VARIABLE: &str = "GRIDLOOM_SIMULATE";

/// Its value in workers of a simulation.
pub(super) const OF_WORKERS: &str = "worker";

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SimulateConfig {
    #[serde(with = "gridloom_base::path_bytes")]
    pub platform: PathBuf,
    #[serde(default, with = "gridloom_base::path_bytes::option")]
    pub deployment: Option<PathBuf>,
    /// Scenario of faults; its times count from the beginning of the simulation.
    #[serde(default, with = "gridloom_base::path_bytes::option")]
    pub faults: Option<PathBuf>,
    /// Descriptions of the servers' functions: `.idl` and `.py` files, `builtin:linalg` and the like.
    #[serde(default, with = "gridloom_base::path_bytes::list")]
    pub functions: Vec<PathBuf>,
    /// Libraries for the `.idl` files, if bodies are run.
    #[serde(default, with = "gridloom_base::path_bytes::list")]
    pub libraries: Vec<PathBuf>,
    /// Run the bodies of tasks, so that results are real.
    #[serde(default)]
    pub execute: bool,
    /// Seed for all random numbers.
    #[serde(default)]
    pub seed: u64,
    /// Network model by name; the default if `None`.
    #[serde(default)]
    pub network: Option<String>,
    /// Names of links without latency, whatever the platform says.
    #[serde(default)]
    pub without_latency: BTreeSet<String>,
    /// Speed of this machine in floating-point operations per second, for measured blocks; measured if `None`.
    #[serde(default)]
    pub reference_flops: Option<f64>,
    /// Fraction of its host's speed that a function uses, by name; other functions use all of it.
    #[serde(default)]
    pub efficiencies: BTreeMap<String, f64>,
    /// File for the report, written at the end of the session.
    #[serde(default, with = "gridloom_base::path_bytes::option")]
    pub report: Option<PathBuf>,
    /// File for the timeline of all groups, a web page, written at the end of the session.
    #[serde(default, with = "gridloom_base::path_bytes::option")]
    pub timeline: Option<PathBuf>,
    /// File in which the durations of measured blocks are recorded.
    #[serde(default, with = "gridloom_base::path_bytes::option")]
    pub record: Option<PathBuf>,
    /// File of recorded durations, which are charged instead of measured ones.
    #[serde(default, with = "gridloom_base::path_bytes::option")]
    pub replay: Option<PathBuf>,
    /// Virtual seconds after which a run of processes ends; a failure if any still runs.
    #[serde(default)]
    pub until: Option<f64>,
    /// File for a trace, for a viewer: in Paje's format if its name ends in `.paje`, otherwise in Chrome's.
    #[serde(default, with = "gridloom_base::path_bytes::option")]
    pub trace: Option<PathBuf>,
    /// BLAS library for `linalg/…`.
    #[serde(default, with = "gridloom_base::path_bytes::option")]
    pub blas: Option<PathBuf>,
    /// Python interpreter for Python functions.
    #[serde(default, with = "gridloom_base::path_bytes::option")]
    pub python: Option<PathBuf>,
    /// Options of the interpreter, such as `-O`, one word each.
    #[serde(default)]
    pub python_options: Vec<String>,
    /// The `gridloom` program, for bodies.
    #[serde(default, with = "gridloom_base::path_bytes::option")]
    pub program: Option<PathBuf>,
}

impl SimulateConfig {
    /// Reads the configuration that `gridloom simulate` set for this program, and adds what the program would have started itself.
    pub(crate) fn from_environment(local: Option<&LocalConfig>) -> Result<Option<SimulateConfig>, Error> {
        let Some(text) = std::env::var_os(VARIABLE) else { return Ok(None) };
        if text == OF_WORKERS {
            let why = "a function of a simulated grid opens sessions while it runs, not while its module is imported";
            return Err(Error::Usage(why.into()));
        }
        let config: SimulateConfig = serde_json::from_str(&text.to_string_lossy())
            .map_err(|error| Error::Input(format!("{VARIABLE} is not a valid configuration: {error}")))?;
        Ok(Some(config.with_local(local)))
    }

    /// Adds the parts of a local grid that the program would have started itself.
    pub(crate) fn with_local(mut self, local: Option<&LocalConfig>) -> SimulateConfig {
        if let Some(local) = local {
            self.functions.extend(local.functions.iter().cloned());
            self.libraries.extend(local.libraries.iter().cloned());
            self.blas = self.blas.or_else(|| local.blas.clone());
            self.python = self.python.or_else(|| local.python.clone());
            self.python_options.extend(local.python_options.iter().cloned());
            self.program = self.program.or_else(|| local.program.clone());
        }
        self
    }

    /// Returns the environment variable that makes a program run in this simulation, as `(name, value)`.
    pub fn to_environment(&self) -> (String, String) {
        (VARIABLE.into(), serde_json::to_string(self).expect("a configuration of texts, numbers and paths"))
    }

    /// Reads and checks the platform and the deployment.
    ///
    /// # Errors
    /// If one of them is invalid; the message has file, line and column.
    pub fn check(&self) -> Result<(), Error> {
        let platform = self.read_platform()?;
        self.read_faults()?;
        let Some(file) = &self.deployment else { return self.roles(&platform).map(|_| ()) };
        let processes = read_deployment(file)?;
        if processes.is_empty() {
            return Err(Error::Input(format!("{}: no process is deployed", file.display())));
        }
        let has = |role: &str| processes.iter().any(|process| process.function == role);
        let is_grid = processes.iter().all(|process| GRID_ROLES.contains(&process.function.as_str()));
        if is_grid && has("client") && has("server") {
            return self.roles(&platform).map(|_| ());
        }
        // Either processes of the program, which knows its functions, or a grid that lacks a role, which is reported
        // when it starts.
        Deployment::read(file)?.check_hosts(&platform)
    }

    pub(crate) fn read_platform(&self) -> Result<Platform, Error> {
        let text = read_text(&self.platform)?;
        let folder = self.platform.parent().map(PathBuf::from).unwrap_or_default();
        let mut load = |name: &str| read_text(&folder.join(name)).map_err(|error| error.to_string());
        let platform = Platform::parse(&text, &self.platform.display().to_string(), &mut load)
            .map_err(|e| Error::Input(e.to_string()))?;
        let links = self
            .without_latency
            .iter()
            .map(|name| platform.link(name).ok_or_else(|| Error::Input(format!("the platform has no link '{name}'"))));
        let links: Vec<LinkId> = links.collect::<Result<_, _>>()?;
        Ok(platform.without_latency(&links))
    }

    pub(crate) fn read_faults(&self) -> Result<Option<Scenario>, Error> {
        let Some(file) = &self.faults else { return Ok(None) };
        let scenario = Scenario::parse(&read_text(file)?, &file.display().to_string());
        scenario.map(Some).map_err(|error| Error::Input(error.to_string()))
    }

    /// Returns the configuration of a simulation on the platform.
    ///
    /// # Errors
    /// If the network model is unknown, or a property of a host is invalid.
    pub(crate) fn sim_config(&self, platform: &Platform) -> Result<SimConfig, Error> {
        let network = network_model(self.network.as_deref())?;
        let efficiencies = self.efficiencies.clone();
        let disks = rates(platform, ("disk", "the rate of its disk, such as 200MBps"))?;
        let memories = memories(platform)?;
        let program_starts_s = program_starts(platform)?;
        let upload_limits =
            rates(platform, ("upload_limit", "the maximum rate at which its server sends, such as 100Mbps"))?;
        let storages = shared_storage(platform)?;
        let seed = self.seed;
        Ok(SimConfig {
            seed,
            network,
            efficiencies,
            disks,
            memories,
            program_starts_s,
            upload_limits,
            storages,
            ..SimConfig::default()
        })
    }

    /// Returns the roles of the hosts.
    pub(super) fn roles(&self, platform: &Platform) -> Result<Roles, Error> {
        Roles::new(platform, self.deployment.as_deref())
    }
}

fn network_model(name: Option<&str>) -> Result<NetworkModel, Error> {
    match name {
        None => Ok(NetworkModel::default()),
        Some(name) => NetworkModel::by_name(name).map_err(|error| Error::Input(error.to_string())),
    }
}

/// Returns, for each host with storage shared with others, the host of that storage.
fn shared_storage(platform: &Platform) -> Result<BTreeMap<HostId, HostId>, Error> {
    let mut storages = BTreeMap::new();
    for (number, host) in (0..).zip(platform.hosts()) {
        let Some(name) = host.properties.get("storage") else { continue };
        let Some(storage) = platform.host(name) else {
            let near = near_names(name, platform.hosts().iter().map(|host| host.name.as_str()));
            let why = format!("host '{}' has storage = '{name}', but there is no such host", host.name);
            let why = format!("{why}{}", did_you_mean(&near));
            return Err(Error::Input(platform.host_error(HostId(number), why).to_string()));
        };
        storages.insert(HostId(number), storage);
    }
    Ok(storages)
}

/// Returns the memories of the hosts that page: those with a swap.
fn memories(platform: &Platform) -> Result<BTreeMap<HostId, HostMemory>, Error> {
    let swaps = rates(platform, ("swap", "the rate at which it exchanges pages with its swap, such as 40MBps"))?;
    let memory = |(host, swap_rate)| match host_memory_bytes(platform, host)? {
        Some(size_bytes) => Ok((host, HostMemory { size_bytes, swap_rate })),
        None => {
            let name = &platform.hosts()[host.0 as usize].name;
            let why =
                format!("host '{name}' has swap, but no memory; add the size of its memory, such as memory = '256MB'");
            Err(Error::Input(platform.host_error(host, why).to_string()))
        }
    };
    swaps.into_iter().map(memory).collect()
}

/// Returns the size of a host's memory, if the platform has it.
///
/// # Errors
/// If it is not a size.
pub(crate) fn host_memory_bytes(platform: &Platform, host: HostId) -> Result<Option<u64>, Error> {
    let described = &platform.hosts()[host.0 as usize];
    let Some(text) = described.properties.get("memory") else { return Ok(None) };
    parse_size(text).map(Some).map_err(|why| {
        let why = format!("memory of host '{}': {why}", described.name);
        Error::Input(platform.host_error(host, why).to_string())
    })
}

/// Reads a host property that is a rate, bytes per second.
fn rates(platform: &Platform, property: (&str, &str)) -> Result<BTreeMap<HostId, f64>, Error> {
    host_numbers(platform, property, |text| units::bandwidth(text).ok().filter(|rate| *rate > 0.0))
}

/// Reads the start times of programs, seconds, for hosts that set them.
fn program_starts(platform: &Platform) -> Result<BTreeMap<HostId, f64>, Error> {
    let expected = format!("the time to start a program, such as 4ms, and at most {PROGRAM_START_S_MAX}s");
    host_numbers(platform, ("program_start", &expected), |text| {
        units::time(text).ok().filter(|start_s| (0.0..=PROGRAM_START_S_MAX).contains(start_s))
    })
}

fn host_numbers(
    platform: &Platform,
    (key, expected): (&str, &str),
    read: impl Fn(&str) -> Option<f64>,
) -> Result<BTreeMap<HostId, f64>, Error> {
    let described =
        (0..).zip(platform.hosts()).filter_map(|(number, host)| Some((HostId(number), host.properties.get(key)?)));
    let figure = |(host, text): (HostId, &String)| match read(text).filter(|figure| figure.is_finite()) {
        Some(figure) => Ok((host, figure)),
        None => {
            let name = &platform.hosts()[host.0 as usize].name;
            let why = format!("host '{name}' has {key} = '{text}'; expected {expected}");
            Err(Error::Input(platform.host_error(host, why).to_string()))
        }
    };
    described.map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_swap_pages_and_needs_the_size_of_its_memory() {
        let read = |properties: &str| {
            let text = format!("[[host]]\nname = 'a'\nspeed = '1Gf'\nproperties = {{ {properties} }}\n");
            memories(&Platform::parse(&text, "a.toml", &mut |_| Err("no files".into())).unwrap())
        };
        let memory = HostMemory { size_bytes: 256_000_000, swap_rate: 40e6 };
        assert_eq!(read("memory = '256MB', swap = '40MBps'").unwrap(), BTreeMap::from([(HostId(0), memory)]));
        assert_eq!(read("memory = '256MB'").unwrap(), BTreeMap::new());
        for (properties, expected) in [
            ("swap = '40MBps'", "has swap, but no memory"),
            ("memory = '256MB', swap = '0'", "swap = '0'; expected the rate"),
            ("memory = 'much', swap = '1MBps'", "memory of host 'a': 'much'"),
        ] {
            let why = read(properties).unwrap_err().to_string();
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn a_start_of_a_program_has_a_limit() {
        let starts = |start: &str| {
            let text = format!("[[host]]\nname = 'a'\nspeed = '1Gf'\nproperties = {{ program_start = '{start}' }}\n");
            program_starts(&Platform::parse(&text, "a.toml", &mut |_| Err("no files".into())).unwrap())
        };
        assert_eq!(starts("15ms").unwrap(), BTreeMap::from([(HostId(0), 0.015)]));
        for start in ["1e300s", "-1s", "soon"] {
            let why = starts(start).unwrap_err().to_string();
            assert!(why.contains(start) && why.contains("at most 86400s"), "{why}");
        }
    }
}
