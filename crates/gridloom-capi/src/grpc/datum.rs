//! A datum of the program that may be anywhere: what it is now, and how calls read it.
//!
//! **Invariant:** calls under way have their own share of what they read, so that a value may be replaced or freed at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gridloom::{Arg, Handle, Submitted, Value};
use gridloom_core::base::{Meta, TaskId};
use gridloom_net::payload::Payload;

use super::code::{Failed, GRPC_INVALID_DATA_NP, Outcome};
use super::deliver::arranged;
use super::description::Description;
use super::placing::Copies;

/// A datum of the program that may be anywhere.
pub(super) struct Remote {
    /// Given once.
    number: u64,
    /// Empty if it has none.
    name: String,
    /// Of one that is managed (`data`).
    description: Option<Description>,
    content: Mutex<Content>,
    /// Where its value was put besides (`placing`).
    pub(super) copies: Mutex<Copies>,
}

/// What it is now.
#[derive(Clone)]
pub(super) enum Content {
    Nothing,
    /// Bytes of the program, of which each call that reads them has its own view.
    Put(Payload),
    /// A result of that call, or what the program put and has gone to a server.
    Made {
        result: Handle,
        /// As the program would have it in memory.
        meta: Meta,
        call: Option<Submitted>,
    },
}

impl Remote {
    pub(super) fn new(name: &str, description: Option<Description>) -> Remote {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (content, copies) = (Mutex::new(Content::Nothing), Mutex::default());
        Remote { number, name: name.to_string(), description, content, copies }
    }

    /// One that is managed.
    pub(super) fn managed(description: Description) -> Arc<Remote> {
        Arc::new(Remote::new("", Some(description)))
    }

    /// Empty if it has none.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn description(&self) -> Option<&Description> {
        self.description.as_ref()
    }

    /// The description of one that is managed.
    pub(super) fn described(&self) -> Outcome<&Description> {
        let none = || Failed::new(GRPC_INVALID_DATA_NP, format!("{self} was not made by grpc_data_init"));
        self.description().ok_or_else(none)
    }

    /// The call that makes its value.
    pub(super) fn task(&self) -> Option<TaskId> {
        match self.content() {
            Content::Nothing | Content::Put(_) => None,
            Content::Made { call, .. } => call.map(|call| call.task()),
        }
    }

    /// How its value is, and where.
    pub(super) fn status(&self) -> (String, Vec<String>) {
        let (status, made_at) = match self.content() {
            Content::Nothing => ("undefined".into(), None),
            Content::Put(_) | Content::Made { call: None, .. } => ("ready".into(), Some("client".to_string())),
            Content::Made { call: Some(call), .. } => match call.end() {
                None => ("under way".into(), None),
                Some(end) => match end.error {
                    Some(error) => (format!("lost: {error}"), None),
                    None => ("ready".into(), end.server),
                },
            },
        };
        (status, self.copies().beside(made_at))
    }

    pub(super) fn clear(&self) {
        self.set(Content::Nothing);
    }

    /// Whether its value is to come here as soon as it is there.
    pub(super) fn is_put_here(&self) -> bool {
        let outputs = self.description.iter().flat_map(|description| &description.outputs);
        outputs.into_iter().any(|(uri, _)| uri.is_here())
    }

    pub(super) fn content(&self) -> Content {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, content: Content) {
        *self.copies() = Copies::default();
        let old = std::mem::replace(&mut *self.content.lock().unwrap_or_else(PoisonError::into_inner), content);
        // Outside of the lock.
        drop(old);
    }

    /// From now on it names that result.
    pub(super) fn names(&self, result: &Handle, meta: &Meta, call: &Submitted) {
        self.set(Content::Made { result: result.clone(), meta: meta.clone(), call: Some(call.clone()) });
    }

    pub(super) fn put(&self, payload: Payload) {
        self.set(Content::Put(payload));
    }

    pub(super) fn size_bytes(&self) -> u64 {
        match self.content() {
            Content::Nothing => 0,
            Content::Put(payload) => payload.size_bytes(),
            Content::Made { result, .. } => result.meta().size_bytes(),
        }
    }

    /// As an argument of that description.
    pub(super) fn read(&self, function: &str, argument: &str, meta: &Meta) -> Outcome<Arg> {
        let (got, needed) = (self.size_bytes(), meta.size_bytes());
        let content = self.content();
        if !matches!(content, Content::Nothing) && got != needed {
            let text = format!("{function}: argument '{argument}' is {meta}, {needed} bytes; {self} has {got}");
            return Err(Failed::other(text));
        }
        match content {
            Content::Nothing => Err(self.without_value()),
            Content::Put(payload) => Ok(Value::new(meta.clone(), payload)?.into()),
            Content::Made { result, meta: made, .. } => match read_as(&result, &made, meta) {
                Some(result) => Ok(Arg::Handle(result)),
                // It is read as something else than it was made: as the program's memory would be.
                None => {
                    let value = result.get().map_err(|error| Failed::without_value(error, self))?;
                    let Some(payload) = value.payload() else { return Ok(Value::placeholder(meta.clone()).into()) };
                    let bytes = arranged(value.meta(), payload, &made);
                    Ok(Value::new(meta.clone(), Payload::copied(&bytes))?.into())
                }
            },
        }
    }

    /// Its bytes as the program sees them, once they are there; `None` in a simulation without content.
    pub(super) fn bytes(&self) -> Outcome<Option<Vec<u8>>> {
        match self.content() {
            Content::Nothing => Err(self.without_value()),
            Content::Put(payload) => Ok(Some(payload.bytes().to_vec())),
            Content::Made { result, meta, .. } => {
                let value = result.get().map_err(|error| Failed::without_value(error, self))?;
                let arranged = |payload| arranged(value.meta(), payload, &meta).into_owned();
                Ok(value.payload().map(arranged))
            }
        }
    }

    pub(super) fn wait(&self) -> Outcome<()> {
        match self.content() {
            Content::Nothing => Err(self.without_value()),
            Content::Put(_) | Content::Made { call: None, .. } => Ok(()),
            Content::Made { call: Some(call), .. } => call.wait().map_err(|error| Failed::without_value(error, self)),
        }
    }

    pub(super) fn without_value(&self) -> Failed {
        let text = format!("{self} has no value yet: put one, or give it to a call as an output");
        Failed::new(GRPC_INVALID_DATA_NP, text)
    }
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "the remote datum"),
            name => write!(f, "the remote datum '{name}'"),
        }
    }
}

/// The result for a call that reads it as that, if it gets what the program would pass; `made` is how the program would have
/// the result in memory.
pub(super) fn read_as(result: &Handle, made: &Meta, wanted: &Meta) -> Option<Handle> {
    is_as_made(result.meta(), made, wanted).then(|| result.read_as(wanted)).flatten()
}

/// Whether memory has a result, which is `made` there and `lies` where it is, as who wants that would find it.
pub(super) fn is_as_made(lies: &Meta, made: &Meta, wanted: &Meta) -> bool {
    let order_and_shape = |meta: &Meta| match meta {
        Meta::Array { order, shape, .. } if shape.iter().filter(|extent| **extent > 1).count() > 1 => {
            (Some(*order), shape.clone())
        }
        Meta::Array { shape, .. } => (None, shape.clone()),
        _ => (None, Vec::new()),
    };
    let ((order, shape), (wanted_order, wanted_shape)) = (order_and_shape(made), order_and_shape(wanted));
    let (lies, _) = order_and_shape(lies);
    if shape == wanted_shape { order == wanted_order } else { order == lies }
}
