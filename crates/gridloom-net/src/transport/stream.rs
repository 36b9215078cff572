//! The socket of a control connection: TCP, or between two nodes of one host a unix socket.
//!
//! A small message takes about two thirds of the time over a unix socket that it takes over TCP on the loopback device.
//! A node that listens on a loopback address, and shares memory with others of its host, listens on an abstract unix
//! socket named by that address too; a dialler of such an address tries that socket first. Names of abstract sockets belong
//! to a network namespace, as loopback does. The handshake is the same on both.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net;

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};

/// A connected socket, or one about to be.
#[derive(Debug)]
pub enum Stream {
    /// To any host.
    Tcp(TcpStream),
    /// Within the host.
    Unix(UnixStream),
}

/// Where connections are accepted.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    unix: Option<UnixListener>,
}

impl Listener {
    /// On a TCP socket that listens; `near`: on the unix socket of its address as well.
    ///
    /// # Errors
    /// If the system refuses the unix socket.
    pub fn new(tcp: TcpListener, near: bool) -> io::Result<Listener> {
        let address = tcp.local_addr()?;
        let unix = match near && address.ip().is_loopback() {
            true => Some(UnixListener::bind_addr(&near_name(address)?)?),
            false => None,
        };
        Ok(Listener { tcp, unix })
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn accept(&self) -> io::Result<Option<Stream>> {
        let unix = self.unix.as_ref().map(|unix| unix.accept().map(|(stream, _)| Stream::Unix(stream)));
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
    /// Begins to connect; `near`: over the unix socket of that address, if there is one.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn connect(address: SocketAddr, near: bool) -> io::Result<Stream> {
        if near && address.ip().is_loopback() {
            // Whatever is wrong with it, TCP may do.
            if let Ok(stream) = UnixStream::connect_addr(&near_name(address)?) {
                return Ok(Stream::Unix(stream));
            }
        }
        Stream::tcp(TcpStream::connect(address)?)
    }

    fn tcp(stream: TcpStream) -> io::Result<Stream> {
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(stream))
    }

    /// Where the other side is, if it is not within this host.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            // A connection that is gone has none.
            Stream::Tcp(stream) => stream.peer_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    /// Whether the connection stands; an error if it cannot.
    ///
    /// # Errors
    /// Why it cannot.
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

fn near_name(address: SocketAddr) -> io::Result<net::SocketAddr> {
    net::SocketAddr::from_abstract_name(format!("gridloom-{address}"))
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
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write_vectored(bytes),
            Stream::Unix(stream) => stream.write_vectored(bytes),
        }
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
        self.unix.as_mut().map_or(Ok(()), |unix| unix.register(registry, token, interests))?;
        self.tcp.register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.unix.as_mut().map_or(Ok(()), |unix| unix.reregister(registry, token, interests))?;
        self.tcp.reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.unix.as_mut().map_or(Ok(()), |unix| unix.deregister(registry))?;
        self.tcp.deregister(registry)
    }
}
