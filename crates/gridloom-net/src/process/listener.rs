//! Strangers at a process's port: accepted, and let in by the handshake.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::identity::Secret;
use crate::transport::handshake::{Handshake, Hello, Purpose, Verdict, run_blocking};
use crate::transport::outgoing::STACK_BYTES;

/// Who was let in.
pub(super) struct Guest {
    pub(super) stream: TcpStream,
    pub(super) name: String,
}

/// What a thread needs to let guests in.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) secret: Secret,
    pub(super) own: Hello,
    pub(super) guests: Sender<Guest>,
    /// A byte in it wakes the process.
    pub(super) bell: Arc<OwnedFd>,
    /// The process attends to its ports no more.
    pub(super) is_shut: Arc<AtomicBool>,
}

/// Strangers who are being heard at a time. One more, and the one who has been at it longest is turned away: who knows
/// the words needs milliseconds for them.
const STRANGERS_MAX: usize = 64;
/// Pause after an accept that failed, for want of descriptors for instance.
const PAUSE: Duration = Duration::from_millis(20);

/// Those who are being heard, the earliest first.
type Strangers = Mutex<BTreeMap<u64, TcpStream>>;

impl Door {
    /// Lets guests in until the listener is shut. Each is heard on a thread of its own, so that who says nothing delays
    /// nobody.
    pub(super) fn attend(self, listener: &TcpListener) {
        let strangers = Arc::new(Strangers::default());
        for number in 0.. {
            match listener.accept() {
                Ok((stream, _)) => self.hear(number, stream, &strangers),
                Err(_) if self.is_shut.load(Ordering::Acquire) => return,
                // The stranger has gone, or descriptors are short for a while.
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    /// Hears a stranger; who cannot be heard is turned away, and that is all.
    fn hear(&self, number: u64, stream: TcpStream, strangers: &Arc<Strangers>) {
        let Ok(known) = stream.try_clone() else { return };
        let mut heard = lock(strangers);
        if heard.len() >= STRANGERS_MAX
            && let Some((_, oldest)) = heard.pop_first()
        {
            // It fails if that one has gone, which is what is wanted.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        heard.insert(number, known);
        drop(heard);
        let (door, all) = (self.clone(), strangers.clone());
        let hear = move || {
            let name = door.shake(&stream);
            lock(&all).remove(&number);
            if let Ok(name) = name {
                door.let_in(Guest { stream, name });
            }
        };
        if thread::Builder::new().name("stranger".into()).stack_size(STACK_BYTES).spawn(hear).is_err() {
            lock(strangers).remove(&number);
        }
    }

    fn let_in(&self, guest: Guest) {
        if self.guests.send(guest).is_ok() {
            // A full pipe wakes as well.
            let _ = rustix::io::write(&*self.bell, &[1]);
        }
    }

    fn shake(&self, stream: &TcpStream) -> std::io::Result<String> {
        stream.set_nodelay(true)?;
        let handshake = Handshake::accept(self.secret.clone(), self.own.clone())?;
        let mut stream = stream;
        let (hello, _) = run_blocking(&mut stream, handshake, None, |hello| match hello.purpose {
            Purpose::Process => Ok(Verdict::Welcome),
            _ => Err("this is a process that talks by messages, and no node of a grid".into()),
        })?;
        Ok(hello.name)
    }
}

/// The dialler's side.
pub(super) fn greet(stream: &TcpStream, secret: &Secret, own: &Hello) -> std::io::Result<String> {
    stream.set_nodelay(true)?;
    let (handshake, first) = Handshake::dial(secret.clone(), own.clone())?;
    let mut stream = stream;
    let (hello, _) = run_blocking(&mut stream, handshake, Some(first), |_| Ok(Verdict::Welcome))?;
    Ok(hello.name)
}

fn lock(strangers: &Strangers) -> MutexGuard<'_, BTreeMap<u64, TcpStream>> {
    strangers.lock().unwrap_or_else(PoisonError::into_inner)
}
