//! What a server offers: interface descriptions and Python modules, read into definitions.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gridloom_idl::Definition;

use crate::Error;
use crate::{builtin, compile};

/// The word for the five functions of linear algebra that come described, and that a BLAS library computes.
pub const BUILTIN_LINALG: &str = "builtin:linalg";

/// Functions with what it takes to run them.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    pub definitions: Vec<Definition>,
    /// Shared libraries, searched in this order.
    pub libraries: Vec<PathBuf>,
    /// Python modules.
    pub modules: Vec<PathBuf>,
    /// What compilers say of inline bodies that they compiled: warnings.
    pub warnings: Vec<String>,
}

/// What becomes of the inline bodies of interface descriptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InlineBodies {
    /// They are compiled, or were.
    Compile,
    /// They are in libraries that come from elsewhere.
    InLibraries,
    /// They are not run, and need no library.
    Unused,
}

/// Reads `.idl` and `.py` files, and libraries that are described here (`builtin:lapack`), of which `named` are searched first.
/// [`BUILTIN_LINALG`] is left out if no BLAS is found and it is not the only thing asked for.
///
/// # Errors
/// If a file cannot be read or does not parse or compile (with file, line and column), or names clash.
pub fn load_offer(files: &[PathBuf], python: &Path, named: &[PathBuf], bodies: InlineBodies) -> Result<Offer, Error> {
    let mut offer = Offer::default();
    for file in files {
        if let Some(name) = file.to_str().and_then(|word| word.strip_prefix(builtin::BUILTIN_WORD)) {
            if bodies == InlineBodies::Unused {
                builtin::check_named_blas()?;
                offer.definitions.extend(builtin::builtin_definitions(name)?);
            } else if name != builtin::LINALG || files.len() == 1 || builtin::finds_blas(named) {
                offer.add(builtin::builtin_offer(name, named)?);
            }
            continue;
        }
        match file.extension().and_then(OsStr::to_str) {
            Some("idl") => interface(&mut offer, file, bodies)?,
            Some("py") => offer.modules.push(absolute(file)?),
            _ => return Err(no_offer(file)),
        }
    }
    if !offer.modules.is_empty() {
        offer.definitions.extend(describe(&offer.modules, python)?);
    }
    offer.check_names()?;
    Ok(offer)
}

impl Offer {
    /// Takes up what another one has.
    pub fn add(&mut self, other: Offer) {
        self.definitions.extend(other.definitions);
        let new = |library: &PathBuf| !self.libraries.contains(library);
        let libraries: Vec<PathBuf> = other.libraries.into_iter().filter(new).collect();
        self.libraries.extend(libraries);
        self.modules.extend(other.modules);
        self.warnings.extend(other.warnings);
    }

    /// # Errors
    /// If two functions have the same name.
    pub fn check_names(&self) -> Result<(), Error> {
        let mut names: Vec<&str> = self.definitions.iter().map(|d| d.signature.name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::Input(format!("function '{}' is defined twice", pair[0]))),
            None => Ok(()),
        }
    }
}

fn no_offer(file: &Path) -> Error {
    let names = builtin::builtin_names();
    let word = builtin::BUILTIN_WORD;
    let meant = match file.to_str().filter(|name| names.contains(name)) {
        Some(name) => format!("; did you mean '{word}{name}'?"),
        None => String::new(),
    };
    let (file, names) = (file.display(), names.join(", "));
    Error::Input(format!("{file}: expected a .idl or .py file, or {word} and one of {names}{meant}"))
}

fn interface(offer: &mut Offer, file: &Path, bodies: InlineBodies) -> Result<(), Error> {
    let text = crate::read_text(file)?;
    let parsed =
        gridloom_idl::parse_file(&text, &file.display().to_string()).map_err(|e| Error::Input(e.to_string()))?;
    if bodies != InlineBodies::Unused {
        let libraries = compile::libraries_of(&parsed, file)?;
        if bodies == InlineBodies::Compile {
            for made in compile::compiled(&parsed, file, &libraries)? {
                offer.libraries.push(made.library);
                offer.warnings.extend((!made.warnings.is_empty()).then_some(made.warnings));
            }
        }
        offer.libraries.extend(libraries.shared);
    }
    offer.definitions.extend(parsed.definitions);
    offer.definitions.extend(parsed.classes.into_iter().flat_map(|class| class.methods));
    Ok(())
}

fn describe(modules: &[PathBuf], python: &Path) -> Result<Vec<Definition>, Error> {
    let output = Command::new(python)
        .args(["-m", "gridloom.describe"])
        .args(modules)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| {
            Error::Input(format!("cannot run {}: {error}; name an interpreter with --python", python.display()))
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
