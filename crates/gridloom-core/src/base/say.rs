//! Lines for people on standard error, from the crates that touch the outside.

/// Writes a line to standard error. That nobody reads it any more is no error: `eprintln!` would panic.
///
/// This is text that the calling crate is made with: the core itself says nothing.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {{
        use ::std::io::Write as _;
        // Whoever read it has seen enough, and there is nowhere else to tell it.
        let _ = ::std::writeln!(::std::io::stderr().lock(), $($words)*);
    }};
}
