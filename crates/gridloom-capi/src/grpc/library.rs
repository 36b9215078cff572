//! The one session of a program with a grid, from `grpc_initialize` to `grpc_finalize`.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use gridloom::Grid;

use super::code::{Failed, GRPC_ALREADY_INITIALIZED, GRPC_NOT_INITIALIZED, Outcome, run};
use super::config::Config;
use super::handles::Handles;
use super::map::{self, Staying};
use super::memory;
use super::objects::Objects;
use super::remote::Remotes;
use super::sessions::Sessions;
use crate::current;

static LIBRARY: RwLock<Option<Arc<Library>>> = RwLock::new(None);

/// What there is between beginning and end.
pub(super) struct Library {
    pub(super) handles: Handles,
    pub(super) objects: Objects,
    pub(super) sessions: Sessions,
    /// Results of mapped blocks that stay where they were made.
    pub(super) staying: Staying,
    /// By what blocks are mapped that do not say it.
    pub(super) heuristic: String,
    /// Whether blocks fill buffers whose results are elsewhere.
    pub(super) is_debugged: bool,
    pub(super) remotes: Remotes,
    /// Of calls whose handle has none of its own.
    pub(super) limit: Option<Duration>,
    /// Addresses of servers by the names of the configuration.
    pub(super) server_names: BTreeMap<String, String>,
    /// A child of this process has no session.
    pid: u32,
    /// The grid was started for this session.
    pub(super) is_own_grid: bool,
    pub(super) grid: Grid,
}

/// The session of this process.
pub(super) fn library() -> Outcome<Arc<Library>> {
    let library = LIBRARY.read().unwrap_or_else(PoisonError::into_inner);
    match library.as_ref().filter(|library| library.is_own()) {
        Some(library) => Ok(library.clone()),
        None => Err(Failed::new(GRPC_NOT_INITIALIZED, "there is no session; call grpc_initialize first")),
    }
}

impl Library {
    fn open(config: &Config) -> Outcome<Library> {
        // It waits in the middle of the process's world, which would not put the process's variables back in place.
        if current::context().is_ok_and(|context| context.spares.is_none()) {
            let text = "a simulated process of gridloom_main cannot have a GridRPC session yet; run the program by \
                        itself, with 'gridloom simulate -p PLATFORM -- PROGRAM'";
            return Err(Failed::other(text));
        }
        let grid = config.open().map_err(|error| Failed::other(error.to_string()))?;
        Ok(Library {
            handles: Handles::default(),
            objects: Objects::default(),
            sessions: Sessions::new(config.save_session_info),
            staying: Staying::default(),
            heuristic: config.heuristic(),
            is_debugged: config.is_debugged(),
            remotes: Remotes::default(),
            limit: config.session_limit(),
            server_names: config.server_names(),
            pid: std::process::id(),
            is_own_grid: config.is_own_grid(),
            grid,
        })
    }

    fn is_own(&self) -> bool {
        self.pid == std::process::id()
    }
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_initialize(config_file_name: *const c_char) -> c_int {
    run(|| {
        let mut library = LIBRARY.write().unwrap_or_else(PoisonError::into_inner);
        match library.take() {
            Some(own) if own.is_own() => {
                *library = Some(own);
                let text = "there is a session already; grpc_finalize ends it";
                return Err(Failed::new(GRPC_ALREADY_INITIALIZED, text));
            }
            // The parent's: nothing of it can be used or ended here.
            Some(other) => std::mem::forget(other),
            None => {}
        }
        let named = match config_file_name.is_null() {
            true => None,
            // SAFETY: a text, as the header asks.
            false => Some(unsafe { memory::text(config_file_name, "the name of the configuration") }?),
        };
        let config = Config::read(named.filter(|name| !name.is_empty()))?;
        *library = Some(Arc::new(Library::open(&config)?));
        Ok(())
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_finalize() -> c_int {
    run(|| {
        let own = library()?;
        if map::is_open() {
            let text = "grpc_finalize stands within grpc_map; end the block first";
            return Err(Failed::other(text));
        }
        LIBRARY.write().unwrap_or_else(PoisonError::into_inner).take();
        own.sessions.cancel_all();
        own.staying.clear();
        own.grid.end_call_backs();
        Ok(())
    })
}
