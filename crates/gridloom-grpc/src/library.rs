//! The program's single session with a grid, from `grpc_initialize` to `grpc_finalize`: the grid, its settings, and
//! tables of the program's objects.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Once, OnceLock, PoisonError, RwLock};

use gridloom::data::{DataPlaces, is_this_machine, servers_named};
use gridloom::{Error, Grid};
use gridloom_base::NodeId;
use gridloom_perf::{GridView, ServerView};

use super::code::{
    Failed, GRPC_ALREADY_INITIALIZED, GRPC_FUNCTION_NOT_FOUND, GRPC_NOT_INITIALIZED, GRPC_SERVER_NOT_FOUND, Outcome,
};
use super::config::Config;
use super::graphs::Graphs;
use super::handles::{BoundFunction, CObjectHandle, Functions};
use super::limits::{ConfiguredLimits, Limits};
use super::mappings::Mappings;
use super::memory;
use super::objects::{ObjectSlot, Objects};
use super::ranks::ConfiguredRanks;
use super::remote_results::RemainingResults;
use super::remotes::Remotes;
use super::requests::Requests;
use super::session::Record;
use super::sessions::Sessions;

/// Reports whether a wait for a session on this thread could never end.
static NO_SESSIONS_HERE: OnceLock<fn() -> bool> = OnceLock::new();

/// Sets the condition under which a thread cannot have a session: it runs a simulated process of C.
pub fn refuse_sessions_if(applies: fn() -> bool) {
    // It was set before, by the same caller.
    let _ = NO_SESSIONS_HERE.set(applies);
}

static LIBRARY: RwLock<Option<Arc<Library>>> = RwLock::new(None);

/// The data that exist between `grpc_initialize` and `grpc_finalize`.
pub struct Library {
    pub(crate) grid: Grid,
    pub(crate) handles: Functions,
    pub(crate) objects: Objects,
    pub(crate) sessions: Sessions,
    pub(crate) remotes: Remotes,
    /// Results of mapped blocks that stay on their servers.
    pub(crate) staying: RemainingResults,
    /// The default heuristic of blocks.
    pub(crate) heuristic: String,
    /// Other names by which blocks may be mapped.
    pub(crate) mappings: Mappings,
    pub(crate) graphs: Graphs,
    pub(crate) requests: Requests,
    /// True if blocks fill buffers while their results are elsewhere.
    pub(crate) is_debugged: bool,
    /// The default time limits of calls through a handle.
    pub(crate) limits: Limits,
    configured: RwLock<ServerSettings>,
    /// True if the grid was started for this session.
    is_own_grid: bool,
    /// Process of the session; a child of it has no session.
    pid: u32,
}

/// Settings of servers and functions from configurations; more may be read later.
#[derive(Default)]
struct ServerSettings {
    /// Addresses of servers by their names.
    server_names: Arc<BTreeMap<String, String>>,
    /// Time limits of single functions.
    limits: BTreeMap<String, ConfiguredLimits>,
    /// Numbers of ranks.
    ranks: ConfiguredRanks,
}

/// Returns the session of this process.
pub fn library() -> Outcome<Arc<Library>> {
    let library = LIBRARY.read().unwrap_or_else(PoisonError::into_inner);
    match library.as_ref().filter(|library| library.is_own()) {
        Some(library) => Ok(library.clone()),
        None => {
            Err(Failed::new(GRPC_NOT_INITIALIZED, "there is no session; call grpc_initialize or OmniRpcInit first"))
        }
    }
}

/// Begins the session of this process, with the configuration that `read` returns.
pub(crate) fn begin_library(read: impl FnOnce() -> Outcome<Config>) -> Outcome<()> {
    let mut library = LIBRARY.write().unwrap_or_else(PoisonError::into_inner);
    match library.take() {
        Some(own) if own.is_own() => {
            *library = Some(own);
            let text = "there is a session already; grpc_finalize ends it";
            return Err(Failed::new(GRPC_ALREADY_INITIALIZED, text));
        }
        // The session is the parent's: it can be neither used nor dropped here.
        Some(other) => std::mem::forget(other),
        None => {}
    }
    *library = Some(Arc::new(Library::open(&read()?)?));
    static AT_EXIT: Once = Once::new();
    // SAFETY: a function without arguments and without a result.
    AT_EXIT.call_once(|| {
        unsafe { libc::atexit(end_at_exit) };
    });
    Ok(())
}

