//! FFTW: a transform is a plan, its execution and its end, which a few lines of C make one function of.
//!
//! They are compiled here, by the C compiler of the server's machine, against its libraries, into the folder for what
//! programs keep, under a name that says what they were made of.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gridloom_core::base::Fnv;
use gridloom_core::idl::Definition;

use crate::Error;
use crate::offer::Offer;

const SOURCE: &str = include_str!("../../functions/fftw.c");
/// Names the C compiler, as for make.
const COMPILER_VARIABLE: &str = "CC";

/// The transforms of the precisions that the libraries have.
pub(super) fn offer(definitions: Vec<Definition>, libraries: Vec<PathBuf>) -> Result<Offer, Error> {
    let is_single = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains("fftw3f"));
    let (single, double): (Vec<PathBuf>, Vec<PathBuf>) = libraries.into_iter().partition(is_single);
    let mut offer = Offer::default();
    for (module, flag, libraries) in [("fftw/", "-DDOUBLE", double), ("fftwf/", "-DSINGLE", single)] {
        let Some(library) = libraries.first() else { continue };
        offer.libraries.push(compiled(flag, library)?);
        let of_module = definitions.iter().filter(|definition| definition.signature.name.starts_with(module));
        offer.definitions.extend(of_module.cloned());
    }
    Ok(offer)
}

/// The library of ours for that one of FFTW's; made, if it is not there.
fn compiled(flag: &str, library: &Path) -> Result<PathBuf, Error> {
    let library = library
        .canonicalize()
        .map_err(|error| Error::Input(format!("{}: {error}; name FFTW's library by its path", library.display())))?;
    let folder = folder()?;
    let mut made_of = Fnv::default();
    [SOURCE, flag, &library.to_string_lossy(), env!("CARGO_PKG_VERSION")].iter().for_each(|text| made_of.text(text));
    let made = folder.join(format!("fftw-{:016x}.so", made_of.0));
    if made.exists() {
        return Ok(made);
    }
    let failed = |what: String| {
        Error::Input(format!(
            "{what}; builtin:fftw needs a C compiler on the server's machine (Debian: gcc), which {COMPILER_VARIABLE} may \
             name, and {} to be written to",
            folder.display()
        ))
    };
    std::fs::create_dir_all(&folder).map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    let compiler = std::env::var(COMPILER_VARIABLE).unwrap_or_else(|_| "cc".into());
    // Under a name of its own until it is whole: another server may look for it.
    let partial = folder.join(format!("fftw-{}-{}.part", std::process::id(), &flag[2..]));
    let mut child = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O2", "-Wl,-z,defs", flag, "-x", "c", "-", "-x", "none"])
        .arg(&library)
        .arg("-o")
        .arg(&partial)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot run {compiler}: {error}")))?;
    // A compiler that ends early says why.
    let _ = child.stdin.take().expect("it is piped").write_all(SOURCE.as_bytes());
    let output = child.wait_with_output().map_err(|error| failed(format!("{compiler}: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{compiler} failed ({}): {}", output.status, said.trim())));
    }
    std::fs::rename(&partial, &made).map_err(|error| failed(format!("{}: {error}", made.display())))?;
    Ok(made)
}

/// `~/.cache/gridloom`, or where the environment says: nobody else must be able to put a library there.
fn folder() -> Result<PathBuf, Error> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("gridloom")).ok_or_else(|| {
        Error::Input("builtin:fftw keeps a library in ~/.cache/gridloom: set HOME or XDG_CACHE_HOME".to_string())
    })
}
