//! The files that the functions of a confined server may use (`--confine`): what every program needs, the code of the
//! offered functions, and what the operator names.
//!
//! **Guarantee:** no permitted folder contains the keys or the data of the server, or is part of them. Otherwise the server does not start.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use gridloom::Offer;
use gridloom_base::EscapedBytes;
use gridloom_idl::Body;
use gridloom_keys::KeysFolder;
use gridloom_net::children;
use gridloom_net::jobs::{Confinement, PermittedFiles, RunAs, SystemUsers};
use gridloom_net::worker::FILES_VARIABLE;

use super::Options;
use crate::commands::{OwnFolder, absolute};

/// Prints the folders of a Python interpreter and of its packages, separated by zero bytes.
const FOLDERS_OF_PYTHON: &str = "
import importlib.util, os, sys
found = importlib.util.find_spec('gridloom')
own = [os.path.dirname(path) for path in (found and found.submodule_search_locations or [])]
prefixes = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, os.path.dirname(sys.executable)]
paths = {os.fsencode(path) for path in prefixes + own + sys.path if os.path.isabs(path)}
sys.stdout.buffer.write(b'\\0'.join(sorted(paths)))
";

/// A file or folder, and its description for errors.
type Described = (PathBuf, String);

/// Returns how functions are confined; `None` without `--confine`.
///
/// # Errors
/// If the kernel cannot confine processes, or a permitted folder contains the server's keys or data.
pub fn confinement(
    options: &Options,
    offer: &Offer,
    function_keys: Option<&OwnFolder>,
    system_users: &SystemUsers,
) -> Result<Option<Confinement>> {
    if !options.server.confine {
        return Ok(None);
    }
    let run_as = system_users.common();
    let PermittedFiles { readable, writable: system_writable } = PermittedFiles::of_system();
    let mut readable: Vec<Described> =
        readable.into_iter().map(|path| (path, "a folder of the system".to_string())).collect();
    readable.extend(of_search_paths());
    if uses_python(options, offer) {
        readable.extend(of_python(options, run_as)?);
    }
    readable.extend(of_code(offer));
    readable.extend(named(&options.server.readable, "--readable")?);
    let mut writable = named(&options.server.writable, "--writable")?;
    writable.extend(of_options(options, run_as)?);
    let private = private(options)?;
    for (path, role) in readable.iter().chain(&writable) {
        check_apart(path, role, &private)?;
    }
    let paths = |described: Vec<Described>| described.into_iter().map(|(path, _)| path);
    // Many are named several times. Rules of one folder add up, so the order does not matter.
    let readable: BTreeSet<PathBuf> =
        paths(readable).chain(function_keys.map(|OwnFolder(folder, _)| folder.clone())).collect();
    let writable = paths(writable).chain(system_writable).collect();
    let files = PermittedFiles { readable: readable.into_iter().collect(), writable };
    let confinement = Confinement::new(files).context("--confine")?;
    report(&confinement, system_users);
    Ok(Some(confinement))
}

fn report(confinement: &Confinement, system_users: &SystemUsers) {
    let abi = confinement.abi();
    tracing::info!(target: "gridloom.worker", "workers are confined by landlock (ABI {abi}) and seccomp");
    if !confinement.has_own_shared_memory() {
        tracing::info!(
            target: "gridloom.worker",
            "workers share /dev/shm and System V shared memory, because the server may not enter namespaces: only a server \
             that root runs can keep them apart"
        );
    }
    if *system_users != SystemUsers::Own {
        return;
    }
    if !confinement.restricts_signals() {
        tracing::warn!(
            target: "gridloom.worker",
            "functions can send signals to other processes of their user, because landlock of this kernel has ABI {abi}: \
             run the server on Linux 6.12 or newer, or run functions as another user with --run-as"
        );
    }
    if rustix::process::geteuid().is_root() {
        tracing::warn!(
            target: "gridloom.worker",
            "functions run as root, and can read all files in the folders of the system, such as /etc/shadow: run them as \
             another user with --run-as"
        );
    }
}

fn uses_python(options: &Options, offer: &Offer) -> bool {
    let is_python = |word: &OsString| Path::new(word) == options.server.python;
    offer.definitions.iter().any(|definition| match &definition.body {
        Body::Native { .. } => false,
        Body::Python { .. } => true,
        Body::Program { command, .. } => command.first().is_some_and(is_python),
    })
}

/// Returns the folders in which programs, libraries and modules of functions are found.
fn of_search_paths() -> Vec<Described> {
    let of = |variable: &'static str| {
        let value = std::env::var_os(variable).unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&value).filter(|folder| folder.is_absolute()).collect();
        folders.into_iter().map(move |folder| (folder, format!("a folder of {variable}")))
    };
    ["PATH", "LD_LIBRARY_PATH", "GRIDLOOM_PYTHON_PATH"].into_iter().flat_map(of).collect()
}

