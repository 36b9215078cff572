//! The conformance suite of channels: the same two ends must behave the same in every world.
//!
//! Each case is the code of the two ends. A world runs them concurrently, each on one [`End`] of a new channel:
//! threads on sockets in the real world, processes in virtual time in the simulated one.

use std::sync::mpsc::{Sender, channel};

use gridloom_channel::Kind;

/// One end of a channel. Each world implements it for its own channels.
pub trait End {
    /// Queues an urgent frame without waiting.
    fn urge(&mut self, body: &[u8]);

    /// Queues a bulk frame if there is credit, without waiting. Returns true if there was.
    fn offer(&mut self, body: &[u8]) -> bool;

    /// Sends a bulk frame, waiting for credit. Returns false if the channel has ended.
    fn send(&mut self, body: &[u8]) -> bool;

    /// Waits for the next frame, sending queued frames meanwhile. Returns `None` if the other end closed or the
    /// channel broke.
    fn receive(&mut self) -> Option<(Kind, Vec<u8>)>;

    /// Waits until all queued frames have been written, and closes.
    fn close(&mut self);
}

/// The code of one end.
pub type EndBody = Box<dyn FnOnce(&mut dyn End) + Send>;

/// Runs the code of both ends of a new channel concurrently until both have returned.
pub type PairRunner<'a> = &'a mut dyn FnMut([EndBody; 2]);

/// A case: its name and its code.
pub type Case = (&'static str, fn(PairRunner<'_>));

/// All cases. The credit of the channels is [`CREDIT_BYTES`].
pub const CASES: &[Case] = &[
    ("frames of a lane keep their order, and the end is last", order),
    ("a frame is sent and answered", there_and_back),
    ("two ends that send much to each other both receive it", both_ways),
    ("an offer beyond the credit is refused and accepted later", credit),
    ("an urgent frame overtakes queued bulk frames", urgent_passes),
    ("after the end nothing can be sent", ended),
];

/// The credit of the suite's channels: bytes that may be queued.
pub const CREDIT_BYTES: usize = 64 << 10;

/// More bytes than any system buffers between two ends.
const MUCH_BYTES: usize = 24 << 20;

fn body(number: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at / 253 + at + number) as u8).collect()
}

fn order(run: PairRunner<'_>) {
    let sizes = [100_000, 0, 3, 2_000_000, 10, 65_527, 65_528];
    run([
        Box::new(move |end| {
            for (number, size) in sizes.into_iter().enumerate() {
                assert!(end.send(&body(number, size)), "the other end takes all");
            }
            end.close();
        }),
        Box::new(move |end| {
            for (number, size) in sizes.into_iter().enumerate() {
                let got = end.receive();
                assert!(got == Some((Kind::ProcessMessage, body(number, size))), "frame {number} of {size} bytes");
            }
            assert_eq!(end.receive(), None);
        }),
    ]);
}

fn there_and_back(run: PairRunner<'_>) {
    run([
        Box::new(|end| {
            for number in 0..100 {
                end.urge(&body(number, number));
                assert_eq!(end.receive(), Some((Kind::Message, body(number, 2 * number))));
            }
            end.close();
        }),
        Box::new(|end| {
            let mut number = 0;
            while let Some(got) = end.receive() {
                assert_eq!(got, (Kind::Message, body(number, number)));
                end.urge(&body(number, 2 * number));
                number += 1;
            }
            assert_eq!(number, 100);
        }),
    ]);
}

fn both_ways(run: PairRunner<'_>) {
    let code = || -> EndBody {
        Box::new(|end| {
            let parts = 4;
            for part in 0..parts {
                assert!(end.send(&body(part, MUCH_BYTES / parts)), "the other end reads meanwhile");
            }
            for part in 0..parts {
                let got = end.receive();
                assert!(got == Some((Kind::ProcessMessage, body(part, MUCH_BYTES / parts))), "part {part}");
            }
            // The end that finishes first lets the other close the channel. An urgent frame could overtake the last
            // part.
            assert!(end.send(b"done"), "the other end waits for it");
            assert_eq!(end.receive(), Some((Kind::ProcessMessage, b"done".to_vec())));
            end.close();
        })
    };
    run([code(), code()]);
}

/// Offers frames until one is refused. Returns how many were taken.
fn fill(end: &mut dyn End, part: &[u8]) -> usize {
    let most = MUCH_BYTES / part.len();
    (0..most).find(|_| !end.offer(part)).expect("what waits is bounded")
}

fn credit(run: PairRunner<'_>) {
    let (taken, told): (Sender<usize>, _) = channel();
    run([
        Box::new(move |end| {
            let taken_at_once = fill(end, &body(0, 10_000));
            assert!(taken_at_once * 10_000 >= CREDIT_BYTES, "{taken_at_once} were taken");
            assert!(end.send(b"last"), "the other end makes room");
            taken.send(taken_at_once).expect("the other end listens");
            assert_eq!(end.receive(), Some((Kind::Message, b"got all".to_vec())));
        }),
        Box::new(move |end| {
            let mut count = 0;
            while end.receive() == Some((Kind::ProcessMessage, body(0, 10_000))) {
                count += 1;
            }
            end.urge(b"got all");
            assert_eq!(end.receive(), None);
            assert_eq!(told.try_recv(), Ok(count));
        }),
    ]);
}

fn urgent_passes(run: PairRunner<'_>) {
    run([
        Box::new(|end| {
            let bulk = fill(end, &body(1, CREDIT_BYTES / 4));
            end.urge(&(bulk as u32).to_le_bytes());
            end.close();
        }),
        Box::new(|end| {
            let (mut bulk, mut told, mut after) = (0u32, None, 0);
            while let Some((kind, body)) = end.receive() {
                match kind {
                    Kind::Message => told = body.try_into().ok().map(u32::from_le_bytes),
                    _ => bulk += 1,
                }
                after += u32::from(kind != Kind::Message && told.is_some());
            }
            assert_eq!(told, Some(bulk));
            // More bytes than the credit were queued: at most one of those frames had begun.
            assert!(after >= 3, "{after} of {bulk} bulk frames arrived after it");
        }),
    ]);
}

fn ended(run: PairRunner<'_>) {
    run([
        Box::new(|end| {
            end.urge(b"bye");
            end.close();
        }),
        Box::new(|end| {
            assert_eq!(end.receive(), Some((Kind::Message, b"bye".to_vec())));
            assert_eq!(end.receive(), None);
            // The system may take some data before it reports the close.
            assert!((0..1000).any(|_| !end.send(&body(0, 100_000))));
        }),
    ]);
}
