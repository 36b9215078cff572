//! The functions and programs that the servers of a grid started by a command offer: the same options for `gridloom
//! simulate` and `gridloom testbed`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use gridloom::BUILTIN_WORD;
use gridloom_resources::text_file::check_regular;

use super::absolute;
use super::programs::{OfferedProgram, ProgramParser};

#[derive(clap::Args)]
pub struct OfferingOptions {
    /// Functions that all servers offer in addition to linear algebra (builtin:linalg): .idl and .py files, or names
    /// such as builtin:lapack; may be repeated
    #[arg(long, value_name = "FILE")]
    functions: Vec<PathBuf>,
    /// Shared library with the functions of the .idl files; may be repeated. In simulation it is needed with --execute only
    #[arg(long = "library", value_name = "FILE")]
    libraries: Vec<PathBuf>,
    /// A program of chares that all servers offer by a name, for 'gridloom chares run --agent': NAME=PATH; may be repeated
    #[arg(long = "program", value_name = "NAME=PATH", value_parser = ProgramParser)]
    programs: Vec<OfferedProgram>,
    /// Interpreter for Python modules [default: the program if it is Python, otherwise python3]
    #[arg(long)]
    python: Option<PathBuf>,
}

impl OfferingOptions {
    /// Returns the files of functions as absolute paths, and the names of built-in descriptions.
    pub fn functions(&self) -> Result<Vec<PathBuf>> {
        let is_word = |file: &Path| file.to_string_lossy().starts_with(BUILTIN_WORD);
        self.functions.iter().map(|file| if is_word(file) { Ok(file.clone()) } else { absolute(file) }).collect()
    }

    /// Returns the libraries as absolute paths, except those to be found on the search path.
    pub fn libraries(&self) -> Result<Vec<PathBuf>> {
        let located = |file: &PathBuf| match file.exists() {
            true => check_regular(file).map_err(anyhow::Error::msg).and_then(|()| absolute(file)),
            false => Ok(file.clone()),
        };
        self.libraries.iter().map(located).collect()
    }

    /// Returns the programs of chares.
    pub fn programs(&self) -> &[OfferedProgram] {
        &self.programs
    }

    /// Returns the given interpreter, else the program itself if it is one.
    pub fn python(&self, program: &[OsString]) -> Option<PathBuf> {
        let is_python = |word: &&OsString| {
            Path::new(word).file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("python"))
        };
        self.python.clone().or_else(|| program.first().filter(is_python).map(PathBuf::from))
    }
}
