//! URIs of data locations: the client's memory and files, servers' stores and files, or an unspecified place in the
//! grid.

use std::path::{Path, PathBuf};

/// A program's description of its data is contradictory or refers to something unknown. Holds the reason.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidData(pub String);

/// A location from which a datum is read or at which a copy is placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Uri {
    /// Memory of the client under a key (`memory:KEY`).
    Key(String),
    /// Memory of the client at an address (`memory:0x7f...`).
    Address(usize),
    /// A file of the client (`file:PATH`).
    File(PathBuf),
    /// Where the datum was produced, or the client until a call reads it (`gridloom:`).
    Grid,
    /// The store of a server (`gridloom://SERVER`).
    Store(String),
    /// A file of a server, by its path in the folder that the server exports (`file://SERVER/PATH`).
    ServerFile(String, String),
}

impl Uri {
    /// True for memory or a file of the client.
    pub fn is_at_client(&self) -> bool {
        matches!(self, Uri::Key(_) | Uri::Address(_) | Uri::File(_))
    }

    /// Parses a URI.
    ///
    /// # Errors
    /// If it is malformed or its scheme is unknown.
    pub fn parse(text: &str) -> Result<Uri, InvalidData> {
        let wrong = |why: &str| InvalidData(format!("URI '{text}': {why}"));
        let (scheme, rest) = text.split_once(':').ok_or_else(|| wrong(KNOWN))?;
        match scheme {
            "memory" => match rest.strip_prefix("0x").map(|digits| usize::from_str_radix(digits, 16)) {
                Some(Ok(address)) if address > 0 => Ok(Uri::Address(address)),
                Some(_) => Err(wrong("not an address; give it as printf's \"memory:%p\" does")),
                None if rest.is_empty() => Err(wrong("a key is missing")),
                None => Ok(Uri::Key(rest.to_string())),
            },
            "file" => match rest.strip_prefix("//") {
                None if rest.is_empty() => Err(wrong("a path is missing")),
                None => Ok(Uri::File(rest.into())),
                Some(path) if path.len() > 1 && path.starts_with('/') => Ok(Uri::File(path.into())),
                Some(rest) => match rest.split_once('/') {
                    Some((server, path)) if !server.is_empty() && !path.is_empty() => {
                        Ok(Uri::ServerFile(server.into(), path.into()))
                    }
                    _ => Err(wrong("a path is missing; give file:PATH, or file://SERVER/PATH")),
                },
            },
            "gridloom" if rest.is_empty() => Ok(Uri::Grid),
            "gridloom" => match rest.strip_prefix("//").map_or("", |server| server.trim_end_matches('/')) {
                "" => Err(wrong("a server is missing; give gridloom:, or gridloom://SERVER")),
                server if server.contains('/') => Err(wrong("data in a server's store have no names")),
                server => Ok(Uri::Store(server.into())),
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
            Uri::Store(server) => write!(f, "gridloom://{server}"),
            Uri::ServerFile(server, path) => write!(f, "file://{server}/{path}"),
        }
    }
}

const KNOWN: &str = "unknown scheme; give memory:KEY, memory:0xADDRESS, file:PATH, file://SERVER/PATH, \
                     gridloom: or gridloom://SERVER";

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
            ("gridloom://s", Uri::Store("s".into())),
            ("file://s/a/b", Uri::ServerFile("s".into(), "a/b".into())),
        ] {
            assert_eq!((Uri::parse(text).unwrap(), uri.to_string().as_str()), (uri, text));
        }
        assert_eq!(Uri::parse("file:///a").unwrap(), Uri::File("/a".into()));
    }

    #[test]
    fn an_invalid_uri_is_refused() {
        for text in [
            "",
            "x",
            "s3://a/b",
            "memory:",
            "memory:0x",
            "memory:0x0",
            "file:",
            "file://s",
            "file://s/",
            "gridloom://s/a",
            "gridloom://",
            "gridloom:s",
            "gridloom:/s",
        ] {
            let failed = Uri::parse(text).unwrap_err();
            assert!(failed.to_string().contains(&format!("'{text}'")), "{text}");
        }
    }
}
