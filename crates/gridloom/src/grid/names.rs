//! Shared names: data that any program of the grid puts and finds.

use std::collections::BTreeMap;
use std::time::Duration;

use gridloom_base::{GroupId, Meta, NameError, Named, TaskId};
use gridloom_core::node::message::{CatalogAnswer, Listed};
use gridloom_core::node::{Command, NameCommand};

use crate::group::Handle;
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
    /// [`SharedData::get`]. The version stays while the handle lives.
    ///
    /// # Errors
    /// As [`SharedData::get`].
    pub fn find(&self, name: &str, limit: Option<Duration>) -> Result<Handle, Error> {
        let waits = limit.is_none_or(|limit| !limit.is_zero());
        let answer =
            self.ask(NameCommand::Find { name: name.into(), waits }, limit.filter(|limit| !limit.is_zero()))?;
        match answer {
            CatalogAnswer::Found { named, .. } => Ok(Handle::of_value(self.0, named.datum, named.meta)),
            _ => unreachable!("a find finds"),
        }
    }

    /// Whether somebody has put that name.
    ///
    /// # Errors
    /// [`Error::Name`] if it is no name, or there is no agent.
    pub fn exists(&self, name: &str) -> Result<bool, Error> {
        match self.find(name, Some(Duration::ZERO)) {
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
