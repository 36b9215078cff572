//! What `gridloom simulate` tells `gridloom chares run --agent`, if that is its program: how it simulates, and which programs the servers offer.

use anyhow::{Context, Result};
use gridloom::SimulateConfig;
use serde::{Deserialize, Serialize};

/// Set for the program that is run: [`SimulatedPrograms`], as JSON.
const VARIABLE: &str = "GRIDLOOM_SIMULATED_PROGRAMS";

#[derive(Debug, Serialize, Deserialize)]
pub struct SimulatedPrograms {
    /// The simulation, as its programs get it.
    pub simulation: String,
    /// The name of each program, and the command that runs it.
    pub programs: Vec<(String, Vec<String>)>,
}

impl SimulatedPrograms {
    /// # Errors
    /// If the simulation has names that are no text.
    pub fn new(config: &SimulateConfig, programs: Vec<(String, Vec<String>)>) -> Result<SimulatedPrograms> {
        Ok(SimulatedPrograms { simulation: config.to_environment()?.1, programs })
    }

    /// The variable, as `(name, value)`.
    pub fn to_environment(&self) -> (String, String) {
        (VARIABLE.into(), serde_json::to_string(self).expect("texts"))
    }

    /// What the environment says, if this is a program of `gridloom simulate`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of_environment() -> Result<Option<SimulatedPrograms>> {
        let Some(text) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let simulated = serde_json::from_str(&text.to_string_lossy());
        simulated.map(Some).with_context(|| format!("{VARIABLE} is not what 'gridloom simulate' says"))
    }
}
