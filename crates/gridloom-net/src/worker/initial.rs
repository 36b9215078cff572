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
        let initial = ask(client, module, known).map_err(|why| refused(format!("module '{module}': {why}")))?;
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
        .map(|(meta, memory)| ArgView { meta: meta.clone(), bytes: memory.bytes(), mapping: None })
        .collect()
}
