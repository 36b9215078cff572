//! Functions that a server offers: reads interface descriptions and Python modules into definitions.

mod builtin;
mod compile;
mod preprocess;

use gridloom_base::EscapedBytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use gridloom_idl::{Body, Definition};
use gridloom_net::children;
use gridloom_net::jobs::Interpreter;

use crate::Error;
pub use builtin::{BUILTIN_RUN_CODE, BUILTIN_WORD, builtin_definitions, builtin_names, why_no_linalg};
pub use compile::compile_interface;
pub use preprocess::parse_description;

/// Name of the built-in description of five linear algebra functions, which a BLAS library computes.
pub const BUILTIN_LINALG: &str = "builtin:linalg";

/// Functions, with the files needed to run them.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    pub definitions: Vec<Definition>,
    /// Shared libraries, searched in this order.
    pub libraries: Vec<PathBuf>,
    /// Python modules.
    pub modules: Vec<PathBuf>,
    /// Warnings of compilers about inline bodies, and warnings about slow libraries.
    pub warnings: Vec<String>,
    /// Libraries that were chosen for built-in descriptions.
    pub notes: Vec<String>,
    /// Functions whose inline bodies use shared data that they do not declare.
    pub(crate) undeclared_sharing: BTreeSet<String>,
    /// By function: the file that defines it, or the name of its built-in description.
    pub(crate) defined_in: BTreeMap<String, String>,
}

/// How to handle inline bodies of interface descriptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InlineBodies {
    /// Compile them, or use what was compiled before.
    Compile,
    /// They are in libraries that are provided separately.
    InLibraries,
    /// They are not run, and need no library.
    Unused,
}

/// Reads `.idl` and `.py` files, and built-in descriptions of libraries (`builtin:lapack`); the libraries in `named`
/// are searched first. Omits [`BUILTIN_LINALG`] if no BLAS is found and other things were requested too. A file named
/// twice is read once.
///
/// # Errors
/// If a file cannot be read, or does not parse or compile (with file, line and column), or if names clash.
pub fn load_offer(
    files: &[PathBuf],
    python: &Interpreter,
    named: &[PathBuf],
    bodies: InlineBodies,
) -> Result<Offer, Error> {
    let mut offer = Offer::default();
    let mut seen = BTreeSet::new();
    let is_new = |file: &&PathBuf| seen.insert(file.canonicalize().unwrap_or_else(|_| file.to_path_buf()));
    let files: Vec<&PathBuf> = files.iter().filter(is_new).collect();
    for file in &files {
        if file.as_path() == Path::new(builtin::BUILTIN_RUN_CODE) {
            offer.define(builtin::BUILTIN_RUN_CODE, builtin::run_code_definitions())?;
            continue;
        }
        if let Some(name) = file.to_str().and_then(|word| word.strip_prefix(builtin::BUILTIN_WORD)) {
            if bodies == InlineBodies::Unused {
                builtin::check_named_blas()?;
                offer.define(&file.display().to_string(), builtin::builtin_definitions(name)?)?;
            } else if name != builtin::LINALG || files.len() == 1 || builtin::has_blas(named) {
                offer.add_builtin(name, named)?;
            }
            continue;
        }
        match file.extension().and_then(OsStr::to_str) {
            Some("idl") => interface(&mut offer, file, named, bodies)?,
            Some("py") => offer.modules.push(absolute(file)?),
            _ => return Err(unsupported_file(file)),
        }
    }
    if !offer.modules.is_empty() {
        for definition in describe(&offer.modules, python, bodies)? {
            let Body::Python { module, .. } = &definition.body else { continue };
            let file = EscapedBytes::of(module).to_string();
            offer.define(&file, [definition])?;
        }
    }
    Ok(offer)
}

impl Offer {
    /// Adds a library with a built-in description, by its name, unless it was added before. The libraries in `named`
    /// are searched first.
    ///
    /// # Errors
    /// As for [`builtin::builtin_offer`], or if a function has the name of another one.
    pub fn add_builtin(&mut self, name: &str, named: &[PathBuf]) -> Result<(), Error> {
        let word = format!("{}{name}", builtin::BUILTIN_WORD);
        if self.defined_in.values().any(|known| *known == word) {
            return Ok(());
        }
        let found = builtin::builtin_offer(name, named)?;
        self.define(&word, found.definitions)?;
        self.add_libraries(found.libraries);
        self.warnings.extend(found.warnings);
        self.notes.extend(found.notes);
        Ok(())
    }

