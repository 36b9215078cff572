//! Writes what a command or a simulated run answers to standard error, for the crates that touch the outside. It is no log.

/// Writes a line to standard error. A closed stream is no error; `eprintln!` would panic.
///
/// This is text that the calling crate is made with: the core itself says nothing.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {{
        use ::std::io::Write as _;
        // The reader of standard error has gone, and there is nowhere else to tell it.
        let _ = ::std::writeln!(::std::io::stderr().lock(), $($words)*);
    }};
}
