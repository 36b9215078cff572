//! Writes the output of a command or a simulated run to standard error, for crates that do I/O. It is not a log.

/// Writes a line to standard error, with control characters escaped. A closed stream is no error; `eprintln!` would panic.
///
/// The macro expands in the calling crate; the core itself prints nothing.
#[macro_export]
macro_rules! stderr_line {
    ($($words:tt)*) => {{
        use ::std::io::Write as _;
        // The reader of standard error is gone, and there is nowhere else to report that.
        let line = ::std::format!($($words)*);
        let _ = ::std::writeln!(::std::io::stderr().lock(), "{}", $crate::Escaped(&line));
    }};
}
