//! What `gridloom up` has started, written down so that `status`, `drain` and `down` find it from another shell.
//!
//! ```text
//!  $XDG_STATE_HOME/gridloom/up/     ~/.local/state without the variable
//!    GRID.json                      hosts, how they are reached, their parts
//!    GRID.lock                      held by 'up' and 'down' of that grid
//! ```
//!
//! **Invariants:** a part stands here before it is started, so that none is lost when 'up' is interrupted. The secret does not
//! stand here.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::request::{Action, Request, VERSION};
use super::ssh::Target;

/// A grid that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    pub name: String,
    /// See `Request`.
    pub id: String,
    /// The file of hosts.
    pub file: PathBuf,
    /// Where the agent is reached, once it runs.
    pub agent: Option<String>,
    pub hosts: Vec<Host>,
}

/// A host of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    pub target: Target,
    /// Labels of its parts.
    pub labels: Vec<String>,
}

impl Grid {
    /// The grid of that name; without a name, the only one.
    pub fn find(name: Option<&str>) -> Result<Grid> {
        let names = names()?;
        let known = || names.join(", ");
        let name = match (name, &names[..]) {
            (Some(name), names) if names.iter().any(|known| known == name) => name,
            (_, []) => bail!("no grid was started here; 'gridloom up FILE' starts one"),
            (Some(name), _) => bail!("no grid '{name}' was started here; there is: {}", known()),
            (None, [only]) => only,
            (None, _) => bail!("which grid? These were started here: {}", known()),
        };
        Grid::read(name)?.with_context(|| format!("the grid '{name}' was just taken down"))
    }

    /// The grid of that name, if there is one.
    pub fn read(name: &str) -> Result<Option<Grid>> {
        let path = path(name, "json")?;
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
            Ok(text) => serde_json::from_str(&text).map(Some).with_context(|| {
                format!("'{}' was written by another version of Gridloom, or damaged", path.display())
            }),
        }
    }

    /// What a host of it is asked.
    pub fn request(&self, action: Action) -> Request {
        Request { version: VERSION.into(), grid: self.name.clone(), grid_id: self.id.clone(), action }
    }

    /// Writes it whole, or not at all.
    pub fn write(&self) -> Result<()> {
        let (whole, part) = (path(&self.name, "json")?, path(&self.name, "part")?);
        let write = || fs::write(&part, serde_json::to_string_pretty(self)?).and_then(|()| fs::rename(&part, &whole));
        write().with_context(|| whole.display().to_string())
    }

    /// Forgets it: nothing of it is left.
    pub fn remove(&self) -> Result<()> {
        let path = path(&self.name, "json")?;
        fs::remove_file(&path).with_context(|| path.display().to_string())
    }
}

/// Keeps other commands from changing that grid, until it is dropped.
pub fn lock(name: &str) -> Result<File> {
    let path = path(name, "lock")?;
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!("another command is starting or ending the grid '{name}'; wait for it")
        }
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Refuses a name that is no plain file name.
pub fn check_name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(is_plain) {
        bail!("'{name}' cannot be the name of a grid: use up to 64 letters, digits, '-', '_' and '.' (--name)");
    }
    Ok(())
}

fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder()?)? {
        let name = entry?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".json")).map(str::to_string));
    }
    names.sort();
    Ok(names)
}

fn path(name: &str, kind: &str) -> Result<PathBuf> {
    check_name(name)?;
    Ok(folder()?.join(format!("{name}.{kind}")))
}

fn folder() -> Result<PathBuf> {
    let folder = state_folder()?.join("up");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Gridloom's folder among the user's states.
pub fn state_folder() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| Some(std::env::home_dir()?.join(".local/state")));
    Ok(state.context("this user has no home folder: set XDG_STATE_HOME")?.join("gridloom"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_plain_file_name() {
        for name in ["grid", "lab-2.1", "a_b"] {
            check_name(name).unwrap();
        }
        for name in ["", "..", ".grid", "a/b", "a b", &"x".repeat(65)] {
            assert!(check_name(name).unwrap_err().to_string().contains("cannot be the name"), "{name}");
        }
    }
}
