//! Shared names: data that all programs of a user can put and find, and that the user can share with others.

mod begun;
mod explained;
mod rows;

use std::time::Duration;

use gridloom_base::limits::{EAGER_BYTES_MAX, REPLICAS_MAX};
use gridloom_base::time::seconds_to_ns;
use gridloom_base::{Meta, Method, NameError, NamedDatum, NodeId, PutOrigin, TaskError, TaskId, full_name, name_for};
use gridloom_core::node::message::{CatalogAnswer, NameEntry};
use gridloom_core::node::{Command, NameCommand};
use gridloom_net::worker::nested;

use crate::call::{Handle, Submitted};
use crate::session::{Session, State};
use crate::{Error, Value};
pub use begun::{BegunGet, BegunPut, BegunWait};
pub use explained::SharedDataReport;

/// Time limit for the agent to send names similar to one that was not found in time.
const NEAR_NAMES_LIMIT: Duration = Duration::from_secs(2);

/// A name in a list of shared data.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedDataEntry {
    pub name: String,
    /// Increases with each put of the name.
    pub version: u64,
    pub meta: Meta,
    /// Number of servers that keep it.
    pub replicas: u16,
    /// True if servers keep it when they end.
    pub is_durable: bool,
    /// How it is transferred to servers that read it.
    pub method: Method,
    /// The user to whom it belongs.
    pub owner: String,
    /// Users and groups with whom it is shared; `*` is everybody.
    pub readers: Vec<String>,
    /// Names of servers with a copy.
    pub servers: Vec<String>,
}

/// Options for putting a value under a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PutOptions {
    /// True if a name that exists gets a new version.
    pub replaces: bool,
    /// Number of servers that keep it, 1 to [`REPLICAS_MAX`]. It survives the loss of all but one of them.
    pub replicas: u16,
    /// True if they keep it also when they end, in their folders for durable data, until it is deleted.
    pub is_durable: bool,
    /// How it is transferred to servers that read it.
    pub method: Method,
}

impl Default for PutOptions {
    fn default() -> PutOptions {
        PutOptions { replaces: false, replicas: 1, is_durable: false, method: Method::Auto }
    }
}

/// The shared data of a grid: see [`Grid::shared`](crate::Grid::shared).
#[derive(Clone, Copy)]
pub struct SharedData<'a>(&'a Session);

