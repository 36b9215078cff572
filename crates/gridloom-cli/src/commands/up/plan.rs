//! Determines from a platform file what to start on which host, and how to reach the host.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use gridloom::{Roles, ServerRole};
use gridloom_base::near::{Resemblance, did_you_mean, near_names, resemblance};
use gridloom_platform::{HostId, Platform};
use gridloom_testbed::spec::read_platform;

use super::code::{SentFiles, code_folder};
use super::folders::check_name;
use super::python::PythonSpec;
use super::remote::{Connection, Target};
use super::request::{CODE, Launch};
use super::slurm::Step;
use super::ssh::Ssh;
use crate::commands::serve::check_arguments;

/// Label of the agent among the parts of a host.
pub const AGENT: &str = "agent";
/// Beginning of the label of a server, before its name.
pub const SERVER_LABEL: &str = "server-";
/// Default port of the agent.
const AGENT_PORT: u16 = 7711;
/// Placeholder in an argument of a launch for the number of processors that the job has on the node.
pub const CPUS: &str = "{cpus}";

/// How all hosts are reached, unless the file defines otherwise.
pub struct ConnectOptions {
    pub ssh: Vec<String>,
    pub connect_s: u32,
}

/// A node of an allocation. The file of hosts defines what runs there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// Address at which other nodes reach it.
    pub address: String,
    /// The Slurm step that reaches it; `None` for ssh.
    pub step: Option<Step>,
}

impl Node {
    /// Returns its name in its allocation.
    fn name_in_allocation(&self) -> &str {
        self.step.as_ref().map_or(&self.name, |step| &step.node)
    }
}

/// The parts to start on a host.
#[derive(Debug)]
pub struct HostPlan {
    pub name: String,
    pub target: Target,
    /// Working directory on the host.
    pub folder: Option<String>,
    /// Local folder of the program, which is sent to the host with its server.
    pub code: Option<PathBuf>,
    /// The agent, if this host has it.
    pub agent: Option<Launch>,
    /// The server, if this host has one. The agent's address is not yet among its arguments.
    pub server: Option<Launch>,
}

impl HostPlan {
    pub fn labels(&self) -> Vec<String> {
        self.agent.iter().chain(&self.server).map(|part| part.label.clone()).collect()
    }
}

/// The host that already runs the agent, and the agent's address.
pub struct AgentAt<'a> {
    pub host: &'a str,
    pub address: Option<&'a str>,
}

/// A host of the file, and its node in an allocation.
struct HostSite<'a> {
    id: HostId,
    node: Option<&'a Node>,
    is_agent: bool,
    /// Previous address of the agent, which running servers use.
    agent_address: Option<&'a str>,
    server: Option<&'a ServerRole>,
}

/// Returns the hosts that have a part; the agent's host is the first. `before` is the previous place of the agent.
pub fn plan(file: &Path, before: Option<AgentAt>, reach: &ConnectOptions) -> Result<Vec<HostPlan>> {
    let platform = read_platform(file)?;
    let roles = Roles::of_real_hosts(&platform)?;
    check_properties(&platform, &roles)?;
    let ids = (0..platform.hosts().len() as u32).map(HostId);
    let sites = ids.map(|id| {
        let (is_agent, server) = (id == roles.agent, roles.server_on(id));
        let has_been = before.as_ref().filter(|agent| agent.host == platform.hosts()[id.0 as usize].name);
        HostSite { id, node: None, is_agent, agent_address: has_been.and_then(|agent| agent.address), server }
    });
    planned_all(file, &platform, sites.collect(), reach)
}

