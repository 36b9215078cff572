//! Programs that a server offers by name: `gridloom serve --program NAME=PATH`.

use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail, ensure};
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command};
use gridloom::Offer;
use gridloom_base::NameKind;

use super::absolute;

/// A program and its name.
#[derive(Clone, Debug)]
pub struct OfferedProgram {
    name: String,
    path: PathBuf,
}

/// Parses the value of `--program`. The path need not be UTF-8.
#[derive(Clone)]
pub struct ProgramParser;

impl TypedValueParser for ProgramParser {
    type Value = OfferedProgram;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, value: &OsStr) -> Result<OfferedProgram, clap::Error> {
        parse_program(value).map_err(|why| {
            clap::Error::raw(ErrorKind::ValueValidation, format!("--program '{}': {why}\n", value.display()))
                .with_cmd(command)
        })
    }
}

fn parse_program(text: &OsStr) -> Result<OfferedProgram, String> {
    let bytes = text.as_bytes();
    let parts = bytes.iter().position(|byte| *byte == b'=').map(|at| (&bytes[..at], &bytes[at + 1..]));
    match parts.map(|(name, path)| (std::str::from_utf8(name), path)) {
        Some((Ok(name), path)) if !path.is_empty() => {
            NameKind::Program.check(name).map_err(|error| error.to_string())?;
            Ok(OfferedProgram { name: name.into(), path: OsStr::from_bytes(path).into() })
        }
        _ => Err("expected NAME=PATH: the name by which the program is run, and the program".into()),
    }
}

impl OfferedProgram {
    /// Returns the arguments for 'gridloom serve', with an absolute path.
    pub fn serve_arguments(&self) -> Result<[OsString; 2]> {
        let path = absolute(&self.path)?;
        let mut named = OsString::from(format!("{}=", self.name));
        named.push(path);
        Ok(["--program".into(), named])
    }

    /// Returns the program's name, and the command that runs it. A file that ends in .py is run by that Python.
    ///
    /// # Errors
    /// If the program does not exist.
    pub fn command(&self, python: &Path) -> Result<(String, Vec<OsString>)> {
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
        Ok((name.clone(), words.into_iter().map(OsString::from).collect()))
    }
}

/// Checks a Python interpreter that is given as a path.
///
/// # Errors
/// If the path does not name a program.
pub fn check_interpreter(python: &Path) -> Result<()> {
    ensure!(
        python.components().count() == 1 || is_program(python),
        "--python: '{}' is not a program that can be started; name a Python interpreter",
        python.display()
    );
    Ok(())
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
    let checkpoints = checkpoints.map(absolute).transpose()?;
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
