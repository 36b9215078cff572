//! Starts a simulation with its grid: agent, servers, and scheduled faults.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use gridloom_base::{NodeId, SplitMix64};
use gridloom_net::jobs::Interpreter;
use gridloom_platform::HostId;
use gridloom_sim::Simulation;
use gridloom_sim::faults::{FaultTargets, Scenario};

use super::bodies::RealBodies;
use super::config::SimulateConfig;
use super::roles::Roles;
use crate::local::{default_python, program_path};
use crate::offer::{BUILTIN_LINALG, InlineBodies, load_offer, why_no_linalg};
use crate::trace::Tracer;
use crate::{Error, LocalConfig};

/// Creates a simulation with one client. Returns it with the client and the names of all nodes.
pub(crate) fn start_simulation(
    config: &SimulateConfig,
) -> Result<(Simulation, NodeId, BTreeMap<NodeId, String>), Error> {
    let platform = Arc::new(config.read_platform()?);
    let roles = config.roles(&platform)?;
    let mut simulation = Simulation::new(platform.clone(), config.sim_config(&platform)?);
    if let Some(file) = &config.trace {
        simulation.set_observer(Box::new(Tracer::create(file, platform.clone())?));
    }
    let mut names = start_grid(&mut simulation, config, &roles)?;
    let client = simulation.add_client(roles.client, "client");
    names.insert(client, "client".to_string());
    if let Some(scenario) = config.read_faults()? {
        schedule(&mut simulation, &scenario, &roles, config.seed)?;
    }
    Ok((simulation, client, names))
}

/// Starts the agent and the servers of a grid, and returns their names. Runs bodies if the configuration says so.
pub(crate) fn start_grid(
    simulation: &mut Simulation,
    config: &SimulateConfig,
    roles: &Roles,
) -> Result<BTreeMap<NodeId, String>, Error> {
    let platform = simulation.platform().clone();
    let program = config.python.clone().unwrap_or_else(default_python);
    let python = Interpreter { program, options: config.python_options.clone() };
    let mut files = config.functions.clone();
    if !files.iter().any(|file| file.as_os_str() == BUILTIN_LINALG) {
        files.insert(0, PathBuf::from(BUILTIN_LINALG));
    }
    let bodies = if config.execute { InlineBodies::Compile } else { InlineBodies::Unused };
    let is_asked_for = files.len() == config.functions.len();
    let named: Vec<PathBuf> = config.blas.iter().chain(&config.libraries).cloned().collect();
    if let Some(why) = why_no_linalg(&named).filter(|_| config.execute && is_asked_for) {
        return Err(why);
    }
    let mut offer = load_offer(&files, &python, &named, bodies)?;
    if !config.execute {
        offer.warnings.iter().for_each(|warning| gridloom_base::stderr_line!("gridloom: {warning}"));
    }
    offer.add_libraries(config.libraries.iter().cloned());
    let mut specs = Vec::with_capacity(roles.servers.len());
    for part in &roles.servers {
        specs.push((part.host, part.server(&platform, &offer.definitions)?));
    }
    if config.execute {
        let program = program_path(config.program.as_deref());
        simulation.set_bodies(Box::new(RealBodies::new(&offer, program, python)?));
    }
    let mut names = BTreeMap::new();
    names.insert(simulation.add_agent(roles.agent, "agent"), "agent".to_string());
    for (host, spec) in specs {
        let name = spec.name.clone();
        names.insert(simulation.add_server(host, spec), name);
    }
    Ok(names)
}

/// Checks that the servers of a simulated grid that already runs offer the functions with which a program would have
/// started its own.
pub(crate) fn check_functions(offered: &[PathBuf], local: Option<&LocalConfig>) -> Result<(), Error> {
    for file in local.map_or(&[][..], |local| &local.functions) {
        let is_offered = |known: &PathBuf| known == file || known.canonicalize().ok() == file.canonicalize().ok();
        if !offered.iter().any(is_offered) {
            let file = file.display();
            return Err(Error::Usage(format!(
                "{file}: the simulated servers run already, and do not offer it; name it with 'gridloom simulate \
                 --functions {file}', or in the first local() of the program"
            )));
        }
    }
    Ok(())
}

/// Schedules a scenario's faults. Randomly drawn faults spare the last server and the client.
fn schedule(simulation: &mut Simulation, scenario: &Scenario, roles: &Roles, seed: u64) -> Result<(), Error> {
    let platform = simulation.platform().clone();
    let host = |id: HostId| platform.hosts()[id.0 as usize].name.clone();
    let names = simulation.names();
    let servers: Vec<(String, String)> = roles
        .servers
        .iter()
        .map(|part| host(part.host))
        .zip(&names[1..])
        .map(|(host, name)| (name.to_string(), host))
        .collect();
    let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
    let hosts: Vec<&str> = platform.hosts().iter().map(|host| host.name.as_str()).collect();
    let links: Vec<&str> = platform.links().iter().map(|link| link.name.as_str()).collect();
    scenario.check(&nodes, &hosts, &links).map_err(|error| Error::Input(error.to_string()))?;
    let agent = ("agent".to_string(), host(roles.agent));
    let field = FaultTargets { agent, servers, clients: vec![("client".to_string(), host(roles.client))] };
    schedule_faults(simulation, scenario, &field, seed);
    Ok(())
}

/// Schedules a scenario's faults; if some are drawn at random, logs all of them.
pub(crate) fn schedule_faults(simulation: &mut Simulation, scenario: &Scenario, field: &FaultTargets, seed: u64) {
    let strikes = scenario.strikes(field, &mut SplitMix64::new(seed), simulation.now());
    if scenario.has_random_faults() {
        for strike in &strikes {
            gridloom_base::stderr_line!("gridloom: fault (seed {seed}): {strike}");
        }
    }
    simulation.schedule(strikes);
}