/// Does the same for nodes of an allocation. Each node is configured like the host of the file with its name, or else
/// like the file's first server. The agent runs on the node of that name; without a name, on the node that the file
/// names for it, or else on the first.
pub fn plan_nodes(
    file: &Path,
    nodes: &[Node],
    agent: Option<AgentAt>,
    reach: &ConnectOptions,
) -> Result<Vec<HostPlan>> {
    let platform = read_platform(file)?;
    let roles = Roles::of_real_hosts(&platform)?;
    check_properties(&platform, &roles)?;
    let first = roles.servers.first().context("the file has no server")?;
    let agent = agent.unwrap_or_else(|| {
        let of_file = &platform.hosts()[roles.agent.0 as usize].name;
        let node = nodes.iter().find(|node| node.name_in_allocation() == of_file).or(nodes.first());
        AgentAt { host: node.map_or("", |node| &node.name), address: None }
    });
    let sites = nodes.iter().map(|node| {
        let named = platform.host(node.name_in_allocation());
        let server = named.map_or(Some(first), |id| roles.server_on(id));
        let (id, is_agent) = (named.unwrap_or(first.host), node.name == agent.host);
        HostSite { id, node: Some(node), is_agent, agent_address: agent.address, server }
    });
    planned_all(file, &platform, sites.collect(), reach)
}

/// Does the same for a file before there is an allocation: its hosts take the place of the nodes.
pub fn plan_file(file: &Path, reach: &ConnectOptions) -> Result<Vec<HostPlan>> {
    let names = read_platform(file)?.hosts().iter().map(|host| host.name.clone()).collect::<Vec<String>>();
    let node = |name: &String| Node {
        name: name.clone(),
        address: name.clone(),
        step: Some(Step { job: String::new(), node: name.clone() }),
    };
    plan_nodes(file, &names.iter().map(node).collect::<Vec<Node>>(), None, reach)
}

/// Properties that request or configure a server on a host.
const OF_SERVERS: [&str; 8] = ["serve", "slots", "memory", "plain", "listen", "python", "packages", "code"];
/// The other properties that 'gridloom up' reads.
const OF_HOSTS: [&str; 12] = [
    "role",
    "agent_listen",
    "agent_rules",
    "address",
    "ssh",
    "user",
    "port",
    "jump",
    "gridloom",
    "send",
    "folder",
    "name",
];

/// Rejects properties without effect: `serve` on a host without a server, `agent_listen` and `agent_rules` on a host without
/// the agent, and misspelt names. Other unknown properties may belong to the user or to other programs; a warning is printed for one that
/// resembles a property of Gridloom.
fn check_properties(platform: &Platform, roles: &Roles) -> Result<()> {
    for (index, host) in platform.hosts().iter().enumerate() {
        let id = HostId(index as u32);
        let located = |why: String| platform.host_error(id, format!("host '{}': {why}", host.name));
        let wrong = |why: String| Err(anyhow::anyhow!("{}", located(why)));
        for key in host.properties.keys() {
            let known = || OF_SERVERS.into_iter().chain(OF_HOSTS);
            if ["agent_listen", "agent_rules"].contains(&&**key) && id != roles.agent {
                let why = format!("'{key}' has no effect on a host without the agent: add role = \"agent\"");
                return wrong(why);
            }
            // The other properties of servers are often set for all hosts of a cluster; only 'serve' requests a server.
            if key == "serve" && roles.server_on(id).is_none() {
                return wrong(format!("'{key}' has no effect without a server: add role = \"server\", or remove it"));
            }
            match resemblance(key, known()).filter(|_| !known().any(|name| name == key)) {
                Some(Resemblance::Misspelt(name)) => {
                    return wrong(format!(
                        "there is no property '{key}'; did you mean '{name}'? If the property is your own, give it another name, such as 'my-{key}'"
                    ));
                }
                Some(Resemblance::Similar(name)) => {
                    let why =
                        format!("'{key}' is not a property of Gridloom and has no effect; did you mean '{name}'?");
                    gridloom_base::stderr_line!("gridloom: {}", located(why));
                }
                None => {}
            }
        }
    }
    Ok(())
}

fn planned_all(
    file: &Path,
    platform: &Platform,
    mut sites: Vec<HostSite>,
    reach: &ConnectOptions,
) -> Result<Vec<HostPlan>> {
    sites.retain(|site| site.is_agent || site.server.is_some());
    sites.sort_by_key(|site| !site.is_agent);
    let sent = SentFiles::default();
    let hosts: Vec<HostPlan> =
        sites.iter().map(|site| planned(file, platform, site, reach, &sent)).collect::<Result<_>>()?;
    let mut labels: Vec<String> = hosts.iter().flat_map(HostPlan::labels).collect();
    labels.sort();
    if let Some(pair) = labels.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("{}: two hosts have the part '{}': give their servers different names", file.display(), pair[0]);
    }
    Ok(hosts)
}

