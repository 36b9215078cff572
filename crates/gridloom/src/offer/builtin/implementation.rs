//! Which implementation of BLAS or LAPACK a library file is. Its name does not tell: distributions let `libblas.so.3` be a link to any of
//! them. The file's path and content do; the library is not loaded, since that runs its code in the server.

use std::fmt;
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Implementation {
    Optimized(&'static str),
    /// Netlib's own, written to be read.
    Reference,
    Unknown,
}

/// Words that only the files of an implementation contain, and its name.
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
            WORDS
                .iter()
                .find(|(word, _)| text.windows(word.len()).any(|part| part == word.as_bytes()))
                .map(|found| found.1)
        };
        let file_name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // The folder's name, too: `openblas-pthread/libblas.so.3`.
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

    /// Returns a warning of its speed, if it is slow.
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
