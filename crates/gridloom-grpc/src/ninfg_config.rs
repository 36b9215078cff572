//! Configurations of Ninf-G (`client.conf`): sections in angle brackets, an attribute and its value on each line.
//!
//! Servers, ports, time limits and numbers of ranks are used. Everything else describes jobs, proxies and logs that do not exist here;
//! its syntax is checked, and it is reported once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::code::{Failed, GRPC_CONFIGFILE_ERROR, Outcome};
use super::limits::{ConfiguredLimits, limit};
use super::ranks::{ConfiguredRanks, RanksOfServer};

/// The settings of a file that have a meaning here.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct NinfgConfig {
    /// Hosts of servers, or their names (`tag`), with their addresses: `HOST:PORT`, or a host alone.
    pub(crate) servers: Vec<(String, String)>,
    /// Time limits of a function's calls (`FUNCTION_INFO`).
    pub(crate) limits: BTreeMap<String, ConfiguredLimits>,
    /// Numbers of ranks (`mpi_runNoOfCPUs`).
    pub(crate) ranks: ConfiguredRanks,
    /// `save_sessionInfo`.
    pub(crate) save_session_info: Option<i64>,
    /// Included files, in order.
    pub(crate) includes: Vec<String>,
    /// Settings without a meaning here, as `SECTION attribute`.
    pub(crate) ignored: BTreeSet<String>,
}

/// Where and why a file is not valid.
#[derive(Debug, PartialEq)]
pub(crate) struct WrongLine {
    pub(crate) line: usize,
    pub(crate) why: String,
}

/// True if a text is such a file: its first significant line opens a section.
pub(crate) fn is_ninfg(text: &str) -> bool {
    text.lines().map(without_comment).find(|line| !line.is_empty()).is_some_and(|line| line.starts_with('<'))
}

/// The currently open section.
#[derive(Default)]
struct Section {
    name: String,
    line: usize,
    hosts: Vec<String>,
    tag: Option<String>,
    port: Option<u16>,
    function: Option<String>,
    limits: ConfiguredLimits,
    ranks: RanksOfServer,
}

/// Maximum number of files that a file includes, in total.
const INCLUDES_MAX: usize = 64;

impl NinfgConfig {
    /// Reads a file, and those that it includes. Reports the settings without a meaning here.
    pub(crate) fn read_all(file: &Path, text: String, folder: &Path) -> Outcome<NinfgConfig> {
        let mut all = NinfgConfig::default();
        let mut texts = vec![(file.to_path_buf(), text)];
        let mut read = 0;
        while let Some((file, text)) = texts.get(read).cloned() {
            read += 1;
            let wrong =
                |why: String| Failed::new(GRPC_CONFIGFILE_ERROR, format!("configuration {}{why}", file.display()));
            let found =
                NinfgConfig::parse(&text).map_err(|WrongLine { line, why }| wrong(format!(":{line}: {why}")))?;
            all.servers.extend(found.servers);
            all.limits.extend(found.limits);
            all.ranks.extend(found.ranks);
            all.save_session_info = found.save_session_info.or(all.save_session_info);
            all.ignored.extend(found.ignored);
            for name in found.includes {
                if texts.len() == INCLUDES_MAX {
                    return Err(wrong(format!(": more than {INCLUDES_MAX} files; one may include itself")));
                }
                let path = folder.join(&name);
                let text = gridloom::read_text(&path).map_err(|error| wrong(format!(": it includes {error}")))?;
                texts.push((path, text));
            }
        }
        if !all.ignored.is_empty() {
            let ignored: Vec<&str> = all.ignored.iter().map(String::as_str).collect();
            let (file, ignored) = (file.display(), ignored.join(", "));
            gridloom_base::stderr_line!(
                "gridloom: configuration {file}: has no meaning here and is left out: {ignored}"
            );
        }
        Ok(all)
    }

    pub(crate) fn parse(text: &str) -> Result<NinfgConfig, WrongLine> {
        let mut config = NinfgConfig::default();
        let mut open: Option<Section> = None;
        for (at, line) in text.lines().enumerate() {
            let (number, line) = (at + 1, without_comment(line));
            let wrong = |why: String| WrongLine { line: number, why };
            if line.is_empty() {
                continue;
            }
            match (line.strip_prefix('<'), &mut open) {
                (Some(tag), section) => {
                    let tag = tag.strip_suffix('>').ok_or_else(|| {
                        wrong(format!("expected a section's tag such as <SERVER> alone on its line, got '{line}'"))
                    })?;
                    match (tag.trim().strip_prefix('/'), section.take()) {
                        (None, None) => {
                            open = Some(Section { name: tag.trim().to_string(), line: number, ..Section::default() });
                        }
                        (None, Some(outer)) => {
                            let why = format!("section <{}> is not closed; write </{0}> before this", outer.name);
                            return Err(wrong(why));
                        }
                        (Some(name), Some(section)) if name.trim() == section.name => config.close(section),
                        (Some(name), section) => {
                            let open =
                                section.map_or("no section".to_string(), |section| format!("<{}>", section.name));
                            return Err(wrong(format!("</{}> closes {open}", name.trim())));
                        }
                    }
                }
                (None, None) => return Err(wrong(format!("'{line}' is not in a section"))),
                (None, Some(section)) => {
                    let Some((name, value)) = line.split_once(char::is_whitespace) else {
                        return Err(wrong(format!("attribute '{line}' has no value")));
                    };
                    config.attribute(section, name, unquoted(value.trim())).map_err(wrong)?;
                }
            }
        }
        match open {
            None => Ok(config),
            Some(section) => {
                let why = format!("section <{}> is not closed; write </{0}> at its end", section.name);
                Err(WrongLine { line: section.line, why })
            }
        }
    }

