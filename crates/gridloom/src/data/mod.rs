//! Data that a program names and manages, wherever they are stored: their state, and how calls read them.
//!
//! | file | content |
//! |---|---|
//! | here | a datum: its value, and how calls read it |
//! | `managed` | the program's description of a datum, and its state since then: transfers, files, items of a container |
//! | `places` | reading a datum from places and writing it to places, by its modes |
//! | `ties` | the server that has to run a call, because data with a single copy are stored there |
//! | `server_files` | files of servers, read and written there |
//! | `saved` | descriptions as text |
//! | `view` | results read with another description than they were made with |
//! | `new_file` | files of the client that are replaced atomically |
//!
//! Places, modes and descriptions themselves are defined in the core ([`gridloom_core::data`]), and make no decisions.
//!
//! **Invariant:** running calls share the data that they read, so a value can be replaced or freed at any time.

mod error;
mod managed;
mod new_file;
mod places;
mod saved;
mod server_files;
mod single_copy;
mod view;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_base::{ByteOrder, Meta, NodeId, Order, TaskId};
use gridloom_core::data::{CLIENT, PlacedCopies};
pub use gridloom_core::data::{DatumStatus, Description, InvalidData, Kind, Mode, Uri};
use gridloom_net::payload::Payload;

use crate::{Arg, Handle, Submitted, Value};
pub use error::DataError;
use managed::DescribedDatum;
pub use new_file::PendingFile;
pub use places::{DataPlaces, Memory, NoMemory, is_this_machine, servers_named};
pub use single_copy::{Argument, SingleCopyData};
pub use view::reads_same_elements;

/// A datum of the program, which may be stored anywhere.
pub struct Datum {
    /// Unique within the process's lifetime.
    number: u64,
    /// Empty if it has none.
    name: String,
    managed: Option<DescribedDatum>,
    content: Mutex<Content>,
    /// Copies on servers, besides the place where it was made.
    copies: Mutex<PlacedCopies>,
}

/// The current content of a datum.
#[derive(Clone)]
enum Content {
    Nothing,
    /// Bytes of the program; each call that reads them has its own view.
    Put(Payload),
    /// A result.
    Made {
        result: Handle,
        /// Its description in the program's memory.
        meta: Meta,
        /// `None` for shared data, and for bytes that the program put and that are on a server now.
        call: Option<Submitted>,
    },
}

impl Datum {
    /// Creates a datum of that name (empty: without a name); it has no value.
    pub fn new(name: &str) -> Datum {
        Datum::with(name, None)
    }

    /// Creates a datum with a description; it has no value until a call needs it.
    pub fn managed(description: Description) -> Arc<Datum> {
        Arc::new(Datum::with("", Some(DescribedDatum::new(description))))
    }

    fn with(name: &str, managed: Option<DescribedDatum>) -> Datum {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (content, copies) = (Mutex::new(Content::Nothing), Mutex::default());
        Datum { number, name: name.to_string(), managed, content, copies }
    }

    /// Its name; empty if it has none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A number that no other datum of this process has, or had.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The program's description of it, if there is one.
    pub fn description(&self) -> Option<&Description> {
        self.managed.as_ref().map(DescribedDatum::description)
    }

    fn as_managed(&self) -> Result<&DescribedDatum, DataError> {
        self.managed.as_ref().ok_or_else(|| DataError::Invalid(format!("{self} was not described")))
    }

    /// The call that makes its value.
    pub fn task(&self) -> Option<TaskId> {
        match self.content() {
            Content::Nothing | Content::Put(_) => None,
            Content::Made { call, .. } => call.map(|call| call.task()),
        }
    }

    /// Its status, and the names of the places where it is stored: servers, and `client`.
    pub fn status(&self) -> (DatumStatus, Vec<String>) {
        let (status, made_at) = match self.content() {
            Content::Nothing => (DatumStatus::Undefined, None),
            Content::Put(_) | Content::Made { call: None, .. } => (DatumStatus::Ready, Some(CLIENT.to_string())),
            Content::Made { call: Some(call), .. } => match call.end() {
                None => (DatumStatus::InProgress, None),
                Some(end) => match end.error {
                    Some(error) => (DatumStatus::Lost(error.to_string()), None),
                    None => (DatumStatus::Ready, end.server),
                },
            },
        };
        (status, self.copies().places(made_at))
    }

    /// Discards its value.
    pub fn clear(&self) {
        self.set(Content::Nothing);
    }

