//! Large data being sent to one peer on one lane (see [`super::lanes`]): a queue, a thread that sends its items, and
//! the list of data in flight.
//!
//! Data that were sent and not acknowledged stay on the list, so that the end of a stream can be reported datum by
//! datum (see `transport`). Shared memory stays granted until the peer releases it. If the peer is lost first, the
//! memory is retired instead of reused, since the peer may still read it.
//!
//! **Guarantees:** the loop never waits here; dropping this ends the thread. Of the streams that the peer opens for
//! receiving, only the one that it was asked for is accepted, once.

use std::io;
use std::net::TcpStream;
use std::sync::mpsc::{self, Sender, SyncSender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;

use gridloom_base::DatumId;

use super::Cargo;
use super::emulated_sites::share_memory;
use super::notice::{Inbox, Link};
use super::paced::Pacer;
use super::sender::{Job, Source, Thread};
use super::shared::{LANES, Opened, Route, Shared};
use super::tls::TlsStream;
use crate::descriptors::grants_max;
use crate::filling::PartialFill;
use crate::payload::Payload;
use crate::store::Store;
use crate::threads::STACK_BYTES;

/// The lane through which large data are sent to one peer.
pub struct OutgoingLane {
    jobs: Sender<Job>,
    opened: SyncSender<Opened>,
    shared: Arc<Shared>,
}

impl OutgoingLane {
    /// Starts the thread of a lane; streams are opened when the first datum is sent.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(
        lane: u64,
        route: Route,
        link: Link,
        inbox: Arc<Inbox>,
        store: Arc<Store>,
    ) -> io::Result<OutgoingLane> {
        let grants_max = if lane == 0 { grants_max() } else { grants_max() / LANES as usize };
        let shared = Arc::new(Shared { link, inbox, grants_max, state: Mutex::default(), ended: Condvar::new() });
        let (jobs, queue) = mpsc::channel();
        // Holds the reply to one request: the next request is made only after it was taken out.
        let (opened, awaited) = mpsc::sync_channel(1);
        let sharing = share_memory(&route.own.host, &route.peer.host);
        let paced = route.emulated_link.as_ref().map(|way| Pacer::new(way.delays(lane as u32 + 1), shared.clone()));
        let (stream, streams, sent) = (None, lane, lane);
        let thread = Thread { route, shared: shared.clone(), store, awaited, sharing, paced, stream, streams, sent };
        let builder = thread::Builder::new().name(format!("to {}", link.peer)).stack_size(STACK_BYTES);
        shared.inbox.threads.spawn(builder, || thread.run(queue))?;
        Ok(OutgoingLane { jobs, opened, shared })
    }

    /// Sends a datum of which the peer already has `had_bytes`.
    pub fn send(&self, cargo: Cargo, payload: Payload, had_bytes: u64) {
        let size_bytes = payload.size_bytes();
        self.push(Job { cargo, size_bytes, had_bytes, source: Source::Whole(payload), given: Instant::now() });
    }

    /// Sends a datum while it is being received here.
    pub fn forward(&self, cargo: Cargo, coming: Arc<PartialFill>, had_bytes: u64) {
        let size_bytes = coming.size_bytes();
        self.push(Job { cargo, size_bytes, had_bytes, source: Source::Incoming(coming), given: Instant::now() });
    }

    pub fn probe(&self, size_bytes: u64) {
        self.push(Job { cargo: Cargo::Probe, size_bytes, had_bytes: 0, source: Source::Zeros, given: Instant::now() });
    }

    /// Reports whether the peer was asked to open this stream and has not done so yet.
    pub fn is_requested(&self, stream: u64) -> bool {
        self.shared.lock().requested == Some(stream)
    }

    /// Handles a stream that the peer opened for receiving: accepted if it was asked for, otherwise closed.
    pub fn opened(&self, stream: u64, socket: TlsStream<TcpStream>) {
        self.answer(stream, Ok(socket));
    }

    fn answer(&self, stream: u64, outcome: io::Result<TlsStream<TcpStream>>) {
        if self.shared.lock().requested.take_if(|asked| *asked == stream).is_some() {
            // If the thread has ended, the socket is closed.
            let _ = self.opened.try_send((stream, outcome));
        }
    }

    /// Handles the acknowledgement of everything up to this number of a stream.
    pub fn acknowledged(&self, stream: u64, serial: u64) {
        self.shared.lock().in_flight.retain(|(of, number, _)| *of != stream || *number > serial);
    }

    /// Handles the peer's report that a stream ended after this number. Returns the data that were sent on it and lost.
    pub fn stream_ended(&self, stream: u64, serial: u64) -> Vec<DatumId> {
        self.answer(stream, Err(io::Error::other("the peer could not open a bulk connection either")));
        let mut state = self.shared.lock();
        if let Some((_, closer)) = state.current.take_if(|(current, _)| *current == stream) {
            closer.close();
        }
        let mut lost = Vec::new();
        state.in_flight.retain(|(of, number, datum)| {
            if *of == stream && *number > serial {
                lost.extend(*datum);
            }
            *of != stream
        });
        lost
    }

    /// Handles the release of memory with these numbers; `retired` means that other nodes may still read it.
    pub fn released(&self, serials: &[u64], retired: bool) {
        let mut state = self.shared.lock();
        let freed: Vec<_> = serials.iter().filter_map(|serial| state.grants.remove(serial)).collect();
        drop(state);
        if retired {
            freed.iter().for_each(|segment| segment.retire());
        }
        drop(freed);
    }

    /// Returns the number of segments that the peer uses.
    pub fn grants(&self) -> usize {
        self.shared.lock().grants.len()
    }

    /// Returns the number of data waiting to be sent or being sent.
    pub fn jobs(&self) -> usize {
        self.shared.lock().jobs
    }

    fn push(&self, job: Job) {
        self.shared.lock().jobs += 1;
        self.jobs.send(job).expect("the thread takes jobs until this is dropped");
    }
}

impl Drop for OutgoingLane {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.cancelled = true;
        self.shared.ended.notify_all();
        if let Some((_, closer)) = state.current.take() {
            closer.close();
        }
        for segment in std::mem::take(&mut state.grants).into_values() {
            segment.retire();
        }
    }
}
