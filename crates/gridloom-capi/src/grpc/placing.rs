//! Where data are put besides, and where calls have to run for them: servers' stores and files, and the modes of GFD.186.
//!
//! A datum of which there is one copy (`GRPC_UNIQUE_STICKY`, `GRPC_STRICTLY_VOLATILE`) is not moved once it is on a server:
//! calls that read it are bound to that server.

use std::sync::{Arc, MutexGuard, PoisonError};

use gridloom::{Arg, Function, Handle, Value};
use gridloom_core::base::{Dtype, Meta, NodeId};

use super::arguments::Item;
use super::code::{Failed, GRPC_INVALID_DATA_NP, Outcome};
use super::datum::{Content, Remote};
use super::description::{Description, stays};
use super::library::Library;
use super::uri::Uri;

/// Servers to which a value was taken.
#[derive(Clone, Default)]
pub(super) struct Copies {
    servers: Vec<(NodeId, String)>,
    /// The client has given up its own.
    is_away: bool,
}

impl Copies {
    /// Names of all places, the one where it was made first.
    pub(super) fn beside(&self, made_at: Option<String>) -> Vec<String> {
        let made_at = made_at.filter(|place| !self.is_away || place != "client");
        let others = self.servers.iter().map(|(_, name)| name.clone());
        let mut all: Vec<String> = Vec::new();
        made_at.into_iter().chain(others).for_each(|name| {
            if !all.contains(&name) {
                all.push(name);
            }
        });
        all
    }
}

impl Remote {
    pub(super) fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads its value from the first of these places from which it can be read; for none, from its own if it has no value.
    ///
    /// # Safety
    /// Memory that is named is as it was described.
    pub(super) unsafe fn fill(&self, library: &Library, inputs: &[Uri]) -> Outcome<()> {
        let description = self.described()?;
        let inputs = match (inputs.is_empty(), self.content()) {
            (true, Content::Put(_) | Content::Made { .. }) => return Ok(()),
            (true, Content::Nothing) => &description.inputs,
            (false, _) => inputs,
        };
        let keys = library.remotes.keys();
        let mut first = None;
        for uri in inputs {
            let filled = match uri {
                Uri::ServerFile(server, path) => library.read_file(self, server, path),
                // SAFETY: promised by the caller.
                uri => unsafe { description.read(uri, &keys) }.map(|payload| self.put(payload)),
            };
            match filled {
                Ok(()) => return Ok(()),
                Err(failed) => drop(first.get_or_insert(failed)),
            }
        }
        let text = "the datum has no value, and no input from which it could be read";
        Err(first.unwrap_or_else(|| Failed::new(GRPC_INVALID_DATA_NP, text)))
    }

    /// Puts its value to these places, on these terms, once it is there.
    ///
    /// # Safety
    /// As of [`Remote::fill`].
    pub(super) unsafe fn write(&self, library: &Library, outputs: &[(Uri, usize)]) -> Outcome<()> {
        let here = || outputs.iter().map(|(uri, _)| uri).filter(|uri| uri.is_here());
        let description = self.described()?;
        if here().next().is_some() {
            if let Some(bytes) = self.bytes()? {
                // SAFETY: promised by the caller.
                unsafe { description.write(&bytes, here(), &library.remotes.keys()) }?;
            }
            if let (Some(_), Content::Made { result, call: Some(_), .. }) = (description.alone(), self.content()) {
                // It was brought here for the program.
                result.give_up(None);
            }
        }
        for (uri, mode) in outputs {
            match uri {
                Uri::Store(server) => self.keep_at(library, server, stays(*mode))?,
                Uri::ServerFile(server, path) => library.write_file(self, server, path)?,
                Uri::Grid | Uri::Key(_) | Uri::Address(_) | Uri::File(_) => {}
            }
        }
        Ok(())
    }

