//! Serialises paths and words of command lines, which are bytes and may not be UTF-8. UTF-8 is written as a string, so
//! that files stay readable; other bytes are written as an array of numbers.
//!
//! `#[serde(with = "gridloom_base::path_bytes")]` is for `PathBuf` and `OsString`; the modules [`option`] and [`list`]
//! are for an `Option` or a `Vec` of them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path or word in its serialised form.
#[derive(Clone, Debug)]
struct Bytes(OsString);

#[derive(Deserialize)]
#[serde(untagged)]
enum Readable {
    Text(String),
    Bytes(Vec<u8>),
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str().filter(|_| serializer.is_human_readable()) {
            Some(text) => serializer.serialize_str(text),
            None => self.0.as_bytes().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        if !deserializer.is_human_readable() {
            return Ok(Bytes(OsString::from_vec(Vec::deserialize(deserializer)?)));
        }
        Ok(Bytes(match Readable::deserialize(deserializer)? {
            Readable::Text(text) => text.into(),
            Readable::Bytes(bytes) => OsString::from_vec(bytes),
        }))
    }
}

pub fn serialize<S: Serializer>(path: &impl AsRef<OsStr>, serializer: S) -> Result<S::Ok, S::Error> {
    Bytes(path.as_ref().to_owned()).serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>, P: From<OsString>>(deserializer: D) -> Result<P, D::Error> {
    Bytes::deserialize(deserializer).map(|bytes| bytes.0.into())
}

/// Serialisation of optional paths.
pub mod option {
    use super::{Bytes, Deserialize, Deserializer, OsStr, OsString, Serialize, Serializer};

    pub fn serialize<S: Serializer>(path: &Option<impl AsRef<OsStr>>, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_ref().map(|path| Bytes(path.as_ref().to_owned())).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>, P: From<OsString>>(deserializer: D) -> Result<Option<P>, D::Error> {
        Ok(Option::<Bytes>::deserialize(deserializer)?.map(|bytes| bytes.0.into()))
    }
}

/// Serialisation of lists of paths or words.
pub mod list {
    use super::{Bytes, Deserialize, Deserializer, OsStr, OsString, Serialize, Serializer};

    pub fn serialize<S: Serializer>(paths: &[impl AsRef<OsStr>], serializer: S) -> Result<S::Ok, S::Error> {
        paths.iter().map(|path| Bytes(path.as_ref().to_owned())).collect::<Vec<_>>().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>, P: From<OsString>>(deserializer: D) -> Result<Vec<P>, D::Error> {
        Ok(Vec::<Bytes>::deserialize(deserializer)?.into_iter().map(|bytes| bytes.0.into()).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[derive(PartialEq, Debug, Serialize, Deserialize)]
    struct Paths {
        #[serde(with = "super")]
        one: PathBuf,
        #[serde(default, with = "super::option")]
        some: Option<PathBuf>,
        #[serde(with = "super::list")]
        words: Vec<OsString>,
    }

    #[test]
    fn paths_that_are_not_utf8_keep_their_bytes() {
        let odd = || OsString::from_vec(b"caf\xe9".to_vec());
        let paths = Paths { one: odd().into(), some: Some("a/b".into()), words: vec!["x".into(), odd()] };
        let json = serde_json::to_string(&paths).unwrap();
        assert_eq!(json, r#"{"one":[99,97,102,233],"some":"a/b","words":["x",[99,97,102,233]]}"#);
        assert_eq!(serde_json::from_str::<Paths>(&json).unwrap(), paths);
        let none: Paths = serde_json::from_str(r#"{"one": "é", "words": []}"#).unwrap();
        assert_eq!((none.one, none.some), ("é".into(), None));
    }
}