fn planned(
    file: &Path,
    platform: &Platform,
    site: &HostSite,
    reach: &ConnectOptions,
    sent: &SentFiles,
) -> Result<HostPlan> {
    let host = &platform.hosts()[site.id.0 as usize];
    let properties = Properties { of: &host.properties };
    let at = |why: anyhow::Error| {
        anyhow::anyhow!("{}", platform.host_error(site.id, format!("host '{}': {why:#}", host.name)))
    };
    let read = || -> Result<HostPlan> {
        properties.check()?;
        let code = properties.get("code").map(|code| code_folder(file, code)).transpose()?;
        let name = site.node.map_or(&host.name, |node| &node.name);
        let address = match site.node {
            Some(node) => node.address.as_str(),
            None => properties.get("address").unwrap_or(name),
        };
        let (way, is_sent) = properties.connection(address, site.node, reach)?;
        let common = |words: &mut Vec<String>, listen: &str| {
            words.extend(["--listen".into(), listen.to_string()]);
            // 0.0.0.0 does not show at which address others can connect.
            if let Some(port) = listen.strip_prefix("0.0.0.0:") {
                words.extend(["--advertise".into(), format!("{address}:{port}")]);
            }
        };
        // Other users may have their grids on a node of an allocation.
        let agent_port = if site.node.is_some() { 0 } else { AGENT_PORT };
        let agent = site.is_agent.then(|| {
            let mut words = vec!["agent".to_string()];
            let of_file = properties.get("agent_listen").map_or(format!("{address}:{agent_port}"), str::to_string);
            // Running servers and programs look for the agent at its previous address.
            let is_free = of_file.ends_with(":0") && !of_file.starts_with("0.0.0.0:");
            let listen = site.agent_address.filter(|_| is_free).map_or(of_file, str::to_string);
            common(&mut words, &listen);
            // The agent may run on another node of an allocation than on that of the file.
            let mut rules = platform.hosts().iter().filter_map(|host| host.properties.get("agent_rules"));
            if let Some(rules) = rules.next() {
                words.extend(["--rules".to_string(), rules.to_string()]);
            }
            Launch { label: AGENT.into(), arguments: words, code: None, python: None }
        });
        let server = site.server.map(|role| -> Result<Launch> {
            let server = role.server(platform, &[])?;
            let server_name = site.node.map_or(&server.name, |node| &node.name);
            check_name(server_name)?;
            let has_step = site.node.is_some_and(|node| node.step.is_some());
            let slots = match properties.get("slots") {
                None if has_step => CPUS.to_string(),
                _ => server.slots.to_string(),
            };
            let mut words = vec!["serve".to_string()];
            let served = properties.served()?;
            let python = properties.python(&served);
            let is_sent = |word: &str| code.as_ref().map_or(Ok(false), |code| sent.has(code, word));
            for word in served {
                // The argument is a program: NAME=PATH.
                let (name, file) = word.rfind('=').map_or(("", &word[..]), |at| word.split_at(at + 1));
                words.push(match is_sent(&word)? {
                    true => format!("{CODE}{word}"),
                    false if is_sent(file)? => format!("{name}{CODE}{file}"),
                    false => word,
                });
            }
            words.extend(["--name".into(), server_name.clone(), "--slots".into(), slots]);
            words.extend(properties.get("memory").into_iter().flat_map(|size| ["--memory".into(), size.to_string()]));
            words.extend(server.is_stateless.then(|| "--plain".to_string()));
            common(&mut words, properties.get("listen").unwrap_or(&format!("{address}:0")));
            Ok(Launch { label: format!("{SERVER_LABEL}{server_name}"), arguments: words, code: None, python })
        });
        Ok(HostPlan {
            name: name.clone(),
            target: Target { connection: way, gridloom: properties.program(), is_sent },
            folder: properties.get("folder").map(str::to_string),
            server: server.transpose()?,
            agent,
            code,
        })
    };
    read().map_err(at)
}

