//! Shared names: data that any program of the grid puts and finds.

use std::collections::BTreeMap;
use std::time::Duration;

use gridloom_base::limits::EAGER_BYTES_MAX;
use gridloom_base::{GroupId, Meta, NameError, Named, NodeId, TaskId};
use gridloom_core::node::message::{CatalogAnswer, Listed};
use gridloom_core::node::{Command, NameCommand};
use gridloom_net::worker::nested;

use crate::group::{Handle, Submitted};
use crate::{Error, Grid, Value};

/// How long the agent has to say which names look like one that did not come in time.
const NEAR_NAMES_LIMIT: Duration = Duration::from_secs(2);

type Answer = Result<CatalogAnswer, NameError>;

/// Questions about names that threads of the program wait for.
#[derive(Default)]
pub(super) struct Asks(BTreeMap<u64, Option<Answer>>);

impl Asks {
    pub(super) fn on_answer(&mut self, ask: u64, answer: Answer) {
        if let Some(place) = self.0.get_mut(&ask) {
            *place = Some(answer);
        }
    }
}

/// A name in a list of shared data.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedName {
    pub name: String,
    /// Rises with each put of the name.
    pub version: u64,
    pub meta: Meta,
    /// Names of servers with a copy.
    pub servers: Vec<String>,
}

/// The shared data of a grid: see [`Grid::shared`].
#[derive(Clone, Copy)]
pub struct SharedData<'a>(&'a Grid);

impl Grid {
    /// Data with names that every program of the grid finds. They live on servers, whatever becomes of the program that put them,
    /// until they are deleted. They are immutable: a name that is put again gets a new version, and who reads the old one keeps it.
    pub fn shared(&self) -> SharedData<'_> {
        SharedData(self)
    }
}

