//! Reads text files from any system and editor.
//!
//! A file is UTF-8, or UTF-16 with a byte order mark, or XML that declares ISO-8859-1 or US-ASCII. A byte order mark is
//! dropped. Lines may end with CR LF or CR; the text has LF.
//!
//! **Invariant:** only regular files of bounded size are read, so a device or pipe cannot block a program.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Maximum size of a file, in bytes: five times the plan of the largest group.
const BYTES_MAX: u64 = 512 << 20;
/// Number of bytes at the beginning of an XML file in which the declaration of the encoding is searched.
const DECLARATION_BYTES: usize = 200;

/// Reads a text file.
///
/// # Errors
/// If the file cannot be read, is not a regular file, is too large, or is not text. The message begins with the file, and
/// with the line and column of the first invalid byte.
pub fn read_text(file: &Path) -> Result<String, String> {
    let wrong = |why: String| format!("{}{why}", file.display());
    let failed = |error: std::io::Error| wrong(format!(": {error}"));
    check_regular(file)?;
    let mut bytes = Vec::new();
    File::open(file).and_then(|open| open.take(BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(wrong(format!(
            ": the file has more than {} MiB, which is the limit; use a smaller file",
            BYTES_MAX >> 20
        )));
    }
    decode(bytes).map_err(wrong)
}

/// Reads a file of any size and contents.
///
/// # Errors
/// If the file cannot be read or is not a regular file. The message begins with the file.
pub fn read_bytes(file: &Path) -> Result<Vec<u8>, String> {
    check_regular(file)?;
    fs::read(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// Checks that a file is regular: opening a pipe would block, and a device may have no end.
///
/// # Errors
/// If it is not, or does not exist. The message begins with the file.
pub fn check_regular(file: &Path) -> Result<(), String> {
    let kind = fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?;
    if kind.is_dir() {
        return Err(format!("{}: it is a folder; name a file in it", file.display()));
    }
    if !kind.is_file() {
        return Err(format!("{}: it is a device, pipe or socket; name a regular file", file.display()));
    }
    Ok(())
}

/// Returns the text of a file's bytes.
///
/// # Errors
/// With the place of the first invalid byte, such as `:2:3: …`.
pub fn decode(bytes: Vec<u8>) -> Result<String, String> {
    let text = match bytes[..] {
        [0xef, 0xbb, 0xbf, ..] => utf8(&bytes[3..])?.into_owned(),
        [0xff, 0xfe, ..] => utf16(&bytes[2..], u16::from_le_bytes)?,
        [0xfe, 0xff, ..] => utf16(&bytes[2..], u16::from_be_bytes)?,
        _ => match declared_encoding(&bytes).as_deref() {
            Some("iso-8859-1" | "latin1") => bytes.iter().map(|byte| char::from(*byte)).collect(),
            None | Some("utf-8" | "utf8" | "us-ascii" | "ascii") => match String::from_utf8(bytes) {
                Ok(text) => text,
                Err(error) => utf8(error.as_bytes())?.into_owned(),
            },
            Some(other) => {
                return Err(format!(": the encoding '{other}' is unknown; save the file as UTF-8"));
            }
        },
    };
    Ok(if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text })
}

fn utf8(bytes: &[u8]) -> Result<Cow<'_, str>, String> {
    std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|error| {
        let at = error.valid_up_to();
        let place = place_at_end(&String::from_utf8_lossy(&bytes[..at]));
        format!("{place}: the byte 0x{:02x} is not UTF-8; save the file as UTF-8", bytes[at])
    })
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, String> {
    let units = bytes.chunks(2).map(|pair| unit([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let mut text = String::with_capacity(bytes.len() / 2);
    for letter in char::decode_utf16(units) {
        match letter {
            Ok(letter) => text.push(letter),
            Err(_) => {
                let place = place_at_end(&text);
                return Err(format!(
                    "{place}: the file begins as UTF-16 but has invalid UTF-16 here; save the file as UTF-8"
                ));
            }
        }
    }
    Ok(text)
}

/// Returns `:LINE:COLUMN` of the end of a text, from 1.
fn place_at_end(before: &str) -> String {
    let before = before.replace("\r\n", "\n").replace('\r', "\n");
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
    format!(":{line}:{column}")
}

/// Returns the encoding that an XML declaration names, in lower case.
fn declared_encoding(bytes: &[u8]) -> Option<String> {
    let begin = bytes.strip_prefix(b"<?xml")?;
    let text = String::from_utf8_lossy(&begin[..begin.len().min(DECLARATION_BYTES)]).into_owned();
    let declaration = text.split_once("?>")?.0;
    let value = declaration.split_once("encoding")?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|letter| matches!(letter, '"' | '\''))?;
    value[1..].split_once(quote).map(|(name, _)| name.to_ascii_lowercase())
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
        let error = read_text(&file).unwrap_err();
        assert!(error.ends_with(":2:3: the byte 0xff is not UTF-8; save the file as UTF-8"), "{error}");
        std::fs::remove_file(&file).unwrap();
        assert!(read_text(&file).unwrap_err().contains("No such file"));
    }

    #[test]
    fn all_encodings_and_line_ends_give_the_same_text() {
        let text = "<?xml version='1.0'?>\n<a b='\u{e9}\u{fc}'/>\n";
        let units: Vec<u16> = format!("\u{feff}{text}").encode_utf16().collect();
        let latin = text.replace("?>", " encoding=\"ISO-8859-1\"?>");
        let latin_bytes = latin.chars().map(|letter| letter as u8).collect();
        let files = [
            text.as_bytes().to_vec(),
            format!("\u{feff}{text}").into_bytes(),
            text.replace('\n', "\r\n").into_bytes(),
            text.replace('\n', "\r").into_bytes(),
            units.iter().flat_map(|unit| unit.to_le_bytes()).collect(),
            units.iter().flat_map(|unit| unit.to_be_bytes()).collect(),
        ];
        for bytes in files {
            assert_eq!(decode(bytes).unwrap(), text);
        }
        assert_eq!(decode(latin_bytes).unwrap(), latin);
    }

    #[test]
    fn wrong_encodings_are_named() {
        let wrong = |bytes: &[u8]| decode(bytes.to_vec()).unwrap_err();
        assert!(
            wrong(b"<?xml version='1.0' encoding='KOI8-R'?>").contains("'koi8-r' is unknown; save the file as UTF-8")
        );
        assert!(wrong(b"\xff\xfea\0\r\0\n\0\0\xdc").starts_with(":2:1: the file begins as UTF-16"));
        assert!(wrong(b"a\rb\xff").starts_with(":2:2: the byte 0xff"));
    }

    #[test]
    fn devices_and_folders_are_refused() {
        for (file, why) in [("/dev/zero", "name a regular file"), ("/tmp", "it is a folder")] {
            let error = read_text(Path::new(file)).unwrap_err().to_string();
            assert!(error.starts_with(file) && error.contains(why), "{error}");
        }
    }
}
