//! `gridloom idl`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use gridloom_core::idl;

use super::print_line;

/// Check and show interface descriptions.
#[derive(clap::Subcommand)]
pub enum Options {
    /// Check files; errors name file, line and column
    Check {
        /// The files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Show the functions that a file describes
    Show {
        /// The file
        file: PathBuf,
    },
}

pub fn run(options: &Options) -> Result<ExitCode> {
    match options {
        Options::Check { files } => {
            let mut wrong = false;
            for file in files {
                match read(file).map(|text| idl::parse(&text, &file.display().to_string()))? {
                    Ok(definitions) => print_line(&format!("{}: {} functions", file.display(), definitions.len()))?,
                    Err(error) => {
                        eprintln!("gridloom: {error}");
                        wrong = true;
                    }
                }
            }
            Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        Options::Show { file } => {
            let definitions = idl::parse(&read(file)?, &file.display().to_string())?;
            for definition in definitions {
                print_line(&definition.signature.to_string())?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn read(file: &PathBuf) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| file.display().to_string())
}
