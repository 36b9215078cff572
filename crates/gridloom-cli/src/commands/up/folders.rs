//! Paths of the user's files about grids.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// Refuses a name that is not a plain file name.
pub fn check_name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(is_plain) {
        bail!("'{name}' cannot be the name of a grid: use up to 64 letters, digits, '-', '_' and '.' (--name)");
    }
    Ok(())
}

/// Returns the path of a file of that grid.
pub fn path(name: &str, kind: &str) -> Result<PathBuf> {
    check_name(name)?;
    Ok(folder()?.join(format!("{name}.{kind}")))
}

/// Returns the folder with the records of this user's grids.
pub fn folder() -> Result<PathBuf> {
    let folder = state_folder()?.join("up");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Returns Gridloom's folder in the user's state folder.
pub fn state_folder() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| Some(std::env::home_dir()?.join(".local/state")));
    Ok(state.context("this user has no home folder: set XDG_STATE_HOME")?.join("gridloom"))
}

/// Returns the path of a file for the output of the Slurm step that runs parts on a host.
pub fn step_log(grid: &str, host: &str) -> Result<PathBuf> {
    let folder = path(grid, "steps")?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder.join(format!("{host}.log")))
}

/// Returns the working directory on this host; `None` is the user's home.
pub fn working_folder(folder: Option<&str>) -> Result<PathBuf> {
    let home = std::env::home_dir().context("this user has no home folder")?;
    Ok(folder.map_or(home.clone(), |folder| home.join(folder)))
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
