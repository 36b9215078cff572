//! Transfer methods: how a shared datum is sent to the servers that read it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::near::{did_you_mean, near_names};

/// How a shared datum is sent to the servers that read it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum Method {
    /// The method with the least predicted time for the size, readers and links.
    #[default]
    Auto,
    /// Data are sent only by servers that have the complete datum.
    Direct,
    /// Data are also sent by servers that are still receiving them: along a chain or a tree, part by part.
    Tree,
    /// Data are sent in two slices, each along a tree of its own. Each server forwards one slice.
    Swarm,
    /// Data are passed through a folder that servers share: one server writes the file and the others read it.
    Storage,
}

/// A method with its name and a description.
#[derive(Clone, Copy, Debug)]
pub struct MethodEntry {
    pub method: Method,
    pub name: &'static str,
    pub about: &'static str,
}

/// All methods.
pub const METHODS: [MethodEntry; 5] = [
    MethodEntry { method: Method::Auto, name: "auto", about: "the method with the least predicted time" },
    MethodEntry { method: Method::Direct, name: "direct", about: "only from servers that have it" },
    MethodEntry {
        method: Method::Tree,
        name: "tree",
        about: "also from servers that are still receiving it, along a chain or a tree, part by part",
    },
    MethodEntry {
        method: Method::Swarm,
        name: "swarm",
        about: "in two slices, each along a tree of its own; each server forwards one of them",
    },
    MethodEntry {
        method: Method::Storage,
        name: "storage",
        about: "through a folder that servers share: one writes it there, and the others read it",
    },
];

impl Method {
    fn entry(self) -> &'static MethodEntry {
        METHODS.iter().find(|entry| entry.method == self).expect("each has an entry")
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.entry().name)
    }
}

impl FromStr for Method {
    type Err = String;

    /// Parses the `Display` form.
    fn from_str(text: &str) -> Result<Method, String> {
        let found = METHODS.iter().find(|entry| entry.name == text);
        found.map(|entry| entry.method).ok_or_else(|| {
            let known: Vec<&str> = METHODS.iter().map(|entry| entry.name).collect();
            let near = did_you_mean(&near_names(text, known.iter().copied()));
            format!("'{text}' is not a transfer method{near}; methods are {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_read_as_they_are_printed() {
        for entry in METHODS {
            assert_eq!(entry.method.to_string().parse(), Ok(entry.method));
        }
        let error = "sworm".parse::<Method>().unwrap_err();
        assert_eq!(
            error,
            "'sworm' is not a transfer method; did you mean 'swarm'?; methods are auto, direct, tree, swarm, storage"
        );
    }
}
