//! Handles of objects: the program's memory has a number, the table here the object that it stands for.
//!
//! **Invariants.** Numbers are those of function handles, so that a block knows which of both are of before it. In the first
//! run of a block no object is made and none ends: a handle then stands for its class only.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gridloom::{Object, Pending};
use gridloom_base::NodeId;
use gridloom_idl::method::INITIALIZE;
use gridloom_perf::ServerView;

use super::client::Client;
use super::code::{Failed, GRPC_CLASS_NOT_FOUND_NP, GRPC_INVALID_OBJECT_HANDLE_NP, Outcome};
use super::handles::{Bound, next_number};

/// The mark of the memory of an object's handle. Zeros and filled memory have none.
const MARK: u64 = 0x4772_6964_4f62_6a65;

/// `grpc_object_handle_t_np`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CObjectHandle {
    mark: u64,
    number: u64,
}

/// What a handle stands for.
pub(super) struct Held {
    class: String,
    /// `None` in the first run of a block.
    object: Option<Object>,
    /// Methods that were called.
    methods: Mutex<BTreeMap<String, Arc<Bound>>>,
}

/// All objects of a session, by number.
#[derive(Default)]
pub(super) struct Objects(RwLock<HashMap<u64, Arc<Held>>>);

impl Objects {
    pub(super) fn add(&self, held: Held) -> CObjectHandle {
        let number = next_number();
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(held));
        CObjectHandle { mark: MARK, number }
    }

    pub(super) fn find(&self, handle: &CObjectHandle) -> Outcome<Arc<Held>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(&handle.number).filter(|_| handle.mark == MARK).cloned();
        found.ok_or_else(|| handle.invalid())
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(&number)
    }

    pub(super) fn take(&self, handle: &CObjectHandle) -> Outcome<Arc<Held>> {
        self.find(handle)?;
        let taken = self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.number);
        taken.ok_or_else(|| handle.invalid())
    }
}

impl CObjectHandle {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    fn invalid(&self) -> Failed {
        let why = match self.mark == MARK {
            true => "it has ended, or is of an earlier session; make it anew",
            false => "nothing made it; call grpc_object_handle_default_np or _init_np first",
        };
        Failed::new(GRPC_INVALID_OBJECT_HANDLE_NP, format!("this is no handle of an object: {why}"))
    }
}

impl Held {
    /// What a call of that method needs.
    pub(super) fn method(&self, client: &Client, name: &str) -> Outcome<Arc<Bound>> {
        let mut methods = self.methods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bound) = methods.get(name) {
            return Ok(bound.clone());
        }
        let bound = match &self.object {
            Some(object) => client.bound_to(object.method(name)?, None)?,
            None => client.bound_to(client.grid.function(&format!("{}.{name}", self.class))?, None)?,
        };
        let bound = Arc::new(bound);
        methods.insert(name.to_string(), bound.clone());
        Ok(bound)
    }
}

impl Client {
    /// Makes an object, on that server if one is named; without `is_made`, what stands for one of its class only.
    pub(super) fn make_object(&self, server: Option<&str>, class: &str, is_made: bool) -> Outcome<Held> {
        let view = self.some_servers()?;
        let candidates = server.map(|name| self.servers_named(name, &view.servers)).transpose()?;
        let class = self.grid.class(class)?;
        let server = candidates.map(|candidates| offering(&candidates, &class)).transpose()?;
        let object = is_made.then(|| self.grid.object(&class, server, self.limit)).transpose()?;
        Ok(Held { class, object, methods: Mutex::default() })
    }
}

impl Held {
    /// Ends the object; `None` if none was made.
    pub(super) fn end(&self, client: &Client) -> Outcome<Option<Pending>> {
        Ok(self.object.as_ref().map(|object| object.end(client.limit)).transpose()?)
    }
}

/// The first of these servers that offers the class.
fn offering(candidates: &[&ServerView], class: &str) -> Outcome<NodeId> {
    let initialize = format!("{class}.{INITIALIZE}");
    let found = candidates.iter().find(|server| server.functions.contains_key(&initialize));
    found.map(|server| server.node).ok_or_else(|| {
        let text = format!("server '{}' does not offer class '{class}'", candidates[0].name);
        Failed::new(GRPC_CLASS_NOT_FOUND_NP, format!("{text}; 'gridloom functions' lists what is offered"))
    })
}
