//! The configuration that `grpc_initialize` reads: a file, the environment, or nothing.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use gridloom::{Error, Grid, LocalConfig, TransferLimits};
use gridloom_base::near::{did_you_mean, near_names};
use gridloom_base::size::parse_size;
use serde::Deserialize;

use super::code::{Failed, GRPC_CONFIGFILE_ERROR, GRPC_CONFIGFILE_NOT_FOUND, Outcome};
use super::limits::{ConfiguredLimits, Limits, limit};
#[cfg(feature = "ninfg")]
use super::ninfg_config::{self, NinfgConfig};
use super::ranks::ConfiguredRanks;

/// Environment variables with the name of the file, if the program names none; the first that is set counts. They are
/// Gridloom's and Ninf-G's.
const FILE_VARIABLES: [&str; 2] = ["GRIDLOOM_GRPC_CONFIG", "NG_CONFIG_FILE"];
/// Environment variable that turns on the debug mode of mapped blocks, if it is neither empty nor 0.
const DEBUG_VARIABLE: &str = "GRIDLOOM_GRPC_DEBUG";
/// Environment variable with the agent's address, if the file names none.
const AGENT_VARIABLE: &str = "GRIDLOOM_AGENT";

/// The file's content. `grpc_initialize` in the header documents it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    agent: Option<String>,
    servers: Option<Vec<String>>,
    /// All three values have the same effect: an input is copied before the call returns.
    #[allow(dead_code, reason = "files that have it are read, and its value is checked")]
    argument_transfer: TransferMode,
    session_timeout: f64,
    transfer_timeout_argument: f64,
    transfer_timeout_result: f64,
    pub(crate) save_session_info: i64,
    local: LocalGridConfig,
    map: MapConfig,
    server: BTreeMap<String, ServerConfig>,
    /// Time limits of single functions, from Ninf-G's files.
    #[serde(skip)]
    limits: BTreeMap<String, ConfiguredLimits>,
    /// Numbers of ranks, from Ninf-G's files.
    #[serde(skip)]
    ranks: ConfiguredRanks,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TransferMode {
    #[default]
    Copy,
    Wait,
    Nowait,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LocalGridConfig {
    servers: usize,
    slots: u32,
    functions: Vec<PathBuf>,
    libraries: Vec<PathBuf>,
    memory: Option<SizeSetting>,
    python: Option<PathBuf>,
}

/// A size in bytes: a text such as `8GiB`, or a number.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SizeSetting {
    Text(String),
    Bytes(u64),
}

impl SizeSetting {
    fn bytes(&self) -> Result<u64, String> {
        match self {
            SizeSetting::Text(text) => parse_size(text),
            SizeSetting::Bytes(bytes) => parse_size(&bytes.to_string()),
        }
    }
}

/// Settings of `grpc_map`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MapConfig {
    heuristic: Option<String>,
    debug: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerConfig {
    address: String,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            agent: None,
            servers: None,
            argument_transfer: TransferMode::default(),
            session_timeout: 0.0,
            transfer_timeout_argument: 0.0,
            transfer_timeout_result: 0.0,
            save_session_info: 256,
            local: LocalGridConfig::default(),
            map: MapConfig::default(),
            server: BTreeMap::new(),
            limits: BTreeMap::new(),
            ranks: ConfiguredRanks::default(),
        }
    }
}

/// Maximum number of servers of a program's own grid: each consists of several processes.
const LOCAL_SERVERS_MAX: usize = 256;

impl Default for LocalGridConfig {
    fn default() -> LocalGridConfig {
        let LocalConfig { servers, slots, .. } = LocalConfig::default();
        LocalGridConfig { servers, slots, functions: Vec::new(), libraries: Vec::new(), memory: None, python: None }
    }
}

impl Config {
    /// Returns the default heuristic of blocks.
    pub(crate) fn heuristic(&self) -> String {
        self.map.heuristic.clone().unwrap_or_else(|| "auto".to_string())
    }

    /// True if the debug mode of mapped blocks is on.
    pub(crate) fn is_debugged(&self) -> bool {
        self.map.debug || std::env::var(DEBUG_VARIABLE).is_ok_and(|value| !value.is_empty() && value != "0")
    }

    /// Reads the file that the program names, or else the environment; without either, the configuration is empty.
    pub(crate) fn read(named: Option<&str>) -> Outcome<Config> {
        let set = |variable: &&str| std::env::var(variable).ok().filter(|name| !name.is_empty());
        match named.map(str::to_string).or_else(|| FILE_VARIABLES.iter().find_map(set)).filter(|name| !name.is_empty())
        {
            None => Ok(Config::default()),
            Some(name) => Config::read_file(Path::new(&name)),
        }
    }

