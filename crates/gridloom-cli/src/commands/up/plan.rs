//! From a platform file to what is to be started on which host, and how the host is reached.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use gridloom::{Roles, ServerRole};
use gridloom_platform::{HostId, Platform};
use gridloom_testbed::spec::read_platform;

use super::request::Launch;
use super::ssh::Target;
use super::state::check_name;

/// Label of the agent among the parts of a host.
pub const AGENT: &str = "agent";
/// Port of the agent, if the file does not say.
const AGENT_PORT: u16 = 7711;

/// How all hosts are reached, unless the file says otherwise.
pub struct Reach {
    pub ssh: Vec<String>,
    pub connect_s: u32,
}

/// What is to be started on a host.
#[derive(Debug)]
pub struct Planned {
    pub name: String,
    pub target: Target,
    /// This program is copied there first.
    pub is_sent: bool,
    /// Working directory there.
    pub folder: Option<String>,
    /// The agent, if this host has it.
    pub agent: Option<Launch>,
    /// The server, if this host has one. The agent's address is not yet among its words.
    pub server: Option<Launch>,
}

impl Planned {
    pub fn labels(&self) -> Vec<String> {
        self.agent.iter().chain(&self.server).map(|part| part.label.clone()).collect()
    }
}

/// The hosts that have a part; the agent's host comes first. `trusts` is the option --trust-this-network.
pub fn plan(file: &Path, reach: &Reach, trusts: bool) -> Result<Vec<Planned>> {
    let platform = read_platform(file)?;
    let roles = Roles::of_real_hosts(&platform)?;
    let server_on = |host: HostId| roles.servers.iter().find(|server| server.host == host);
    let is_used = |host: HostId| host == roles.agent || server_on(host).is_some();
    let mut ids: Vec<HostId> = (0..platform.hosts().len() as u32).map(HostId).filter(|id| is_used(*id)).collect();
    ids.sort_by_key(|id| *id != roles.agent);
    let one = |id: &HostId| planned(&platform, *id, *id == roles.agent, server_on(*id), reach, trusts);
    let hosts: Vec<Planned> = ids.iter().map(one).collect::<Result<_>>()?;
    let mut labels: Vec<String> = hosts.iter().flat_map(Planned::labels).collect();
    labels.sort();
    if let Some(pair) = labels.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("{}: two hosts have the part '{}': give their servers different names", file.display(), pair[0]);
    }
    Ok(hosts)
}

fn planned(
    platform: &Platform,
    id: HostId,
    is_agent: bool,
    role: Option<&ServerRole>,
    reach: &Reach,
    trusts: bool,
) -> Result<Planned> {
    let host = &platform.hosts()[id.0 as usize];
    let properties = Properties { of: &host.properties };
    let at =
        |why: anyhow::Error| anyhow::anyhow!("{}", platform.error_of(id, format!("host '{}': {why:#}", host.name)));
    let read = || -> Result<Planned> {
        properties.check()?;
        let address = properties.get("address").unwrap_or(&host.name);
        let is_sent = properties.is("send")?;
        ensure!(!is_sent || properties.get("gridloom").is_none(), "send = true and 'gridloom' exclude each other");
        let target = Target {
            ssh: reach.ssh.clone(),
            destination: properties.get("ssh").unwrap_or(address).to_string(),
            user: properties.get("user").map(str::to_string),
            port: properties.get("port").map(|text| text.parse().context("port: expected 1 to 65535")).transpose()?,
            jump: properties.get("jump").map(str::to_string),
            connect_s: reach.connect_s,
            gridloom: properties.get("gridloom").unwrap_or("gridloom").to_string(),
        };
        let common = |words: &mut Vec<String>, listen: &str| {
            words.extend(["--listen".into(), listen.to_string()]);
            // Where others dial it cannot be told from 0.0.0.0.
            if let Some(port) = listen.strip_prefix("0.0.0.0:") {
                words.extend(["--advertise".into(), format!("{address}:{port}")]);
            }
            words.extend(trusts.then(|| "--trust-this-network".to_string()));
        };
        let agent = is_agent.then(|| {
            let mut words = vec!["agent".to_string()];
            let listen = properties.get("agent_listen").map_or(format!("{address}:{AGENT_PORT}"), str::to_string);
            common(&mut words, &listen);
            Launch { label: AGENT.into(), words }
        });
        let server = role.map(|role| -> Result<Launch> {
            let server = role.server(platform, &[])?;
            check_name(&server.name)?;
            let mut words = vec!["serve".to_string()];
            words.extend(properties.served()?);
            words.extend(["--name".into(), server.name.clone(), "--slots".into(), server.slots.to_string()]);
            words.extend(properties.get("memory").into_iter().flat_map(|size| ["--memory".into(), size.to_string()]));
            words.extend(properties.get("python").into_iter().flat_map(|file| ["--python".into(), file.to_string()]));
            words.extend(server.plain.then(|| "--plain".to_string()));
            common(&mut words, properties.get("listen").unwrap_or(&format!("{address}:0")));
            Ok(Launch { label: format!("server-{}", server.name), words })
        });
        Ok(Planned {
            name: host.name.clone(),
            target,
            is_sent,
            folder: properties.get("folder").map(str::to_string),
            agent,
            server: server.transpose()?,
        })
    };
    read().map_err(at)
}

