//! Names by which blocks are mapped: the grid's heuristics, plans in files, and the program's own names.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use gridloom::map::{ALIASES, HEURISTICS};
use gridloom::{Mapping, PlanRecord};

use super::code::{Failed, Outcome};

/// Prefix of a plan's path.
const FILE: &str = "file:";

/// Names that the program has defined.
#[derive(Default)]
pub(crate) struct Mappings(Mutex<BTreeMap<String, Mapping>>);

impl Mappings {
    /// Returns the mapping of a name.
    pub(crate) fn find(&self, name: &str) -> Outcome<Mapping> {
        if let Some(path) = name.strip_prefix(FILE) {
            return Ok(PlanRecord::load(path)?.into());
        }
        let named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match named.get(name) {
            Some(mapping) => Ok(mapping.clone()),
            None if named.is_empty() || is_of_the_grid(name) => Ok(name.into()),
            None => {
                let own: Vec<&str> = named.keys().map(String::as_str).collect();
                let why = "is neither one of the grid's heuristics, which 'gridloom heuristics' lists, nor a name \
                           that the program defined";
                Err(Failed::other(format!("'{name}' {why}: {}", own.join(", "))))
            }
        }
    }

    /// Defines a name, or removes it.
    pub(crate) fn define(&self, name: &str, mapping: Option<Mapping>) -> Outcome<()> {
        let is_taken = is_of_the_grid(name);
        if name.is_empty() || name.starts_with(FILE) || is_taken {
            let why = match is_taken {
                true => "is one of the grid's heuristics, which 'gridloom heuristics' lists",
                false => "cannot be a name: it is empty, or means a file",
            };
            return Err(Failed::other(format!("'{name}' {why}; take another name")));
        }
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match mapping {
            Some(mapping) => drop(named.insert(name.to_string(), mapping)),
            None => drop(named.remove(name)),
        }
        Ok(())
    }
}

/// True if a name is that of one of the grid's heuristics, with or without options.
fn is_of_the_grid(name: &str) -> bool {
    let name = name.split('[').next().unwrap_or(name);
    HEURISTICS.iter().any(|known| known.name == name) || ALIASES.iter().any(|(alias, _)| *alias == name)
}
