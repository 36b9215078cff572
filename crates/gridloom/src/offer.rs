//! What a server offers: interface descriptions and Python modules, read into definitions.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gridloom_core::idl::{self, Definition};

use crate::Error;
use crate::{builtin, compile};

/// The word that stands for the interface descriptions that come with Gridloom.
pub const BUILTIN_LINALG: &str = "builtin:linalg";
/// Names a BLAS library for [`BUILTIN_LINALG`].
const BLAS_VARIABLE: &str = "GRIDLOOM_BLAS";
const LINALG: &str = include_str!("../functions/linalg.idl");
/// Where distributions put a BLAS with the C interface.
const BLAS_PLACES: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/libopenblas.so.0",
    "/usr/lib/x86_64-linux-gnu/libblas.so.3",
    "/usr/lib/aarch64-linux-gnu/libopenblas.so.0",
    "/usr/lib64/libopenblas.so.0",
    "/usr/lib/libopenblas.so",
    "/usr/lib64/libcblas.so.3",
];

/// Functions with what it takes to run them.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// The functions.
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

/// Reads `.idl` and `.py` files, libraries that are described here (`builtin:lapack`), and [`BUILTIN_LINALG`], which is left
/// out if no BLAS is found and it is not the only thing asked for.
///
/// # Errors
/// If a file cannot be read or does not parse or compile (with file, line and column), or names clash.
pub fn load_offer(files: &[PathBuf], python: &Path, blas: Option<&Path>, bodies: InlineBodies) -> Result<Offer, Error> {
    let mut offer = Offer::default();
    for file in files {
        if file.as_os_str() == BUILTIN_LINALG {
            builtin_linalg(&mut offer, blas, files.len() == 1, bodies != InlineBodies::Unused)?;
            continue;
        }
        if let Some(name) = file.to_str().and_then(|word| word.strip_prefix(builtin::WORD)) {
            if bodies != InlineBodies::Unused {
                let named: Vec<PathBuf> = blas.map(Path::to_path_buf).into_iter().collect();
                offer.add(builtin::builtin_offer(name, &named)?);
            } else {
                offer.definitions.extend(builtin::builtin_definitions(name)?);
            }
            continue;
        }
        match file.extension().and_then(OsStr::to_str) {
            Some("idl") => interface(&mut offer, file, bodies)?,
            Some("py") => offer.modules.push(absolute(file)?),
            _ => {
                let file = file.display();
                let names = builtin::builtin_names().join(", ");
                let words = format!("{BUILTIN_LINALG}, or builtin: and one of {names}");
                return Err(Error::Input(format!("{file}: expected a .idl or .py file, {words}")));
            }
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

fn builtin_linalg(offer: &mut Offer, blas: Option<&Path>, is_alone: bool, runs: bool) -> Result<(), Error> {
    let named = blas.map(Path::to_path_buf).or_else(|| std::env::var_os(BLAS_VARIABLE).map(PathBuf::from));
    let found = named.or_else(|| BLAS_PLACES.iter().map(PathBuf::from).find(|path| path.exists()));
    let mut define = |prefix: &str| -> Result<(), Error> {
        let text = LINALG.replace("@PREFIX@", prefix);
        let parsed = idl::parse_file(&text, "linalg.idl").map_err(|error| Error::Input(error.to_string()))?;
        offer.definitions.extend(parsed.definitions);
        Ok(())
    };
    let Some(library) = found else {
        return match is_alone {
            _ if !runs => define(""),
            false => Ok(()),
            true => Err(Error::Input(format!(
                "no BLAS library found for {BUILTIN_LINALG}: set {BLAS_VARIABLE} to one with the C interface \
                 (the Python package scipy-openblas32 ships one)"
            ))),
        };
    };
    if !library.exists() {
        return Err(Error::Input(format!("{}: no such library", library.display())));
    }
    // The build that SciPy ships puts a word of its own before each symbol.
    let is_scipys = library.file_name().and_then(OsStr::to_str).is_some_and(|name| name.contains("scipy_openblas"));
    define(if is_scipys { "scipy_" } else { "" })?;
    offer.libraries.push(library);
    Ok(())
}

fn interface(offer: &mut Offer, file: &Path, bodies: InlineBodies) -> Result<(), Error> {
    let text = read(file)?;
    let parsed = idl::parse_file(&text, &file.display().to_string()).map_err(|e| Error::Input(e.to_string()))?;
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

pub(crate) fn read(file: &Path) -> Result<String, Error> {
    std::fs::read_to_string(file).map_err(|error| Error::Input(format!("{}: {error}", file.display())))
}

fn absolute(file: &Path) -> Result<PathBuf, Error> {
    file.canonicalize().map_err(|error| Error::Input(format!("{}: {error}", file.display())))
}
