//! Reads data from places and writes them to places: the program's memory and files, servers' stores and files.
//!
//! A datum of which only one copy may exist (`GRPC_UNIQUE_STICKY`, `GRPC_STRICTLY_VOLATILE`) does not move once a server has it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::sync::Arc;

use gridloom_base::{Dtype, Meta, NodeId};
use gridloom_net::payload::Payload;
use gridloom_perf::{ServerView, host_of};

use super::{Content, DataError, Datum, Description, Kind, Mode, PendingFile, Uri};
use crate::backend::simulated_host_of;
use crate::{Arg, Grid, Handle, Value};

/// The places where a program's data can be.
#[derive(Clone)]
pub struct DataPlaces<'a> {
    pub grid: &'a Grid,
    /// Addresses of servers, by names that the program has assigned; a server's own name needs no entry.
    pub server_names: Arc<BTreeMap<String, String>>,
    pub memory: &'a dyn Memory,
}

/// The program's memory, accessed by `memory:` URIs with keys or addresses.
pub trait Memory {
    /// Copies the bytes at a place. `size_bytes` is `None` for a text, which ends with a NUL that is part of it.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&self, uri: &Uri, size_bytes: Option<u64>) -> Result<Payload, String>;

    /// Writes all bytes to a place, which has room for them.
    ///
    /// # Errors
    /// Why it cannot be written.
    fn write(&self, uri: &Uri, bytes: &[u8]) -> Result<(), String>;
}

/// No memory: for programs with data in files and stores only.
#[derive(Clone, Copy, Debug)]
pub struct NoMemory;

impl Memory for NoMemory {
    fn read(&self, _: &Uri, _: Option<u64>) -> Result<Payload, String> {
        Err("this program provides no memory for URIs".into())
    }

    fn write(&self, _: &Uri, _: &[u8]) -> Result<(), String> {
        Err("this program provides no memory for URIs".into())
    }
}

/// Resolves a name to servers: the server of that name; the one at that address, or at the address that `names` has for
/// the name; or all servers of the host of that name. In a simulation `here` is the host of the program or function: names of
/// this machine stand for that host, unless the platform has a host of that name with servers, and ports are ignored.
///
/// # Errors
/// If no server matches.
pub fn servers_named<'s>(
    name: &str,
    names: &BTreeMap<String, String>,
    servers: &'s [ServerView],
    here: Option<&str>,
) -> Result<Vec<&'s ServerView>, DataError> {
    let address = names.get(name).map_or(name, String::as_str);
    let one = servers.iter().find(|server| server.name == name);
    let one = one.or_else(|| servers.iter().find(|server| server.address == address));
    let found: Vec<&ServerView> = match (one, here) {
        (Some(server), _) => vec![server],
        (None, None) => on_host(address, servers),
        (None, Some(here)) => {
            let at = |host| servers.iter().filter(move |server| simulated_host_of(&server.address) == host).collect();
            let named: Vec<&ServerView> = at(without_port(address));
            if named.is_empty() && is_this_machine(address) { at(here) } else { named }
        }
    };
    if found.is_empty() {
        let known: Vec<&str> = servers.iter().take(NAMES_MAX).map(|server| server.name.as_str()).collect();
        let meant = match here.filter(|_| is_this_machine(address)) {
            Some(here) => format!(" on the program's simulated host '{here}'"),
            None => String::new(),
        };
        let text = format!("there is no server '{name}'{meant}; servers are {}", known.join(", "));
        return Err(DataError::UnknownServer(text));
    }
    Ok(found)
}

/// Returns the servers of a host, by its name in their addresses, or as the system resolves it. All names of this
/// machine count as one.
fn on_host<'s>(host: &str, servers: &'s [ServerView]) -> Vec<&'s ServerView> {
    let by_text: Vec<&ServerView> = servers.iter().filter(|server| host_of(&server.address) == host).collect();
    if !by_text.is_empty() {
        return by_text;
    }
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().ok()),
        None => (host, None),
    };
    let meant = addresses_of(host);
    let is_meant = |server: &&ServerView| {
        let has_port =
            port.is_none_or(|port| server.address.rsplit_once(':').is_some_and(|(_, own)| own == port.to_string()));
        has_port && addresses_of(host_of(&server.address)).iter().any(|address| meant.contains(address))
    };
    servers.iter().filter(is_meant).collect()
}

