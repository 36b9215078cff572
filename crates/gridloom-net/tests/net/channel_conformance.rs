//! The conformance suite of channels on real sockets, TCP and unix, with and without faults.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use gridloom_channel::{BufferPool, Buffers, BulkFrame, Channel, FrameLimits, Kind, ReadOutcome};
use gridloom_conformance::channel::{CASES, CREDIT_BYTES, End};
use gridloom_conformance::faults::{Faults, FaultyStream};
use gridloom_keys::{Authority, Role, UnixTime};
use gridloom_net::identity::{Credentials, IssuedKeys};
use gridloom_net::transport::tls::TlsStream;
use rustix::event::{PollFd, PollFlags};

const LIMITS: FrameLimits = FrameLimits { control: 1 << 20, process_message: 32 << 20 };

/// One end, driven by the thread that waits on it.
struct RealEnd<S> {
    channel: Option<Channel<FaultyStream<S>>>,
    buffers: Buffers,
    came: VecDeque<(Kind, Vec<u8>)>,
    /// True if the last read left bytes.
    has_more: bool,
}

impl<S: Read + Write + AsFd> RealEnd<S> {
    /// Writes waiting data and reads available data. Waits while data cannot be written, or for input if `for_input`
    /// is set. Returns whether the channel is still open.
    fn turn(&mut self, for_input: bool) -> bool {
        let Some(channel) = &mut self.channel else { return false };
        if channel.flush(&mut self.buffers).is_err() {
            return false;
        }
        let is_blocked = channel.outbound.is_blocked();
        if !self.has_more && (is_blocked || for_input) {
            let flags = if is_blocked { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            rustix::event::poll(&mut [PollFd::new(&channel.stream().stream, flags)], None).unwrap();
        }
        let filled = channel.fill(&mut self.buffers);
        while let Some((kind, body)) = channel.inbound.next(LIMITS, &mut self.buffers).unwrap() {
            self.came.push_back((kind, body.into_owned(&mut BufferPool::default())));
        }
        channel.inbound.release(&mut self.buffers);
        self.has_more = matches!(filled, Ok(ReadOutcome::More));
        matches!(filled, Ok(ReadOutcome::Nothing | ReadOutcome::Drained | ReadOutcome::More))
    }
}

impl<S: Read + Write + AsFd> End for RealEnd<S> {
    fn urge(&mut self, body: &[u8]) {
        self.channel.as_mut().expect("it is open").outbound.frame(Kind::Message, body).unwrap();
    }

    fn offer(&mut self, body: &[u8]) -> bool {
        let frame = BulkFrame { kind: Kind::ProcessMessage, payload: body.to_vec(), trailer: Vec::new() };
        self.channel.as_mut().is_some_and(|channel| channel.outbound.offer(frame).is_ok())
    }

    fn send(&mut self, body: &[u8]) -> bool {
        while !self.offer(body) {
            if !self.turn(false) {
                return false;
            }
        }
        true
    }

    fn receive(&mut self) -> Option<(Kind, Vec<u8>)> {
        while self.came.is_empty() && self.turn(true) {}
        self.came.pop_front()
    }

    fn close(&mut self) {
        while self.channel.as_ref().is_some_and(|channel| channel.outbound.is_blocked()) && self.turn(false) {}
        self.channel = None;
    }
}

fn unix() -> [UnixStream; 2] {
    let (here, there) = UnixStream::pair().unwrap();
    [&here, &there].iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    [here, there]
}

fn tcp() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let there = listener.accept().unwrap().0;
    [&here, &there].iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    [here, there]
}

fn ends<S: Read + Write + AsFd>(streams: [S; 2], faults: Faults) -> [RealEnd<S>; 2] {
    streams.map(|stream| {
        let channel = Channel::new(FaultyStream::new(stream, faults), CREDIT_BYTES);
        RealEnd { channel: Some(channel), buffers: Buffers::default(), came: VecDeque::new(), has_more: false }
    })
}

fn conforms<S: Read + Write + AsFd + Send>(connect: impl Fn() -> [S; 2], faults: Faults) {
    for (name, case) in CASES {
        println!("{name}");
        case(&mut |codes| {
            let ends = ends(connect(), faults);
            thread::scope(|scope| {
                for (mut end, code) in ends.into_iter().zip(codes) {
                    scope.spawn(move || code(&mut end));
                }
            });
        });
    }
}

