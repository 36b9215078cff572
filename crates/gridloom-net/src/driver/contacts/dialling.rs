//! Dials: names are resolved on threads, and the resolved addresses are tried one after another.

use std::net::{SocketAddr, ToSocketAddrs};
use std::{io, thread};

use gridloom_base::dial::UNRESOLVED;
use gridloom_base::limits::DIAL_NS_MAX;
use gridloom_base::{NodeId, Time};
use gridloom_core::node::Input;

use super::{ConnectionUpdate, Connections};
use crate::driver::contact::Stage;
use crate::driver::dials::{Dial, cannot_connect};
use crate::log::warning;
use crate::threads::STACK_BYTES;
use crate::transport::delayed::DelayedStream;
use crate::transport::handshake::Handshake;
use crate::transport::notice::Notice;
use crate::transport::stream::Stream;
use crate::transport::tls::TlsStream;

impl Connections {
    pub(in crate::driver) fn dial(&mut self, address: String, now: Time) {
        let deadline = now + DIAL_NS_MAX;
        self.check_at = self.check_at.min(deadline);
        let numeric = address.parse::<SocketAddr>().ok();
        let left = numeric.into_iter().collect();
        let number = self.dials.begin(Dial { address: address.clone(), left, began: now, deadline });
        if numeric.is_some() {
            return self.dial_next(number, String::new());
        }
        let inbox = self.inbox.clone();
        let resolve = move || {
            let addresses = address.to_socket_addrs().map(Iterator::collect);
            inbox.post(Notice::Resolved { dial: number, addresses });
        };
        // The C library's resolver needs more stack than a thread that only moves bytes.
        let thread = thread::Builder::new().name("resolve".into()).stack_size(STACK_BYTES * 4);
        if let Err(error) = self.inbox.threads.spawn(thread, resolve) {
            self.dial_failed(number, error.to_string());
        }
    }

    pub(in crate::driver) fn resolved(&mut self, dial: u64, addresses: io::Result<Vec<SocketAddr>>) {
        match addresses {
            Err(error) => self.dial_failed(dial, format!("{UNRESOLVED} ({error})")),
            Ok(addresses) => {
                self.dials.resolved(dial, addresses);
                self.dial_next(dial, format!("{UNRESOLVED} (it has no address)"));
            }
        }
    }

    /// Tries the dial's next address; `why` is the error of the previous one.
    pub(super) fn dial_next(&mut self, number: u64, mut why: String) {
        while let Some(dial) = self.dials.get_mut(number) {
            let deadline = dial.deadline;
            let Some(address) = dial.left.pop_front() else { return self.dial_failed(number, why) };
            match self.connect(address, number, deadline) {
                Ok(()) => return,
                Err(error) => why = cannot_connect(&error),
            }
        }
    }

    fn connect(&mut self, address: SocketAddr, dial: u64, deadline: Time) -> io::Result<()> {
        let near = self.sites.0.as_ref().filter(|_| address.ip().is_loopback());
        let near = near.map(|near| Stream::connect_near(address, near));
        let stream = match near {
            Some(Ok(stream)) => stream,
            Some(Err(error)) => {
                // Whatever is wrong with this socket, TCP may work.
                if error.kind() == io::ErrorKind::PermissionDenied {
                    let line = warning("the unix socket of a node on this host cannot be used; dialling it over TCP");
                    self.log(line.address(address).why(error));
                }
                Stream::connect(address)?
            }
            None => Stream::connect(address)?,
        };
        let (handshake, first) = Handshake::dial(self.credentials.clone(), self.own.clone())?;
        let is_near = matches!(stream, Stream::Unix(_));
        let stream = TlsStream::dial(DelayedStream::new(stream), &self.credentials.tls, address)?;
        let stream = if is_near { stream.encrypts_only_handshake() } else { stream };
        self.add(stream, Stage::Connecting, handshake, Some(dial), deadline)?.queue_handshake_frame(&first);
        Ok(())
    }

    pub(super) fn dial_failed(&mut self, number: u64, why: String) {
        if let Some(dial) = self.dials.end(number) {
            self.news.push_back(ConnectionUpdate::Input(Input::DialFailed {
                address: dial.address,
                why,
                connected: None,
            }));
        }
    }

    /// Ends a dial whose node is already connected through another connection.
    pub(super) fn connected_already(&mut self, address: String, peer: NodeId, name: &str) {
        let why = format!("'{name}' answers there, and is connected already");
        self.news.push_back(ConnectionUpdate::Input(Input::DialFailed { address, why, connected: Some(peer) }));
    }
}
