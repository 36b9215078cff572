//! Selects the part of the server's environment that workers inherit: variables that programs and libraries commonly
//! need, and those that the server lists. Functions are other people's code, and a server's environment may contain
//! its user's passwords and keys.

use std::env;
use std::ffi::OsString;

use gridloom_keys::KEYS_VARIABLE;

/// Variables that every worker gets. A trailing star matches any suffix.
const COMMON: [&str; 54] = [
    // User, paths, language.
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    // Gridloom, except for the keys of the server.
    "GRIDLOOM_*",
    // Dynamic libraries and memory allocation.
    "ASAN_OPTIONS",
    "GLIBC_TUNABLES",
    "LD_*",
    "LSAN_OPTIONS",
    "MALLOC_*",
    "UBSAN_OPTIONS",
    // Programming languages.
    "CONDA_*",
    "JULIA_*",
    "MPLBACKEND",
    "NUMBA_*",
    "PYTHON*",
    "RUST_BACKTRACE",
    "R_HOME",
    "VIRTUAL_ENV",
    // Threads of numerical libraries.
    "BLIS_*",
    "GOMP_*",
    "KMP_*",
    "MKL_*",
    "NUMEXPR_*",
    "OMP_*",
    "OPENBLAS_*",
    "VECLIB_*",
    // Accelerators.
    "CUDA_*",
    "GPU_*",
    "HIP_*",
    "NVIDIA_*",
    "ROCM_*",
    "ROCR_*",
    "SYCL_*",
    "ZE_*",
    // Ranks.
    "FI_*",
    "HYDRA_*",
    "MPICH_*",
    "OMPI_*",
    "PMIX_*",
    "PRTE_*",
    "UCX_*",
];

/// Variables that no worker gets.
const NEVER: [&str; 1] = [KEYS_VARIABLE];

/// Returns the part of this process's environment that workers get. `named` lists further variables, which may also
/// end with a star.
pub(super) fn inherited(named: &[String]) -> Vec<(OsString, OsString)> {
    let passes = |name: &str| {
        let fits = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        let mut patterns = COMMON.iter().copied().chain(named.iter().map(String::as_str));
        !NEVER.contains(&name) && patterns.any(fits)
    };
    env::vars_os().filter(|(name, _)| passes(&name.to_string_lossy())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_common_or_named_passes() {
        let has = |named: &[&str], name: &str| {
            let named: Vec<String> = named.iter().map(|name| name.to_string()).collect();
            inherited(&named).iter().any(|(found, _)| found == name)
        };
        // Cargo sets these.
        assert!(has(&[], "PATH") && !has(&[], "CARGO_PKG_NAME"));
        assert!(has(&["CARGO_PKG_NAME"], "CARGO_PKG_NAME") && !has(&["CARGO_PKG_NAME"], "CARGO_PKG_VERSION"));
        assert!(has(&["CARGO_*"], "CARGO_PKG_VERSION") && has(&["*"], "CARGO_PKG_VERSION"));
    }
}
