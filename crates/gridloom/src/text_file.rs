//! Text files that people write.

use std::path::Path;

use crate::Error;

/// Reads a text file.
///
/// # Errors
/// If the file cannot be read, or is not UTF-8; the message has the line and column of the first wrong byte.
pub fn read_text(file: &Path) -> Result<String, Error> {
    let name = file.display();
    let bytes = std::fs::read(file).map_err(|error| Error::Input(format!("{name}: {error}")))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..at]);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        let byte = error.as_bytes()[at];
        Error::Input(format!("{name}:{line}:{column}: the byte 0x{byte:02x} is not UTF-8; save the file as UTF-8"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_reported_with_its_place() {
        let file = std::env::temp_dir().join(format!("gridloom-text-{}", std::process::id()));
        std::fs::write(&file, "ä\nbö\u{fc} \u{e9}").unwrap();
        assert_eq!(read_text(&file).unwrap(), "ä\nböü é");
        std::fs::write(&file, b"\xc3\xa4\nb\xc3\xb6\xff\n").unwrap();
        let error = read_text(&file).unwrap_err().to_string();
        assert!(error.ends_with(":2:3: the byte 0xff is not UTF-8; save the file as UTF-8"), "{error}");
        std::fs::remove_file(&file).unwrap();
        assert!(read_text(&file).unwrap_err().to_string().contains("No such file"));
    }
}
