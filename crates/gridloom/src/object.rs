//! Objects of classes: state on a server, and methods that share it.
//!
//! Each is a process of its own on one server. Its methods run one at a time, in the order of the calls, and at most once. With
//! its process or its server it is lost, and further calls fail ([`TaskError::ObjectLost`], [`TaskError::ServerLost`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use gridloom_base::near::did_you_mean;
use gridloom_base::near::near_names;
use gridloom_base::{NodeId, ObjectId, TaskError};
use gridloom_idl::method::{FINALIZE, INITIALIZE, runs_by_itself};
use gridloom_idl::{Signature, class_of};
use gridloom_perf::ServerView;

use crate::{Error, Function, Grid, Pending, TransferLimits};

/// An object and the server that its methods run on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectLocation {
    pub(crate) object: ObjectId,
    pub(crate) server: NodeId,
}

/// How many objects of a session live on each server.
#[derive(Debug, Default)]
pub(crate) struct ObjectCounts(Mutex<BTreeMap<NodeId, u32>>);

impl ObjectCounts {
    fn add(&self, server: NodeId) {
        *self.counts().entry(server).or_insert(0) += 1;
    }

    fn remove(&self, server: NodeId) {
        let mut counts = self.counts();
        let count = counts.get_mut(&server).expect("an object that ends was counted");
        *count -= 1;
    }

    fn on(&self, server: NodeId) -> u32 {
        self.counts().get(&server).copied().unwrap_or(0)
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<NodeId, u32>> {
        self.0.lock().expect("no panic while held")
    }
}

/// An object. It ends with [`Object::end`], or with the session.
#[derive(Clone)]
pub struct Object {
    grid: Grid,
    class: Arc<str>,
    /// Of its methods: they are known as long as it lives, whatever becomes of an agent.
    signatures: Arc<[Arc<Signature>]>,
    location: ObjectLocation,
    is_ended: Arc<AtomicBool>,
}

impl Grid {
    /// Makes an object of that class (`module/class`, or `class` if no other module has it), on that server, or else on the
    /// one that has the fewest of this session's objects for its slots and speed; waits until its `_initialize` has run, which it may
    /// for so long.
    ///
    /// # Errors
    /// [`Error::UnknownClass`] if no server offers it, or that one does not; what became of `_initialize`.
    pub fn object(&self, class: &str, chosen: Option<NodeId>, limit: Option<Duration>) -> Result<Object, Error> {
        let class = self.class(class)?;
        let initialize = self.function(&format!("{class}.{INITIALIZE}"))?;
        let all = self.functions();
        let is_of_class = |name: &str| class_of(name).is_some_and(|(of, _)| of == class);
        let own = all.iter().filter(|signature| is_of_class(&signature.name));
        let signatures: Arc<[Arc<Signature>]> = own.cloned().map(Arc::new).collect();
        let mut refused = Vec::new();
        loop {
            let server = match chosen {
                Some(server) => server,
                None => self.server_for_object(initialize.name(), &refused)?,
            };
            // One that was perhaps begun where it was lost is another.
            let object = ObjectId { client: self.client(), serial: self.next_serial() };
            let location = ObjectLocation { object, server };
            self.objects().add(server);
            match initialize.clone().at(location).submit(&[], &[], limit).and_then(Pending::wait) {
                Ok(_) => {
                    return Ok(Object {
                        grid: self.clone(),
                        class: class.into(),
                        signatures,
                        location,
                        is_ended: Arc::default(),
                    });
                }
                // Another may have room for it, or be there.
                Err(Error::Task(TaskError::Refused { .. } | TaskError::ServerLost { .. }))
                    if chosen.is_none() && refused.len() < SERVERS_TRIED_MAX && !refused.contains(&server) =>
                {
                    self.objects().remove(server);
                    refused.push(server);
                }
                Err(error) => {
                    self.objects().remove(server);
                    return Err(error);
                }
            }
        }
    }