    /// Puts it where it has to be put.
    ///
    /// # Safety
    /// As of [`Remote::fill`].
    pub(super) unsafe fn put_elsewhere(&self, library: &Library) -> Outcome<()> {
        match self.description() {
            // SAFETY: promised by the caller.
            Some(description) => unsafe { self.write(library, &description.outputs) },
            None => Ok(()),
        }
    }

    /// Takes its value to a server's store, and waits for that.
    fn keep_at(&self, library: &Library, server: &str, is_kept: bool) -> Outcome<()> {
        let (node, name) = library.server(server)?;
        let alone = self.description().and_then(Description::alone);
        let result = self.handle(library)?;
        let made_at = self.made_at()?;
        if made_at == Some(node) || self.copies().servers.iter().any(|(other, _)| *other == node) {
            return Ok(());
        }
        if let (Some(mode), Some((place, _))) = (alone, self.place(library)?) {
            return Err(moved(self, mode, &library.name_of(place), &name));
        }
        result.place(node, is_kept)?.wait().map_err(|error| Failed::without_value(error, self))?;
        let mut copies = self.copies();
        copies.servers.push((node, name));
        if alone.is_some() {
            result.give_up(None);
            copies.is_away = true;
        }
        Ok(())
    }

    /// Gives up the copy that was put to that server, or all of its value if it lies nowhere else.
    pub(super) fn give_up_at(&self, library: &Library, server: &str) -> Outcome<()> {
        let (node, name) = library.server(server)?;
        let places = self.status().1;
        if !places.contains(&name) {
            return Ok(());
        }
        if places.len() == 1 {
            self.clear();
        } else if let Content::Made { result, .. } = self.content() {
            result.give_up(Some(node));
            self.copies().servers.retain(|(other, _)| *other != node);
        }
        Ok(())
    }

    /// Its value as what calls can read wherever it lies.
    pub(super) fn handle(&self, library: &Library) -> Outcome<Handle> {
        match self.content() {
            Content::Nothing => Err(self.without_value()),
            Content::Made { result, .. } => Ok(result),
            Content::Put(payload) => {
                let size_bytes = payload.size_bytes();
                let bytes = || Meta::array(Dtype::Int8, &[size_bytes]);
                let meta = self.description().map_or_else(bytes, |description| description.meta(size_bytes));
                let result = library.grid.hold(&Value::new(meta.clone(), payload)?);
                self.set(Content::Made { result: result.clone(), meta, call: None });
                Ok(result)
            }
        }
    }

    /// The server whose call makes it.
    fn made_at(&self) -> Outcome<Option<NodeId>> {
        match self.content() {
            Content::Made { call: Some(call), .. } => Ok(call.server()?),
            _ => Ok(None),
        }
    }

    /// The server on which the one copy of it is, and why there is one.
    fn place(&self, library: &Library) -> Outcome<Option<(NodeId, &'static str)>> {
        let Some(mode) = self.description().and_then(Description::alone) else { return Ok(None) };
        let copy = self.copies().servers.first().map(|(node, _)| *node);
        let place = match copy {
            Some(node) => Some(node),
            None => self.made_at()?,
        };
        // One that is lost has it no more: it is made again elsewhere, or not at all.
        let is_there = |node: &NodeId| library.grid.servers().server(*node).is_some();
        Ok(place.filter(is_there).map(|node| (node, mode)))
    }

    /// As an argument of that description.
    ///
    /// # Safety
    /// Memory of which it is read is as it was described.
    pub(super) unsafe fn argument(
        &self,
        library: &Library,
        function: &str,
        argument: &str,
        meta: &Meta,
    ) -> Outcome<Arg> {
        if self.description().is_some() {
            // SAFETY: promised by the caller.
            unsafe { self.fill(library, &[]) }?;
            if self.is_strictly_volatile() {
                self.handle(library)?;
            }
        }
        self.read(function, argument, meta)
    }

