//! Finds the server that has to run a call, because data with a single copy are stored there, or have to be made there.

use std::sync::Arc;

use gridloom_base::NodeId;

use super::{DataError, DataPlaces, Datum, Description};
use crate::Function;

/// A datum used as an argument of a call.
#[derive(Clone, Copy)]
pub struct Argument<'a> {
    pub datum: &'a Arc<Datum>,
    pub argument: &'a str,
    pub is_input: bool,
    pub is_output: bool,
}

/// The relation of a call to data with a single copy.
#[derive(Default)]
pub struct SingleCopyData {
    server: Option<NodeId>,
    /// Such data that the call reads.
    read: Vec<Arc<Datum>>,
}

impl SingleCopyData {
    /// Moves data to the servers where they have to be, and finds the server that has to run the call; `bound` is the server
    /// that the program chose.
    ///
    /// # Errors
    /// If two servers would have to run the call, or a datum cannot be moved to its server.
    pub fn new<'a>(
        places: &DataPlaces<'_>,
        function: &Function,
        bound: Option<NodeId>,
        uses: impl Iterator<Item = Argument<'a>>,
    ) -> Result<SingleCopyData, DataError> {
        let mut ties = SingleCopyData { server: bound, read: Vec::new() };
        let mut why = "the call is bound to it".to_string();
        for Argument { datum, argument, is_input, is_output } in uses {
            let mut found = Vec::new();
            if is_input {
                datum.move_to_only_store(places)?;
                found.extend(datum.single_place(places.grid)?);
                if datum.description().and_then(Description::single).is_some() {
                    ties.read.push(datum.clone());
                }
            }
            if let Some(description) = datum.description().filter(|_| is_output)
                && let (Some(server), Some(mode)) = (description.only_store(), description.single())
            {
                found.push((places.server(server)?.0, mode));
            }
            for (node, mode) in found {
                let its = format!("argument '{argument}' is {datum}, of which there is one copy ({mode})");
                if let Some(other) = ties.server.filter(|other| *other != node) {
                    let (node, other, name) = (places.name_of(node), places.name_of(other), function.name());
                    let text = format!("{name}: {its}, on server '{node}', and server '{other}' has to run it: {why}");
                    return Err(DataError::Invalid(text));
                }
                (ties.server, why) = (Some(node), its);
            }
        }
        Ok(ties)
    }

    /// The server that has to run the call, if there is one.
    pub fn server(&self) -> Option<NodeId> {
        self.server
    }

    /// Called when the call was sent and has references to its inputs: releases data that other calls must not get.
    pub fn sent(&self) {
        self.read.iter().for_each(|datum| datum.release_after_read());
    }
}
