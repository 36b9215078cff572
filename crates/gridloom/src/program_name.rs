//! The name under which operators of a grid see this program.

use std::path::Path;
use std::sync::OnceLock;

use gridloom_base::limits::NAME_BYTES_MAX;
use gridloom_base::truncated;

static NAME: OnceLock<String> = OnceLock::new();

/// Sets the name of this program for `gridloom calls` and others, once. Without it, the name is that of the program's file.
pub fn set_program_name(name: &str) {
    let _ = NAME.set(truncated(name, NAME_BYTES_MAX).into());
}

pub(crate) fn program_name() -> &'static str {
    let of_file = || {
        let first = std::env::args_os().next().unwrap_or_default();
        let name = Path::new(&first).file_name().unwrap_or_default().to_string_lossy().into_owned();
        truncated(&name, NAME_BYTES_MAX).to_string()
    };
    NAME.get_or_init(of_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_the_name_of_its_file_unless_it_sets_another_before() {
        let of_file = program_name();
        assert!(of_file.starts_with("gridloom-") && !of_file.contains('/'), "{of_file}");
        set_program_name("other");
        assert_eq!(program_name(), of_file);
    }
}
