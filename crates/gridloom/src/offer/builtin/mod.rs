//! Built-in descriptions of whole libraries: BLAS, LAPACK, FFTW; some linear algebra for first programs, which
//! every embedded grid of a program offers; and files of the server (`builtin:files`).
//!
//! The descriptions are in the program. The libraries are those of the server's machine, found under their usual names or
//! named explicitly; none of them is linked. The functions for files are in the worker.

mod fftw;
mod implementation;
mod template;

use std::path::{Path, PathBuf};

use gridloom_base::Dtype;
use gridloom_idl::{AllowedValues, BinaryOp, Body, CallArgument, Definition, Expr};
use gridloom_net::worker::FILES_VARIABLE;
use gridloom_resources::text_file::check_regular;

use self::implementation::Implementation;
use super::Offer;
use super::compile::library_folders;
use crate::Error;

/// Prefix of the name of a built-in description in a list of files: `builtin:lapack`.
pub const BUILTIN_WORD: &str = "builtin:";
/// Name of the description that is omitted if no BLAS is found and other files are named.
pub(crate) const LINALG: &str = "linalg";
/// Environment variable with a BLAS library, which usually contains LAPACK too.
const BLAS_VARIABLE: &str = "GRIDLOOM_BLAS";

/// A library with a built-in description.
struct Builtin {
    name: &'static str,
    description: &'static str,
    /// File names of suitable libraries, the best first.
    libraries: &'static [&'static str],
    /// Debian packages that contain them.
    packages: &'static str,
}

const ALL: [Builtin; 5] = [
    Builtin {
        name: LINALG,
        description: include_str!("../../../functions/linalg.idl"),
        libraries: &[
            "libopenblas.so.0",
            "libmkl_rt.so.2",
            "libblis.so.4",
            "libblas.so.3",
            "libopenblas.so",
            "libcblas.so.3",
        ],
        packages: "libopenblas0 or libblas3",
    },
    Builtin {
        name: "blas",
        description: include_str!("../../../functions/blas.idl"),
        libraries: &["libopenblas.so.0", "libmkl_rt.so.2", "libblis.so.4", "libblas.so.3"],
        packages: "libopenblas0 or libblas3",
    },
    Builtin {
        name: "lapack",
        description: include_str!("../../../functions/lapack.idl"),
        libraries: &["libopenblas.so.0", "libmkl_rt.so.2", "liblapack.so.3"],
        packages: "libopenblas0 or liblapack3",
    },
    Builtin {
        name: "fftw",
        description: include_str!("../../../functions/fftw.idl"),
        libraries: &["libfftw3.so.3", "libfftw3f.so.3"],
        packages: "libfftw3-double3 and libfftw3-single3",
    },
    Builtin { name: FILES, description: include_str!("../../../functions/files.idl"), libraries: &[], packages: "" },
];

/// Name of the description of files, which need a folder and no library.
const FILES: &str = gridloom_idl::FILES_MODULE;

/// Name of the built-in function that runs Python functions sent by programs.
pub const BUILTIN_RUN_CODE: &str = "builtin:run-code";

/// The output of `gridloom.describe gridloom.run_code`, stored here so that a server starts without starting Python.
pub(crate) fn run_code_definitions() -> Vec<Definition> {
    serde_json::from_str(include_str!("../../../functions/run_code.json")).expect("a test reads it")
}

/// Names of the built-in descriptions.
pub fn builtin_names() -> Vec<&'static str> {
    ALL.iter().map(|builtin| builtin.name).collect()
}

/// Returns the functions of a built-in description, by its name.
///
/// # Errors
/// If there is none of that name.
pub fn builtin_definitions(name: &str) -> Result<Vec<Definition>, Error> {
    definitions(find(name)?, "")
}

