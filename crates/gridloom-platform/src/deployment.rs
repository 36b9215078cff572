//! Deployment files: which function runs as a process on which host.
//!
//! Read from SimGrid's XML (`actor`, or the older `process`, in `platform` or the older `platform_description`) and from TOML:
//!
//! ```toml
//! [[process]]
//! host = "laptop"
//! function = "client"
//! arguments = ["server", "10"]
//! start_time = 1.5        # seconds; at once without it
//! kill_time = 20
//! ```
//!
//! The code that starts a process checks that its host and function exist.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::PlatformError;
use crate::read::toml_tree::{Table, with_document};
use crate::read::tree::{self, Element};
use crate::units;
use gridloom_base::limits::DEPLOYMENT_SECONDS_MAX;

/// A process to start.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Process {
    pub host: String,
    /// Name of the function; also its argument 0.
    pub function: String,
    /// Arguments after the name.
    pub arguments: Vec<String>,
    /// Start time, seconds; `None` means at once.
    pub start_time: Option<f64>,
    /// Kill time, seconds.
    pub kill_time: Option<f64>,
    /// True if it restarts when its host recovers from a failure.
    pub restart: bool,
    /// Other properties in the file.
    pub properties: BTreeMap<String, String>,
    /// Program and arguments that a real process runs; empty for the program of the command line.
    #[serde(default)]
    pub program: Vec<String>,
}

/// Position of a process in its file: line and column of each part of its entry, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Positions {
    pub entry: (u32, u32),
    /// The name of its host.
    pub host: (u32, u32),
    /// The name of its function.
    pub function: (u32, u32),
    /// Its arguments, or the entry if it has none.
    pub arguments: (u32, u32),
}

/// Reads a deployment: SimGrid's XML if it starts with `<`, otherwise TOML.
///
/// # Errors
/// The first mistake in the file, with its position.
pub fn parse(text: &str, file_name: &str) -> Result<Vec<Process>, PlatformError> {
    Ok(parse_with_positions(text, file_name)?.into_iter().map(|(process, _)| process).collect())
}

/// Same as [`parse`], with the positions of all processes.
///
/// # Errors
/// Same as [`parse`].
pub fn parse_with_positions(text: &str, file_name: &str) -> Result<Vec<(Process, Positions)>, PlatformError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let result = if text.trim_start().starts_with('<') {
        tree::parse(text).and_then(|root| from_xml(&root))
    } else {
        with_document(text, from_toml)
    };
    result.map_err(|error| error.at(file_name, (0, 0)))
}

fn from_xml(root: &Element) -> Result<Vec<(Process, Positions)>, PlatformError> {
    // The first version of SimGrid's files, which the report on GRAS prints, calls it 'platform_description'.
    if !matches!(root.name.as_str(), "platform" | "platform_description") {
        return Err(root.error(format!("the root element is '{}'; it must be 'platform'", root.name)));
    }
    let mut processes = Vec::new();
    for element in &root.children {
        if !matches!(element.name.as_str(), "actor" | "process") {
            return Err(element.error(format!("element '{}' is unknown in a deployment; use 'actor'", element.name)));
        }
        element.allow(&["host", "function", "start_time", "kill_time", "on_failure"])?;
        let restart = match element.get("on_failure").unwrap_or("DIE") {
            "DIE" => false,
            "RESTART" => true,
            other => return Err(element.error(format!("on_failure is '{other}'; it must be DIE or RESTART"))),
        };
        let (mut arguments, mut properties) = (Vec::new(), BTreeMap::new());
        for child in &element.children {
            match child.name.as_str() {
                "argument" => arguments.push(child.need("value")?.to_owned()),
                "prop" => drop(properties.insert(child.need("id")?.to_owned(), child.need("value")?.to_owned())),
                other => return Err(child.error(format!("element '{other}' is unknown in an actor"))),
            }
        }
        // The position of an attribute is not known, only that of its element.
        let entry = element.place;
        let first = element.children.iter().find(|child| child.name == "argument");
        let arguments_place = first.map_or(entry, |argument| argument.place);
        let places = Positions { entry, host: entry, function: entry, arguments: arguments_place };
        let process = Process {
            host: element.need("host")?.to_owned(),
            function: element.need("function")?.to_owned(),
            arguments,
            start_time: date_of(element, "start_time")?,
            kill_time: date_of(element, "kill_time")?,
            restart,
            properties,
            program: Vec::new(),
        };
        processes.push((process, places));
    }
    Ok(processes)
}

/// In SimGrid's files, a negative date means none.
fn date_of(element: &Element, attribute: &str) -> Result<Option<f64>, PlatformError> {
    match element.number(attribute, Some(-1.0), units::time)? {
        seconds if seconds < 0.0 => Ok(None),
        seconds if seconds <= DEPLOYMENT_SECONDS_MAX => Ok(Some(seconds)),
        seconds => Err(element.error(too_late(attribute, seconds))),
    }
}

fn too_late(key: &str, seconds: f64) -> String {
    format!("{key} is {seconds} s; it must be at most {DEPLOYMENT_SECONDS_MAX} s")
}

