//! `gridloom simulate -- gridloom chares run --agent`: the elements of an offered program in virtual time, on the slots of the simulated servers.
//!
//! `gridloom simulate` passes its configuration and the programs that the servers offer to this command in an
//! environment variable. This command places the elements as it does on real servers, and runs the program with that
//! deployment.
//!
//! **Limit:** the gang has the grid to itself, so it never waits for slots.

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use gridloom::chares::ElementPlacement;
use gridloom::{Roles, SimulateConfig};

use super::gang::Share;
use super::{divide_elements, unknown};
use crate::commands::OwnFolder;
use crate::commands::chares::{Run, deployment_of, numbered_sites};
use crate::commands::simulate::{Output, exit_code, run_simulated};
use crate::commands::simulated_programs::SimulatedPrograms;

pub(super) fn run(options: &Run, simulated: SimulatedPrograms) -> Result<ExitCode> {
    let SimulatedPrograms { simulation, programs } = simulated;
    let mut config: SimulateConfig = serde_json::from_str(&simulation)?;
    refuse(options)?;
    let (name, arguments) = options.program.split_first().context("which program? '-- NAME' names one")?;
    let name = super::name_of_program(name)?;
    let Some((_, command)) = programs.iter().find(|(known, _)| known == name) else {
        bail!(
            "{}",
            unknown(name, &programs.iter().map(|(known, _)| known.as_str()).collect::<Vec<_>>(), "gridloom simulate")
        );
    };
    let platform = crate::commands::platform::read(&config.platform)?;
    let roles = Roles::new(&platform, None)?;
    let servers = roles.servers.iter().enumerate().map(|(number, role)| {
        let server = role.server(&platform, &[])?;
        let host = platform.hosts()[role.host.0 as usize].name.clone();
        let node = gridloom_base::NodeId(number as u64);
        Ok((0, server.slots, Share { server: node, name: server.name, host, first: 0, count: 0 }))
    });
    let shares = divide_elements(options.number, name, servers.collect::<Result<Vec<_>>>()?)?;
    let hosts: Vec<&str> = shares.iter().flat_map(|share| std::iter::repeat_n(&share.host[..], share.count)).collect();
    let elements = numbered_sites(&platform, &hosts);
    let sites = elements.iter().map(|(_, site)| *site).collect::<std::collections::BTreeSet<u32>>().len();
    let filters = options.apart.filters_between(sites)?;
    let folder = OwnFolder::new("gang")?;
    let deployment = folder.0.join("elements.toml");
    let places =
        ElementPlacement { elements, filters, balance: options.balance.clone(), ..ElementPlacement::default() };
    std::fs::write(&deployment, deployment_of(&places)).with_context(|| deployment.display().to_string())?;
    config.deployment = Some(deployment);
    config.until = options.until.or(config.until);
    let command = [&command[..], arguments].concat();
    Ok(exit_code(run_simulated(&command, &config, &[], Output::AsItIs)?))
}

/// Refuses options that a simulated run does not support.
fn refuse(options: &Run) -> Result<()> {
    let none = "in simulation";
    ensure!(!options.bind, "--bind: {none} hosts share their processors as the platform defines; leave it out");
    ensure!(
        !options.json,
        "--json: {none} the program's output is not captured; 'gridloom simulate --json' reports the run"
    );
    ensure!(
        options.checkpoint.is_none() && options.restart.is_none(),
        "--checkpoint, --restart: {none} nothing is written; leave them out"
    );
    ensure!(options.restarts == 0, "--restarts {}: {none} elements are not restarted; leave it out", options.restarts);
    ensure!(
        options.trace.is_none(),
        "--trace: 'gridloom simulate --trace FILE' writes the timeline of a simulated run"
    );
    Ok(())
}
