//! Strangers at a process's port: accepted, and let in by the handshake.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use crate::identity::Secret;
use crate::transport::handshake::{Handshake, Hello, Purpose, Verdict, run_blocking};

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
}

impl Door {
    /// Lets guests in until the listener is shut.
    pub(super) fn attend(self, listener: &TcpListener) {
        while let Ok((stream, _)) = listener.accept() {
            // A stranger who does not know what to say is turned away, and that is all.
            if let Ok(name) = self.shake(&stream)
                && self.guests.send(Guest { stream, name }).is_ok()
            {
                let mut bell: &std::fs::File = &std::fs::File::from(match self.bell.try_clone() {
                    Ok(bell) => bell,
                    Err(_) => continue,
                });
                // A full pipe wakes as well.
                let _ = bell.write(&[1]);
            }
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