/// Reports whether a host name, with or without a port, names this machine. Does not query the network.
pub fn is_this_machine(name: &str) -> bool {
    let host = without_port(name);
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback()) || is_own_name(host)
}

fn without_port(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && name.parse::<IpAddr>().is_err() => host,
        _ => name,
    }
}

fn is_own_name(host: &str) -> bool {
    rustix::system::uname().nodename().to_str().is_ok_and(|own| own == host)
}

/// Returns the addresses of a host name. All of this machine's loopback addresses and its own name count as one.
fn addresses_of(host: &str) -> Vec<IpAddr> {
    let found = (host, 0).to_socket_addrs().map(|all| all.map(|address| address.ip()).collect()).unwrap_or_default();
    let mut found: Vec<IpAddr> = found;
    if is_own_name(host) || found.iter().any(IpAddr::is_loopback) {
        found.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    found
}

/// Maximum number of servers that an error lists.
const NAMES_MAX: usize = 8;

impl DataPlaces<'_> {
    /// Returns the server that a URI names: its node and its own name.
    ///
    /// # Errors
    /// If there is none.
    pub fn server(&self, name: &str) -> Result<(NodeId, String), DataError> {
        let view = self.grid.servers();
        let found = servers_named(name, &self.server_names, &view.servers, self.grid.simulated_host().as_deref())?;
        Ok((found[0].node, found[0].name.clone()))
    }

    pub(super) fn name_of(&self, node: NodeId) -> String {
        let view = self.grid.servers();
        view.server(node).map_or_else(|| node.to_string(), |at| view.servers[at].name.clone())
    }

    /// Reads a file or memory of the client.
    fn read_here(&self, uri: &Uri, description: &Description) -> Result<Payload, DataError> {
        let failed = |why: String| DataError::Invalid(format!("cannot read '{uri}': {why}"));
        let size_bytes = match uri {
            Uri::Grid => return Err(failed("the grid has no value of it".into())),
            Uri::Store(_) | Uri::ServerFile(..) => return Err(failed("the server has no value of it".into())),
            Uri::File(path) => {
                let bytes = fs::read(path).map_err(|error| failed(error.to_string()))?;
                description.check_size(uri, bytes.len() as u64)?;
                return Ok(Payload::Inline(bytes.into()));
            }
            Uri::Key(_) | Uri::Address(_) if description.kind() == Kind::String => None,
            Uri::Key(_) | Uri::Address(_) => match description.size_bytes() {
                None => return Err(failed("its type does not determine its size in memory".into())),
                size_bytes => size_bytes,
            },
        };
        self.memory.read(uri, size_bytes).map_err(failed)
    }
}

impl Datum {
    /// Reads its value from the first of these places that has it. If none are given, a datum without a value is read from its
    /// own inputs.
    ///
    /// # Errors
    /// The error of the first place, if no place has it.
    pub fn fill(&self, places: &DataPlaces<'_>, inputs: &[Uri]) -> Result<(), DataError> {
        let description = self.as_managed()?.description();
        let inputs = match (inputs.is_empty(), self.content()) {
            (true, Content::Put(_) | Content::Made { .. }) => return Ok(()),
            (true, Content::Nothing) => description.inputs(),
            (false, _) => inputs,
        };
        let mut first = None;
        for uri in inputs {
            let filled = match uri {
                Uri::ServerFile(server, path) => places.read_file(self, server, path),
                uri => places.read_here(uri, description).map(|payload| self.put(payload)),
            };
            match filled {
                Ok(()) => return Ok(()),
                Err(failed) => drop(first.get_or_insert(failed)),
            }
        }
        let text = "the datum has no value, and no input from which it could be read";
        Err(first.unwrap_or_else(|| DataError::Invalid(text.into())))
    }

