//! Data that `gridloom simulate` passes to `gridloom chares run --agent`, if that is its program: the simulation, and
//! the programs that the servers offer.

use std::ffi::OsString;

use anyhow::{Context, Result};
use gridloom::SimulateConfig;
use serde::{Deserialize, Serialize};

/// Environment variable of the program: [`SimulatedPrograms`], as JSON.
const VARIABLE: &str = "GRIDLOOM_SIMULATED_PROGRAMS";

#[derive(Debug, Serialize, Deserialize)]
pub struct SimulatedPrograms {
    /// The simulation, in the form in which its programs get it.
    pub simulation: String,
    /// The name of each program, and the command that runs it.
    pub programs: Vec<(String, Vec<OsString>)>,
}

impl SimulatedPrograms {
    pub fn new(config: &SimulateConfig, programs: Vec<(String, Vec<OsString>)>) -> SimulatedPrograms {
        SimulatedPrograms { simulation: config.to_environment().1, programs }
    }

    /// Returns the variable as `(name, value)`.
    pub fn to_environment(&self) -> (String, String) {
        (VARIABLE.into(), serde_json::to_string(self).expect("texts"))
    }

    /// Reads the variable, if this is a program of `gridloom simulate`.
    ///
    /// # Errors
    /// If it cannot be parsed.
    pub fn of_environment() -> Result<Option<SimulatedPrograms>> {
        let Some(text) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let simulated = serde_json::from_str(&text.to_string_lossy());
        simulated.map(Some).with_context(|| format!("{VARIABLE} is not valid; 'gridloom simulate' sets it"))
    }
}