/// Returns the functions, with the libraries of this machine that have them; the libraries in `named` are searched first.
///
/// # Errors
/// If there is no description of that name, or this machine has no library with its functions.
pub(crate) fn builtin_offer(name: &str, named: &[PathBuf]) -> Result<Offer, Error> {
    if name == FILES {
        return files_offer(std::env::var_os(FILES_VARIABLE).map(PathBuf::from));
    }
    let builtin = find(name)?;
    let variable = blas_variable().filter(|_| name != "fftw");
    let has_blas = variable.is_some() && [LINALG, "blas"].contains(&name);
    if variable.is_some() {
        check_named_blas()?;
    }
    let named: Vec<PathBuf> = named.iter().cloned().chain(variable).collect();
    // If a BLAS is named, no other is searched.
    let folders = if has_blas { Vec::new() } else { library_folders() };
    offer_from(builtin, named, &folders)
}

/// Checks that the BLAS library named by the environment exists and is a regular file.
pub(crate) fn check_named_blas() -> Result<(), Error> {
    if let Some(library) = blas_variable().filter(|path| path.exists()) {
        check_regular(&library).map_err(|why| Error::Input(format!("{BLAS_VARIABLE}: {why}")))?;
    }
    match blas_variable().filter(|path| path.components().count() > 1 && !path.exists()) {
        None => Ok(()),
        Some(library) => {
            let library = library.display();
            Err(Error::Input(format!("{library}: no such library; {BLAS_VARIABLE} names it")))
        }
    }
}

/// True if a library that looks like a BLAS is named, or found under a usual name.
pub(crate) fn has_blas(named: &[PathBuf]) -> bool {
    let places = library_folders();
    blas_variable().is_some()
        || named.iter().any(|path| has_word(path, "blas"))
        || find(LINALG).is_ok_and(|linalg| linalg.libraries.iter().any(|name| in_folders(name, &places).is_some()))
}

/// Returns why [`crate::BUILTIN_LINALG`] cannot be offered here; `None` if a library that looks like a BLAS is named or found.
pub fn why_no_linalg(named: &[PathBuf]) -> Option<Error> {
    if has_blas(named) { None } else { builtin_offer(LINALG, &[]).err() }
}

fn blas_variable() -> Option<PathBuf> {
    std::env::var_os(BLAS_VARIABLE).filter(|library| !library.is_empty()).map(PathBuf::from)
}

fn files_offer(folder: Option<PathBuf>) -> Result<Offer, Error> {
    let why = match folder {
        Some(folder) if folder.is_dir() => {
            return Ok(Offer { definitions: builtin_definitions(FILES)?, ..Offer::default() });
        }
        Some(folder) => format!("{FILES_VARIABLE} is {}, which is not a folder", folder.display()),
        None => format!("{FILES_VARIABLE} is not set; set it to the folder whose files are offered"),
    };
    Err(Error::Input(format!("{BUILTIN_WORD}{FILES}: {why}")))
}

fn offer_from(builtin: &Builtin, mut named: Vec<PathBuf>, folders: &[PathBuf]) -> Result<Offer, Error> {
    let name = builtin.name;
    named.retain(|path| has_word(path, "fftw") == (name == "fftw"));
    let mut usual: Vec<PathBuf> = builtin.libraries.iter().filter_map(|library| in_folders(library, folders)).collect();
    if name != "fftw" {
        usual.sort_by_key(|library| Implementation::of(library) == Implementation::Reference);
    }
    if named.is_empty() && usual.is_empty() {
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let elsewhere = match name {
            "fftw" => String::new(),
            _ => format!(" or {BLAS_VARIABLE}; the Python package scipy-openblas32 ships one"),
        };
        return Err(Error::Input(format!(
            "no library found for {BUILTIN_WORD}{name}: there is no {} in {}; install {} (Debian), or name it with \
             --library{elsewhere}",
            builtin.libraries.join(", and no "),
            folders.join(", "),
            builtin.packages
        )));
    }
    if name == "fftw" {
        let libraries = named.into_iter().chain(usual).collect();
        return fftw::offer(definitions(builtin, "")?, libraries);
    }
    // The build shipped with SciPy adds its own prefix to each symbol.
    let prefix = if named.iter().any(|path| has_word(path, "scipy_openblas")) { "scipy_" } else { "" };
    // One of the usual libraries suffices: they are alternatives.
    let libraries: Vec<PathBuf> = named.into_iter().chain(usual.into_iter().take(1)).collect();
    let mut offer = Offer { definitions: definitions(builtin, prefix)?, ..Offer::default() };
    if let Some(library) = libraries.first() {
        let implementation = Implementation::of(library);
        offer.notes.push(format!("{BUILTIN_WORD}{name} is computed by {} ({implementation})", library.display()));
        offer.warnings.extend(implementation.warning(name));
    }
    Ok(Offer { libraries, ..offer })
}