    /// Writes its value to these places, as soon as it exists.
    ///
    /// # Errors
    /// If it has no value, or a place does not accept it.
    pub fn write(&self, places: &DataPlaces<'_>, outputs: &[(Uri, Mode)]) -> Result<(), DataError> {
        let managed = self.as_managed()?;
        if outputs.iter().any(|(uri, _)| uri.is_at_client()) {
            if let Some(bytes) = self.bytes()? {
                let mut here = outputs.iter().map(|(uri, _)| uri).filter(|uri| uri.is_at_client());
                here.try_for_each(|uri| self.write_here(places, uri, &bytes))?;
            }
            if let (Some(_), Content::Made { result, call: Some(_), .. }) =
                (managed.description().single(), self.content())
            {
                // The local copy was fetched only for this.
                result.release_copy(None);
            }
        }
        for (uri, mode) in outputs {
            match uri {
                Uri::Store(server) => self.copy_to_store(places, server, mode.is_kept())?,
                Uri::ServerFile(server, path) => places.write_file(self, server, path)?,
                Uri::Grid | Uri::Key(_) | Uri::Address(_) | Uri::File(_) => {}
            }
        }
        Ok(())
    }

    /// Writes its value to the outputs in its description.
    ///
    /// # Errors
    /// If it has no value, or a place does not accept it.
    pub fn write_outputs(&self, places: &DataPlaces<'_>) -> Result<(), DataError> {
        self.description().map_or(Ok(()), |description| self.write(places, description.outputs()))
    }

    fn write_here(&self, places: &DataPlaces<'_>, uri: &Uri, bytes: &[u8]) -> Result<(), DataError> {
        let managed = self.as_managed()?;
        let failed = |why: String| DataError::Unwritable(format!("cannot write '{uri}': {why}"));
        if let Uri::File(path) = uri {
            let name = uri.to_string();
            PendingFile::write(&name, path, bytes)?.place(&name)?;
            managed.note_file(path);
            return Ok(());
        }
        match managed.description().size_bytes().filter(|size_bytes| *size_bytes < bytes.len() as u64) {
            Some(size_bytes) => {
                Err(failed(format!("it has {} bytes, but was described with {size_bytes}", bytes.len())))
            }
            None => places.memory.write(uri, bytes).map_err(failed),
        }
    }

    /// Copies its value to a server's store, and waits until it is there.
    fn copy_to_store(&self, places: &DataPlaces<'_>, server: &str, is_kept: bool) -> Result<(), DataError> {
        let (node, name) = places.server(server)?;
        let single = self.description().and_then(Description::single);
        let result = self.handle(places.grid)?;
        if self.made_at()? == Some(node) || self.copies().has(node) {
            return Ok(());
        }
        if let (Some(mode), Some((place, _))) = (single, self.single_place(places.grid)?) {
            let from = places.name_of(place);
            let text = format!("{self} is only on server '{from}' ({mode}), and cannot be copied to server '{name}'");
            return Err(DataError::Invalid(text));
        }
        result.place(node, is_kept)?.wait().map_err(|error| DataError::no_value(error, self))?;
        self.copies().add(node, name, single.is_some());
        if single.is_some() {
            result.release_copy(None);
        }
        Ok(())
    }

    /// Releases the copy at that server, or its value if it is stored nowhere else.
    pub(super) fn release_at(&self, places: &DataPlaces<'_>, server: &str) -> Result<(), DataError> {
        let (node, name) = places.server(server)?;
        let all = self.status().1;
        if !all.contains(&name) {
            return Ok(());
        }
        if all.len() == 1 {
            self.clear();
        } else if let Content::Made { result, .. } = self.content() {
            result.release_copy(Some(node));
            self.copies().remove(node);
        }
        Ok(())
    }