fn from_toml(root: Table<'_>) -> Result<Vec<(Process, Positions)>, PlatformError> {
    root.allow(&["process"])?;
    let mut processes = Vec::new();
    for table in root.tables("process")? {
        let known = ["host", "function", "arguments", "start_time", "kill_time", "restart", "properties", "program"];
        table.allow(&known)?;
        let date = |key: &'static str| match table.get(key) {
            None => Ok(None),
            Some(value) => match value.quantity(units::time)? {
                seconds if seconds < 0.0 => Err(value.error(format!("{key} is {seconds} s; it must be 0 or more"))),
                seconds if seconds <= DEPLOYMENT_SECONDS_MAX => Ok(Some(seconds)),
                seconds => Err(value.error(too_late(key, seconds))),
            },
        };
        let arguments = match table.get("arguments") {
            None => Vec::new(),
            Some(list) => list.items()?.iter().map(|item| item.scalar()).collect::<Result<_, _>>()?,
        };
        let mut properties = BTreeMap::new();
        if let Some(value) = table.get("properties") {
            for (key, value) in value.table("properties")?.entries() {
                properties.insert(key.to_owned(), value.scalar()?);
            }
        }
        let program = match table.get("program") {
            None => Vec::new(),
            Some(value) => match value.texts()? {
                words if words.is_empty() => return Err(value.error("'program' has no words; leave it out")),
                words => words.into_iter().map(|(word, _)| word.to_owned()).collect(),
            },
        };
        let (host, function) = (table.need("host")?, table.need("function")?);
        let places = Positions {
            entry: table.place,
            host: host.place(),
            function: function.place(),
            arguments: table.get("arguments").map_or(table.place, |list| list.place()),
        };
        let process = Process {
            host: host.text()?.to_owned(),
            function: function.text()?.to_owned(),
            arguments,
            start_time: date("start_time")?,
            kill_time: date("kill_time")?,
            restart: table.get("restart").map_or(Ok(false), |value| value.flag())?,
            properties,
            program,
        };
        processes.push((process, places));
    }
    Ok(processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_say_the_same() {
        let xml = "<platform version='4.1'>\n<actor host='a' function='f' start_time='1.5'>\
                   <argument value='x'/><argument value='10'/></actor></platform>";
        let toml = "[[process]]\nhost = 'a'\nfunction = 'f'\narguments = ['x', 10]\nstart_time = 1.5\n";
        let processes = parse(xml, "d.xml").unwrap();
        assert_eq!(processes, parse(toml, "d.toml").unwrap());
        assert_eq!(
            (processes[0].arguments.len(), processes[0].start_time, processes[0].kill_time),
            (2, Some(1.5), None)
        );
    }

    #[test]
    fn the_form_of_the_report_on_gras_is_read() {
        let xml = "<?xml version='1.0'?>\n<!DOCTYPE platform_description SYSTEM 'surfxml.dtd'>\n\
                   <platform_description>\n <process host='Jupiter' function='server'><argument value='4000'/></process>\n\
                   <process host='Fafard' function='client'><argument value='Jupiter'/></process>\n\
                   </platform_description>";
        let processes = parse(xml, "d.xml").unwrap();
        let named: Vec<_> = processes.iter().map(|one| (&*one.host, &*one.function, &*one.arguments[0])).collect();
        assert_eq!(named, [("Jupiter", "server", "4000"), ("Fafard", "client", "Jupiter")]);
    }

    #[test]
    fn processes_have_places() {
        let xml =
            "<platform version='4.1'>\n <actor host='a' function='f'>\n  <argument value='x'/></actor></platform>";
        let toml = "[[process]]\nfunction = 'f'\nhost = 'a'\narguments = ['x', 10]\nprogram = ['python', 'p.py']\n";
        assert_eq!(parse(toml, "d").unwrap()[0].program, ["python", "p.py"]);
        let places = |text: &str| parse_with_positions(text, "d").unwrap()[0].1;
        let expected = Positions { entry: (2, 2), host: (2, 2), function: (2, 2), arguments: (3, 3) };
        assert_eq!(places(xml), expected);
        let expected = Positions { entry: (1, 1), host: (3, 8), function: (2, 12), arguments: (4, 13) };
        assert_eq!(places(toml), expected);
    }

    #[test]
    fn mistakes_have_a_place() {
        let error = parse("[[process]]\nhost = 'a'\nfunction = 'f'\nhots = 1\n", "d.toml").unwrap_err();
        assert!(error.to_string().starts_with("d.toml:4:1: unknown key 'hots' in process; it has: host"), "{error}");
        assert!(error.to_string().ends_with("; did you mean 'host'?"), "{error}");
        let error = parse("<platform version='4.1'>\n <actor host='a'/>\n</platform>", "d.xml").unwrap_err();
        assert_eq!(error.to_string(), "d.xml:2:2: element 'actor' lacks the attribute 'function'");
        let late = |text: &str, name| parse(text, name).unwrap_err().to_string();
        let toml = "[[process]]\nhost = 'a'\nfunction = 'f'\nstart_time = '1e30s'\n";
        assert!(late(toml, "d.toml").starts_with("d.toml:4:14: start_time is 1"), "{}", late(toml, "d.toml"));
        assert!(late(toml, "d.toml").ends_with("; it must be at most 1000000000 s"), "{}", late(toml, "d.toml"));
        let xml = "<platform version='4.1'>\n <actor host='a' function='f' kill_time='1e10'/>\n</platform>";
        assert_eq!(late(xml, "d.xml"), "d.xml:2:2: kill_time is 10000000000 s; it must be at most 1000000000 s");
    }
}