/// Runs when the program ends without grpc_finalize: a simulated session is ended, so that its report is written.
/// Others end with their process.
extern "C" fn end_at_exit() {
    // If a thread of the program still uses the session, it is left unchanged.
    let Ok(mut library) = LIBRARY.try_write() else { return };
    let is_simulated = library.as_ref().is_some_and(|library| library.is_own() && library.grid.is_simulated());
    let own = if is_simulated { library.take() } else { None };
    drop(library);
    if let Some(own) = own {
        // A panic has been reported; it must not leave this function.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| own.end()));
    }
}

/// Ends the session of this process. Outstanding calls are cancelled.
pub(crate) fn end_library(own: &Library) {
    LIBRARY.write().unwrap_or_else(PoisonError::into_inner).take();
    own.end();
}

impl Library {
    fn end(&self) {
        self.sessions.cancel_all();
        self.staying.clear();
        self.requests.clear();
        self.grid.end_modules();
        self.grid.end_call_backs();
    }

    pub(crate) fn open(config: &Config) -> Outcome<Library> {
        // The session would wait inside the process's world, which would not restore the process's variables.
        if NO_SESSIONS_HERE.get().is_some_and(|applies| applies()) {
            let text = "a simulated process of gridloom_main cannot have a GridRPC session yet; run the program by \
                        itself, with 'gridloom simulate -p PLATFORM -- PROGRAM'";
            return Err(Failed::other(text));
        }
        Ok(Library {
            grid: config.open().map_err(|error| Failed::other(error.to_string()))?,
            handles: Functions::default(),
            objects: Objects::default(),
            sessions: Sessions::new(config.save_session_info),
            remotes: Remotes::default(),
            staying: RemainingResults::default(),
            heuristic: config.heuristic(),
            mappings: Mappings::default(),
            graphs: Graphs::default(),
            requests: Requests::default(),
            is_debugged: config.is_debugged(),
            limits: config.session_limits(),
            configured: RwLock::new(ServerSettings {
                server_names: Arc::new(config.server_names()),
                limits: config.limits(),
                ranks: config.ranks(),
            }),
            is_own_grid: config.is_own_grid(),
            pid: std::process::id(),
        })
    }

    fn is_own(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Returns the places of the program's data.
    ///
    /// # Safety
    /// Memory that `memory:` URIs name is as the program described it, while the result is used.
    pub(crate) unsafe fn places(&self) -> DataPlaces<'_> {
        DataPlaces { grid: &self.grid, server_names: self.server_names(), memory: &self.remotes }
    }

    fn server_names(&self) -> Arc<BTreeMap<String, String>> {
        self.configured.read().unwrap_or_else(PoisonError::into_inner).server_names.clone()
    }

