//! Where data lie: URIs of the client's memory, its files, and the grid's keeping.

use std::path::{Path, PathBuf};

use super::code::{Failed, GRPC_INVALID_DATA_NP, Outcome};

/// A place, as it was written and what it means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Uri {
    /// Memory of the client under a key (`memory:KEY`).
    Key(String),
    /// Memory of the client at an address (`memory:0x7f...`).
    Address(usize),
    /// A file of the client (`file:PATH`).
    File(PathBuf),
    /// Where it was made, or at the client until it is read (`gridloom:`).
    Grid,
}

impl Uri {
    pub(super) fn parse(text: &str) -> Outcome<Uri> {
        let wrong = |why: &str| Failed::new(GRPC_INVALID_DATA_NP, format!("URI '{text}': {why}"));
        let (scheme, rest) = text.split_once(':').ok_or_else(|| wrong(KNOWN))?;
        match scheme {
            "memory" => match rest.strip_prefix("0x").map(|digits| usize::from_str_radix(digits, 16)) {
                Some(Ok(address)) if address > 0 => Ok(Uri::Address(address)),
                Some(_) => Err(wrong("no address; give it as printf's \"memory:%p\" does")),
                None if rest.is_empty() => Err(wrong("a key is missing")),
                None => Ok(Uri::Key(rest.to_string())),
            },
            "file" => match rest.strip_prefix("//") {
                None if rest.is_empty() => Err(wrong("a path is missing")),
                None => Ok(Uri::File(rest.into())),
                Some(path) if path.len() > 1 && path.starts_with('/') => Ok(Uri::File(path.into())),
                Some(_) => Err(wrong("files of servers cannot be read or written yet; give a path of this machine")),
            },
            "gridloom" => match rest.trim_start_matches('/') {
                "" => Ok(Uri::Grid),
                _ => Err(wrong("data cannot be put on a server by its name yet; give gridloom:, and bind the call")),
            },
            _ => Err(wrong(KNOWN)),
        }
    }
}

impl std::fmt::Display for Uri {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Uri::Key(key) => write!(f, "memory:{key}"),
            Uri::Address(address) => write!(f, "memory:{address:#x}"),
            Uri::File(path) => write!(f, "file:{}", Path::display(path)),
            Uri::Grid => write!(f, "gridloom:"),
        }
    }
}

const KNOWN: &str = "it is none that is known; give memory:KEY, memory:0xADDRESS, file:PATH or gridloom:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_written() {
        for (text, uri) in [
            ("memory:x", Uri::Key("x".into())),
            ("memory:0x7f10", Uri::Address(0x7f10)),
            ("file:a/b", Uri::File("a/b".into())),
            ("gridloom:", Uri::Grid),
        ] {
            assert_eq!((Uri::parse(text).unwrap(), uri.to_string().as_str()), (uri, text));
        }
        assert_eq!(Uri::parse("file:///a").unwrap(), Uri::File("/a".into()));
        assert_eq!(Uri::parse("gridloom://").unwrap(), Uri::Grid);
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in
            ["", "x", "s3://a/b", "memory:", "memory:0x", "memory:0x0", "file:", "file://host/a", "gridloom://s"]
        {
            let failed = Uri::parse(text).unwrap_err();
            assert!(failed.code == GRPC_INVALID_DATA_NP && failed.text.contains(&format!("'{text}'")), "{text}");
        }
    }
}