/// Returns the folders of the Python interpreter, as the user who runs functions sees them.
fn of_python(options: &Options, run_as: Option<&RunAs>) -> Result<Vec<Described>> {
    let python = options.server.python();
    let mut command = std::process::Command::new(&python.program);
    command.args(&python.options).args(["-c", FOLDERS_OF_PYTHON]);
    if let Some(RunAs { home, .. }) = run_as {
        command.env("HOME", home);
    }
    let program = python.program.display();
    let output = children::output(&mut command)
        .with_context(|| format!("cannot run {program}; name an interpreter with --python"))?;
    ensure!(output.status.success(), "--confine: {program} cannot list its folders ({}, see above)", output.status);
    let paths = output.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Ok(paths.map(|path| (OsStr::from_bytes(path).into(), format!("a folder of {program}"))).collect())
}

/// Returns the folders of the modules, libraries and programs.
fn of_code(offer: &Offer) -> Vec<Described> {
    let programs = offer.definitions.iter().filter_map(|definition| match &definition.body {
        Body::Program { command, .. } => Some(command.iter().map(PathBuf::from)),
        Body::Native { .. } | Body::Python { .. } => None,
    });
    let files = offer.modules.iter().chain(&offer.libraries).cloned().chain(programs.flatten());
    let folder = |file: PathBuf| {
        // The current folder is not permitted, and a bare name is found in a search path.
        let folder = file.parent().filter(|folder| folder.is_absolute())?;
        let name = EscapedBytes::of(file.file_name()?);
        Some((folder.to_path_buf(), format!("the folder of {name}")))
    };
    files.filter_map(folder).collect()
}

/// Returns the folders into which functions write because of other options.
fn of_options(options: &Options, run_as: Option<&RunAs>) -> Result<Vec<Described>> {
    let mut all = Vec::new();
    if let Some(folder) = &options.checkpoints {
        let folder = absolute(folder)?;
        // Access can be granted only to a folder that exists.
        if !folder.exists() {
            let made = std::fs::create_dir_all(&folder).and_then(|()| match run_as {
                Some(RunAs { user, group, .. }) => std::os::unix::fs::chown(&folder, Some(*user), Some(*group)),
                None => Ok(()),
            });
            made.with_context(|| format!("--checkpoints: '{}'", folder.display()))?;
        }
        all.push((folder, "the folder of --checkpoints".into()));
    }
    let offers_files = options.builtin.iter().any(|name| name == "files")
        || options.files.iter().any(|file| file.as_os_str() == "builtin:files");
    if let Some(folder) = std::env::var_os(FILES_VARIABLE).filter(|_| offers_files) {
        all.push((absolute(Path::new(&folder))?, format!("the folder of {FILES_VARIABLE}")));
    }
    Ok(all)
}

fn named(paths: &[PathBuf], option: &str) -> Result<Vec<Described>> {
    let path_of = |path: &PathBuf| -> Result<Described> {
        let found = path.canonicalize().with_context(|| format!("{option}: '{}'", path.display()))?;
        ensure!(option != "--writable" || found.is_dir(), "{option}: '{}' is not a folder", path.display());
        Ok((found, format!("named by {option}")))
    };
    paths.iter().map(path_of).collect()
}

/// Returns the folders that functions must not use.
fn private(options: &Options) -> Result<Vec<Described>> {
    const KEYS: &str = "the keys of the user";
    let mut all = Vec::new();
    all.extend(KeysFolder::find().ok().map(|keys| (keys.path().to_path_buf(), KEYS.to_string())));
    // If a variable names another folder, this one may have keys of other grids.
    all.extend(std::env::home_dir().map(|home| (home.join(".config/gridloom/keys"), KEYS.to_string())));
    let server = &options.server;
    for (option, folder) in [("--disk", &server.disk), ("--durable", &server.durable), ("--storage", &server.storage)] {
        if let Some(folder) = folder {
            all.push((absolute(folder)?, format!("the data of {option}")));
        }
    }
    Ok(all.into_iter().map(|(path, role)| (real(&path), role)).collect())
}

/// Checks that a permitted path and each private folder do not contain each other.
fn check_apart(path: &Path, role: &str, private: &[Described]) -> Result<()> {
    let permitted = real(path);
    for (folder, content) in private {
        if folder.starts_with(&permitted) || permitted.starts_with(folder) {
            bail!(
                "--confine: functions may use '{}' ({role}), but not {content} in '{}': move one of them, so that neither \
                 folder contains the other",
                path.display(),
                folder.display()
            );
        }
    }
    Ok(())
}

/// Resolves the links of a path as far as it exists.
fn real(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|start| Some((start, start.canonicalize().ok()?)));
    existing.map_or_else(
        || path.to_path_buf(),
        |(start, found)| {
            let rest = path.strip_prefix(start).expect("it is an ancestor");
            if rest.as_os_str().is_empty() { found } else { found.join(rest) }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permitted_and_private_folders_are_apart() {
        let folder = std::env::temp_dir().join(format!("gridloom-apart-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("home/keys")).unwrap();
        std::os::unix::fs::symlink(folder.join("home"), folder.join("link")).unwrap();
        let private = [(real(&folder.join("home/keys")), "the keys".to_string())];
        let is_apart = |path: &str| check_apart(&folder.join(path), "named", &private).is_ok();
        assert!(is_apart("home/other") && is_apart("home/keys-of-others"));
        assert!(!is_apart("home") && !is_apart("") && !is_apart("home/keys") && !is_apart("home/keys/lab"));
        assert!(!is_apart("link") && !is_apart("link/keys/not/made/yet"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
