//! `gridloom idl`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use gridloom::{builtin_definitions, builtin_names};
use gridloom_core::idl;

use super::{count, print_line, read_text};

/// Check and show interface descriptions (.idl).
#[derive(clap::Subcommand)]
#[command(after_help = "Examples:\n  gridloom idl check linalg.idl\n  gridloom idl show linalg.idl")]
pub enum Options {
    /// Check files; errors name file, line and column
    #[command(after_help = "Example:\n  gridloom idl check linalg.idl image.idl")]
    Check {
        /// The files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Show the functions that a file describes, a signature a line
    #[command(after_help = "Examples:\n  gridloom idl show linalg.idl\n  gridloom idl show --builtin lapack")]
    Show {
        /// The file
        #[arg(required_unless_present = "builtin", conflicts_with = "builtin")]
        file: Option<PathBuf>,
        /// A library that comes described: blas, lapack, fftw
        #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(builtin_names()))]
        builtin: Option<String>,
    },
}

pub fn run(options: &Options) -> Result<ExitCode> {
    match options {
        Options::Check { files } => {
            let mut wrong = false;
            for file in files {
                match idl::parse(&read_text(file)?, &file.display().to_string()) {
                    Ok(definitions) => {
                        print_line(&format!("{}: {}", file.display(), count(definitions.len(), "function")))?
                    }
                    Err(error) => {
                        gridloom_core::say!("gridloom: {error}");
                        wrong = true;
                    }
                }
            }
            Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        Options::Show { file, builtin } => {
            let definitions = match (builtin, file) {
                (Some(name), _) => builtin_definitions(name)?,
                (None, Some(file)) => idl::parse(&read_text(file)?, &file.display().to_string())?,
                (None, None) => unreachable!("one of both is required"),
            };
            for definition in definitions {
                print_line(&definition.signature.to_string())?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
