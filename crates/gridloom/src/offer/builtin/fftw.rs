//! FFTW: a transform needs a plan, its execution and its destruction; a few lines of C combine these into one function.
//!
//! The C code is compiled on the server's machine, against its libraries, and cached like inline bodies.

use std::path::PathBuf;

use gridloom_idl::Definition;

use crate::Error;
use crate::offer::Offer;
use crate::offer::compile::compiled_own;

const SOURCE: &str = include_str!("../../../functions/fftw.c");

/// Returns the transforms for the precisions of the given libraries.
pub(super) fn offer(definitions: Vec<Definition>, libraries: Vec<PathBuf>) -> Result<Offer, Error> {
    let is_single = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains("fftw3f"));
    let (single, double): (Vec<PathBuf>, Vec<PathBuf>) = libraries.into_iter().partition(is_single);
    let mut offer = Offer::default();
    for (module, flag, libraries) in [("fftw/", "-DDOUBLE", double), ("fftwf/", "-DSINGLE", single)] {
        let Some(library) = libraries.first() else { continue };
        let library = library.canonicalize().map_err(|error| {
            Error::Input(format!("{}: {error}; name FFTW's library by its path", library.display()))
        })?;
        offer.libraries.push(compiled_own("builtin:fftw", SOURCE, &[flag], &library)?);
        let of_module = definitions.iter().filter(|definition| definition.signature.name.starts_with(module));
        offer.definitions.extend(of_module.cloned());
    }
    Ok(offer)
}
