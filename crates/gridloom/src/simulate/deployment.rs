//! Checks that a deployment fits the platform and the program before anything runs. Errors name file, line and column.

use std::collections::BTreeMap;
use std::path::Path;

use gridloom_base::near::{did_you_mean, near_names};
use gridloom_platform::deployment::{self, Positions, Process};
use gridloom_platform::{Platform, PlatformError};
use gridloom_process::ProcessSpec;

use crate::Error;

/// Maximum number of known names that an error lists.
const NAMES_LISTED_MAX: usize = 8;

/// Checks whether a process's arguments fit its function, as far as the program's language can tell; returns the reason if not.
pub type ArgumentCheck<'a> = &'a dyn Fn(&ProcessSpec) -> Result<(), String>;

#[derive(Debug)]
pub struct Deployment {
    file: String,
    processes: Vec<(Process, Positions)>,
}

impl Deployment {
    /// Reads a deployment file.
    ///
    /// # Errors
    /// The first mistake in the file, with its position.
    pub fn read(file: &Path) -> Result<Deployment, Error> {
        Deployment::parse(&crate::read_text(file)?, &file.display().to_string())
    }

    /// Parses the text of a deployment.
    ///
    /// # Errors
    /// As for [`Deployment::read`].
    pub fn parse(text: &str, file: &str) -> Result<Deployment, Error> {
        let processes =
            deployment::parse_with_positions(text, file).map_err(|error| Error::Input(error.to_string()))?;
        Ok(Deployment { file: file.to_string(), processes })
    }

    pub fn into_processes(self) -> Vec<Process> {
        self.processes.into_iter().map(|(process, _)| process).collect()
    }

    /// Checks that the platform has all hosts.
    ///
    /// # Errors
    /// The first missing host.
    pub fn check_hosts(&self, platform: &Platform) -> Result<(), Error> {
        match self.processes.iter().find(|(process, _)| platform.host(&process.host).is_none()) {
            None => Ok(()),
            Some((process, places)) => {
                let known: Vec<&str> = platform.hosts().iter().map(|host| host.name.as_str()).collect();
                let why = format!("the platform has no host '{}'{}", process.host, known_names(&process.host, &known));
                Err(self.wrong(why, places.host))
            }
        }
    }

    /// Checks that the program has all functions, and that the arguments fit them.
    ///
    /// # Errors
    /// The first function or argument that does not fit.
    pub fn check_program<F>(&self, mains: &BTreeMap<String, F>, fits: ArgumentCheck<'_>) -> Result<(), Error> {
        for (process, places) in &self.processes {
            if !mains.contains_key(&process.function) {
                return Err(self.wrong(unknown_function(mains, &process.function), places.function));
            }
            fits(&spec(process)).map_err(|why| self.wrong(why, places.arguments))?;
        }
        Ok(())
    }

    fn wrong(&self, why: String, place: (u32, u32)) -> Error {
        Error::Input(PlatformError::new(why).at(&self.file, place).to_string())
    }
}

/// Returns the error text for an unknown function.
pub(crate) fn unknown_function<F>(mains: &BTreeMap<String, F>, function: &str) -> String {
    let known: Vec<&str> = mains.keys().map(String::as_str).collect();
    format!("the program has no process function '{function}'{}", known_names(function, &known))
}

pub(crate) fn spec(process: &Process) -> ProcessSpec {
    let Process { function, host, arguments, .. } = process.clone();
    ProcessSpec { function, host, arguments }
}

/// Lists the known names, similar ones first.
fn known_names(name: &str, known: &[&str]) -> String {
    let near = did_you_mean(&near_names(name, known.iter().copied()));
    let (told, rest) = known.split_at(known.len().min(NAMES_LISTED_MAX));
    match (told.is_empty(), rest.len()) {
        (true, _) => "; it has none".into(),
        (_, 0) => format!("; it has: {}{near}", told.join(", ")),
        (_, rest) => format!("; it has: {} and {rest} more{near}", told.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_has_a_place_and_near_names() {
        let text = "[[process]]\nhost = 'a'\nfunction = 'client'\narguments = ['x']\n\
                    [[process]]\nhost = 'b'\nfunction = 'sever'\n";
        let deployment = Deployment::parse(text, "d.toml").unwrap();
        let mut mains = BTreeMap::from([("client".to_string(), ()), ("server".to_string(), ())]);
        let wrong = |mains: &BTreeMap<String, ()>, fits: ArgumentCheck<'_>| {
            deployment.check_program(mains, fits).unwrap_err().to_string()
        };
        assert_eq!(
            wrong(&mains, &|_| Ok(())),
            "d.toml:7:12: the program has no process function 'sever'; it has: client, server; did you mean 'server'?"
        );
        let takes_none = |spec: &ProcessSpec| match spec.arguments.is_empty() {
            true => Ok(()),
            false => Err("it takes none".to_string()),
        };
        assert_eq!(wrong(&mains, &takes_none), "d.toml:4:13: it takes none");
        mains.insert("sever".into(), ());
        assert!(deployment.check_program(&mains, &|_| Ok(())).is_ok());
    }
}