    fn attribute(&mut self, section: &mut Section, name: &str, value: &str) -> Result<(), String> {
        match (section.name.as_str(), name) {
            ("INCLUDE", "filename") => self.includes.push(value.to_string()),
            ("CLIENT", "save_sessionInfo") => {
                let count = value.parse().map_err(|_| format!("save_sessionInfo is a whole number, got '{value}'"))?;
                self.save_session_info = Some(count);
            }
            ("SERVER", "hostname") => section.hosts.push(value.to_string()),
            ("SERVER", "tag") => section.tag = Some(value.to_string()),
            ("SERVER", "port") => {
                section.port = Some(value.parse().map_err(|_| format!("port is a number up to 65535, got '{value}'"))?);
            }
            ("SERVER" | "SERVER_DEFAULT", "mpi_runNoOfCPUs") => ranks(&mut section.ranks, value)?,
            ("FUNCTION_INFO", "funcname") => section.function = Some(value.to_string()),
            ("FUNCTION_INFO", "session_timeout") => section.limits.whole = Some(seconds(value)?),
            ("FUNCTION_INFO", "transferTimeout_argument") => section.limits.arguments = Some(seconds(value)?),
            ("FUNCTION_INFO", "transferTimeout_result") => section.limits.results = Some(seconds(value)?),
            ("FUNCTION_INFO", "hostname") => {}
            _ => {
                self.ignored.insert(format!("{} {name}", section.name));
            }
        }
        Ok(())
    }

    fn close(&mut self, section: Section) {
        let address = |host: &str| section.port.map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
        for host in &section.hosts {
            self.servers.push((host.clone(), address(host)));
        }
        if let (Some(tag), Some(host)) = (&section.tag, section.hosts.first()) {
            self.servers.push((tag.clone(), address(host)));
        }
        match section.name.as_str() {
            "SERVER" => {
                let addresses = section.hosts.iter().map(|host| address(host));
                let names = section.hosts.iter().cloned().chain(addresses).chain(section.tag.clone());
                self.ranks.add_server(names, &section.ranks);
            }
            "SERVER_DEFAULT" => self.ranks.default = section.ranks.clone(),
            _ => {}
        }
        if let Some(function) = section.function
            && section.limits != ConfiguredLimits::default()
        {
            self.limits.insert(function, section.limits);
        }
    }
}