    /// Returns its value as a result, which calls can read wherever it is stored.
    ///
    /// # Errors
    /// If it has no value.
    pub fn handle(&self, grid: &Grid) -> Result<Handle, DataError> {
        match self.content() {
            Content::Nothing => Err(self.without_value()),
            Content::Made { result, .. } => Ok(result),
            Content::Put(payload) => {
                let size_bytes = payload.size_bytes();
                let bytes = || Meta::array(Dtype::Int8, &[size_bytes]);
                let meta = self.description().map_or_else(bytes, |description| description.meta(size_bytes));
                let result = grid.hold(&Value::new(meta.clone(), payload)?);
                self.set(Content::Made { result: result.clone(), meta, call: None });
                Ok(result)
            }
        }
    }

    /// Returns the server that has the only copy, and the mode that allows no other.
    pub(super) fn single_place(&self, grid: &Grid) -> Result<Option<(NodeId, Mode)>, DataError> {
        let Some(mode) = self.description().and_then(Description::single) else { return Ok(None) };
        let first = self.copies().first();
        let place = match first {
            Some(node) => Some(node),
            None => self.made_at()?,
        };
        // A lost server does not have it any more: it is made again elsewhere, or not at all.
        let is_there = |node: &NodeId| grid.servers().server(*node).is_some();
        Ok(place.filter(is_there).map(|node| (node, mode)))
    }

    /// Returns its value as an argument of that description. Reads it from its inputs if it has none yet.
    ///
    /// # Errors
    /// If it cannot be read, or has another size.
    pub fn argument(
        &self,
        places: &DataPlaces<'_>,
        function: &str,
        argument: &str,
        meta: &Meta,
    ) -> Result<Arg, DataError> {
        if self.description().is_some() {
            self.fill(places, &[])?;
            if self.is_strictly_volatile() {
                self.handle(places.grid)?;
            }
        }
        self.read(function, argument, meta)
    }

    fn is_strictly_volatile(&self) -> bool {
        self.description().is_some_and(Description::is_strictly_volatile)
    }

    /// Called when a call has its own reference to the value. Later calls get no reference to a strictly volatile
    /// datum, and a local copy that was made for reading with another description is released.
    pub(super) fn release_after_read(&self) {
        match self.content() {
            Content::Made { result, .. } if self.is_strictly_volatile() => result.erase(),
            Content::Made { result, .. } => result.release_copy(None),
            Content::Nothing | Content::Put(_) => {}
        }
        if self.is_strictly_volatile() {
            self.clear();
        }
    }

    /// Moves it to the only server that may have it, if there is one, before a call reads it.
    pub(super) fn move_to_only_store(&self, places: &DataPlaces<'_>) -> Result<(), DataError> {
        let Some(server) = self.description().and_then(Description::only_store) else { return Ok(()) };
        self.fill(places, &[])?;
        match self.content() {
            Content::Made { call: Some(_), .. } => Ok(()),
            _ => self.copy_to_store(places, server, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, address: &str) -> ServerView {
        ServerView {
            node: NodeId(2),
            name: name.into(),
            address: address.into(),
            slots: 1,
            stateless: false,
            memory_bytes: 1 << 30,
            speed_flops: None,
            pace: 1.0,
            functions: BTreeMap::new(),
            busy_s: vec![0.0],
            release: String::new(),
            protocol: 0,
        }
    }

    #[test]
    fn a_host_of_the_platform_may_have_the_name_of_this_machine() {
        let own = rustix::system::uname().nodename().to_str().unwrap().to_string();
        let servers = [server("one", &format!("sim://{own}:4")), server("other", "sim://desk:5")];
        let found = |name: &str| {
            let found = servers_named(name, &BTreeMap::new(), &servers, Some("desk")).unwrap();
            found.iter().map(|server| server.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(found(&own), ["one"]);
        assert_eq!(found(&format!("{own}:4000")), ["one"]);
        assert_eq!(found("localhost"), ["other"]);
    }
}
