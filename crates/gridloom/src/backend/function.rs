//! A client for a function of a simulated grid. The function runs in a real worker; its client is a node of the simulation
//! ([`SessionRequest`]).

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gridloom_base::{DatumId, NodeId, Time};
use gridloom_core::node::{Command, Event, SessionAction, SessionRequest, SessionResult};
use gridloom_net::payload::Payload;
use gridloom_net::segment::{Pool, SegmentMut};
use gridloom_net::transfers::TransferProgress;
use gridloom_net::worker::nested;

use super::{Backend, SimBackend, timed_out};
use crate::{Error, Value};

/// A client in the simulation whose function runs in this process.
///
/// Virtual time does not pass while the function computes, only while one of its threads waits.
pub(crate) struct FunctionBackend {
    client: NodeId,
    /// The server that ran the function when the session was opened.
    server: NodeId,
    now: AtomicU64,
    events: Mutex<VecDeque<Event>>,
    /// Values to remove with the next request.
    removed: Mutex<Vec<DatumId>>,
    is_closed: AtomicBool,
}

impl FunctionBackend {
    /// Opens a client for the function that runs here; `None` if the function does not run in a simulated grid.
    pub(crate) fn of_function() -> Option<Result<FunctionBackend, Error>> {
        let server = nested::simulated_at()?;
        let request = SessionRequest { client: None, removed: Vec::new(), action: SessionAction::Open };
        let opened = nested::request(request, &[]).map_err(|error| Error::Connect(error.to_string()));
        Some(opened.and_then(|(answer, _)| match answer.result {
            SessionResult::Opened { client } => Ok(FunctionBackend {
                client,
                server,
                now: AtomicU64::new(answer.now.0),
                events: Mutex::default(),
                removed: Mutex::default(),
                is_closed: AtomicBool::new(false),
            }),
            other => Err(Error::Connect(format!("unexpected answer from the simulation: {other:?}"))),
        }))
    }

    fn request(&self, action: SessionAction, bytes: &[u8]) -> Result<(SessionResult, Payload), Error> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::Connect("the session is closed".into()));
        }
        let removed = std::mem::take(&mut *locked(&self.removed));
        let request = SessionRequest { client: Some(self.client), removed, action };
        let (answer, bytes) = nested::request(request, bytes).map_err(|error| Error::Connect(error.to_string()))?;
        // The answer to a call that has ended has no time.
        self.now.fetch_max(answer.now.0, Ordering::Relaxed);
        match answer.result {
            SessionResult::Ended { why } => {
                Err(Error::Connect(format!("the function's simulated client is gone: {why}")))
            }
            result => Ok((result, bytes)),
        }
    }

    /// Makes a request whose failure the next wait reports.
    fn notify(&self, action: SessionAction, bytes: &[u8]) {
        let _ = self.request(action, bytes);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backend for FunctionBackend {
    fn client(&self) -> NodeId {
        self.client
    }

    fn caller(&self) -> Option<Box<str>> {
        nested::user()
    }

    fn own_server(&self) -> Option<NodeId> {
        Some(self.server)
    }

    fn now(&self) -> Time {
        Time(self.now.load(Ordering::Relaxed))
    }

    fn has_content(&self) -> bool {
        true
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn advance(&self, _ns: u64, _accessed_bytes: u64) {}

    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    fn client_flops(&self) -> Option<f64> {
        None
    }

    fn allocate(&self, size_bytes: u64) -> io::Result<SegmentMut> {
        Pool::new(0).allocate(size_bytes)
    }

    fn put(&self, datum: DatumId, value: &Value) {
        let meta = value.meta.clone();
        let zeros = || Payload::Inline(vec![0; meta.size_bytes() as usize].into());
        let payload = value.payload.clone().unwrap_or_else(zeros);
        self.notify(SessionAction::Put { datum, meta }, payload.bytes());
    }

    fn value(&self, datum: DatumId) -> Option<Value> {
        match self.request(SessionAction::Value { datum }, &[]) {
            Ok((SessionResult::Value(Some(meta)), bytes)) => Some(Value::from_checked(meta, bytes)),
            _ => None,
        }
    }

    fn transfers(&self) -> Vec<TransferProgress> {
        Vec::new()
    }

    fn remove(&self, datum: DatumId) {
        locked(&self.removed).push(datum);
    }

    fn commands(&self, commands: Vec<Command>) {
        if !commands.is_empty() {
            self.notify(SessionAction::Commands(commands), &[]);
        }
    }

    fn wait_until(
        &self,
        limit: Option<Duration>,
        take: &mut dyn FnMut(&mut VecDeque<Event>) -> bool,
    ) -> Result<(), Error> {
        let until = limit.map(|limit| self.now() + u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX / 4));
        loop {
            let mut events = locked(&self.events);
            if take(&mut events) {
                return Ok(());
            }
            let limit_ns = until.map(|until| until.since(self.now()));
            match self.request(SessionAction::Wait { limit_ns }, &[])?.0 {
                SessionResult::Events(new) if new.is_empty() => return Err(timed_out(limit)),
                SessionResult::Events(new) => events.extend(new),
                other => return Err(Error::Connect(format!("unexpected answer from the simulation: {other:?}"))),
            }
        }
    }

    /// Does nothing: a waiting thread checks again after each event.
    fn wake(&self) {}

    fn close(&self) {
        self.notify(SessionAction::Close, &[]);
        self.is_closed.store(true, Ordering::Relaxed);
    }

    fn simulated(&self) -> Option<&SimBackend> {
        None
    }
}