    /// True if its value is to be sent to the client as soon as it exists.
    pub fn is_put_here(&self) -> bool {
        let outputs = self.description().map_or(&[][..], Description::outputs);
        outputs.iter().any(|(uri, _)| uri.is_at_client())
    }

    fn content(&self) -> Content {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn copies(&self) -> MutexGuard<'_, PlacedCopies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, content: Content) {
        *self.copies() = PlacedCopies::default();
        let old = std::mem::replace(&mut *self.content.lock().unwrap_or_else(PoisonError::into_inner), content);
        // Dropped outside of the lock.
        drop(old);
    }

    /// Sets its value to that result of the call; `meta` describes it in the program's memory.
    pub fn set_result(&self, result: &Handle, meta: &Meta, call: &Submitted) {
        self.set(Content::Made { result: result.clone(), meta: meta.clone(), call: Some(call.clone()) });
    }

    /// Sets its value to shared data. Calls that read it get it from servers that have it.
    pub fn set_found(&self, found: &Handle) {
        let mut meta = found.meta().clone();
        // C's memory order and this machine's byte order.
        if let Meta::Array { order, byte_order, .. } = &mut meta {
            (*order, *byte_order) = (Order::C, ByteOrder::NATIVE);
        }
        self.set(Content::Made { result: found.clone(), meta, call: None });
    }

    /// Sets its value to these bytes. Calls that read it get views of them.
    pub fn put(&self, payload: Payload) {
        self.set(Content::Put(payload));
    }

    /// Size of its value in bytes; 0 without one.
    pub fn size_bytes(&self) -> u64 {
        match self.content() {
            Content::Nothing => 0,
            Content::Put(payload) => payload.size_bytes(),
            Content::Made { result, .. } => result.meta().size_bytes(),
        }
    }

    /// Returns its value as an argument of that description.
    ///
    /// # Errors
    /// If it has no value, or one of another size.
    pub fn read(&self, function: &str, argument: &str, meta: &Meta) -> Result<Arg, DataError> {
        let (got, needed) = (self.size_bytes(), meta.size_bytes());
        let content = self.content();
        if !matches!(content, Content::Nothing) && got != needed {
            let text = format!("{function}: argument '{argument}' is {meta}, {needed} bytes; {self} has {got}");
            return Err(crate::Error::Usage(text).into());
        }
        match content {
            Content::Nothing => Err(self.without_value()),
            Content::Put(payload) => Ok(Value::new(meta.clone(), payload)?.into()),
            Content::Made { result, meta: made, .. } => match result.read_for(&made, meta) {
                Some(result) => Ok(Arg::Handle(result)),
                // The call reads it with another description than it was made with: it gets the same as from the program's memory.
                None => {
                    let value = result.get().map_err(|error| DataError::no_value(error, self))?;
                    match value.bytes_as(&made) {
                        Some(bytes) => Ok(Value::new(meta.clone(), Payload::copied(&bytes))?.into()),
                        None => Ok(Value::placeholder(meta.clone()).into()),
                    }
                }
            },
        }
    }

    /// Returns its bytes as they would be in the program's memory, once they exist; `None` in a simulation without content.
    ///
    /// # Errors
    /// If it has no value, or its call failed.
    pub fn bytes(&self) -> Result<Option<Vec<u8>>, DataError> {
        match self.content() {
            Content::Nothing => Err(self.without_value()),
            Content::Put(payload) => Ok(Some(payload.bytes().to_vec())),
            Content::Made { result, meta, .. } => {
                let value = result.get().map_err(|error| DataError::no_value(error, self))?;
                Ok(value.bytes_as(&meta).map(|bytes| bytes.into_owned()))
            }
        }
    }

    /// Waits until it is made, wherever that is.
    ///
    /// # Errors
    /// If it has no value, or its call failed.
    pub fn wait(&self) -> Result<(), DataError> {
        match self.content() {
            Content::Nothing => Err(self.without_value()),
            Content::Put(_) | Content::Made { call: None, .. } => Ok(()),
            Content::Made { call: Some(call), .. } => call.wait().map_err(|error| DataError::no_value(error, self)),
        }
    }

    /// The server whose call makes it.
    fn made_at(&self) -> Result<Option<NodeId>, DataError> {
        match self.content() {
            Content::Made { call: Some(call), .. } => Ok(call.server()?),
            _ => Ok(None),
        }
    }

    fn without_value(&self) -> DataError {
        DataError::Invalid(format!("{self} has no value yet: put one, or give it to a call as an output"))
    }
}

impl std::fmt::Display for Datum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "the remote datum"),
            name => write!(f, "the remote datum '{name}'"),
        }
    }
}
