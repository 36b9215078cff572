//! Objects of classes: state on a server, and methods that share it.
//!
//! Each object is a process of its own on one server. Its methods run one at a time, in the order of the calls, and at most once.
//! If the process or the server is lost, so is the object, and further calls fail ([`TaskError::ObjectMissing`],
//! [`TaskError::ServerLost`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gridloom_base::near::did_you_mean;
use gridloom_base::near::near_names;
use gridloom_base::{NodeId, ObjectId, TaskError};
use gridloom_idl::method::{FINALIZE, INITIALIZE, is_automatic};
use gridloom_idl::{Signature, class_of};
use gridloom_perf::ServerView;

use crate::Error;
use crate::call::{Function, ObjectLocation, PendingCall};
use crate::session::Session;

/// An object. It lives until [`Object::end`] or until the session ends.
#[derive(Clone)]
pub struct Object {
    session: Session,
    class: Arc<str>,
    /// Signatures of its methods. They stay known while the object lives, even if the agent is lost.
    signatures: Arc<[Arc<Signature>]>,
    location: ObjectLocation,
    is_ended: Arc<AtomicBool>,
}

impl Object {
    /// Creates an object of the class (`module/class`, or `class` if no other module has it) on the chosen server.
    /// Without a choice it takes the server that has the fewest objects of this session relative to its slots and
    /// speed. Waits until `_initialize` has run, for which `limit` is the time limit.
    ///
    /// # Errors
    /// [`Error::UnknownClass`] if no server offers the class, or the chosen one does not; otherwise the error of `_initialize`.
    pub(crate) fn create(
        session: &Session,
        class: &str,
        chosen: Option<NodeId>,
        limit: Option<Duration>,
    ) -> Result<Object, Error> {
        let class = class_named(session, class)?;
        let initialize = Function::named(session, &format!("{class}.{INITIALIZE}"))?;
        let all = session.functions();
        let is_of_class = |name: &str| class_of(name).is_some_and(|(of, _)| of == class);
        let own = all.iter().filter(|signature| is_of_class(&signature.name));
        let signatures: Arc<[Arc<Signature>]> = own.cloned().map(Arc::new).collect();
        let mut refused = Vec::new();
        loop {
            let server = match chosen {
                Some(server) => server,
                None => server_for_object(session, initialize.name(), &refused)?,
            };
            // Each attempt needs a new id: a lost server may already have created the object.
            let object = ObjectId { client: session.client(), serial: session.next_serial() };
            let location = ObjectLocation { object, server };
            session.objects().add(server);
            match initialize.clone().method_of(location).submit((), &[], limit).and_then(PendingCall::wait) {
                Ok(_) => {
                    return Ok(Object {
                        session: session.clone(),
                        class: class.into(),
                        signatures,
                        location,
                        is_ended: Arc::default(),
                    });
                }
                // Another server may have room, or may still be reachable.
                Err(Error::Task(TaskError::Refused { .. } | TaskError::ServerLost { .. }))
                    if chosen.is_none() && refused.len() < SERVERS_TRIED_MAX && !refused.contains(&server) =>
                {
                    session.objects().remove(server);
                    refused.push(server);
                }
                Err(error) => {
                    session.objects().remove(server);
                    return Err(error);
                }
            }
        }
    }

    /// The full name of its class: `module/class`.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// The server that it runs on.
    pub fn server(&self) -> NodeId {
        self.location.server
    }

    /// Returns one of its methods, which is called like a function. Calls run on this object, each after the previous ones.
    ///
    /// # Errors
    /// If the class has no method of that name, or the method cannot be called directly (`_initialize` and `_finalize`).
    pub fn method(&self, name: &str) -> Result<Function, Error> {
        let full = format!("{}.{name}", self.class);
        if is_automatic(name) {
            return Err(Error::Usage(format!("{full} cannot be called: it runs when an object is made, or ends")));
        }
        let found = self.signatures.iter().find(|signature| signature.name == full).cloned();
        let signature = found.ok_or_else(|| {
            let methods = self.signatures.iter().filter_map(|signature| class_of(&signature.name));
            let methods: Vec<&str> = methods.map(|(_, method)| method).filter(|method| !is_automatic(method)).collect();
            let near = format!("; methods of class '{}' are {}", self.class, methods.join(", "));
            Error::UnknownFunction { name: full, near }
        })?;
        Ok(self.bound_method(signature))
    }