    /// The full name of a class that servers offer.
    ///
    /// # Errors
    /// [`Error::UnknownClass`] if none does; the message lists names like it.
    pub fn class(&self, name: &str) -> Result<String, Error> {
        let functions = self.functions();
        let mut classes: Vec<&str> =
            functions.iter().filter_map(|signature| class_of(&signature.name)).map(|(class, _)| class).collect();
        classes.dedup();
        let mut short = classes.iter().filter(|class| class.rsplit('/').next() == Some(name));
        let found = classes.iter().find(|class| **class == name);
        let found = found.or_else(|| short.next().filter(|_| short.next().is_none()));
        found.map(|class| class.to_string()).ok_or_else(|| {
            let near = near_names(name, classes.iter().copied());
            let lost = self.lost_servers().map(|lost| format!("; {lost}"));
            Error::UnknownClass { name: name.to_string(), near: lost.unwrap_or_else(|| did_you_mean(&near)) }
        })
    }

    /// The server with the least load of objects that offers that method.
    fn server_for_object(&self, initialize: &str, without: &[NodeId]) -> Result<NodeId, Error> {
        let view = self.servers();
        // Servers that have not measured their speed count as the others do in the mean.
        let known: Vec<f64> = view.servers.iter().filter_map(|server| server.speed_flops).collect();
        let mean = known.iter().sum::<f64>().max(1.0) / known.len().max(1) as f64;
        let load = |server: &ServerView| {
            let speed = f64::from(server.slots) * server.speed_flops.unwrap_or(mean);
            f64::from(self.objects().on(server.node) + 1) / speed
        };
        let keeps = |server: &&ServerView| !server.plain;
        let offering = view.servers.iter().filter(|server| server.functions.contains_key(initialize)).filter(keeps);
        let free = offering.filter(|server| !without.contains(&server.node));
        let least = free.min_by(|a, b| load(a).total_cmp(&load(b)));
        least.map(|server| server.node).ok_or_else(|| {
            let function = initialize.to_string();
            Error::Task(TaskError::NoSuchFunction { function, near: NO_PLACE.into() })
        })
    }
}

impl Object {
    /// `module/class`.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// The server that it lives on.
    pub fn server(&self) -> NodeId {
        self.location.server
    }

    /// One of its methods, which is called as a function is. Its calls run here, each after those before it.
    ///
    /// # Errors
    /// If the class has none of that name, or it runs by itself.
    pub fn method(&self, name: &str) -> Result<Function, Error> {
        let full = format!("{}.{name}", self.class);
        if runs_by_itself(name) {
            return Err(Error::Usage(format!("{full} runs by itself: when an object is made, or ends")));
        }
        let found = self.signatures.iter().find(|signature| signature.name == full).cloned();
        let signature = found.ok_or_else(|| {
            let methods = self.signatures.iter().filter_map(|signature| class_of(&signature.name));
            let methods: Vec<&str> =
                methods.map(|(_, method)| method).filter(|method| !runs_by_itself(method)).collect();
            let near = format!("; methods of class '{}' are {}", self.class, methods.join(", "));
            Error::UnknownFunction { name: full, near }
        })?;
        Ok(self.own(signature))
    }

    fn own(&self, signature: Arc<Signature>) -> Function {
        Function {
            grid: self.grid.clone(),
            hash: signature.hash(),
            signature,
            only: None,
            object: Some(self.location),
            retry: None,
            repeats: None,
            unwanted_files: Vec::new(),
            transfers: TransferLimits::default(),
            label: None,
            ranks: 0,
        }
    }

    /// Ends it, after the calls that were made: runs its `_finalize`, for which it may take so long in all. Without waiting.
    ///
    /// # Errors
    /// If its class has no `_finalize`, which would be the server's error.
    pub fn end(&self, limit: Option<Duration>) -> Result<Pending, Error> {
        let is_last = |name: &str| class_of(name).is_some_and(|(_, method)| method == FINALIZE);
        let finalize = self.signatures.iter().find(|signature| is_last(&signature.name)).cloned();
        let finalize = finalize.ok_or_else(|| Error::Usage(format!("class '{}' has no {FINALIZE}", self.class)))?;
        if !self.is_ended.swap(true, Ordering::Relaxed) {
            self.grid.objects().remove(self.location.server);
        }
        self.own(finalize).submit(&[], &[], limit)
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Object({} on {})", self.class, self.location.server)
    }
}

/// Why an object has no place.
const NO_PLACE: &str = "; no server has room for one more object (plain servers, --plain, keep none)";
/// Servers that may refuse an object before it is given up.
const SERVERS_TRIED_MAX: usize = 16;