    fn read_file(file: &Path) -> Outcome<Config> {
        let wrong = |code, why: String| Failed::new(code, format!("configuration {}: {why}", file.display()));
        let wrong_at = |ConfigError { place: (line, column), why }| {
            let text = format!("configuration {}:{line}:{column}: {why}", file.display());
            Failed::new(GRPC_CONFIGFILE_ERROR, text)
        };
        std::fs::metadata(file).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => wrong(GRPC_CONFIGFILE_NOT_FOUND, error.to_string()),
            _ => wrong(GRPC_CONFIGFILE_ERROR, error.to_string()),
        })?;
        let text = gridloom::read_text(file)
            .map_err(|error| Failed::new(GRPC_CONFIGFILE_ERROR, format!("configuration {error}")))?;
        // A library's name without a folder would be searched for elsewhere.
        let file_path = std::path::absolute(file).map_err(|error| wrong(GRPC_CONFIGFILE_ERROR, error.to_string()))?;
        let folder = file_path.parent().unwrap_or(Path::new("/"));
        #[cfg(feature = "ninfg")]
        if ninfg_config::is_ninfg(&text) {
            return Ok(Config::of_ninfg(NinfgConfig::read_all(file, text, folder)?));
        }
        Config::parse(&text, folder).map_err(wrong_at)
    }

    /// Takes the settings of files of Ninf-G.
    #[cfg(feature = "ninfg")]
    fn of_ninfg(found: NinfgConfig) -> Config {
        let mut config = Config { limits: found.limits, ranks: found.ranks, ..Config::default() };
        config.save_session_info = found.save_session_info.unwrap_or(config.save_session_info);
        let mut servers: Vec<String> = Vec::new();
        for (name, address) in found.servers {
            if address.contains(':') && !servers.contains(&address) {
                servers.push(address.clone());
            }
            config.server.insert(name, ServerConfig { address });
        }
        // An agent named in the environment knows its servers itself.
        config.servers = (!servers.is_empty() && config.agent().is_none()).then_some(servers);
        config
    }

    /// Parses the file. Relative paths are relative to `folder`.
    fn parse(text: &str, folder: &Path) -> Result<Config, ConfigError> {
        let mut config: Config = toml::from_str(text).map_err(|error| ConfigError::new(text, &error))?;
        let of = |key: &str, why: String| ConfigError { place: place_of(text, key), why };
        if config.agent.is_some() && config.servers.is_some() {
            return Err(of(
                "servers",
                "the file names an agent and servers; a session has either: leave one out".into(),
            ));
        }
        for (key, seconds) in config.limits_of_all() {
            limit(seconds).map_err(|why| of(key, format!("{key} is {why}")))?;
        }
        if config.local.servers > LOCAL_SERVERS_MAX {
            let why = format!(
                "servers of [local] is {}; at most {LOCAL_SERVERS_MAX} run on one machine",
                config.local.servers
            );
            return Err(of("servers", why));
        }
        let memory = config.local.memory_bytes();
        memory.map_err(|why| of("memory", format!("memory of [local]: {why}")))?;
        let is_file = |path: &&mut PathBuf| !path.to_str().is_some_and(|path| path.starts_with("builtin:"));
        for path in config.local.functions.iter_mut().filter(is_file).chain(&mut config.local.libraries) {
            *path = folder.join(&path);
        }
        // A bare name is searched for on the search path.
        config.local.python = config.local.python.map(|python| match python.components().count() {
            0 | 1 => python,
            _ => folder.join(python),
        });
        Ok(config)
    }

    /// Returns the agent's address, if there is one.
    fn agent(&self) -> Option<String> {
        let variable = || std::env::var(AGENT_VARIABLE).ok().filter(|agent| !agent.is_empty());
        self.agent.clone().or_else(variable)
    }

    /// True if a grid is started for the session.
    pub(crate) fn is_own_grid(&self) -> bool {
        self.servers.is_none() && self.agent().is_none()
    }

    pub(crate) fn open(&self) -> Result<Grid, Error> {
        match (&self.servers, self.agent()) {
            (Some(servers), _) => Grid::connect_servers(servers),
            (None, Some(agent)) => Grid::connect(&agent),
            (None, None) => Grid::local(self.local.to_config()),
        }
    }

    /// Returns the time limits of all functions in seconds, with their keys in the file.
    fn limits_of_all(&self) -> [(&'static str, f64); 3] {
        [
            ("session_timeout", self.session_timeout),
            ("transfer_timeout_argument", self.transfer_timeout_argument),
            ("transfer_timeout_result", self.transfer_timeout_result),
        ]
    }

    /// Returns the time limits of calls.
    pub(crate) fn session_limits(&self) -> Limits {
        let [whole, arguments, results] =
            self.limits_of_all().map(|(_, seconds)| limit(seconds).expect("it was checked when it was read"));
        Limits { whole, transfers: TransferLimits { arguments, results } }
    }

    /// Returns the time limits of single functions.
    pub(crate) fn limits(&self) -> BTreeMap<String, ConfiguredLimits> {
        self.limits.clone()
    }

    /// Returns the numbers of ranks of calls.
    pub(crate) fn ranks(&self) -> ConfiguredRanks {
        self.ranks.clone()
    }

    /// Returns addresses of servers by the names in the file (`[server.NAME]`).
    pub(crate) fn server_names(&self) -> BTreeMap<String, String> {
        self.server.iter().map(|(name, server)| (name.clone(), server.address.clone())).collect()
    }
}

