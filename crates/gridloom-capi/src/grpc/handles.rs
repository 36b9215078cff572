//! Handles of functions: the program's memory has a number, the table here what it stands for.
//!
//! **Invariant:** a number is given once in a process's life, so that a handle that has ended, or is of an earlier
//! session, is none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use gridloom::{Error, Function};
use gridloom_idl::class_of;
use gridloom_perf::ServerView;

use super::client::Client;
use super::code::{Failed, GRPC_FUNCTION_NOT_FOUND, GRPC_INVALID_FUNCTION_HANDLE, Outcome};
use super::slots::ReadingPlan;

/// The mark of a handle's memory. Zeros and filled memory have none.
const MARK: u64 = 0x4772_6964_4c6f_6f6d;

/// `grpc_function_handle_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CFunctionHandle {
    mark: u64,
    number: u64,
}

/// What a handle stands for.
pub(super) struct Bound {
    /// Bound to its server, if it has one.
    pub(super) function: Function,
    pub(super) plan: ReadingPlan,
    /// Name of the server that runs all its calls, if one does.
    pub(super) server: Option<String>,
    limit: Mutex<Option<Duration>>,
}

impl Bound {
    /// The time that a call may take.
    pub(super) fn limit(&self) -> Option<Duration> {
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_limit(&self, limit: Option<Duration>) {
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner) = limit;
    }
}

/// The number of the next handle.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The number of a new handle, of a function or an object.
pub(super) fn next_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// All handles of a session, by number.
#[derive(Default)]
pub(super) struct Handles(RwLock<HashMap<u64, Arc<Bound>>>);

impl Handles {
    pub(super) fn add(&self, bound: Bound) -> CFunctionHandle {
        let number = next_number();
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(bound));
        CFunctionHandle { mark: MARK, number }
    }

    /// What that handle stands for.
    pub(super) fn find(&self, handle: &CFunctionHandle) -> Outcome<Arc<Bound>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(&handle.number).filter(|_| handle.mark == MARK).cloned();
        found.ok_or_else(|| handle.invalid())
    }

    /// The number that the next one gets.
    pub(super) fn next() -> u64 {
        NEXT.load(Ordering::Relaxed)
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(&number)
    }

    pub(super) fn remove(&self, handle: &CFunctionHandle) -> Outcome<()> {
        self.find(handle)?;
        let removed = self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.number);
        removed.map(drop).ok_or_else(|| handle.invalid())
    }
}

impl CFunctionHandle {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    fn invalid(&self) -> Failed {
        let why = match self.mark == MARK {
            true => "it has ended, or is of an earlier session; make it anew",
            false => "nothing made it; call grpc_function_handle_default or _init first",
        };
        Failed::new(GRPC_INVALID_FUNCTION_HANDLE, format!("this is no handle of a function: {why}"))
    }
}

impl Client {
    /// What such a handle stands for.
    pub(super) fn bind(&self, server: Option<&str>, function: &str) -> Outcome<Bound> {
        let view = self.some_servers()?;
        let candidates = server.map(|name| self.servers_named(name, &view.servers)).transpose()?;
        let mut function = self.grid.function(function).map_err(|error| self.not_offered(error))?;
        if let Some((class, _)) = class_of(function.name()) {
            let text = format!("{} is a method: make an object of class '{class}', and call it there", function.name());
            return Err(Failed::new(GRPC_FUNCTION_NOT_FOUND, text));
        }
        let server = match candidates {
            None => None,
            Some(candidates) => {
                let offers = |server: &&&ServerView| server.functions.contains_key(function.name());
                let found = candidates.iter().find(offers).ok_or_else(|| {
                    let text = format!("server '{}' does not offer function '{}'", candidates[0].name, function.name());
                    Failed::new(GRPC_FUNCTION_NOT_FOUND, format!("{text}; 'gridloom functions' lists what is offered"))
                });
                let found = found?;
                function = function.bound_to(found.node);
                Some(found.name.clone())
            }
        };
        self.bound_to(function, server)
    }

    /// What a handle of that function stands for.
    pub(super) fn bound_to(&self, function: Function, server: Option<String>) -> Outcome<Bound> {
        let plan = ReadingPlan::new(function.signature())?;
        Ok(Bound { function, plan, server, limit: Mutex::new(self.limit) })
    }

    /// The error for a function that no server offers. A grid of the program's own offers what its configuration says, which is
    /// easily forgotten.
    fn not_offered(&self, error: Error) -> Failed {
        let mut failed = Failed::from(error);
        if self.is_own_grid && failed.code == GRPC_FUNCTION_NOT_FOUND {
            failed.text.push_str(
                "; this is a grid of the program's own: GRIDLOOM_AGENT or 'agent' in the configuration names another, and \
                 'functions' of [local] says what this one offers",
            );
        }
        failed
    }
}