    /// Adds a program.
    ///
    /// # Errors
    /// If there is already a function of that name.
    pub fn add_program(&mut self, definition: Definition) -> Result<(), Error> {
        self.define("--program", [definition])
    }

    /// Adds libraries, which are searched after the existing ones.
    pub fn add_libraries(&mut self, libraries: impl IntoIterator<Item = PathBuf>) {
        for library in libraries {
            if !self.libraries.contains(&library) {
                self.libraries.push(library);
            }
        }
    }

    /// Adds the definitions of a file.
    fn define(&mut self, file: &str, definitions: impl IntoIterator<Item = Definition>) -> Result<(), Error> {
        for definition in definitions {
            let name = &definition.signature.name;
            if let Some(first) = self.defined_in.insert(name.clone(), file.to_owned()) {
                let places =
                    if first == file { format!("both in {file}") } else { format!("in {first} and in {file}") };
                return Err(Error::Input(format!(
                    "function '{name}' is defined twice, {places}: rename one of them, or leave one out"
                )));
            }
            self.definitions.push(definition);
        }
        Ok(())
    }
}

fn unsupported_file(file: &Path) -> Error {
    let names = builtin::builtin_names();
    let word = builtin::BUILTIN_WORD;
    let meant = match file.to_str().filter(|name| names.contains(name)) {
        Some(name) => format!("; did you mean '{word}{name}'?"),
        None => String::new(),
    };
    let (file, names) = (file.display(), names.join(", "));
    Error::Input(format!("{file}: expected a .idl or .py file, or {word} and one of {names}{meant}"))
}

fn interface(offer: &mut Offer, file: &Path, named: &[PathBuf], bodies: InlineBodies) -> Result<(), Error> {
    let text = crate::read_text(file)?;
    let parsed = parse_description(&text, file).map_err(|e| Error::Input(e.to_string()))?;
    if bodies != InlineBodies::Unused {
        offer.undeclared_sharing.extend(parsed.undeclared_sharing().map(str::to_string));
        let libraries = compile::libraries_of(&parsed, file)?;
        if bodies == InlineBodies::Compile {
            for made in compile::compiled(&parsed, file, &libraries, named)? {
                offer.libraries.push(made.library);
                offer.warnings.extend((!made.warnings.is_empty()).then_some(made.warnings));
            }
        }
        offer.libraries.extend(libraries.shared);
    } else {
        offer.warnings.extend(parsed.undeclared_sharing().map(|function| {
            format!(
                "'{function}' uses shared data that it does not declare: in simulation its calls neither get nor put \
                    them; declare them with Gets, Puts or Replaces"
            )
        }));
    }
    let methods = parsed.classes.into_iter().flat_map(|class| class.methods);
    offer.define(&file.display().to_string(), parsed.definitions.into_iter().chain(methods))
}

fn describe(modules: &[PathBuf], python: &Interpreter, bodies: InlineBodies) -> Result<Vec<Definition>, Error> {
    let mut command = python.command("gridloom.describe");
    command.args((bodies == InlineBodies::Unused).then_some("--undeclared")).args(modules);
    let output = children::output(command.stderr(Stdio::inherit())).map_err(|error| {
        let program = python.program.display();
        Error::Input(format!("cannot run {program}: {error}; name an interpreter with --python"))
    })?;
    if !output.status.success() {
        let names: Vec<String> = modules.iter().map(|module| module.display().to_string()).collect();
        return Err(Error::Input(format!("cannot offer the functions of {} (see above)", names.join(", "))));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .map_err(|error| Error::Input(format!("gridloom.describe printed no definitions: {error}")))
}

fn absolute(file: &Path) -> Result<PathBuf, Error> {
    file.canonicalize().map_err(|error| Error::Input(format!("{}: {error}", file.display())))
}
