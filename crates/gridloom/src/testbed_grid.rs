//! The testbed's grid, which a program under `gridloom testbed run` uses in place of any grid that it starts or connects to.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::offer::BUILTIN_LINALG;
use crate::{Error, LocalConfig};

/// Set by `gridloom testbed` for the program that it runs.
const VARIABLE: &str = "GRIDLOOM_TESTBED";

/// The location of a program's grid.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestbedGridConfig {
    /// Address of the agent.
    pub agent: String,
    /// Number of servers.
    pub servers: usize,
    /// Files that describe the servers' functions, as absolute paths.
    #[serde(with = "gridloom_base::path_bytes::list")]
    pub functions: Vec<PathBuf>,
}

impl TestbedGridConfig {
    /// Returns the environment variable that makes a program use this grid, as `(name, value)`.
    pub fn to_environment(&self) -> (String, String) {
        (VARIABLE.into(), serde_json::to_string(self).expect("a configuration of paths and numbers"))
    }

    /// Reads the configuration that `gridloom testbed` set for this program; `local` is the grid that the program
    /// would have started itself.
    pub(crate) fn from_environment(local: Option<&LocalConfig>) -> Result<Option<TestbedGridConfig>, Error> {
        let Some(text) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let config: TestbedGridConfig = serde_json::from_str(&text.to_string_lossy())
            .map_err(|error| Error::Input(format!("{VARIABLE} is not a valid configuration: {error}")))?;
        for file in local.map_or(&[][..], |local| &local.functions) {
            if !config.offers(file) {
                let file = file.display();
                return Err(Error::Usage(format!(
                    "{file}: the testbed's servers do not offer it; start it with 'gridloom testbed run --functions {file}'"
                )));
            }
        }
        Ok(Some(config))
    }

    fn offers(&self, file: &Path) -> bool {
        // A word such as builtin:lapack is not a file.
        let path = |file: &Path| file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
        file.as_os_str() == BUILTIN_LINALG || self.functions.iter().any(|known| path(known) == path(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_files_are_offered_by_name() {
        let functions = vec!["builtin:lapack".into(), std::env::current_dir().unwrap().join("Cargo.toml")];
        let config = TestbedGridConfig { agent: String::new(), servers: 1, functions };
        for offered in ["builtin:linalg", "builtin:lapack", "Cargo.toml", "src/../Cargo.toml"] {
            assert!(config.offers(Path::new(offered)), "{offered}");
        }
        for not_offered in ["builtin:blas", "src/lib.rs", "missing.py"] {
            assert!(!config.offers(Path::new(not_offered)), "{not_offered}");
        }
    }
}