/// A host on which processes of a program can run.
pub struct ProcessHost {
    pub target: Target,
    /// Working directory on the host.
    pub folder: Option<String>,
    /// Name or address at which the other hosts reach it.
    pub address: String,
}

/// Returns how a host of the file is reached: by ssh, or in an allocation of Slurm if its number is given.
pub fn process_host(
    file: &Path,
    platform: &Platform,
    name: &str,
    job: Option<&str>,
    reach: &ConnectOptions,
) -> Result<ProcessHost> {
    let Some(id) = platform.host(name) else {
        let near = did_you_mean(&near_names(name, platform.hosts().iter().map(|host| host.name.as_str())));
        bail!("{}: there is no host '{name}'{near}", file.display());
    };
    let properties = Properties { of: &platform.hosts()[id.0 as usize].properties };
    let read = || -> Result<ProcessHost> {
        properties.check()?;
        let address = properties.get("address").unwrap_or(name).to_string();
        let step = job.map(|job| Step { job: job.into(), node: name.into() });
        let node = step.map(|step| Node { name: name.into(), address: address.clone(), step: Some(step) });
        let (connection, is_sent) = properties.connection(&address, node.as_ref(), reach)?;
        let target = Target { connection, gridloom: properties.program(), is_sent };
        Ok(ProcessHost { target, folder: properties.get("folder").map(str::to_string), address })
    };
    read().map_err(|why| anyhow::anyhow!("{}", platform.host_error(id, format!("host '{name}': {why:#}"))))
}

/// The properties of a host.
struct Properties<'a> {
    of: &'a BTreeMap<String, String>,
}