/// Returns a line without its comment and surrounding white space.
fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// Parses `FUNCTION=NUMBER`, or the number for all other functions.
fn ranks(ranks: &mut RanksOfServer, value: &str) -> Result<(), String> {
    let (function, number) = match value.split_once('=') {
        Some((function, number)) => (Some(unquoted(function.trim())), number.trim()),
        None => (None, value),
    };
    let number = number.parse().ok().filter(|number| (1..=i32::MAX as u32).contains(number)).ok_or_else(|| {
        format!("mpi_runNoOfCPUs is a number of ranks from 1, or a function with one (pi/trial=4), got '{value}'")
    })?;
    let is_new = match function {
        None => ranks.all.replace(number).is_none(),
        Some(function) => ranks.functions.insert(function.to_string(), number).is_none(),
    };
    match is_new {
        true => Ok(()),
        false => {
            let of = function.map_or(String::new(), |function| format!(" of {function}"));
            Err(format!("a second mpi_runNoOfCPUs{of} in one section; leave one out"))
        }
    }
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

/// Parses a time with its unit, or in seconds: any prefix of `second`, `minute` or `hour`, optionally followed by an `s`.
fn seconds(value: &str) -> Result<f64, String> {
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = (value[..end].parse::<f64>(), value[end..].trim());
    let factors = [("second", 1.0), ("minute", 60.0), ("hour", 3600.0)];
    let is_named = |word: &str| !unit.is_empty() && (word.starts_with(unit) || unit.strip_suffix('s') == Some(word));
    let factor = match unit {
        "" => Some(1.0),
        _ => factors.iter().find(|(word, _)| is_named(word)).map(|(_, factor)| *factor),
    };
    match (number, factor) {
        (Ok(number), Some(factor)) => match limit(number * factor) {
            Ok(_) => Ok(number * factor),
            Err(why) => Err(format!("'{value}' is {why}")),
        },
        _ => Err(format!("expected a time such as 30, 30 s, 5 minutes or 1 hour, got '{value}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# of a tutorial\n<CLIENT>\n  save_sessionInfo 10\n  loglevel 3   # much\n</CLIENT>\n\n<INCLUDE>\n\
        filename more.conf\n</INCLUDE>\n<SERVER>\n\thostname  example.org\n\thostname example.com\n\ttag big\n\tport 7801\n\
        jobmanager jobmanager-pbs\n</SERVER>\n<SERVER>\nhostname \"other\"\n</SERVER>\n<FUNCTION_INFO>\nhostname example.org\n\
        funcname \"pi/pi_trial\"\nsession_timeout 5 min\ntransferTimeout_result 7 s\n\
        transferTimeout_callbackResult 9\n</FUNCTION_INFO>\n";

    #[test]
    fn servers_ports_and_limits_are_taken_over() {
        assert!(is_ninfg(FILE) && !is_ninfg("# <SERVER>\nagent = 'a:1'") && !is_ninfg(""));
        let config = NinfgConfig::parse(FILE).unwrap();
        let servers: Vec<(&str, &str)> = config.servers.iter().map(|(name, at)| (name.as_str(), at.as_str())).collect();
        assert_eq!(
            servers,
            [
                ("example.org", "example.org:7801"),
                ("example.com", "example.com:7801"),
                ("big", "example.org:7801"),
                ("other", "other")
            ]
        );
        let limits = ConfiguredLimits { whole: Some(300.0), arguments: None, results: Some(7.0) };
        assert_eq!((config.limits["pi/pi_trial"], config.save_session_info), (limits, Some(10)));
        assert_eq!(config.includes, ["more.conf"]);
        let ignored: Vec<&str> = config.ignored.iter().map(String::as_str).collect();
        assert_eq!(ignored, ["CLIENT loglevel", "FUNCTION_INFO transferTimeout_callbackResult", "SERVER jobmanager"]);
    }

    #[test]
    fn numbers_of_ranks_are_those_of_server_and_function() {
        let text = "<SERVER_DEFAULT>\nmpi_runNoOfCPUs 2\n</SERVER_DEFAULT>\n<SERVER>\nhostname a.org\ntag big\nport 7801\n\
                    mpi_runNoOfCPUs 8\nmpi_runNoOfCPUs m/f=4\nmpi_runNoOfCPUs \"m/g = 3\"\n</SERVER>\n\
                    <SERVER>\nhostname b.org\n</SERVER>\n";
        let config = NinfgConfig::parse(text).unwrap();
        assert!(config.ignored.is_empty());
        let ranks = |server, function| config.ranks.of(server, function);
        for server in [Some("a.org"), Some("a.org:7801"), Some("big"), None] {
            let found = ["m/f", "m/g", "m/h"].map(|function| ranks(server, function));
            assert_eq!(found, [4, 3, 8], "{server:?}");
        }
        assert_eq!((ranks(Some("b.org"), "m/f"), ranks(Some("c.org"), "m/f")), (2, 2));
        assert_eq!(NinfgConfig::parse("").unwrap().ranks.of(None, "m/f"), 0);
    }

    #[test]
    fn errors_are_reported_by_its_line() {
        for (text, line, why) in [
            ("<SERVER>\nhostname\n</SERVER>", 2, "attribute 'hostname' has no value"),
            ("<SERVER>\nhostname a\n", 1, "<SERVER> is not closed"),
            ("<SERVER>\n<CLIENT>\n", 2, "<SERVER> is not closed"),
            ("<SERVER>\n</CLIENT>\n", 2, "</CLIENT> closes <SERVER>"),
            ("<SERVER> hostname a\n", 1, "alone on its line"),
            ("<SERVER>\nport many\n", 2, "got 'many'"),
            ("<FUNCTION_INFO>\nsession_timeout 5 sets\n", 2, "got '5 sets'"),
            ("<FUNCTION_INFO>\ntransferTimeout_result 9999999 h\n", 2, "at most 4000000000"),
            ("</SERVER>", 1, "closes no section"),
            ("<SERVER>\nmpi_runNoOfCPUs 0\n</SERVER>", 2, "a number of ranks from 1"),
            ("<SERVER>\nmpi_runNoOfCPUs m/f=many\n</SERVER>", 2, "got 'm/f=many'"),
            ("<SERVER>\nmpi_runNoOfCPUs 2\nmpi_runNoOfCPUs 3\n</SERVER>", 3, "a second mpi_runNoOfCPUs in one section"),
            ("<SERVER>\nmpi_runNoOfCPUs f=2\nmpi_runNoOfCPUs f=3\n</SERVER>", 3, "a second mpi_runNoOfCPUs of f in"),
        ] {
            let wrong = NinfgConfig::parse(text).unwrap_err();
            assert!(wrong.line == line && wrong.why.contains(why), "{text}: {wrong:?}");
        }
    }

    #[test]
    fn times_have_units() {
        let all = ["30", "30 s", "30sec", "30 seconds", "2 minutes", "2min", "1 h"].map(|text| seconds(text).unwrap());
        assert_eq!(all, [30.0, 30.0, 30.0, 30.0, 120.0, 120.0, 3600.0]);
    }
}
