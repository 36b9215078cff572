//! Roles: which host of a platform is the agent, the client, a server.
//!
//! Host properties define them: `role` (`agent`, `server`, `client`, several of them with commas, or `none`),
//! `slots`, `functions` (names with commas; a `*` at the end matches any rest), `memory`, `disk_limit`, `plain` (`yes`), `name`.
//! Without them the first host is client and agent, and every other host is a server of all functions. The
//! processes `agent`, `server` and `client` of a deployment file, with arguments such as `slots=2`, override them.

use std::collections::BTreeMap;
use std::path::Path;

use gridloom_base::limits::STORE_BYTES_DEFAULT;
use gridloom_base::size::parse_size;
use gridloom_core::node::world::ServerSpec;
use gridloom_idl::Definition;
use gridloom_platform::{HostId, Platform, deployment};

use crate::{Error, read_text};

/// Functions in a deployment that are roles of the grid, not processes of the program.
pub const GRID_ROLES: [&str; 3] = ["agent", "server", "client"];

/// A host that is a server, with the server's properties.
#[derive(Clone, Debug)]
pub struct ServerRole {
    pub host: HostId,
    /// Its properties in the platform and the deployment.
    pub properties: BTreeMap<String, String>,
}

/// Which host of a platform has which role.
#[derive(Clone, Debug)]
pub struct Roles {
    /// The agent's host.
    pub agent: HostId,
    /// The program's host.
    pub client: HostId,
    pub servers: Vec<ServerRole>,
}

impl Roles {
    /// Assigns roles from the deployment file if there is one, otherwise from the hosts' properties.
    ///
    /// # Errors
    /// If a role is missing, or a host or a role is unknown.
    pub fn new(platform: &Platform, deployment: Option<&Path>) -> Result<Roles, Error> {
        let roles = match deployment {
            Some(file) => {
                let processes = read_deployment(file)?;
                Roles::from_deployment(platform, &processes, &file.display().to_string())?
            }
            None => Roles::of_two_hosts(platform)?,
        };
        roles.check_routes(platform)?;
        Ok(roles)
    }

    /// Assigns roles from the hosts' properties. Real links connect the hosts, so the file need not describe links.
    ///
    /// # Errors
    /// If no host is a server, or a role is unknown.
    pub fn of_real_hosts(platform: &Platform) -> Result<Roles, Error> {
        Roles::from_properties(platform)
    }

    /// Returns the server role of a host, if it has one.
    pub fn server_on(&self, host: HostId) -> Option<&ServerRole> {
        self.servers.iter().find(|server| server.host == host)
    }

    /// Assigns roles beside the processes of a program, which are the clients: from the deployment's processes
    /// `agent` and `server`, or else from the hosts' properties. Returns `None` if neither names an agent or a server.
    ///
    /// # Errors
    /// As for [`Roles::new`].
    pub fn beside_processes(
        platform: &Platform,
        parts: &[deployment::Process],
        file: &str,
    ) -> Result<Option<Roles>, Error> {
        let roles = match parts.first() {
            None if roles(platform)?.iter().flatten().any(|role| ["agent", "server"].contains(role)) => {
                Roles::of_two_hosts(platform)?
            }
            None => return Ok(None),
            Some(first) => {
                // Every grid here needs a client: the agent's host serves as one, or a server's host if there is no agent.
                let agent = parts.iter().find(|part| part.function == "agent").unwrap_or(first);
                let client = deployment::Process { function: "client".into(), ..agent.clone() };
                Roles::from_deployment(platform, &[parts, &[client]].concat(), file)?
            }
        };
        roles.check_routes(platform)?;
        Ok(Some(roles))
    }

    /// Checks that the roles in the hosts' properties are known.
    ///
    /// # Errors
    /// If one is not; the message names the host.
    pub fn check_roles(platform: &Platform) -> Result<(), Error> {
        roles(platform).map(drop)
    }

    /// Names of the agent and the servers.
    pub(crate) fn names(&self, platform: &Platform) -> Result<Vec<String>, Error> {
        let servers = self.servers.iter().map(|part| Ok(part.server(platform, &[])?.name));
        std::iter::once(Ok("agent".to_string())).chain(servers).collect()
    }

    /// Checks that the client and every server can reach the agent and each other. Servers need not reach other servers.
    fn check_routes(&self, platform: &Platform) -> Result<(), Error> {
        check_route(platform, self.client, self.agent)?;
        for server in &self.servers {
            check_route(platform, server.host, self.agent)?;
            check_route(platform, server.host, self.client)?;
        }
        Ok(())
    }

    fn of_two_hosts(platform: &Platform) -> Result<Roles, Error> {
        if platform.hosts().len() < 2 {
            return Err(Error::Input("a platform needs at least two hosts: a client and a server".into()));
        }
        Roles::from_properties(platform)
    }

    fn from_properties(platform: &Platform) -> Result<Roles, Error> {
        let hosts = platform.hosts();
        let roles = roles(platform)?;
        let with = |role: &str| roles.iter().position(|roles| roles.contains(&role));
        let client = with("client").unwrap_or(0);
        let agent = with("agent").unwrap_or(client);
        let named = with("server").is_some();
        let is_server = |index: usize| match named {
            true => roles[index].contains(&"server"),
            false => index != client && index != agent && roles[index].is_empty(),
        };
        let servers = (0..hosts.len())
            .filter(|index| is_server(*index))
            .map(|index| ServerRole { host: HostId(index as u32), properties: hosts[index].properties.clone() });
        let servers: Vec<ServerRole> = servers.collect();
        if servers.is_empty() {
            return Err(Error::Input("no host of the platform is a server".into()));
        }
        Ok(Roles { agent: HostId(agent as u32), client: HostId(client as u32), servers })
    }