fn find(name: &str) -> Result<&'static Builtin, Error> {
    ALL.iter().find(|builtin| builtin.name == name).ok_or_else(|| {
        Error::Input(format!(
            "there is no built-in description '{BUILTIN_WORD}{name}'; there are {}",
            builtin_names().join(", ")
        ))
    })
}

fn definitions(builtin: &Builtin, prefix: &str) -> Result<Vec<Definition>, Error> {
    let text = builtin.description.replace("@PREFIX@", prefix);
    let text = format!("FortranFormat \"{prefix}%s_\";\n{}", template::expand(&text));
    let parsed = gridloom_idl::parse_file(&text, &format!("{}.idl", builtin.name));
    let mut definitions = parsed.map_err(|error| Error::Input(error.to_string()))?.definitions;
    definitions.iter_mut().for_each(pass_upper_case);
    Ok(definitions)
}

/// Passes letters to the routine in upper case, because some routines of OpenBLAS accept no others. The low five bits of a
/// letter do not depend on its case.
fn pass_upper_case(definition: &mut Definition) {
    let Body::Native { args, .. } = &mut definition.body else { return };
    for arg in args {
        if let CallArgument::Param(index) = *arg
            && let Some(AllowedValues::Characters(_)) = definition.signature.params[index].values
        {
            let number = |value: u8| Box::new(Expr::Number(f64::from(value)));
            let low = Expr::Binary(BinaryOp::Remainder, Box::new(Expr::Param(index)), number(32));
            *arg = CallArgument::Value {
                dtype: Dtype::Int8,
                expr: Expr::Binary(BinaryOp::Add, Box::new(low), number(b'A' - 1)),
            };
        }
    }
}

/// True if a file's name contains the word.
fn has_word(path: &Path, word: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(word))
}

