//! Programs that a server offers by name: `gridloom serve --program NAME=PATH`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail, ensure};
use gridloom::Offer;

use super::absolute;

/// A program and its name.
#[derive(Clone, Debug)]
pub struct OfferedProgram {
    name: String,
    path: PathBuf,
}

pub fn parse_program(text: &str) -> Result<OfferedProgram, String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok(OfferedProgram { name: name.into(), path: path.into() })
        }
        _ => Err("expected NAME=PATH: the name by which the program is run, and the program".into()),
    }
}

impl OfferedProgram {
    /// Returns the arguments for 'gridloom serve', with an absolute path.
    pub fn serve_arguments(&self) -> Result<[String; 2]> {
        let path = absolute(&self.path)?;
        Ok(["--program".into(), format!("{}={}", self.name, path.display())])
    }

    /// Returns the program's name, and the command that runs it. A file that ends in .py is run by that Python.
    ///
    /// # Errors
    /// If the program does not exist.
    pub fn command(&self, python: &Path) -> Result<(String, Vec<String>)> {
        let OfferedProgram { name, path } = self;
        let told = path.display();
        ensure!(path.is_file(), "--program {name}={told}: there is no such file");
        let path = absolute(path)?;
        let is_python = path.extension().is_some_and(|extension| extension == "py");
        let program = if is_python { python } else { path.as_path() };
        if !is_program(program) {
            bail!("--program {name}={told}: '{}' is not a program that can be started", program.display());
        }
        let words = if is_python { vec![program, path.as_path()] } else { vec![program] };
        let command = words.into_iter().map(|word| word.to_str().map(str::to_string)).collect::<Option<Vec<_>>>();
        let Some(command) = command else { bail!("--program {name}={told}: the path is not UTF-8") };
        Ok((name.clone(), command))
    }
}

/// Adds programs, which listen on that address and store checkpoints below that folder. A file that ends in .py is run
/// by that Python.
pub fn add_programs(
    offer: &mut Offer,
    programs: &[OfferedProgram],
    python: &Path,
    listen: IpAddr,
    checkpoints: Option<&Path>,
) -> Result<()> {
    let checkpoints = checkpoints.map(|folder| {
        let path = absolute(folder)?;
        path.into_os_string()
            .into_string()
            .map_err(|_| anyhow!("--checkpoints {}: the path is not UTF-8", folder.display()))
    });
    let checkpoints = checkpoints.transpose()?;
    for program in programs {
        let (name, command) = program.command(python)?;
        let definition = gridloom_idl::program::definition(&name, command, listen.to_string(), checkpoints.clone());
        offer.add_program(definition.map_err(|why| anyhow!("--program {why}"))?)?;
    }
    Ok(())
}

/// Checks that the program exists: the interpreter for functions that programs send is started much later.
pub fn check_program(program: &Path) -> Result<()> {
    if is_program(program) {
        return Ok(());
    }
    bail!("--run-code: there is no program '{}' to run functions; name a Python with --python", program.display())
}

/// True if it can be started: a path, or a name in the search path.
fn is_program(program: &Path) -> bool {
    let can_start = |file: &Path| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file();
    match program.components().count() {
        1 => std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|f| can_start(&f.join(program))),
        _ => can_start(program),
    }
}
