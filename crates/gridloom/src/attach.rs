//! The testbed's grid, which a program under `gridloom testbed run` gets whatever grid it starts or connects to.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Error, LocalConfig};

/// Set by `gridloom testbed` for the program that it runs.
const VARIABLE: &str = "GRIDLOOM_TESTBED";

/// Where a program's grid is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttachConfig {
    /// Address of the agent.
    pub agent: String,
    /// How many servers there are.
    pub servers: usize,
    /// Files of the functions that the servers offer, absolute paths.
    pub functions: Vec<PathBuf>,
}

impl AttachConfig {
    /// The value of the variable that makes a program use this grid, as `(name, value)`.
    pub fn to_environment(&self) -> (String, String) {
        (VARIABLE.into(), serde_json::to_string(self).expect("a configuration of paths and numbers"))
    }

    /// What `gridloom testbed` set for this program; `local` is what the program would have started itself.
    pub(crate) fn from_environment(local: Option<&LocalConfig>) -> Result<Option<AttachConfig>, Error> {
        let Some(text) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let config: AttachConfig = serde_json::from_str(&text.to_string_lossy())
            .map_err(|error| Error::Input(format!("{VARIABLE} is no valid configuration: {error}")))?;
        for file in local.map_or(&[][..], |local| &local.functions) {
            let is_offered = |known: &PathBuf| known.canonicalize().ok() == file.canonicalize().ok();
            if !config.functions.iter().any(is_offered) {
                let file = file.display();
                return Err(Error::Usage(format!(
                    "{file}: the testbed's servers do not offer it; start it with 'gridloom testbed run --functions {file}'"
                )));
            }
        }
        Ok(Some(config))
    }
}