impl LocalGridConfig {
    fn memory_bytes(&self) -> Result<Option<u64>, String> {
        self.memory.as_ref().map(SizeSetting::bytes).transpose()
    }

    fn to_config(&self) -> LocalConfig {
        LocalConfig {
            servers: self.servers,
            slots: self.slots,
            functions: self.functions.clone(),
            libraries: self.libraries.clone(),
            memory_bytes: self.memory_bytes().expect("it was checked when it was read"),
            python: self.python.clone(),
            ..LocalConfig::default()
        }
    }
}

/// An error in the file, with line and column.
#[derive(Debug)]
struct ConfigError {
    place: (usize, usize),
    why: String,
}

impl ConfigError {
    /// Converts an error of the parser; for an unknown key, similar known keys are added.
    fn new(text: &str, error: &toml::de::Error) -> ConfigError {
        let message = error.message().trim().replace('\n', ", ");
        let mut names = message.split('`').skip(1).step_by(2);
        let near = match names.next().filter(|_| message.starts_with("unknown ")) {
            Some(wrong) => did_you_mean(&near_names(wrong, names)),
            None => String::new(),
        };
        ConfigError {
            place: place_at(text, error.span().map_or(0, |span| span.start)),
            why: format!("{message}{near}"),
        }
    }
}

/// Returns line and column of a byte of the text, counted from 1.
fn place_at(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Returns the place of a key in the text.
fn place_of(text: &str, key: &str) -> (usize, usize) {
    let line = text.lines().position(|line| line.trim_start().starts_with(key)).unwrap_or_default();
    (line + 1, 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn everything_may_be_said() {
        let text = r#"
            agent = "host:7711"
            argument_transfer = "nowait"
            session_timeout = 1.5
            transfer_timeout_result = 2.0
            save_session_info = -1
            [local]
            servers = 2
            functions = ["my.idl", "/their.idl", "builtin:files"]
            memory = "4GiB"
            python = "bin/python"
            [server.big]
            address = "host:7801"
        "#;
        let config = Config::parse(text, Path::new("/etc/grid")).unwrap();
        let transfers = TransferLimits { arguments: None, results: Some(Duration::from_secs(2)) };
        assert_eq!(config.session_limits(), Limits { whole: Some(Duration::from_millis(1500)), transfers });
        assert_eq!(config.server_names()["big"], "host:7801");
        let local = config.local.to_config();
        assert_eq!(local.functions, ["/etc/grid/my.idl", "/their.idl", "builtin:files"].map(Path::new));
        assert_eq!((local.memory_bytes, local.slots), (Some(4 << 30), 1));
        assert_eq!(local.python.as_deref(), Some(Path::new("/etc/grid/bin/python")));
        let config = Config::parse("[local]\nmemory = 1_073_741_824", Path::new("/etc/grid")).unwrap();
        assert_eq!(config.local.to_config().memory_bytes, Some(1 << 30));
    }

    #[test]
    fn errors_are_reported() {
        for (text, place, word) in [
            ("\nservers = [", (2, 12), "array"),
            ("agnet = 'host:1'", (1, 1), "unknown field `agnet`, expected one of `agent`"),
            ("agnet = 'host:1'", (1, 1), "; did you mean 'agent'?"),
            ("[local]\nslot = 1", (2, 1), "; did you mean 'slots'?"),
            ("# s\nsession_timeout = -1.0", (2, 1), "-1"),
            ("argument_transfer = 'latre'", (1, 21), "latre"),
            ("argument_transfer = 'wiat'", (1, 21), "; did you mean 'wait'?"),
            ("agent = 'a:1'\nservers = ['b:2']", (2, 1), "either: leave one out"),
            ("[local]\n memory = 'much'", (2, 1), "much"),
            ("[local]\n memory = 8", (2, 1), "write 8GiB"),
        ] {
            let wrong = Config::parse(text, Path::new("")).unwrap_err();
            assert!(wrong.place == place && wrong.why.contains(word), "{text}: {wrong:?}");
        }
    }
}