    /// Adds the settings of servers and functions from a configuration.
    pub(crate) fn reconfigure(&self, config: &Config) {
        let mut configured = self.configured.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut configured.server_names).extend(config.server_names());
        configured.limits.extend(config.limits());
        configured.ranks.extend(config.ranks());
    }

    /// Returns the configured number of ranks for the calls of a handle; 0 for the server's own number.
    pub(crate) fn ranks_of(&self, server: Option<&str>, function: &str) -> u32 {
        self.configured.read().unwrap_or_else(PoisonError::into_inner).ranks.of(server, function)
    }

    /// Returns the default time limits of a function's calls.
    fn limits_of(&self, function: &str) -> Limits {
        let configured = self.configured.read().unwrap_or_else(PoisonError::into_inner);
        configured.limits.get(function).copied().unwrap_or_default().or(self.limits)
    }

    /// Reads another configuration during the session.
    ///
    /// # Errors
    /// A file that cannot be read, or is wrong.
    pub fn read_configuration(&self, name: &str) -> Outcome<()> {
        self.reconfigure(&Config::read(Some(name))?);
        Ok(())
    }

    /// Checks that this server exists; without a server, that any exists.
    ///
    /// # Errors
    /// If the server has left.
    pub fn check_server(&self, node: Option<NodeId>) -> Outcome<()> {
        let view = self.some_servers()?;
        match node.is_none_or(|node| view.servers.iter().any(|server| server.node == node)) {
            true => Ok(()),
            false => Err(Failed::new(GRPC_SERVER_NOT_FOUND, "the handle's server has left; make a new handle")),
        }
    }

    /// Returns the object of a handle.
    ///
    /// # Errors
    /// If it is not a handle of an object.
    ///
    /// # Safety
    /// Null, or memory for a handle.
    pub unsafe fn object(&self, handle: *mut CObjectHandle) -> Outcome<Arc<ObjectSlot>> {
        // SAFETY: promised by the caller.
        self.objects.find(&unsafe { memory::program_memory(handle, "the handle")?.read() })
    }

    /// Returns the name of a server, if it is known.
    pub fn server_name(&self, node: NodeId) -> Option<String> {
        self.grid.servers().servers.iter().find(|server| server.node == node).map(|server| server.name.clone())
    }

    /// Returns the time limits of all functions.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the record of a session; the inner `None` while it runs.
    ///
    /// # Errors
    /// If no session has that id.
    pub fn record_of(&self, id: c_int) -> Outcome<Option<Record>> {
        let open = self.sessions.lock().open(id).cloned();
        match open {
            Ok(session) => Ok(session.current_record(&self.grid)),
            Err(_) => Ok(Some(self.sessions.lock().known(id)?.clone())),
        }
    }

    /// Sets how many collected sessions are remembered from now on; all if negative.
    pub fn remember(&self, sessions: i64) {
        self.sessions.lock().remembered.set_recent_max(sessions);
    }

    /// Returns the servers, of which there is at least one.
    pub fn some_servers(&self) -> Outcome<Arc<GridView>> {
        let view = self.grid.servers();
        if view.servers.is_empty() {
            let text = "the grid has no server; start one with 'gridloom serve'";
            return Err(Failed::new(GRPC_SERVER_NOT_FOUND, text));
        }
        Ok(view)
    }

    /// Returns the servers that a name means: a server by its own name, by a name of the configuration or by its
    /// address, or the servers of a host.
    pub(crate) fn servers_named<'a>(&self, name: &str, servers: &'a [ServerView]) -> Outcome<Vec<&'a ServerView>> {
        let here = self.grid.simulated_host();
        match servers_named(name, &self.server_names(), servers, here.as_deref()) {
            // The program's own grid would run on this machine.
            Err(_) if here.is_some() && self.is_own_grid && is_this_machine(name) => Ok(servers.iter().collect()),
            found => Ok(found?),
        }
    }

    /// Finds the function for a handle.
    pub(crate) fn bind(&self, server: Option<&str>, function: &str) -> Outcome<BoundFunction> {
        let view = self.some_servers()?;
        let candidates = server.map(|name| self.servers_named(name, &view.servers)).transpose()?;
        let mut function = self.grid.function(function).map_err(|error| self.not_offered(error))?;
        if let Some(class) = function.class() {
            let text = format!("{} is a method: make an object of class '{class}', and call it there", function.name());
            return Err(Failed::new(GRPC_FUNCTION_NOT_FOUND, text));
        }
        let server = match candidates {
            None => None,
            Some(candidates) => {
                let offers = |server: &&&ServerView| server.functions.contains_key(function.name());
                let found = candidates.iter().find(offers).ok_or_else(|| {
                    let text = format!("server '{}' does not offer function '{}'", candidates[0].name, function.name());
                    Failed::new(
                        GRPC_FUNCTION_NOT_FOUND,
                        format!("{text}; 'gridloom functions' lists the offered functions"),
                    )
                });
                let found = found?;
                function = function.bound_to(found.node);
                Some(found.name.clone())
            }
        };
        let limits = self.limits_of(function.name());
        BoundFunction::new(function, server, limits)
    }

    /// Returns the error for a function that no server offers. A program's own grid offers only the functions in its
    /// configuration, which is easily forgotten.
    fn not_offered(&self, error: Error) -> Failed {
        let mut failed = Failed::from(error);
        if self.is_own_grid && failed.code == GRPC_FUNCTION_NOT_FOUND {
            failed.text.push_str(
                "; this grid was started for the program: GRIDLOOM_AGENT or 'agent' in the configuration selects \
                 another, and 'functions' of [local] lists the functions of this one",
            );
        }
        failed
    }
}