/// Properties of a host.
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

    /// Refuses what ssh would take for an option, or a shell for a command.
    fn check(&self) -> Result<()> {
        for key in ["address", "ssh", "user", "jump"] {
            let is_odd = |text: &str| text.is_empty() || text.starts_with('-') || text.contains(char::is_whitespace);
            if let Some(text) = self.get(key).filter(|text| is_odd(text)) {
                bail!("{key} = '{text}' is no such name");
            }
        }
        ensure!(self.get("port") != Some("0"), "port: expected 1 to 65535");
        Ok(())
    }

    /// Words of 'gridloom serve': what is offered, and further options.
    fn served(&self) -> Result<Vec<String>> {
        let Some(text) = self.get("serve") else {
            bail!(
                "nothing says which functions its server offers: serve = \"builtin:linalg\", \"functions.py\", \"--run-code\", \
                 or other words of 'gridloom serve'"
            );
        };
        let words = shlex::split(text).with_context(|| format!("serve = '{text}': a quotation mark is not closed"))?;
        ensure!(!words.is_empty(), "serve is empty: --no-functions is for a server that only stores data");
        let own =
            ["--name", "--slots", "--memory", "--python", "--plain", "--listen", "--agent", "--no-agent", "--json"];
        let is_own = |word: &&String| own.contains(&word.split('=').next().unwrap_or(word));
        match words.iter().find(is_own) {
            Some(word) if ["--agent", "--no-agent", "--json"].iter().any(|own| word.starts_with(own)) => {
                bail!("serve has {word}, which 'gridloom up' says itself: leave it out")
            }
            Some(word) => bail!("serve has {word}: it is a property of the host, '{}'", word.trim_start_matches('-')),
            None => Ok(words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_of(name: &str, text: &str) -> Result<Vec<Planned>> {
        let file = std::env::temp_dir().join(format!("gridloom-plan-{}-{name}.toml", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let reach = Reach { ssh: vec!["ssh".into()], connect_s: 10 };
        let planned = plan(&file, &reach, false);
        std::fs::remove_file(&file).unwrap();
        planned
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
            properties = { serve = "functions.py --disk '/a b'", memory = "2GiB", python = "python3.12", listen = "0.0.0.0:7801", jump = "head" }
            "#,
        )
        .unwrap();
        let [head, node] = &hosts[..] else { panic!("{hosts:?}") };
        assert_eq!((head.target.destination.as_str(), head.target.port), ("10.0.0.1", Some(2222)));
        assert_eq!(head.agent.as_ref().unwrap().words, ["agent", "--listen", "10.0.0.1:7711"]);
        assert!(head.server.is_none() && node.agent.is_none());
        let words = node.server.as_ref().unwrap().words.join(" ");
        assert_eq!(
            words,
            "serve functions.py --disk /a b --name node --slots 4 --memory 2GiB --python python3.12 --listen 0.0.0.0:7801 \
             --advertise node:7801"
        );
    }

    #[test]
    fn the_file_of_the_documentation_has_an_agent_and_eight_servers() {
        let page = include_str!("../../../../../docs/hosts.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let hosts = plan_of("page", rest.split_once("```").unwrap().0).unwrap();
        let [head, nodes @ ..] = &hosts[..] else { panic!("{hosts:?}") };
        assert!(head.agent.is_some() && head.server.is_none() && nodes.len() == 8);
        let words = nodes[7].server.as_ref().unwrap().words.join(" ");
        assert_eq!(words, "serve builtin:linalg --run-code --name node-8 --slots 8 --memory 8GiB --listen node-8:0");
        assert_eq!(nodes[7].target.jump.as_deref(), Some("10.0.0.1"));
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
        assert!(refused("none", "slots = 1").contains("nothing says which functions"));
        assert!(refused("own", r#"serve = "--run-code --slots 2""#).contains("property of the host, 'slots'"));
        assert!(refused("agent", r#"serve = "--run-code --agent=b:1""#).contains("leave it out"));
        assert!(refused("option", r#"address = "-oProxyCommand=x", serve = "--run-code""#).contains("no such name"));
        assert!(refused("send", r#"send = "perhaps", serve = "--run-code""#).contains("true or false"));
        assert!(refused("port", r#"port = 70000, serve = "--run-code""#).contains("65535"));
    }
}