/// Returns both ends of a TLS connection over a stream with faults, after its handshake and one message to the dialler, as
/// between nodes: the dialler has also read what the acceptor sends for resuming the session.
fn tls(faults: Faults) -> [TlsStream<FaultyStream<UnixStream>>; 2] {
    tls_of(faults, |end| end)
}

/// The same, with other settings of both ends.
fn tls_of(
    faults: Faults,
    set: impl Fn(TlsStream<UnixStream>) -> TlsStream<UnixStream>,
) -> [TlsStream<FaultyStream<UnixStream>>; 2] {
    let authority = Authority::new("tests", UnixTime::now()).unwrap();
    let keys = IssuedKeys::by_authority(&authority, Role::Client, "test").unwrap().keys().unwrap();
    let credentials = Credentials::new(keys).unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    let address: std::net::SocketAddr = "127.0.0.1:1".parse().unwrap();
    let mut dialler = set(TlsStream::dial(here, &credentials.tls, &address.into()).unwrap());
    let mut acceptor = set(TlsStream::accept(there, &credentials.tls).unwrap());
    [&mut dialler, &mut acceptor].into_iter().for_each(TlsStream::set_blocking);
    thread::scope(|scope| {
        scope.spawn(|| acceptor.write_all(b"!").unwrap());
        dialler.read_exact(&mut [0]).unwrap();
    });
    [dialler, acceptor].map(|mut end| {
        end.get().set_nonblocking(true).unwrap();
        end.set_nonblocking();
        end.map(|stream| FaultyStream::new(stream, faults))
    })
}

#[test]
fn channels_with_tls_conform() {
    conforms(|| tls(Faults::NONE), Faults::NONE);
    conforms(|| tls(Faults { cut_bytes: 4999, block_every: 7, ..Faults::NONE }), Faults::NONE);
    conforms(|| tls(Faults { cut_bytes: 16_411, block_every: 3, ..Faults::NONE }), Faults::NONE);
}

#[test]
fn channels_conform_when_tls_has_ended() {
    let ended = |faults| {
        let mut ends = tls_of(faults, TlsStream::encrypts_only_handshake);
        ends.iter_mut().for_each(|end| end.end_encryption().unwrap());
        ends
    };
    conforms(|| ended(Faults::NONE), Faults::NONE);
    conforms(|| ended(Faults { cut_bytes: 4999, block_every: 7, ..Faults::NONE }), Faults::NONE);
}

#[test]
fn bytes_that_came_with_the_last_record_are_read_after_the_end_of_tls() {
    let [mut here, mut there] = tls_of(Faults::NONE, TlsStream::encrypts_only_handshake);
    here.write_all(b"the last record").unwrap();
    here.end_encryption().unwrap();
    here.write_all(b"plain").unwrap();
    let mut read = [0; 100];
    assert_eq!(there.read(&mut read).unwrap(), 15);
    assert!(there.has_unread());
    there.end_encryption().unwrap();
    assert_eq!(there.read(&mut read[..2]).unwrap(), 2);
    assert!(there.has_unread());
    here.write_all(b" text").unwrap();
    assert_eq!(there.read(&mut read[2..]).unwrap(), 8);
    assert_eq!(&read[..10], b"plain text");
    assert!(!there.has_unread());
    assert_eq!(there.read(&mut read).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn channels_on_tcp_conform() {
    conforms(tcp, Faults::NONE);
}

#[test]
fn channels_on_unix_sockets_conform() {
    conforms(unix, Faults::NONE);
}

#[test]
fn channels_conform_on_a_stream_that_cuts_and_blocks() {
    conforms(unix, Faults { cut_bytes: 4999, block_every: 7, ..Faults::NONE });
}

#[test]
fn of_a_stream_that_breaks_come_whole_frames_and_an_end() {
    let [mut here, mut there] = ends(unix(), Faults { break_after_bytes: 25_000, ..Faults::NONE });
    let sender = thread::spawn(move || {
        while here.send(&[7; 10_000]) {}
        here.close();
    });
    let mut whole = 0;
    while let Some(frame) = there.receive() {
        assert!(frame == (Kind::ProcessMessage, vec![7; 10_000]));
        whole += 1;
    }
    assert!(whole >= 2, "{whole}");
    sender.join().unwrap();
}
