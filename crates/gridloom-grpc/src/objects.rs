//! The objects of handles.
//!
//! **Invariant:** in the first run of a block no object is made and none ends: a handle then represents only its class.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gridloom::{Grid, Object, PendingCall};
use gridloom_base::NodeId;

use super::code::Outcome;
use super::handles::{BoundFunction, Handles, OBJECT};
use super::limits::Limits;

/// The object of a handle.
pub struct ObjectSlot {
    class: String,
    /// `None` in the first run of a block.
    object: Option<Object>,
    /// Methods that were called.
    methods: Mutex<BTreeMap<String, Arc<BoundFunction>>>,
}

/// A session's handles of objects.
pub(crate) type Objects = Handles<ObjectSlot, OBJECT>;

impl ObjectSlot {
    /// `object` is `None` for a handle that only represents its class.
    pub(crate) fn new(class: String, object: Option<Object>) -> ObjectSlot {
        ObjectSlot { class, object, methods: Mutex::default() }
    }

    /// Returns the function of a method, with its time limits.
    pub(crate) fn method(&self, grid: &Grid, name: &str, limits: Limits) -> Outcome<Arc<BoundFunction>> {
        let mut methods = self.methods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bound) = methods.get(name) {
            return Ok(bound.clone());
        }
        let function = match &self.object {
            Some(object) => object.method(name)?,
            None => grid.function(&format!("{}.{name}", self.class))?,
        };
        let bound = Arc::new(BoundFunction::new(function, None, limits)?);
        methods.insert(name.to_string(), bound.clone());
        Ok(bound)
    }

    pub fn class(&self) -> &str {
        &self.class
    }

    /// Returns the object's server; `None` if no object was made.
    pub fn server(&self) -> Option<NodeId> {
        self.object.as_ref().map(Object::server)
    }

    /// Ends the object; returns `None` if no object was made.
    pub(crate) fn end(&self, limit: Option<Duration>) -> Outcome<Option<PendingCall>> {
        Ok(self.object.as_ref().map(|object| object.end(limit)).transpose()?)
    }
}
