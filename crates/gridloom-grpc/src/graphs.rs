//! Declared graphs of the program, by the names that it has given them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use gridloom::{Graph, GraphRef};

use super::code::{Failed, Outcome};

/// Prefix of a graph's path.
const FILE: &str = "file:";

/// Calls that were described.
#[derive(Clone)]
pub(crate) struct Described {
    pub(crate) graph: Graph,
    /// Results that are not sent to the client although no call reads them.
    pub(crate) unwanted: Vec<GraphRef>,
}

impl From<Graph> for Described {
    fn from(graph: Graph) -> Described {
        Described { graph, unwanted: Vec::new() }
    }
}

#[derive(Default)]
pub(crate) struct Graphs(Mutex<BTreeMap<String, Described>>);

impl Graphs {
    /// Returns the graph of that name: a file, or a declared one.
    pub(crate) fn find(&self, name: &str) -> Outcome<Described> {
        if let Some(path) = name.strip_prefix(FILE) {
            return Ok(Graph::load(path)?.into());
        }
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(name).cloned().ok_or_else(|| {
            let known = match all.is_empty() {
                true => "none was declared".to_string(),
                false => format!("there are: {}", all.keys().map(String::as_str).collect::<Vec<_>>().join(", ")),
            };
            Failed::other(format!("there is no declared graph '{name}'; {known}; describe it with grpc_describe"))
        })
    }

    /// Defines a name, or removes it.
    pub(crate) fn define(&self, name: &str, described: Option<Described>) -> Outcome<()> {
        check_name(name)?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match described {
            Some(described) => drop(all.insert(name.to_string(), described)),
            None => drop(all.remove(name)),
        }
        Ok(())
    }
}

/// Refuses invalid names.
pub(crate) fn check_name(name: &str) -> Outcome<()> {
    match name.is_empty() || name.starts_with(FILE) {
        true => {
            Err(Failed::other(format!("'{name}' cannot be a graph's name: it is empty, or means a file; take another")))
        }
        false => Ok(()),
    }
}
