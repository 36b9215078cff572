//! Handles of objects: the program's memory has a number, the table here the object that it stands for.
//!
//! **Invariants.** Numbers are those of function handles, so that a block knows which of both are of before it. In the first
//! run of a block no object is made and none ends: a handle then stands for its class only.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use gridloom::{Grid, Object, Pending};

use super::code::{Failed, GRPC_INVALID_OBJECT_HANDLE_NP, Outcome};
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
    /// `object` is `None` for what only stands for one of its class.
    pub(super) fn new(class: String, object: Option<Object>) -> Held {
        Held { class, object, methods: Mutex::default() }
    }

    /// What a call of that method needs.
    pub(super) fn method(&self, grid: &Grid, name: &str, limit: Option<Duration>) -> Outcome<Arc<Bound>> {
        let mut methods = self.methods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bound) = methods.get(name) {
            return Ok(bound.clone());
        }
        let function = match &self.object {
            Some(object) => object.method(name)?,
            None => grid.function(&format!("{}.{name}", self.class))?,
        };
        let bound = Arc::new(Bound::new(function, None, limit)?);
        methods.insert(name.to_string(), bound.clone());
        Ok(bound)
    }

    /// Ends the object; `None` if none was made.
    pub(super) fn end(&self, limit: Option<Duration>) -> Outcome<Option<Pending>> {
        Ok(self.object.as_ref().map(|object| object.end(limit)).transpose()?)
    }
}
