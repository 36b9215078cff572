//! The description of a testbed: written by the tool that starts it, read by the box.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use gridloom_platform::Platform;
use gridloom_resources::text_file::read_text;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::model::topology::Tuning;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Absolute path of the platform file.
    #[serde(with = "gridloom_base::path_bytes")]
    pub platform: PathBuf,
    pub tuning: Tuning,
    /// Agent and servers, started in this order, each once the previous one is ready.
    pub services: Vec<Launch>,
    /// Environment variables for programs on its hosts, which locate its grid.
    pub environment: Vec<(String, String)>,
    /// Control groups that limit hosts.
    #[serde(default)]
    pub quotas: Vec<Quota>,
    /// Processes of a deployment; the testbed ends once all of them have ended.
    #[serde(default)]
    pub processes: Vec<Deployed>,
    /// The program; the testbed ends with it. Without one the testbed runs until it is taken down.
    pub program: Option<Launch>,
}

/// The processor limit of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Quota {
    /// Number of the host in the platform.
    pub host: usize,
    /// Its control group.
    pub group: PathBuf,
    /// Limit in cores, at the speed of the platform.
    pub cores: f64,
}

/// A process to start on a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Launch {
    /// Number of the host in the platform.
    pub host: usize,
    /// Name for messages.
    pub label: String,
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// True if it must run at the speed of its host's processors.
    pub computes: bool,
    /// Additional environment variables.
    pub environment: Vec<(String, OsString)>,
}

/// A process of a deployment; times count from the start of its run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Deployed {
    pub launch: Launch,
    pub start_s: f64,
    pub kill_s: Option<f64>,
    /// File that the process creates when it has read which process it is.
    pub ready_file: PathBuf,
}

/// Reads a platform file.
///
/// # Errors
/// If it cannot be read or does not parse, with file, line and column.
pub fn read_platform(file: &Path) -> Result<Platform, Error> {
    let text = read_text(file).map_err(Error::Platform)?;
    let folder = file.parent().map(PathBuf::from).unwrap_or_default();
    let mut load = |name: &str| read_text(&folder.join(name));
    Platform::parse(&text, &file.display().to_string(), &mut load).map_err(|error| Error::Platform(error.to_string()))
}
