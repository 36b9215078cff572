//! What the servers of a grid that a command starts offer: the same options for `gridloom simulate` and `gridloom testbed`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use gridloom::BUILTIN_WORD;

use super::absolute;
use super::programs::{OfferedProgram, parse_program};

#[derive(clap::Args)]
pub struct OfferingOptions {
    /// Functions that all servers offer beside linear algebra (builtin:linalg): .idl and .py files, or words such as
    /// builtin:lapack; may be repeated
    #[arg(long, value_name = "FILE")]
    functions: Vec<PathBuf>,
    /// Shared library with the functions of the .idl files; may be repeated. A simulation needs it with --execute only
    #[arg(long = "library", value_name = "FILE")]
    libraries: Vec<PathBuf>,
    /// A program of chares that all servers offer by a name, for 'gridloom chares run --agent': NAME=PATH; may be repeated
    #[arg(long = "program", value_name = "NAME=PATH", value_parser = parse_program)]
    programs: Vec<OfferedProgram>,
    /// Interpreter for Python modules [default: the program if it is Python, otherwise python3]
    #[arg(long)]
    python: Option<PathBuf>,
}

impl OfferingOptions {
    /// The files of functions as absolute paths, and the words for built-in descriptions.
    pub fn functions(&self) -> Result<Vec<PathBuf>> {
        let is_word = |file: &Path| file.to_string_lossy().starts_with(BUILTIN_WORD);
        self.functions.iter().map(|file| if is_word(file) { Ok(file.clone()) } else { absolute(file) }).collect()
    }

    /// The libraries as absolute paths, but for those that are to be found on the search path.
    pub fn libraries(&self) -> Result<Vec<PathBuf>> {
        self.libraries.iter().map(|file| if file.exists() { absolute(file) } else { Ok(file.clone()) }).collect()
    }

    /// The programs of chares.
    pub fn programs(&self) -> &[OfferedProgram] {
        &self.programs
    }

    /// The interpreter that is named, else the program if it is one.
    pub fn python(&self, program: &[String]) -> Option<PathBuf> {
        let is_python = |word: &&String| {
            Path::new(word).file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("python"))
        };
        self.python.clone().or_else(|| program.first().filter(is_python).map(PathBuf::from))
    }
}