impl Properties<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.of.get(key).map(String::as_str)
    }

    fn is(&self, key: &str) -> Result<bool> {
        match self.get(key) {
            None | Some("no" | "false") => Ok(false),
            Some("yes" | "true") => Ok(true),
            Some(text) => bail!("{key} = '{text}'; expected true or false"),
        }
    }

    /// Returns how the host, or its node in an allocation, is reached, and whether this program is sent there.
    fn connection(&self, address: &str, node: Option<&Node>, reach: &ConnectOptions) -> Result<(Connection, bool)> {
        let is_sent = self.is("send")?;
        ensure!(!is_sent || self.get("gridloom").is_none(), "send = true and 'gridloom' exclude each other");
        if let Some(step) = node.and_then(|node| node.step.clone()) {
            return Ok((Connection::Slurm(step), is_sent));
        }
        let ssh = Ssh {
            ssh: reach.ssh.clone(),
            destination: self.get("ssh").filter(|_| node.is_none()).unwrap_or(address).to_string(),
            user: self.get("user").map(str::to_string),
            port: self.get("port").map(|text| text.parse().context("port: expected 1 to 65535")).transpose()?,
            jump: self.get("jump").map(str::to_string),
            connect_s: reach.connect_s,
        };
        Ok((Connection::Ssh(ssh), is_sent))
    }

    /// Returns the command of the program there.
    fn program(&self) -> String {
        self.get("gridloom").unwrap_or("gridloom").to_string()
    }

    /// Refuses values that ssh would take for an option, or a shell for a command.
    fn check(&self) -> Result<()> {
        for key in ["address", "ssh", "user", "jump"] {
            let is_odd = |text: &str| text.is_empty() || text.starts_with('-') || text.contains(char::is_whitespace);
            if let Some(text) = self.get(key).filter(|text| is_odd(text)) {
                bail!("{key} = '{text}' is not a valid name");
            }
        }
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        for name in self.get("packages").unwrap_or_default().split([',', ' ']) {
            ensure!(
                is_name(name) && !name.starts_with('-'),
                "packages: '{name}' is not the name of a package; separate names by commas"
            );
        }
        ensure!(self.get("port") != Some("0"), "port: expected 1 to 65535");
        Ok(())
    }

    /// Returns the Python of a server that has Python functions, or that names its Python.
    fn python(&self, served: &[String]) -> Option<PythonSpec> {
        let interpreter = self.get("python").map(str::to_string);
        let packages = self.get("packages").unwrap_or_default().split([',', ' ']).filter(|name| !name.is_empty());
        let packages: Vec<String> = packages.map(str::to_string).collect();
        let is_python = |word: &String| word == "--run-code" || word.ends_with(".py");
        let is_needed = interpreter.is_some() || !packages.is_empty() || served.iter().any(is_python);
        is_needed.then_some(PythonSpec { interpreter, packages })
    }

    /// Returns the arguments of 'gridloom serve': what it offers, and further options.
    fn served(&self) -> Result<Vec<String>> {
        let Some(text) = self.get("serve") else {
            bail!(
                "the functions of its server are not given: serve = \"builtin:linalg\", \"functions.py\", \
                 \"--run-code\", or other arguments of 'gridloom serve'"
            );
        };
        let words = shlex::split(text).with_context(|| format!("serve = '{text}': a quotation mark is not closed"))?;
        ensure!(!words.is_empty(), "serve is empty: --no-functions is for a server that only stores data");
        let own =
            ["--name", "--slots", "--memory", "--python", "--plain", "--listen", "--agent", "--no-agent", "--json"];
        let is_own = |word: &&String| own.contains(&word.split('=').next().unwrap_or(word));
        match words.iter().find(is_own) {
            Some(word) if ["--agent", "--no-agent", "--json"].iter().any(|own| word.starts_with(own)) => {
                bail!("serve has {word}, which 'gridloom up' sets itself: leave it out")
            }
            Some(word) => bail!("serve has {word}: it is a property of the host, '{}'", word.trim_start_matches('-')),
            None => {
                check_arguments(&words).with_context(|| format!("serve = '{text}'"))?;
                Ok(words)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_file<T>(name: &str, text: &str, run: impl FnOnce(&Path, &ConnectOptions) -> T) -> T {
        let file = std::env::temp_dir().join(format!("gridloom-plan-{}-{name}.toml", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let result = run(&file, &ConnectOptions { ssh: vec!["ssh".into()], connect_s: 10 });
        std::fs::remove_file(&file).unwrap();
        result
    }

    fn plan_of(name: &str, text: &str) -> Result<Vec<HostPlan>> {
        with_file(name, text, |file, reach| plan(file, None, reach))
    }

    fn ssh(host: &HostPlan) -> &Ssh {
        match &host.target.connection {
            Connection::Ssh(ssh) => ssh,
            Connection::Slurm(step) => panic!("{step:?}"),
        }
    }

    #[test]
    fn nodes_of_an_allocation_are_as_the_host_of_their_name_or_the_first_server() {
        let text = r#"
            [[host]]
            name = "node"
            speed = "1Gf"
            properties = { role = "agent, server", serve = "--run-code", agent_listen = "c:9", agent_rules = "rules.toml" }
            [[host]]
            name = "b"
            speed = "1Gf"
            properties = { role = "server", serve = "functions.py", slots = 3 }
            "#;
        let step = |node: &str| Some(Step { job: "17".into(), node: node.into() });
        let node = |name: &str| Node { name: name.into(), address: format!("{name}.x"), step: step(name) };
        let nodes = [node("a"), node("b")];
        let hosts = with_file("nodes", text, |file, reach| plan_nodes(file, &nodes, None, reach)).unwrap();
        let words = |part: &Option<Launch>| part.as_ref().map(|part| part.arguments.join(" "));
        assert_eq!(words(&hosts[0].agent).as_deref(), Some("agent --listen c:9 --rules rules.toml"));
        assert_eq!(words(&hosts[0].server).unwrap(), "serve --run-code --name a --slots {cpus} --listen a.x:0");
        assert_eq!(words(&hosts[1].server).unwrap(), "serve functions.py --name b --slots 3 --listen b.x:0");
        let hosts = with_file("again", text, |file, reach| {
            plan_nodes(file, &nodes, Some(AgentAt { host: "b", address: Some("b.x:4") }), reach)
        })
        .unwrap();
        assert_eq!(words(&hosts[0].agent).as_deref(), Some("agent --listen b.x:4 --rules rules.toml"));
        assert_eq!((hosts[0].name.as_str(), hosts[1].name.as_str(), hosts.len()), ("b", "a", 2));
    }

    #[test]
    fn the_first_host_has_the_agent_and_each_server_its_words() {
        let hosts = plan_of(
            "words",
            r#"
            [[host]]
            name = "head"
            speed = "1Gf"
            properties = { address = "10.0.0.1", user = "ada", port = 2222 }
            [[host]]
            name = "node"
            speed = "1Gf"
            cores = 4
            properties = { serve = "functions.py --disk '/a b'", memory = "2GiB", python = "python3.12", packages = "numpy, scipy", listen = "0.0.0.0:7801", jump = "head" }
            "#,
        )
        .unwrap();
        let [head, node] = &hosts[..] else { panic!("{hosts:?}") };
        assert_eq!((ssh(head).destination.as_str(), ssh(head).port), ("10.0.0.1", Some(2222)));
        assert_eq!(head.agent.as_ref().unwrap().arguments, ["agent", "--listen", "10.0.0.1:7711"]);
        assert!(head.server.is_none() && node.agent.is_none());
        let words = node.server.as_ref().unwrap().arguments.join(" ");
        assert_eq!(
            words,
            "serve functions.py --disk /a b --name node --slots 4 --memory 2GiB --listen 0.0.0.0:7801 --advertise node:7801"
        );
        let asked = node.server.as_ref().unwrap().python.as_ref().unwrap();
        assert_eq!(
            (asked.interpreter.as_deref(), &asked.packages[..]),
            (Some("python3.12"), &["numpy".into(), "scipy".into()][..])
        );
    }

    #[test]
    fn the_file_of_the_documentation_has_an_agent_and_eight_servers() {
        let page = include_str!("../../../../../docs/hosts.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let hosts = plan_of("page", rest.split_once("```").unwrap().0).unwrap();
        let [head, nodes @ ..] = &hosts[..] else { panic!("{hosts:?}") };
        assert!(head.agent.is_some() && head.server.is_none() && nodes.len() == 8);
        let words = nodes[7].server.as_ref().unwrap().arguments.join(" ");
        assert_eq!(words, "serve builtin:linalg --run-code --name node-8 --slots 8 --memory 8GiB --listen node-8:0");
        assert_eq!(ssh(&nodes[7]).jump.as_deref(), Some("10.0.0.1"));
    }

    #[test]
    fn mistakes_name_host_property_and_place() {
        let refused = |name: &str, properties: &str| {
            let text = format!(
                "[[host]]\nname = \"a\"\nspeed = \"1Gf\"\nproperties = {{ role = \"agent, server\", {properties} }}\n"
            );
            let error = plan_of(name, &text).unwrap_err().to_string();
            assert!(error.contains(".toml:1:") && error.contains("host 'a'"), "{error}");
            error
        };
        assert!(refused("none", "slots = 1").contains("the functions of its server are not given"));
        assert!(refused("own", r#"serve = "--run-code --slots 2""#).contains("property of the host, 'slots'"));
        assert!(refused("agent", r#"serve = "--run-code --agent=b:1""#).contains("leave it out"));
        assert!(
            refused("option", r#"address = "-oProxyCommand=x", serve = "--run-code""#).contains("is not a valid name")
        );
        assert!(refused("send", r#"send = "perhaps", serve = "--run-code""#).contains("true or false"));
        assert!(
            refused("packages", r#"packages = "numpy>=2", serve = "--run-code""#)
                .contains("is not the name of a package")
        );
        assert!(refused("port", r#"port = 70000, serve = "--run-code""#).contains("65535"));
        let missing = refused("code", r#"code = "missing", serve = "--run-code""#);
        assert!(missing.contains("missing': No such file"), "{missing}");
    }
}