    fn bound_method(&self, signature: Arc<Signature>) -> Function {
        Function::new(&self.session, signature).method_of(self.location)
    }

    /// Ends the object after the calls already made: runs its `_finalize`, with `limit` as the total time limit. Does not wait.
    ///
    /// # Errors
    /// If its class has no `_finalize`, which would be a fault of the server.
    pub fn end(&self, limit: Option<Duration>) -> Result<PendingCall, Error> {
        let is_last = |name: &str| class_of(name).is_some_and(|(_, method)| method == FINALIZE);
        let finalize = self.signatures.iter().find(|signature| is_last(&signature.name)).cloned();
        let finalize = finalize.ok_or_else(|| Error::Usage(format!("class '{}' has no {FINALIZE}", self.class)))?;
        if !self.is_ended.swap(true, Ordering::Relaxed) {
            self.session.objects().remove(self.location.server);
        }
        self.bound_method(finalize).submit((), &[], limit)
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Object({} on {})", self.class, self.location.server)
    }
}

/// Returns the full name of a class that servers offer.
///
/// # Errors
/// [`Error::UnknownClass`] if no server offers it; the message lists similar names.
pub(crate) fn class_named(session: &Session, name: &str) -> Result<String, Error> {
    let functions = session.functions();
    let mut classes: Vec<&str> = functions
        .iter()
        .filter_map(|signature| class_of(&signature.name))
        .filter(|(_, method)| *method == INITIALIZE)
        .map(|(class, _)| class)
        .collect();
    classes.dedup();
    let mut short = classes.iter().filter(|class| class.rsplit('/').next() == Some(name));
    let found = classes.iter().find(|class| **class == name);
    let found = found.or_else(|| short.next().filter(|_| short.next().is_none()));
    found.map(|class| class.to_string()).ok_or_else(|| {
        let near = near_names(name, classes.iter().copied());
        let lost = session.state().directory.lost_servers().map(|lost| format!("; {lost}"));
        Error::UnknownClass { name: name.to_string(), near: lost.unwrap_or_else(|| did_you_mean(&near)) }
    })
}

/// Returns the server with the fewest objects for its capacity among those that offer the method.
fn server_for_object(session: &Session, initialize: &str, without: &[NodeId]) -> Result<NodeId, Error> {
    let view = session.servers();
    // Servers that have not measured their speed count with the mean speed of the others.
    let known: Vec<f64> = view.servers.iter().filter_map(|server| server.speed_flops).collect();
    let mean = known.iter().sum::<f64>().max(1.0) / known.len().max(1) as f64;
    let load = |server: &ServerView| {
        let speed = f64::from(server.slots) * server.speed_flops.unwrap_or(mean);
        f64::from(session.objects().on(server.node) + 1) / speed
    };
    let keeps = |server: &&ServerView| !server.stateless;
    let offering = view.servers.iter().filter(|server| server.functions.contains_key(initialize)).filter(keeps);
    let free = offering.filter(|server| !without.contains(&server.node));
    let least = free.min_by(|a, b| load(a).total_cmp(&load(b)));
    least.map(|server| server.node).ok_or_else(|| {
        let function = initialize.to_string();
        Error::Task(TaskError::NoSuchFunction { function, near: NO_ROOM.into() })
    })
}

/// Appended to the error if no server can take the object.
const NO_ROOM: &str = "; no server has room for one more object (stateless servers, --plain, keep none)";
/// Maximum number of servers tried for an object.
const SERVERS_TRIED_MAX: usize = 16;
