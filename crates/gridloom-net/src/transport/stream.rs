//! The socket of a control connection: TCP, or a unix socket between two nodes of one host.
//!
//! A small message takes about two thirds of the time over a unix socket that it takes over TCP on the loopback
//! device. A node that listens on a loopback address and shares memory with other nodes of its host also listens on a
//! unix socket of its user ([`super::host`]). A node that dials such an address tries that socket first. Both ends
//! check that the other belongs to the same user. The handshake is the same on both kinds.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{self, SocketAddr};
use std::os::fd::AsFd;

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::credentials::check_user;
use super::host::{HostSockets, SocketFile};

/// Maximum number of slices that the system takes at once.
const SLICES_MAX: usize = 1024;

/// A socket that is connected or connecting.
#[derive(Debug)]
pub enum Stream {
    /// A connection to any host.
    Tcp(TcpStream),
    /// A connection within the host.
    Unix(UnixStream),
}

/// The sockets on which connections are accepted.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    unix: Option<(UnixListener, SocketFile)>,
}

impl Listener {
    /// Creates a listener on a listening TCP socket.
    pub fn new(tcp: TcpListener) -> Listener {
        Listener { tcp, unix: None }
    }

    /// Also listens on the unix socket of its address, if that is a loopback address.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn listen_near(&mut self, near: &HostSockets) -> io::Result<()> {
        let address = self.tcp.local_addr()?;
        if address.ip().is_loopback() {
            let (listener, file) = near.listen_control(address)?;
            self.unix = Some((UnixListener::from_std(listener), file));
        }
        Ok(())
    }

    /// Accepts the next connection, if one is waiting.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn accept(&self) -> io::Result<Option<Stream>> {
        let near = |(unix, _): &(UnixListener, SocketFile)| loop {
            match unix.accept() {
                Ok((stream, _)) if check_user(stream.as_fd()).is_err() => {}
                accepted => return accepted.map(|(stream, _)| Stream::Unix(stream)),
            }
        };
        let unix = self.unix.as_ref().map(near);
        let tcp = || Some(self.tcp.accept().and_then(|(stream, _)| Stream::tcp(stream)));
        for accepted in unix.into_iter().chain(std::iter::once_with(tcp).flatten()) {
            match accepted {
                Ok(stream) => return Ok(Some(stream)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

impl Stream {
    /// Starts connecting over TCP.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn connect(address: SocketAddr) -> io::Result<Stream> {
        Stream::tcp(TcpStream::connect(address)?)
    }

    /// Takes a connected socket.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn from_std(stream: net::TcpStream) -> io::Result<Stream> {
        stream.set_nonblocking(true)?;
        Stream::tcp(TcpStream::from_std(stream))
    }

    /// Connects over the unix socket of this address.
    ///
    /// # Errors
    /// As [`HostSockets::connect_control`].
    pub fn connect_near(address: SocketAddr, near: &HostSockets) -> io::Result<Stream> {
        near.connect_control(address).map(Stream::Unix)
    }

    fn tcp(stream: TcpStream) -> io::Result<Stream> {
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(stream))
    }

    /// Returns the address of the other side, if it is not on this host.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            // A connection that has ended has no address.
            Stream::Tcp(stream) => stream.peer_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    /// Reports whether the connection is established.
    ///
    /// # Errors
    /// If it cannot be established.
    pub fn is_connected(&self) -> io::Result<bool> {
        match self {
            Stream::Tcp(stream) => {
                stream.take_error()?.map_or(Ok(()), Err)?;
                Ok(stream.peer_addr().is_ok())
            }
            Stream::Unix(stream) => {
                stream.take_error()?.map_or(Ok(()), Err)?;
                Ok(stream.peer_addr().is_ok())
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
        }
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read_vectored(into),
            Stream::Unix(stream) => stream.read_vectored(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    /// Without the signal SIGPIPE, which ends programs in C if the peer has closed the connection.
    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let socket = match &*self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        };
        let bytes = &bytes[..bytes.len().min(SLICES_MAX)];
        Ok(sendmsg(socket, bytes, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
        }
    }
}

impl Source for Stream {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.source().register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.source().reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.source().deregister(registry)
    }
}

impl Source for Listener {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.unix.as_mut().map_or(Ok(()), |(unix, _)| unix.register(registry, token, interests))?;
        self.tcp.register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.unix.as_mut().map_or(Ok(()), |(unix, _)| unix.reregister(registry, token, interests))?;
        self.tcp.reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.unix.as_mut().map_or(Ok(()), |(unix, _)| unix.deregister(registry))?;
        self.tcp.deregister(registry)
    }
}
