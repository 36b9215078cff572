//! Detects the implementation of a BLAS or LAPACK library. The name of the file is not sufficient, because in distributions
//! `libblas.so.3` may be a link to any implementation. The resolved path and the content of the file are searched instead;
//! the library is not loaded, because that would run its code in the server.

use std::fmt;
use std::path::Path;

use memchr::memmem;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Implementation {
    Optimized(&'static str),
    /// The reference implementation of Netlib, which is slow.
    Reference,
    Unknown,
}

/// Words that occur only in the files of one implementation, and the name of the implementation.
const WORDS: [(&str, &str); 7] = [
    ("openblas", "OpenBLAS"),
    ("flexiblas", "FlexiBLAS"),
    ("mkl_", "MKL"),
    ("bli_", "BLIS"),
    ("ATL_", "ATLAS"),
    ("armpl", "Arm Performance Libraries"),
    ("nvpl_", "NVPL"),
];

impl Implementation {
    pub(super) fn of(library: &Path) -> Implementation {
        let Ok(file) = library.canonicalize() else { return Implementation::Unknown };
        let named = |text: &[u8]| {
            WORDS.iter().find(|(word, _)| memmem::find(text, word.as_bytes()).is_some()).map(|found| found.1)
        };
        let file_name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // The folder may name the implementation: `openblas-pthread/libblas.so.3`.
        let folder = file.parent().and_then(Path::file_name).unwrap_or_default();
        if let Some(name) = named(file_name.as_bytes()).or_else(|| named(folder.as_encoded_bytes())) {
            return Implementation::Optimized(name);
        }
        let is_usual =
            ["libblas", "libcblas", "liblapack", "librefblas"].iter().any(|name| file_name.starts_with(name));
        match std::fs::read(&file).ok().and_then(|content| named(&content)) {
            Some(name) => Implementation::Optimized(name),
            None if is_usual => Implementation::Reference,
            None => Implementation::Unknown,
        }
    }

    /// Returns a warning if the implementation is slow.
    pub(super) fn warning(self, description: &str) -> Option<String> {
        (self == Implementation::Reference && description != "lapack").then(|| {
            format!(
                "gridloom: builtin:{description}: the reference BLAS is 10 to 100 times slower than OpenBLAS; install libopenblas0 \
                 (Debian), or name another library with --library or GRIDLOOM_BLAS"
            )
        })
    }
}

impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Implementation::Optimized(name) => name,
            Implementation::Reference => "the reference library",
            Implementation::Unknown => "of unknown kind",
        })
    }
}