impl SharedData<'_> {
    /// Puts a value under a name. When this returns, every program finds it. With `replaces`, a name that exists gets a new version.
    ///
    /// # Errors
    /// [`Error::Name`] if the name exists, is no name, or no server has room.
    pub fn put(&self, name: &str, value: &Value, replaces: bool) -> Result<(), Error> {
        self.put_handle(name, &self.0.hold(value), replaces)
    }

    /// The same of a result or another value that a handle stands for. It goes straight from its server to the one that keeps it;
    /// if that is the same, nothing moves.
    ///
    /// # Errors
    /// As [`SharedData::put`], and those of the call that makes it.
    pub fn put_handle(&self, name: &str, handle: &Handle, replaces: bool) -> Result<(), Error> {
        handle.launch()?;
        self.near();
        let client = self.0.client();
        let command = NameCommand::Put {
            name: name.into(),
            datum: handle.datum(),
            meta: handle.meta().clone(),
            replaces,
            task: TaskId { client, serial: self.0.next_serial() },
            group: GroupId { client, serial: self.0.next_serial() },
        };
        self.ask(command, None).map(drop)
    }

    /// The value of a name, brought here. Waits until somebody puts it, if need be: no longer than `limit`.
    ///
    /// # Errors
    /// [`Error::Name`] with names that look like it, if it does not come in time, or is lost.
    pub fn get(&self, name: &str, limit: Option<Duration>) -> Result<Value, Error> {
        self.find(name, limit)?.get()
    }

    /// A handle for the current version of a name: an argument of calls, which get it from the servers that have it. Waits as
    /// [`SharedData::get`]. The version stays while the handle lives. In a function it is at the function's server then.
    ///
    /// # Errors
    /// As [`SharedData::get`].
    pub fn find(&self, name: &str, limit: Option<Duration>) -> Result<Handle, Error> {
        let handle = self.find_where_it_is(name, limit)?;
        self.bring_near(&handle)?;
        Ok(handle)
    }

    fn find_where_it_is(&self, name: &str, limit: Option<Duration>) -> Result<Handle, Error> {
        let (waits, limit) = match limit {
            Some(Duration::ZERO) => (false, None),
            limit => (true, limit),
        };
        match self.ask(NameCommand::Find { name: name.into(), waits }, limit)? {
            CatalogAnswer::Found { named, .. } => Ok(Handle::of_value(self.0, named.datum, named.meta)),
            _ => unreachable!("a find finds"),
        }
    }

    /// In a function: the server that runs it, which its session is told.
    fn near(&self) -> Option<NodeId> {
        if nested::depth() == 0 {
            return None;
        }
        let name = std::env::var(nested::SERVER_VARIABLE).ok()?;
        let server = {
            let state = self.0.state();
            let names = state.directory.names().iter();
            names.filter(|(_, known)| **known == name).map(|(node, _)| *node).next_back()?
        };
        self.0.command(Command::Near { server });
        Some(server)
    }

    /// What a function finds comes to its server, for all that it runs. Where that cannot be, it comes to the function alone.
    fn bring_near(&self, handle: &Handle) -> Result<(), Error> {
        match self.near().filter(|_| handle.meta().size_bytes() > EAGER_BYTES_MAX) {
            Some(server) => handle.place(server, false)?.wait_within(None),
            None => Ok(()),
        }
    }

    /// Takes copies of the current version of a name to servers, before calls read it there: to all if none is named. They stay as
    /// long as there is room. The servers get it from one another.
    ///
    /// # Errors
    /// As [`SharedData::get`]; [`Error::Usage`] for a server that is not there; [`Error::Task`] if one has no room, or is lost.
    pub fn place(&self, name: &str, servers: &[String]) -> Result<(), Error> {
        let handle = self.find_where_it_is(name, Some(Duration::ZERO))?;
        let placed: Vec<Submitted> =
            self.nodes(servers)?.into_iter().map(|node| handle.place(node, false)).collect::<Result<_, _>>()?;
        for one in &placed {
            one.wait_within(None)?;
        }
        let failed = placed.iter().find_map(|one| one.end().and_then(|end| end.error));
        failed.map_or(Ok(()), |error| Err(Error::Task(error)))
    }

    /// Servers by name; all, if none is named.
    fn nodes(&self, names: &[String]) -> Result<Vec<NodeId>, Error> {
        let state = self.0.state();
        let (known, listed) = (state.directory.names(), state.directory.grid());
        let all = listed.servers.iter().map(|server| server.node);
        if names.is_empty() {
            return Ok(all.collect());
        }
        let named = |name: &String| {
            let found = all.clone().find(|node| known.get(node) == Some(name));
            found.ok_or_else(|| Error::Usage(format!("no server is named '{name}'; 'gridloom servers' lists them")))
        };
        names.iter().map(named).collect()
    }

    /// Whether somebody has put that name.
    ///
    /// # Errors
    /// [`Error::Name`] if it is no name, or there is no agent.
    pub fn exists(&self, name: &str) -> Result<bool, Error> {
        match self.find_where_it_is(name, Some(Duration::ZERO)) {
            Ok(_) => Ok(true),
            Err(Error::Name(NameError::Unknown { .. } | NameError::Lost { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives up a name. Its bytes go when no handle stands for them any more.
    ///
    /// # Errors
    /// [`Error::Name`] if it does not exist.
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        self.ask(NameCommand::Delete { name: name.into() }, None).map(drop)
    }

    /// The names that begin so, in order.
    ///
    /// # Errors
    /// [`Error::Name`] if there is no agent.
    pub fn list(&self, prefix: &str) -> Result<Vec<SharedName>, Error> {
        let mut all: Vec<SharedName> = Vec::new();
        loop {
            let after = all.last().map_or(String::new(), |last| last.name.clone());
            let answer = self.ask(NameCommand::List { prefix: prefix.into(), after }, None)?;
            let CatalogAnswer::Listed { names, has_more } = answer else { unreachable!("a list lists") };
            all.extend(names.into_iter().map(|listed| self.listed(listed)));
            if !has_more {
                return Ok(all);
            }
        }
    }

    fn listed(&self, Listed { named: Named { name, version, meta, .. }, holders }: Listed) -> SharedName {
        let state = self.0.state();
        let names = state.directory.names();
        let name_of = |node| names.get(&node).cloned().unwrap_or_else(|| format!("{node}"));
        SharedName { name, version, meta, servers: holders.into_iter().map(name_of).collect() }
    }

    fn ask(&self, command: NameCommand, limit: Option<Duration>) -> Result<CatalogAnswer, Error> {
        let ask = self.0.next_serial();
        self.0.state().asks.0.insert(ask, None);
        self.0.command(Command::Name { ask, command });
        let answer = |state: &mut super::State| state.asks.0.get(&ask).cloned().flatten();
        let mut waited = self.0.wait(limit, answer);
        if matches!(waited, Err(Error::TimedOut { .. })) {
            self.0.command(Command::Name { ask, command: NameCommand::Forget });
            waited = self.0.wait(Some(NEAR_NAMES_LIMIT), answer).map_err(|_| waited.expect_err("it timed out"));
        }
        self.0.state().asks.0.remove(&ask);
        Ok(waited??)
    }
}