    fn from_deployment(platform: &Platform, processes: &[deployment::Process], file: &str) -> Result<Roles, Error> {
        let (mut agent, mut client, mut servers) = (None, None, Vec::new());
        for process in processes {
            let Some(host) = platform.host(&process.host) else {
                return Err(Error::Input(format!("{file}: the platform has no host '{}'", process.host)));
            };
            match process.function.as_str() {
                "agent" => agent = Some(host),
                "client" => client = Some(host),
                "server" => {
                    let mut properties = platform.hosts()[host.0 as usize].properties.clone();
                    properties.extend(process.properties.clone());
                    let arguments = process.arguments.iter().filter_map(|argument| argument.split_once('='));
                    properties.extend(arguments.map(|(key, value)| (key.to_string(), value.to_string())));
                    servers.push(ServerRole { host, properties });
                }
                other => {
                    let known = "agent, server or client; processes of the program open a grid within their functions";
                    return Err(Error::Input(format!("{file}: unknown function '{other}'; expected {known}")));
                }
            }
        }
        let client =
            client.ok_or_else(|| Error::Input(format!("{file}: no process is the client, which a grid needs")))?;
        if servers.is_empty() {
            return Err(Error::Input(format!("{file}: no process is a server, which a grid needs")));
        }
        Ok(Roles { agent: agent.unwrap_or(client), client, servers })
    }
}

/// Lists the kinds of ignored parts of a platform file, with the number of each; `None` if no part was ignored.
pub fn ignored_text(platform: &Platform) -> Option<String> {
    let parts: Vec<String> = platform.ignored().iter().map(|(what, count)| format!("{count} × {what}")).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Checks that two hosts of a grid can reach each other.
pub(crate) fn check_route(platform: &Platform, one: HostId, other: HostId) -> Result<(), Error> {
    let name = |host: HostId| &platform.hosts()[host.0 as usize].name;
    let missing = [(one, other), (other, one)].into_iter().find(|(from, to)| platform.route(*from, *to).is_err());
    match missing.filter(|_| one != other) {
        None => Ok(()),
        Some((from, to)) => Err(Error::Input(format!(
            "the platform has no route from '{}' to '{}', which a grid needs: the client, the agent and every server \
             have to reach each other; add links, or give one of them the role none",
            name(from),
            name(to)
        ))),
    }
}

/// Returns the roles of each host.
fn roles(platform: &Platform) -> Result<Vec<Vec<&str>>, Error> {
    let mut all = Vec::with_capacity(platform.hosts().len());
    for (number, host) in (0..).zip(platform.hosts()) {
        let roles: Vec<&str> =
            host.properties.get("role").into_iter().flat_map(|text| text.split(',')).map(str::trim).collect();
        if let Some(wrong) = roles.iter().find(|role| !["agent", "server", "client", "none"].contains(role)) {
            let name = &host.name;
            let known = "agent, server, client or none";
            let why = format!("host '{name}' has the role '{wrong}'; expected {known}");
            return Err(Error::Input(platform.host_error(HostId(number), why).to_string()));
        }
        all.push(roles);
    }
    Ok(all)
}

impl ServerRole {
    /// Returns the server that the host runs. It offers those of the definitions that the host's properties name.
    ///
    /// # Errors
    /// If a property has an invalid value; the message names host, property and value.
    pub fn server(&self, platform: &Platform, definitions: &[Definition]) -> Result<ServerSpec, Error> {
        let host = &platform.hosts()[self.host.0 as usize];
        let wrong = |key: &str, value: &str, expected: &str| {
            let why = format!("host '{}' has {key} = '{value}'; expected {expected}", host.name);
            Error::Input(platform.host_error(self.host, why).to_string())
        };
        let slots = match self.properties.get("slots") {
            None => host.cores,
            Some(text) => match text.parse() {
                Ok(slots) if slots > 0 => slots,
                _ => return Err(wrong("slots", text, "an integer of at least 1")),
            },
        };
        let size = |key: &str, otherwise: u64| match self.properties.get(key) {
            None => Ok(otherwise),
            Some(text) => parse_size(text).map_err(|why| {
                let why = format!("{key} of host '{}': {why}", host.name);
                Error::Input(platform.host_error(self.host, why).to_string())
            }),
        };
        let disk_bytes = size("disk_limit", 0)?;
        let memory_bytes = size("memory", STORE_BYTES_DEFAULT)?.saturating_add(disk_bytes);
        let plain = match self.properties.get("plain").map(String::as_str) {
            None | Some("no" | "false") => false,
            Some("yes" | "true") => true,
            Some(text) => return Err(wrong("plain", text, "yes or no")),
        };
        let functions = match self.properties.get("functions") {
            None => definitions.to_vec(),
            Some(list) => {
                let patterns: Vec<&str> = list.split(',').map(str::trim).collect();
                let matches = |name: &str| {
                    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                        Some(start) => name.starts_with(start),
                        None => name == *pattern,
                    })
                };
                definitions.iter().filter(|definition| matches(&definition.signature.name)).cloned().collect()
            }
        };
        let name = self.properties.get("name").unwrap_or(&host.name).clone();
        Ok(ServerSpec { name, slots, is_stateless: plain, memory_bytes, disk_bytes, functions })
    }
}

pub(super) fn read_deployment(file: &Path) -> Result<Vec<deployment::Process>, Error> {
    deployment::parse(&read_text(file)?, &file.display().to_string()).map_err(|error| Error::Input(error.to_string()))
}