fn in_folders(library: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(library)).find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_idl::CArgument;

    #[test]
    fn all_descriptions_are_read() {
        for (name, least) in [("linalg", 5), ("blas", 90), ("lapack", 70), ("fftw", 18), (FILES, 18)] {
            let definitions = builtin_definitions(name).unwrap();
            assert!(definitions.len() >= least, "{name}: {}", definitions.len());
            for definition in definitions {
                let signature = &definition.signature;
                assert!(signature.work.is_some() && !signature.about.is_empty(), "{}", signature.name);
                assert!(!signature.to_string().contains('@'), "{signature}");
                let call = signature.c_prototype(None).unwrap();
                let mut rest = call.strip_prefix("grpc_call(&handle, ").unwrap();
                for param in &signature.params {
                    let is_address = !matches!(param.c_argument_kind(), Ok(CArgument::Value(_)));
                    let name = format!("{}{}", if is_address { '*' } else { ' ' }, param.name);
                    match rest.find(&name) {
                        Some(at) => rest = &rest[at + name.len()..],
                        None => panic!("'{name}' is not in its place: {call}"),
                    }
                }
            }
        }
    }

    #[test]
    fn letters_are_passed_in_upper_case() {
        let mut definitions = definitions(find("lapack").unwrap(), "").unwrap();
        definitions.retain(|definition| definition.signature.name == "lapack/dtrtrs");
        let Body::Native { args, .. } = &definitions[0].body else { panic!() };
        let params = &definitions[0].signature.params;
        let CallArgument::Value { dtype: Dtype::Int8, expr } = &args[2] else { panic!("{args:?}") };
        assert_eq!(params[2].name, "diag");
        for (given, passed) in [(b'u', b'U'), (b'N', b'N')] {
            let scalars = [None, None, Some((gridloom_base::Meta::scalar(Dtype::Int8), vec![given]))];
            assert_eq!(expr.value_bytes(Dtype::Int8, params, &scalars).unwrap(), [passed]);
        }
    }

    #[test]
    fn symbols_have_their_prefix() {
        let symbols = |prefix| -> Vec<String> {
            let symbol = |definition: Definition| match definition.body {
                Body::Native { symbol, .. } => symbol,
                Body::Python { .. } | Body::Program { .. } => unreachable!("all are native"),
            };
            definitions(find("blas").unwrap(), prefix).unwrap().into_iter().map(symbol).collect()
        };
        assert!(symbols("").iter().any(|symbol| symbol == "dgemm_"));
        assert!(symbols("scipy_").iter().all(|symbol| symbol.starts_with("scipy_")));
    }

    #[test]
    fn a_missing_library_is_reported_with_what_was_searched() {
        let nowhere = [PathBuf::from("/no/such/folder"), PathBuf::from("/nor/this")];
        for name in builtin_names().into_iter().filter(|name| *name != FILES) {
            let error = offer_from(find(name).unwrap(), Vec::new(), &nowhere).unwrap_err().to_string();
            for part in ["/no/such/folder, /nor/this", "Debian", "--library", find(name).unwrap().libraries[0]] {
                assert!(error.contains(part), "{error}");
            }
        }
        let named = vec![PathBuf::from("libmine.so"), PathBuf::from("libfftw3mine.so")];
        let offer = offer_from(find("lapack").unwrap(), named, &nowhere).unwrap();
        assert_eq!(offer.libraries, [PathBuf::from("libmine.so")]);
    }

    #[test]
    fn the_reference_library_is_the_last_choice_and_is_warned_of() {
        let folder = tempfile_folder("reference");
        for (file, content) in [("libblas.so.3", "gfortran"), ("libcblas.so.3", "of openblas_get_config")] {
            std::fs::write(folder.join(file), content).unwrap();
        }
        let offer = offer_from(find(LINALG).unwrap(), Vec::new(), std::slice::from_ref(&folder)).unwrap();
        assert_eq!(offer.libraries, [folder.join("libcblas.so.3")]);
        assert!(offer.notes[0].contains("libcblas.so.3 (OpenBLAS)") && offer.warnings.is_empty(), "{offer:?}");
        std::fs::remove_file(folder.join("libcblas.so.3")).unwrap();
        let offer = offer_from(find(LINALG).unwrap(), Vec::new(), std::slice::from_ref(&folder)).unwrap();
        assert!(offer.notes[0].contains("libblas.so.3 (the reference library)"), "{offer:?}");
        assert!(offer.warnings[0].contains("libopenblas0"), "{offer:?}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    fn tempfile_folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gridloom-builtin-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn files_are_offered_of_a_folder_only() {
        assert_eq!(files_offer(Some(std::env::temp_dir())).unwrap().definitions.len(), 18);
        for (folder, word) in [(None, "is not set"), (Some("/no/such/folder".into()), "/no/such/folder")] {
            let error = files_offer(folder).unwrap_err().to_string();
            assert!(error.contains("GRIDLOOM_FILES") && error.contains(word), "{error}");
        }
    }

    #[test]
    fn an_invalid_name_is_reported() {
        let error = builtin_definitions("blass").unwrap_err().to_string();
        assert!(error.contains("'builtin:blass'") && error.contains("linalg, blas, lapack, fftw"), "{error}");
    }
}
