//! `gridloom idl`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use gridloom::{builtin_definitions, builtin_names, compile_interface, parse_description};
use gridloom_idl::method::is_automatic;
use gridloom_idl::{Class, IdlError, IdlFile, Signature, class_of};
use serde_json::{Value, json};

use super::{count, print_json, print_line, read_text};

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
        /// Files to check
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
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
        /// Print JSON
        #[arg(long)]
        json: bool,
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
        /// Shared library with functions that the bodies call; may be repeated
        #[arg(long = "library", value_name = "FILE")]
        named: Vec<PathBuf>,
        /// Keep the C source beside the library
        #[arg(long)]
        keep: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(options: &Options) -> Result<ExitCode> {
    match options {
        Options::Check { files, json } => check(files, *json),
        Options::Show { file, builtin, c, json } => {
            let parsed = match (builtin, file) {
                (Some(name), _) => IdlFile { definitions: builtin_definitions(name)?, ..IdlFile::default() },
                (None, Some(file)) => parse_description(&read_text(file)?, file)?,
                (None, None) => unreachable!("one of both is required"),
            };
            if *json {
                print_json(&shown(&parsed))?
            } else {
                show(&parsed, *c)?
            }
            Ok(ExitCode::SUCCESS)
        }
        Options::Compile { file, output, named, keep, json } => {
            let library = match output {
                Some(library) => library.clone(),
                None => Path::new(file.file_stem().context("expected the name of a file")?).with_extension("so"),
            };
            let (libraries, warnings) = compile_interface(file, &library, named, *keep)?;
            let libraries = libraries.iter().map(|library| library.display().to_string());
            if *json {
                let libraries: Vec<String> = libraries.collect();
                print_json(&json!({ "libraries": libraries, "warnings": warnings.trim_end() }))?;
                return Ok(ExitCode::SUCCESS);
            }
            if !warnings.is_empty() {
                gridloom_base::stderr_line!("{}", warnings.trim_end());
            }
            libraries.into_iter().try_for_each(|library| print_line(&library))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn check(files: &[PathBuf], as_json: bool) -> Result<ExitCode> {
    let (mut is_wrong, mut told) = (false, Vec::new());
    for file in files {
        let name = file.display().to_string();
        let parsed = parse_description(&read_text(file)?, file);
        is_wrong |= parsed.is_err();
        match parsed {
            Ok(parsed) if as_json => told.push(json!({
                "file": name,
                "functions": parsed.definitions.len(),
                "compiled": parsed.build.stubs.len(),
                "classes": parsed.classes.len(),
            })),
            Ok(parsed) => print_line(&format!("{name}: {}", counted(&parsed)))?,
            Err(error) if as_json => {
                let IdlError { line, column, message, .. } = error;
                told.push(json!({ "file": name, "error": { "line": line, "column": column, "why": message } }));
            }
            Err(error) => gridloom_base::stderr_line!("gridloom: {error}"),
        }
    }
    if as_json {
        print_json(&json!({ "files": told }))?;
    }
    Ok(if is_wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn show(parsed: &IdlFile, with_c: bool) -> Result<()> {
    let show = |signature: &Signature, method: Option<&str>| -> Result<()> {
        let indent = if method.is_some() { "  " } else { "" };
        print_line(&format!("{indent}{signature}"))?;
        match with_c {
            true => print_line(&format!("{indent}    {}", signature.c_prototype(method).unwrap_or_else(|why| why))),
            false => Ok(()),
        }
    };
    parsed.definitions.iter().try_for_each(|definition| show(&definition.signature, None))?;
    for class in &parsed.classes {
        print_line(&format!("class {}", class.name))?;
        methods(class).try_for_each(|(method, signature)| show(signature, Some(method)))?;
    }
    Ok(())
}

fn shown(parsed: &IdlFile) -> Value {
    let functions = |signatures: &mut dyn Iterator<Item = (Option<&str>, &Signature)>| -> Vec<Value> {
        let shown = signatures.map(|(method, signature)| {
            json!({
                "name": signature.name,
                "signature": signature.to_string(),
                "about": signature.about,
                "c": signature.c_prototype(method).ok(),
            })
        });
        shown.collect()
    };
    let classes: Vec<Value> = parsed
        .classes
        .iter()
        .map(|class| {
            let methods = functions(&mut methods(class).map(|(method, signature)| (Some(method), signature)));
            json!({ "name": class.name, "about": class.about, "methods": methods })
        })
        .collect();
    let own = functions(&mut parsed.definitions.iter().map(|definition| (None, &definition.signature)));
    json!({ "functions": own, "classes": classes })
}

/// Returns the methods that clients call, with their names without the class.
fn methods(class: &Class) -> impl Iterator<Item = (&str, &Signature)> {
    let signatures = class.methods.iter().map(|method| &method.signature);
    let named = signatures.filter_map(|signature| Some((class_of(&signature.name)?.1, signature)));
    named.filter(|(method, _)| !is_automatic(method))
}

/// Returns a summary such as `3 functions, 2 of them compiled, 1 class`.
fn counted(parsed: &IdlFile) -> String {
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
