//! The one session of a program with a grid, from `grpc_initialize` to `grpc_finalize`: its client, and tables of what the
//! program has.

use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

use super::client::Client;
use super::code::{Failed, GRPC_ALREADY_INITIALIZED, GRPC_NOT_INITIALIZED, Outcome};
use super::config::Config;
use super::handles::Handles;
use super::objects::Objects;
use super::sessions::Sessions;
use crate::current;

static LIBRARY: RwLock<Option<Arc<Library>>> = RwLock::new(None);

/// What exists between `grpc_initialize` and `grpc_finalize`.
pub(super) struct Library {
    pub(super) handles: Handles,
    pub(super) objects: Objects,
    pub(super) sessions: Sessions,
    /// A child of this process has no session.
    pid: u32,
    pub(super) client: Arc<Client>,
}

impl Deref for Library {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// The session of this process.
pub(super) fn library() -> Outcome<Arc<Library>> {
    let library = LIBRARY.read().unwrap_or_else(PoisonError::into_inner);
    match library.as_ref().filter(|library| library.is_own()) {
        Some(library) => Ok(library.clone()),
        None => Err(Failed::new(GRPC_NOT_INITIALIZED, "there is no session; call grpc_initialize first")),
    }
}

/// Begins the session of this process, with the configuration that `read` gives.
pub(super) fn begin_library(read: impl FnOnce() -> Outcome<Config>) -> Outcome<()> {
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
    *library = Some(Arc::new(Library::open(&read()?)?));
    Ok(())
}

/// Ends the session of this process. What has begun is cancelled.
pub(super) fn end_library(own: &Library) {
    LIBRARY.write().unwrap_or_else(PoisonError::into_inner).take();
    own.sessions.cancel_all();
    own.staying.clear();
    own.grid.end_call_backs();
}

impl Library {
    fn open(config: &Config) -> Outcome<Library> {
        // The session would wait in the middle of the process's world, which would not put the process's variables back.
        if current::context().is_ok_and(|context| context.spares.is_none()) {
            let text = "a simulated process of gridloom_main cannot have a GridRPC session yet; run the program by \
                        itself, with 'gridloom simulate -p PLATFORM -- PROGRAM'";
            return Err(Failed::other(text));
        }
        Ok(Library {
            client: Arc::new(Client::open(config)?),
            handles: Handles::default(),
            objects: Objects::default(),
            sessions: Sessions::new(config.save_session_info),
            pid: std::process::id(),
        })
    }

    fn is_own(&self) -> bool {
        self.pid == std::process::id()
    }
}