    fn is_strictly_volatile(&self) -> bool {
        self.description().is_some_and(Description::is_strictly_volatile)
    }

    /// A call has its share of it: nobody else gets one of what is strictly volatile, nor does a copy stay here that came to
    /// be read as something else.
    fn was_read(&self) {
        match self.content() {
            Content::Made { result, .. } if self.is_strictly_volatile() => result.erase(),
            Content::Made { result, .. } => result.give_up(None),
            Content::Nothing | Content::Put(_) => {}
        }
        if self.is_strictly_volatile() {
            self.clear();
        }
    }

    /// Takes it to its server before a call reads it, if there is one for it.
    ///
    /// # Safety
    /// As of [`Remote::fill`].
    unsafe fn settle(&self, library: &Library) -> Outcome<()> {
        let Some(server) = self.description().and_then(Description::only_store) else { return Ok(()) };
        // SAFETY: promised by the caller.
        unsafe { self.fill(library, &[]) }?;
        match self.content() {
            Content::Made { call: Some(_), .. } => Ok(()),
            _ => self.keep_at(library, server, true),
        }
    }
}

/// What a call has to do with data of which there is one copy.
#[derive(Default)]
pub(super) struct Tied {
    /// The server that has to run it.
    pub(super) server: Option<NodeId>,
    /// Those that it reads.
    alone: Vec<Arc<Remote>>,
}

impl Tied {
    /// # Safety
    /// As of [`Remote::fill`].
    pub(super) unsafe fn of(
        library: &Library,
        function: &Function,
        bound: Option<NodeId>,
        items: &[Item<'_>],
    ) -> Outcome<Tied> {
        let mut tied = Tied { server: bound, alone: Vec::new() };
        let mut why = "the call is bound to it".to_string();
        for (item, remote) in items.iter().filter_map(|item| Some((item, item.remote.as_ref()?))) {
            let mut places = Vec::new();
            if item.param.is_input() {
                // SAFETY: promised by the caller.
                unsafe { remote.settle(library) }?;
                places.extend(remote.place(library)?);
                if remote.description().is_some_and(|description| description.alone().is_some()) {
                    tied.alone.push(remote.clone());
                }
            }
            if let Some(description) = remote.description().filter(|_| item.param.is_output()) {
                let only = description.only_store().map(|server| library.server(server)).transpose()?;
                places.extend(only.and_then(|(node, _)| Some((node, description.alone()?))));
            }
            for (node, mode) in places {
                let its = format!("argument '{}' is {remote}, of which there is one copy ({mode})", item.param.name);
                if let Some(other) = tied.server.filter(|other| *other != node) {
                    let (node, other) = (library.name_of(node), library.name_of(other));
                    let name = function.name();
                    let text = format!("{name}: {its}, on server '{node}', and server '{other}' has to run it: {why}");
                    return Err(Failed::new(GRPC_INVALID_DATA_NP, text));
                }
                (tied.server, why) = (Some(node), its);
            }
        }
        Ok(tied)
    }

    /// The call has been sent.
    pub(super) fn sent(&self) {
        self.alone.iter().for_each(|remote| remote.was_read());
    }
}

impl Library {
    /// The server that a URI names.
    pub(super) fn server(&self, name: &str) -> Outcome<(NodeId, String)> {
        let view = self.grid.servers();
        let found = self.servers_named(name, &view.servers)?;
        Ok((found[0].node, found[0].name.clone()))
    }

    pub(super) fn name_of(&self, node: NodeId) -> String {
        let view = self.grid.servers();
        view.server(node).map_or_else(|| node.to_string(), |at| view.servers[at].name.clone())
    }
}

fn moved(datum: &Remote, mode: &str, from: &str, to: &str) -> Failed {
    let text = format!("{datum} is on server '{from}' alone ({mode}), and cannot be put to server '{to}'");
    Failed::new(GRPC_INVALID_DATA_NP, text)
}
