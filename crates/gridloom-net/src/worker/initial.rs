//! Initialisation of modules. A module's function `Initialize` runs in each worker before the first call of a client
//! that has set its arguments. It runs again when the client changes the arguments, or after a call of another client.

use std::collections::BTreeMap;

use gridloom_base::{Meta, NodeId, TaskError};
use gridloom_idl::Signature;

use super::ArgView;
use super::convert::{Aligned, to_native};
use super::values::{refused, wanted_order};

/// Name of the function that initialises a module.
const NAME: &str = "Initialize";

/// The arguments with which a client initialises a module.
pub struct InitialArguments {
    /// Version, which changes with the arguments.
    pub version: u64,
    /// Hash of the signature for which the arguments were given.
    pub hash: u64,
    /// Values in the order of the inputs; empty if the version is the one already known.
    pub values: Vec<(Meta, Vec<u8>)>,
}

/// Asks whether a client has set the arguments of a module; `known` is the version already known.
pub type QueryInitial =
    fn(client: NodeId, module: &str, known: Option<u64>) -> Result<Option<InitialArguments>, String>;

/// Returns the name of the function that initialises the module of a native function; `None` for that function itself,
/// and for methods of classes: no other native function has a `.` in its name.
pub(crate) fn initialiser_of(function: &str) -> Option<String> {
    let (module, name) = function.rsplit_once('/')?;
    (name != NAME && !name.contains('.')).then(|| format!("{module}/{NAME}"))
}

/// The initialisation state of a worker's modules.
#[derive(Default)]
pub(super) struct Modules {
    ask: Option<QueryInitial>,
    /// Function number of the initialiser, by module.
    initialisers: BTreeMap<String, u32>,
    /// Client and version of the arguments with which each module was last initialised.
    done: BTreeMap<String, (NodeId, u64)>,
}

impl Modules {
    pub(super) fn new(ask: QueryInitial) -> Modules {
        Modules { ask: Some(ask), ..Modules::default() }
    }

    /// Registers a function that was loaded.
    pub(super) fn loaded(&mut self, function: u32, name: &str) {
        if let Some((module, NAME)) = name.rsplit_once('/') {
            self.initialisers.insert(module.to_string(), function);
        }
    }

    /// Returns the function that has to run before a call of `function`, with its arguments.
    ///
    /// # Errors
    /// If this cannot be determined.
    pub(super) fn before(
        &mut self,
        function: &str,
        client: Option<NodeId>,
    ) -> Result<Option<PendingInitialiser>, TaskError> {
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
            // The agent is unreachable, so the known initialisation remains valid.
            Err(_) if known.is_some() => return Ok(None),
            asked => asked.map_err(|why| refused(format!("module '{module}': {why}")))?,
        };
        let wanted = initial.filter(|initial| Some(initial.version) != known);
        // The module counts as uninitialised until the function has succeeded.
        if wanted.is_some() {
            self.done.remove(module);
        }
        Ok(wanted.map(|initial| PendingInitialiser {
            function: initialiser,
            module: module.to_string(),
            client,
            initial,
        }))
    }

    /// Records that the initialiser has run.
    pub(super) fn note(&mut self, first: PendingInitialiser) {
        self.done.insert(first.module, (first.client, first.initial.version));
    }
}

/// An initialiser that has to run before a call.
pub(super) struct PendingInitialiser {
    pub(super) function: u32,
    module: String,
    client: NodeId,
    initial: InitialArguments,
}

impl PendingInitialiser {
    /// Returns its arguments in the form that the function takes.
    ///
    /// # Errors
    /// If they do not match the function's parameters.
    pub(super) fn arguments(&self, signature: &Signature) -> Result<Vec<(Meta, Aligned)>, TaskError> {
        let InitialArguments { hash, values, .. } = &self.initial;
        let params: Vec<_> = signature.params.iter().filter(|param| param.is_input()).collect();
        let is_whole = |(meta, bytes): &(Meta, Vec<u8>)| meta.checked_size_bytes() == Some(bytes.len() as u64);
        if *hash != signature.hash() || values.len() != params.len() || !values.iter().all(is_whole) {
            let why = "its arguments were given for a different signature; initialise the module again";
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

/// Returns the arguments as functions receive them.
pub(super) fn views(arguments: &[(Meta, Aligned)]) -> Vec<ArgView<'_>> {
    arguments
        .iter()
        .map(|(meta, memory)| ArgView { meta: meta.clone(), bytes: memory.bytes(), mapping: None, datum: None })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grid in which clients 1 and 2 have set the arguments of `m`, and requests for client 3 fail.
    fn ask(client: NodeId, module: &str, known: Option<u64>) -> Result<Option<InitialArguments>, String> {
        assert_eq!(module, "m");
        match client.0 {
            1 | 2 if known == Some(client.0) => {
                Ok(Some(InitialArguments { version: client.0, hash: 0, values: Vec::new() }))
            }
            1 | 2 => Ok(Some(InitialArguments { version: client.0, hash: 7, values: Vec::new() })),
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
