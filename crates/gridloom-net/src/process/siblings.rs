//! Threads of one operating-system process that are separate processes of a deployment: messages between them are
//! passed by pointer.
//!
//! Each thread has a mailbox into which its siblings put messages. A waiting thread polls its mailbox like the shared
//! memory of local peers, and announces there when it sleeps; its siblings then ring its wake-up descriptor, as the
//! acceptor does.
//!
//! **Guarantee:** a message is moved, not copied, and needs no system call unless its receiver sleeps. A thread that
//! ends, also by a panic, closes its connections after its messages. From then on it cannot be dialled.
//! **Limit:** [`SEND_QUEUE_BYTES_MAX`] in flight per connection and direction, as for other connections.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_base::limits::SEND_QUEUE_BYTES_MAX;
use gridloom_process::{PeerId, ProcessMessage, ProcessSpec};

/// Bytes in flight, for the dialler's direction and the other one.
pub(super) type InFlight = Arc<[AtomicU64; 2]>;

pub(super) enum SiblingMessage {
    Opens { by: usize, name: String, under_way: InFlight },
    Message(ProcessMessage),
    Closes,
}

/// The mailbox of a thread for messages from its siblings.
struct Mailbox {
    spec: ProcessSpec,
    ports: Mutex<Vec<u16>>,
    /// Messages with their connections; `None` once the thread has ended.
    messages: Mutex<Option<VecDeque<(u64, SiblingMessage)>>>,
    has_messages: AtomicBool,
    sleeps: AtomicBool,
    wake_pipe: Arc<OwnedFd>,
}

impl Mailbox {
    /// Puts a message. Returns false if the thread accepts nothing any more.
    fn put(&self, connection: u64, what: SiblingMessage) -> bool {
        let mut letters = lock(&self.messages);
        let Some(waiting) = &mut *letters else { return false };
        waiting.push_back((connection, what));
        self.has_messages.store(true, Ordering::SeqCst);
        drop(letters);
        if self.sleeps.load(Ordering::SeqCst) && self.sleeps.swap(false, Ordering::SeqCst) {
            // If the pipe is full, the thread wakes anyway.
            let _ = rustix::io::write(&*self.wake_pipe, &[0]);
        }
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection to a sibling.
pub(super) struct SiblingConnection {
    to: usize,
    pub(super) connection: u64,
    under_way: InFlight,
    /// Index of this side's direction.
    direction: usize,
}

impl SiblingConnection {
    /// Returns the accepting end of a connection that the sibling `by` opened.
    pub(super) fn opened(connection: u64, by: usize, under_way: InFlight) -> SiblingConnection {
        SiblingConnection { to: by, connection, under_way, direction: 1 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.under_way[self.direction].load(Ordering::Relaxed) > SEND_QUEUE_BYTES_MAX
    }

    /// Counts bytes sent to the sibling.
    pub(super) fn count_sent(&self, bytes: u64) {
        self.under_way[self.direction].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes received from the sibling.
    pub(super) fn count_received(&self, bytes: u64) {
        self.under_way[1 - self.direction].fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The siblings of a process; most have none.
#[derive(Default)]
pub(super) struct Siblings {
    own: usize,
    posts: Arc<Vec<Mailbox>>,
    connections: u64,
    /// Peers by connection.
    pub(super) peers: BTreeMap<u64, PeerId>,
}

impl Siblings {
    /// Creates one set of siblings per process, given each process with its wake-up descriptor. None of them listens
    /// or is connected yet.
    pub(super) fn of(processes: Vec<(ProcessSpec, Arc<OwnedFd>)>) -> Vec<Siblings> {
        let post = |(spec, bell)| Mailbox {
            spec,
            ports: Mutex::default(),
            messages: Mutex::new(Some(VecDeque::new())),
            has_messages: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
            wake_pipe: bell,
        };
        let posts: Arc<Vec<Mailbox>> = Arc::new(processes.into_iter().map(post).collect());
        (0..posts.len()).map(|own| Siblings { own, posts: posts.clone(), ..Siblings::default() }).collect()
    }

    /// Returns the sibling that listens there.
    pub(super) fn find(&self, host: &str, port: u16) -> Option<usize> {
        let is_it = |(at, post): &(usize, &Mailbox)| {
            *at != self.own && post.spec.host == host && lock(&post.ports).contains(&port)
        };
        self.posts.iter().enumerate().find(is_it).map(|(at, _)| at)
    }

    pub(super) fn spec(&self, of: usize) -> &ProcessSpec {
        &self.posts[of].spec
    }

    /// Opens a connection to a sibling under `name`, unless the sibling has ended.
    pub(super) fn open(&mut self, to: usize, name: String) -> Option<SiblingConnection> {
        self.connections += 1;
        let (connection, under_way) = ((self.own as u64) << 32 | self.connections, InFlight::default());
        let opens = SiblingMessage::Opens { by: self.own, name, under_way: under_way.clone() };
        self.posts[to].put(connection, opens).then_some(SiblingConnection { to, connection, under_way, direction: 0 })
    }

    /// Takes the messages that have arrived since the last call.
    pub(super) fn take(&self) -> VecDeque<(u64, SiblingMessage)> {
        let Some(post) = self.posts.get(self.own).filter(|post| post.has_messages.load(Ordering::SeqCst)) else {
            return VecDeque::new();
        };
        let mut letters = lock(&post.messages);
        post.has_messages.store(false, Ordering::SeqCst);
        letters.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Puts a message for a sibling. If the sibling has ended, it closes the connection itself.
    pub(super) fn put(&self, handed: &SiblingConnection, what: SiblingMessage) {
        self.posts[handed.to].put(handed.connection, what);
    }

    /// Stops accepting messages. Closes connections that were not accepted yet.
    pub(super) fn shut(&self) {
        let Some(post) = self.posts.get(self.own) else { return };
        lock(&post.ports).clear();
        // The lock is not held during the loop: another sibling may do the same at that time.
        let left = lock(&post.messages).take().unwrap_or_default();
        for (connection, what) in left {
            if let SiblingMessage::Opens { by, .. } = what {
                self.posts[by].put(connection, SiblingMessage::Closes);
            }
        }
    }

    pub(super) fn has_siblings(&self) -> bool {
        self.posts.len() > 1
    }

    pub(super) fn listens(&self, port: u16) {
        if let Some(post) = self.posts.get(self.own) {
            lock(&post.ports).push(port);
        }
    }

    /// Makes siblings ring from now on.
    pub(super) fn set_sleeping(&self) {
        if let Some(post) = self.posts.get(self.own) {
            post.sleeps.store(true, Ordering::SeqCst);
        }
    }

    pub(super) fn clear_sleeping(&self) {
        if let Some(post) = self.posts.get(self.own) {
            post.sleeps.store(false, Ordering::SeqCst);
        }
    }
}
