//! Modules that are initialised: their function `Initialize` runs in each worker before the first call of a client that has said with
//! which arguments, and again when it says others, or after a call of another client.

use std::collections::BTreeMap;

use gridloom_base::{Meta, NodeId, TaskError};
use gridloom_idl::Signature;

use super::ArgView;
use super::convert::{Aligned, to_native};
use super::values::{refused, wanted_order};

/// The function of a module that initialises it.
const NAME: &str = "Initialize";

/// The arguments with which a client has its module initialised.
pub struct Initial {
    /// Another one for other arguments.
    pub version: u64,
    /// Of the signature that they were given for.
    pub hash: u64,
    /// In the order of the inputs; empty where the version is the one that was asked with.
    pub values: Vec<(Meta, Vec<u8>)>,
}

/// Asks whether a client has said how a module is initialised, with the version that is known.
pub type AskInitial = fn(client: NodeId, module: &str, known: Option<u64>) -> Result<Option<Initial>, String>;

/// The function that initialises the module of a function; `None` for that function itself, and for methods of classes.
pub(crate) fn initialiser_of(function: &str) -> Option<String> {
    let (module, name) = function.rsplit_once('/')?;
    (name != NAME && !name.contains('.')).then(|| format!("{module}/{NAME}"))
}

/// What a worker knows of its modules.
#[derive(Default)]
pub(super) struct Modules {
    ask: Option<AskInitial>,
    /// By module.
    initialisers: BTreeMap<String, u32>,
    /// With whose arguments, and which, a module was initialised last.
    done: BTreeMap<String, (NodeId, u64)>,
}

impl Modules {
    pub(super) fn new(ask: AskInitial) -> Modules {
        Modules { ask: Some(ask), ..Modules::default() }
    }

    /// A function is ready.
    pub(super) fn loaded(&mut self, function: u32, name: &str) {
        if let Some((module, NAME)) = name.rsplit_once('/') {
            self.initialisers.insert(module.to_string(), function);
        }
    }

    /// What has to run before a call of that function: the number of another, with its arguments.
    ///
    /// # Errors
    /// If it cannot be known.
    pub(super) fn before(&mut self, function: &str, client: Option<NodeId>) -> Result<Option<First>, TaskError> {
        let (Some(ask), false, Some(client)) = (self.ask, self.initialisers.is_empty(), client) else {
            return Ok(None);
        };
        let Some(module) = initialiser_of(function).and_then(|_| function.rsplit_once('/')).map(|(module, _)| module)
        else {
            return Ok(None);
        };
        let Some(initialiser) = self.initialisers.get(module).copied() else { return Ok(None) };
        let known = self.done.get(module).filter(|(done, _)| *done == client).map(|(_, version)| *version);
        let initial = match ask(client, module, known) {
            // Nobody can tell, as the agent is away: what it is initialised with counts on.
            Err(_) if known.is_some() => return Ok(None),
            asked => asked.map_err(|why| refused(format!("module '{module}': {why}")))?,
        };
        let wanted = initial.filter(|initial| Some(initial.version) != known);
        // Until it has run well, it has not.
        if wanted.is_some() {
            self.done.remove(module);
        }
        Ok(wanted.map(|initial| First { function: initialiser, module: module.to_string(), client, initial }))
    }

    /// It has run.
    pub(super) fn note(&mut self, first: First) {
        self.done.insert(first.module, (first.client, first.initial.version));
    }
}

/// A function that has to run before a call.
pub(super) struct First {
    pub(super) function: u32,
    module: String,
    client: NodeId,
    initial: Initial,
}

impl First {
    /// Its arguments as the function takes them.
    ///
    /// # Errors
    /// If they are not what its parameters are.
    pub(super) fn arguments(&self, signature: &Signature) -> Result<Vec<(Meta, Aligned)>, TaskError> {
        let Initial { hash, values, .. } = &self.initial;
        let params: Vec<_> = signature.params.iter().filter(|param| param.is_input()).collect();
        let is_whole = |(meta, bytes): &(Meta, Vec<u8>)| meta.checked_size_bytes() == Some(bytes.len() as u64);
        if *hash != signature.hash() || values.len() != params.len() || !values.iter().all(is_whole) {
            let why = "its arguments were given for another description; have the module initialised again";
            return Err(refused(format!("{}: {why}", signature.name)));
        }
        let native = |((meta, bytes), param): (&(Meta, Vec<u8>), _)| {
            let mut memory = Aligned::zeroed(bytes.len());
            let meta = to_native(meta, bytes, wanted_order(param), memory.bytes_mut()).map_err(refused)?;
            Ok((meta, memory))
        };
        values.iter().zip(params).map(native).collect()
    }
}

/// Arguments as functions see them.
pub(super) fn views(arguments: &[(Meta, Aligned)]) -> Vec<ArgView<'_>> {
    arguments
        .iter()
        .map(|(meta, memory)| ArgView { meta: meta.clone(), bytes: memory.bytes(), mapping: None, datum: None })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grid in which the clients 1 and 2 have said how `m` is initialised, and nobody answers client 3.
    fn ask(client: NodeId, module: &str, known: Option<u64>) -> Result<Option<Initial>, String> {
        assert_eq!(module, "m");
        match client.0 {
            1 | 2 if known == Some(client.0) => Ok(Some(Initial { version: client.0, hash: 0, values: Vec::new() })),
            1 | 2 => Ok(Some(Initial { version: client.0, hash: 7, values: Vec::new() })),
            3 => Err("no agent".into()),
            _ => Ok(None),
        }
    }

    fn runs(modules: &mut Modules, function: &str, client: u64) -> bool {
        let first = modules.before(function, Some(NodeId(client))).unwrap();
        first.map(|first| modules.note(first)).is_some()
    }

    #[test]
    fn a_module_is_initialised_once_for_each_turn_of_a_client() {
        let mut modules = Modules::new(ask);
        assert!(!runs(&mut modules, "m/f", 1), "it has no Initialize");
        modules.loaded(4, "m/Initialize");
        let turns = [(1, true), (1, false), (2, true), (2, false), (9, false), (2, false), (1, true)];
        for (client, expected) in turns {
            assert_eq!(runs(&mut modules, "m/f", client), expected, "{client}");
        }
        assert!(
            !runs(&mut modules, "m/Initialize", 2)
                && !runs(&mut modules, "n/f", 2)
                && !runs(&mut modules, "m/c.get", 2)
        );
        assert!(modules.before("m/f", None).unwrap().is_none());
    }

    #[test]
    fn what_failed_runs_again_and_who_is_known_needs_no_answer() {
        let mut modules = Modules::new(ask);
        modules.loaded(4, "m/Initialize");
        assert!(modules.before("m/f", Some(NodeId(1))).unwrap().is_some());
        assert!(runs(&mut modules, "m/f", 1), "it was not noted that it has run");
        assert!(
            matches!(modules.before("m/f", Some(NodeId(3))), Err(TaskError::Refused { why, .. }) if why.contains("no agent"))
        );
        modules.done.insert("m".into(), (NodeId(3), 5));
        assert!(!runs(&mut modules, "m/f", 3));
    }
}
