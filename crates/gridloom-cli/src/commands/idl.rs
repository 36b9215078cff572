//! `gridloom idl`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use gridloom::{builtin_definitions, builtin_names, compile_interface};

use super::{count, print_line, read_text};

/// Check, show and compile interface descriptions (.idl).
#[derive(clap::Subcommand)]
#[command(after_help = "Examples:\n  gridloom idl check linalg.idl\n  gridloom idl show linalg.idl\n  \
gridloom idl compile linalg.idl -o linalg.so")]
pub enum Options {
    /// Check files; errors name file, line and column
    ///
    /// The C code of inline bodies is not checked: the compiler does that.
    #[command(after_help = "Example:\n  gridloom idl check linalg.idl image.idl")]
    Check {
        /// The files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Show the functions and methods that a file describes, one signature per line
    #[command(after_help = "Examples:\n  gridloom idl show linalg.idl\n  gridloom idl show --c --builtin lapack")]
    Show {
        /// The file
        #[arg(required_unless_present = "builtin", conflicts_with = "builtin")]
        file: Option<PathBuf>,
        /// A library whose description is built in: linalg, blas, lapack, fftw, files
        #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(builtin_names()))]
        builtin: Option<String>,
        /// Show the call in C after each function
        #[arg(long)]
        c: bool,
    },
    /// Compile the inline bodies of a file into a shared library
    ///
    /// 'gridloom serve' does this itself. Use this command for machines without a compiler, or to look at the C code. The
    /// file names the compiler, its options and the libraries; the compiler runs in the file's folder.
    #[command(after_help = "Examples:\n  gridloom idl compile linalg.idl\n  \
gridloom serve linalg.idl --library linalg.so --no-compile")]
    Compile {
        /// The file
        file: PathBuf,
        /// The library to write [default: the file's name with .so, in the current folder]
        #[arg(short, long, value_name = "LIBRARY")]
        output: Option<PathBuf>,
        /// Keep the C source beside the library
        #[arg(long)]
        keep: bool,
    },
}

pub fn run(options: &Options) -> Result<ExitCode> {
    match options {
        Options::Check { files } => {
            let mut wrong = false;
            for file in files {
                match gridloom_idl::parse_file(&read_text(file)?, &file.display().to_string()) {
                    Ok(parsed) => print_line(&format!("{}: {}", file.display(), counted(&parsed)))?,
                    Err(error) => {
                        gridloom_base::say!("gridloom: {error}");
                        wrong = true;
                    }
                }
            }
            Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        Options::Show { file, builtin, c } => {
            let parsed = match (builtin, file) {
                (Some(name), _) => gridloom_idl::IdlFile {
                    definitions: builtin_definitions(name)?,
                    ..gridloom_idl::IdlFile::default()
                },
                (None, Some(file)) => gridloom_idl::parse_file(&read_text(file)?, &file.display().to_string())?,
                (None, None) => unreachable!("one of both is required"),
            };
            for definition in &parsed.definitions {
                print_line(&definition.signature.to_string())?;
                if *c {
                    print_line(&format!("    {}", definition.signature.c_prototype().unwrap_or_else(|why| why)))?;
                }
            }
            for class in &parsed.classes {
                print_line(&format!("class {}", class.name))?;
                for method in class.methods.iter().filter(|method| !is_run(&method.signature.name)) {
                    print_line(&format!("  {}", method.signature))?;
                    if *c {
                        let called = method.signature.c_prototype().unwrap_or_else(|why| why);
                        print_line(&format!("      {called}"))?;
                    }
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Options::Compile { file, output, keep } => {
            let library = match output {
                Some(library) => library.clone(),
                None => Path::new(file.file_stem().context("expected the name of a file")?).with_extension("so"),
            };
            let (libraries, warnings) = compile_interface(file, &library, *keep)?;
            if !warnings.is_empty() {
                gridloom_base::say!("{}", warnings.trim_end());
            }
            libraries.iter().try_for_each(|library| print_line(&library.display().to_string()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// `3 functions, 2 of them compiled, 1 class`.
fn counted(parsed: &gridloom_idl::IdlFile) -> String {
    let mut counted = count(parsed.definitions.len(), "function");
    if !parsed.build.stubs.is_empty() {
        counted.push_str(&format!(", {} of them compiled", parsed.build.stubs.len()));
    }
    match parsed.classes.len() {
        0 => {}
        1 => counted.push_str(", 1 class"),
        classes => counted.push_str(&format!(", {classes} classes")),
    }
    counted
}

/// Whether the server runs the method itself, and no client calls it.
fn is_run(name: &str) -> bool {
    gridloom_idl::class_of(name).is_some_and(|(_, method)| gridloom_idl::method::runs_by_itself(method))
}