impl<'a> SharedData<'a> {
    pub(crate) fn new(session: &'a Session) -> SharedData<'a> {
        SharedData(session)
    }

    /// Puts a value under a name. When this returns, every program of the user finds it.
    ///
    /// # Errors
    /// [`Error::Name`] if the name exists or is invalid, or too few servers have room.
    pub fn put(&self, name: &str, value: &Value, options: PutOptions) -> Result<(), Error> {
        self.ended(self.begin_put(name, value, options)?)
    }

    /// Puts a result, or another value behind a handle, under a name. The value is sent directly from its server to the
    /// one that keeps it; if they are the same, nothing is sent.
    ///
    /// # Errors
    /// As for [`SharedData::put`], and the errors of the call that makes it.
    pub fn put_handle(&self, name: &str, handle: &Handle, options: PutOptions) -> Result<(), Error> {
        self.ended(self.begin_put_handle(name, handle, options)?)
    }

    fn ended(&self, put: BegunPut) -> Result<(), Error> {
        let ended = put.wait(None);
        drop(put);
        self.0.release_dropped();
        ended
    }

    /// Begins to put a value under a name, and does not wait.
    ///
    /// # Errors
    /// [`Error::Usage`] for an invalid number of replicas; [`BegunPut::wait`] returns the others.
    pub fn begin_put(&self, name: &str, value: &Value, options: PutOptions) -> Result<BegunPut, Error> {
        let made_by = match (nested::puts_as(), value.payload()) {
            (Some(task), Some(payload)) => Some(PutOrigin { task, digest: payload.digest(value.meta()) }),
            _ => None,
        };
        self.begin(name, &Handle::put(self.0, value), options, made_by)
    }

    /// Begins to put a result, or another value behind a handle, under a name.
    ///
    /// # Errors
    /// As for [`SharedData::begin_put`].
    pub fn begin_put_handle(&self, name: &str, handle: &Handle, options: PutOptions) -> Result<BegunPut, Error> {
        self.begin(name, handle, options, None)
    }

    /// Begins to get the value of a name, and does not wait. The value is transferred as soon as the name is found, for
    /// which `limit` is the time limit. Inside a function it is transferred only to that function.
    pub fn begin_get(&self, name: &str, limit: Option<Duration>) -> BegunGet {
        self.own_server();
        BegunGet::new(self.0, await_command(&self.stated(name), limit, true))
    }

    /// Begins to wait for a name, for at most `limit`. Transfers nothing.
    pub fn begin_wait(&self, name: &str, limit: Option<Duration>) -> BegunWait {
        BegunWait::new(self.0, await_command(&self.stated(name), limit, false))
    }

    fn begin(
        &self,
        name: &str,
        handle: &Handle,
        options: PutOptions,
        made_by: Option<PutOrigin>,
    ) -> Result<BegunPut, Error> {
        let PutOptions { replaces, replicas, is_durable, method } = options;
        if !(1..=REPLICAS_MAX).contains(&replicas) {
            return Err(Error::Usage(format!("{replicas} replicas for '{name}'; expected 1 to {REPLICAS_MAX}")));
        }
        handle.launch()?;
        self.own_server();
        let client = self.0.client();
        let command = NameCommand::Put {
            name: self.stated(name),
            datum: handle.datum(),
            meta: handle.meta().clone(),
            replaces,
            replicas,
            is_durable,
            method,
            made_by,
            task: TaskId { client, serial: self.0.next_serial() },
            group: self.0.new_group(),
        };
        Ok(BegunPut::new(self.0, command, handle.clone()))
    }

    /// Fetches the value of a name. If necessary, waits until a program puts it, for at most `limit`.
    ///
    /// # Errors
    /// [`Error::Name`], with similar names, if it was not put in time, or if it is lost.
    pub fn get(&self, name: &str, limit: Option<Duration>) -> Result<Value, Error> {
        self.read_and_drop(self.find(name, limit)?, Handle::get)
    }

    /// Reads through a handle and drops it. A version that no program reads is then deleted immediately.
    fn read_and_drop<R>(&self, handle: Handle, read: impl FnOnce(&Handle) -> R) -> R {
        let result = read(&handle);
        drop(handle);
        self.0.release_dropped();
        result
    }

    /// Returns a handle for the current version of a name: an argument of calls, which fetch it from servers that have
    /// it. Waits like [`SharedData::get`]. The version exists while the handle lives. Inside a function it is copied to
    /// the function's server.
    ///
    /// # Errors
    /// As for [`SharedData::get`].
    pub fn find(&self, name: &str, limit: Option<Duration>) -> Result<Handle, Error> {
        let (handle, _) = self.find_with_servers(name, limit)?;
        self.copy_to_own_server(&handle)?;
        Ok(handle)
    }

    /// Returns a handle, and servers that have the value.
    fn find_with_servers(&self, name: &str, limit: Option<Duration>) -> Result<(Handle, Vec<NodeId>), Error> {
        let (waits, limit) = match limit {
            Some(Duration::ZERO) => (false, None),
            limit => (true, limit),
        };
        match self.request(NameCommand::Find { name: self.stated(name), waits }, limit)? {
            CatalogAnswer::Found { named, holders } => {
                let holders = holders.into_iter().map(|(node, _)| node).collect();
                Ok((Handle::of_value(self.0, named.datum, named.meta), holders))
            }
            _ => unreachable!("a find finds"),
        }
    }

    /// Inside a function: returns the server that runs it, and reports it to the client's machine.
    fn own_server(&self) -> Option<NodeId> {
        if nested::depth() == 0 {
            return None;
        }
        let server = match self.0.own_server() {
            Some(server) => server,
            None => {
                let name = std::env::var(nested::SERVER_VARIABLE).ok()?;
                let state = self.0.state();
                let names = state.directory.names().iter();
                names.filter(|(_, known)| **known == name).map(|(node, _)| *node).next_back()?
            }
        };
        self.0.command(Command::RunsAt { server });
        Some(server)
    }

    /// Copies the data that a function finds to its server, for everything that it runs. If that is not possible, only
    /// the function itself gets the data.
    fn copy_to_own_server(&self, handle: &Handle) -> Result<(), Error> {
        let is_small = handle.meta().size_bytes() <= EAGER_BYTES_MAX;
        let Some(server) = self.own_server().filter(|_| !is_small && !self.0.state().requests.near_is_full()) else {
            return Ok(());
        };
        match handle.place(server, false)?.wait() {
            // The next copy would wait for room just as long and fail too, so the value is sent to the function itself.
            Err(Error::Task(TaskError::StoreFull { .. })) => self.0.state().requests.note_near_is_full(),
            Err(Error::Task(_)) | Ok(()) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the description of the current version of a name. Waits like [`SharedData::get`]; transfers nothing.
    ///
    /// # Errors
    /// As for [`SharedData::get`].
    pub fn meta(&self, name: &str, limit: Option<Duration>) -> Result<Meta, Error> {
        Ok(self.read_and_drop(self.find_with_servers(name, limit)?.0, |handle| handle.meta().clone()))
    }

    /// Waits until a program has put a name, for at most `limit`. Transfers nothing.
    ///
    /// # Errors
    /// As for [`SharedData::get`].
    pub fn wait(&self, name: &str, limit: Option<Duration>) -> Result<(), Error> {
        self.meta(name, limit).map(drop)
    }

    /// Copies the current version of a name to servers before calls read it there. If `servers` is empty, all servers that
    /// are not stateless get a copy. The copies are kept as long as there is room. The servers fetch them from each other.
    /// The loss of a server during the copy is an error only if the server was named or no copy was made.
    ///
    /// # Errors
    /// As for [`SharedData::get`]; [`Error::Usage`] for a server that is unknown or stateless; [`Error::Task`] if one
    /// has no room or is lost. The error is returned after the other copies have been made.
    pub fn place(&self, name: &str, servers: &[String]) -> Result<(), Error> {
        let place = |handle: &Handle| {
            // Only after the name was found: by then the agent has sent its directory, which lists restarted servers.
            let nodes = self.nodes(servers)?;
            let placed: Vec<Submitted> =
                nodes.into_iter().map(|node| handle.place(node, false)).collect::<Result<_, _>>()?;
            for one in &placed {
                one.wait_within(None)?;
            }
            // Every error counts as read, since these are not calls of the program.
            let ended: Vec<Result<(), Error>> = placed.iter().map(Submitted::wait).collect();
            all_placed(ended, servers.is_empty())
        };
        self.read_and_drop(self.find_with_servers(name, Some(Duration::ZERO))?.0, place)
    }

    /// Resolves server names; returns all servers that are not stateless if none is named.
    fn nodes(&self, names: &[String]) -> Result<Vec<NodeId>, Error> {
        let state = self.0.state();
        let (known, listed) = (state.directory.names(), state.directory.grid());
        if names.is_empty() {
            return Ok(listed.servers.iter().filter(|server| !server.stateless).map(|server| server.node).collect());
        }
        let named = |name: &String| {
            let found = listed.servers.iter().find(|server| known.get(&server.node) == Some(name));
            match found {
                None => Err(Error::Usage(format!("no server is named '{name}'; 'gridloom servers' lists them"))),
                Some(server) if server.stateless => {
                    let why = "is stateless (serve --plain) and keeps no copies; name other servers";
                    Err(Error::Usage(format!("server '{name}' {why}")))
                }
                Some(server) => Ok(server.node),
            }
        };
        names.iter().map(named).collect()
    }

    /// Returns whether a program has put that name, and this user may read it.
    ///
    /// # Errors
    /// [`Error::Name`] if the name is invalid, or there is no agent.
    pub fn exists(&self, name: &str) -> Result<bool, Error> {
        match self.find_with_servers(name, Some(Duration::ZERO)) {
            Ok((found, _)) => Ok(self.read_and_drop(found, |_| true)),
            Err(Error::Name(NameError::Unknown { .. } | NameError::NotShared { .. } | NameError::Lost { .. })) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes a name. Its bytes are freed when no handle refers to them any more.
    ///
    /// # Errors
    /// [`Error::Name`] if it does not exist.
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        self.request(NameCommand::Delete { name: self.stated(name) }, None).map(drop)
    }

    /// Shares a name with users, and with no others: they can find and read it, as `~OWNER/NAME`, and its later versions. `*` is
    /// everybody, and `group:climate` those who belong to this group of the grid's rules now. Data that they have found already stay
    /// readable for them.
    ///
    /// # Errors
    /// [`Error::Name`] if the name does not exist or belongs to another user, for the name of a user that is invalid, or for a group that
    /// the rules do not define.
    pub fn share(&self, name: &str, users: &[String]) -> Result<(), Error> {
        let command = NameCommand::Share { name: self.stated(name), users: users.to_vec() };
        self.request(command, None).map(drop)
    }

    /// Returns the names with that prefix: those of the user in order, then those of others that the user may read, which begin
    /// with `~OWNER/`.
    ///
    /// # Errors
    /// [`Error::Name`] if there is no agent.
    pub fn list(&self, prefix: &str) -> Result<Vec<SharedDataEntry>, Error> {
        let pages: Vec<Vec<SharedDataEntry>> = self.list_pages(prefix).collect::<Result<_, _>>()?;
        Ok(pages.into_iter().flatten().collect())
    }

    /// Like [`SharedData::list`], some thousands of names at a time. Each page shows the names at the time of its request.
    pub fn list_pages(&self, prefix: &str) -> impl Iterator<Item = Result<Vec<SharedDataEntry>, Error>> {
        let mut after = Some(String::new());
        std::iter::from_fn(move || {
            let page = self.list_after(prefix, after.take()?);
            if let Ok((names, true)) = &page {
                after = names.last().map(|last| last.name.clone());
            }
            Some(page.map(|(names, _)| names))
        })
    }

    /// Returns the names after `after`, and whether there are more.
    fn list_after(&self, prefix: &str, after: String) -> Result<(Vec<SharedDataEntry>, bool), Error> {
        let prefix = self.stated(prefix);
        let after = if after.is_empty() { after } else { self.stated(&after) };
        let answer = self.request(NameCommand::List { prefix, after }, None)?;
        let CatalogAnswer::Listed { names, has_more } = answer else { unreachable!("a list lists") };
        Ok((names.into_iter().map(|listed| self.listed(listed)).collect(), has_more))
    }

    /// Returns the name to send to the agent. A function uses the namespace of the user whose program called it.
    fn stated(&self, name: &str) -> String {
        match self.0.caller() {
            Some(user) => full_name(&user, name).into_owned(),
            None => name.into(),
        }
    }

    fn listed(&self, NameEntry { named, holders, owner }: NameEntry) -> SharedDataEntry {
        let NamedDatum { name, version, meta, replicas, is_durable, method, readers, .. } = named;
        let name = match self.0.caller() {
            Some(user) => name_for(&user, &name).to_string(),
            None => name,
        };
        let state = self.0.state();
        let names = state.directory.names();
        let name_of = |node| names.get(&node).cloned().unwrap_or_else(|| format!("{node}"));
        SharedDataEntry {
            name,
            version,
            meta,
            replicas,
            is_durable,
            method,
            owner,
            readers: readers.users,
            servers: holders.into_iter().map(name_of).collect(),
        }
    }

    fn begin_request(&self, command: NameCommand) -> u64 {
        let request = self.0.next_serial();
        self.0.state().requests.begin(request);
        self.0.command(Command::Name { request, command });
        request
    }

    /// Sends a request and waits for the answer. A find waits for at most `limit`, or until the thread is interrupted.
    fn request(&self, command: NameCommand, limit: Option<Duration>) -> Result<CatalogAnswer, Error> {
        let finds = matches!(command, NameCommand::Find { .. });
        let request = self.begin_request(command);
        let take = |state: &mut State| state.requests.take(request);
        if !finds {
            return Ok(self.0.wait(None, take)??);
        }
        let mut waited = self.0.wait_unless_interrupted(limit, take);
        if matches!(waited, Err(Error::TimedOut { .. } | Error::Interrupted)) {
            self.0.command(Command::Name { request, command: NameCommand::CancelWait });
        }
        if matches!(waited, Err(Error::TimedOut { .. })) {
            // The answer has similar names.
            let late = self.0.wait_unless_interrupted(Some(NEAR_NAMES_LIMIT), take);
            waited = late.map_err(|_| waited.expect_err("it timed out"));
        }
        if waited.is_err() {
            let unread = self.0.state().requests.give_up(request);
            unread.into_iter().for_each(|datum| self.0.release_later(datum));
        }
        Ok(waited??)
    }
}

/// Returns the first error of the copies. If a server was lost, the error also has the other errors and the number of
/// complete copies. With `is_for_all`, a lost server is not an error if at least one copy was made.
fn all_placed(ended: Vec<Result<(), Error>>, is_for_all: bool) -> Result<(), Error> {
    let copies = ended.iter().filter(|one| one.is_ok()).count();
    let is_lost = |error: &Error| matches!(error, Error::Task(TaskError::ServerLost { .. }));
    let counts = |error: &Error| !(is_for_all && copies > 0 && is_lost(error));
    let mut errors = ended.into_iter().filter_map(Result::err).filter(counts);
    let (function, server, why, is_bound) = match errors.next() {
        None => return Ok(()),
        Some(Error::Task(TaskError::ServerLost { function, server, why, is_bound })) => {
            (function, server, why, is_bound)
        }
        Some(first) => return Err(first),
    };
    let others: String = errors.map(|error| format!("; {error}")).collect();
    let why = format!("{why}{others}; servers with complete copies: {copies}");
    Err(TaskError::ServerLost { function, server, why, is_bound }.into())
}

/// Requests a name as soon as it is put; with `gets_data`, its value too.
fn await_command(name: &str, limit: Option<Duration>, gets_data: bool) -> NameCommand {
    let limit_ns = limit.map(|limit| seconds_to_ns(limit.as_secs_f64()));
    NameCommand::Await { name: name.into(), limit_ns, gets_data }
}
