//! Tests of the mailbox limit in bytes: chares that send too much are parked, and nothing else is.

use std::sync::Arc;

use gridloom_derive::Message;

use super::network::Network;
use gridloom_base::limits::CHARE_BATCH_BYTES;
use gridloom_chare::{
    Callback, Chare, ChareError, Context, Contribution, Element, Elements, Pe, Placement, Proxy, Step, Value,
};

#[derive(Clone, Debug, PartialEq, Message)]
#[message(crate = "gridloom_layout")]
enum Load {
    /// The receiver sends itself the next `Produce`, and bytes to chare 1.
    Produce {
        left: u32,
    },
    Bytes {
        bytes: Vec<u8>,
    },
    /// The receiver sends itself a `Tick` with one less left.
    Tick {
        left: u32,
    },
    /// The receiver sends two of these, with one less left, to the next chare.
    Double {
        left: u32,
        bytes: Vec<u8>,
    },
}

const MESSAGES: u32 = 2000;
const MESSAGE_BYTES: usize = 1000;
const BOUND: u64 = 20_000;
/// A program that takes more turns than this hangs.
const TURNS_MAX: u32 = 100_000;

#[derive(Default)]
struct Worker {
    came: i64,
    /// Number of received messages after which it contributes.
    last: i64,
}

impl Chare for Worker {
    type Message = Load;

    fn entry(&mut self, message: Load, cx: &mut Context<'_, Worker>) {
        self.came += 1;
        match message {
            Load::Produce { left } => {
                cx.send(cx.array().at(1), Load::Bytes { bytes: vec![7; MESSAGE_BYTES] });
                if left > 1 {
                    cx.send(cx.this(), Load::Produce { left: left - 1 });
                }
            }
            Load::Bytes { .. } if self.came == i64::from(MESSAGES) => cx.exit(self.came),
            Load::Bytes { .. } | Load::Tick { left: 0 } | Load::Double { left: 0, .. } => {}
            Load::Tick { left } => cx.send(cx.this(), Load::Tick { left: left - 1 }),
            Load::Double { left, bytes } => {
                let next = (cx.index()[0] + 1) % cx.elements().count() as i32;
                for _ in 0..2 {
                    cx.send(cx.array().at(next), Load::Double { left: left - 1, bytes: bytes.clone() });
                }
            }
        }
        if self.came == self.last {
            cx.contribute(Contribution::sum(self.came), Callback::exit());
        }
    }

    fn on_result(&mut self, _: u32, _: Value, cx: &mut Context<'_, Worker>) {
        cx.contribute(Contribution::sum(self.came), Callback::exit());
    }
}

fn element(me: u32, elements: u32, chares: usize, bound: u64) -> (Element, Proxy<Worker>) {
    let mut element = Element::new(Pe(me), Arc::new(Elements::single_site(elements)));
    element.limit_mailbox(bound);
    let placement = Placement::RoundRobin;
    let workers = element.array("workers", chares.into(), &placement, |_| Worker::default()).unwrap();
    (element, workers)
}

/// Runs one step, and delivers all batches to the other element.
fn step(elements: &mut [Element; 2], at: usize) -> Step {
    let step = elements[at].step().unwrap();
    while let Some((to, letter)) = elements[at].take_batch() {
        elements[to.0 as usize].receive(Pe(at as u32), &letter).unwrap();
    }
    step
}

#[test]
fn a_fast_sender_is_parked_beside_others_that_run() {
    let (sender, workers) = element(0, 2, 3, BOUND);
    let (receiver, _) = element(1, 2, 3, BOUND);
    let mut elements = [sender, receiver];
    elements[0].start(|cx| {
        cx.send(workers.at(0), Load::Produce { left: MESSAGES });
        // Chare 2 is on the sender's element and is never parked.
        cx.send(workers.at(2), Load::Tick { left: 10 * MESSAGES });
    });
    let (mut ran, mut ended) = (0, false);
    for turn in 0.. {
        if ended {
            break;
        }
        assert!(turn < TURNS_MAX, "the program never ends");
        for _ in 0..100 {
            ran += u32::from(matches!(step(&mut elements, 0), Step::Ran(_)));
        }
        let (at_sender, at_receiver) = (elements[0].waiting_bytes(), elements[1].waiting_bytes());
        let message = MESSAGE_BYTES as u64 + 100;
        assert!(at_receiver.0 <= BOUND + message + CHARE_BATCH_BYTES as u64, "{at_receiver:?}");
        assert!(at_sender.1 <= BOUND + message, "{at_sender:?}");
        assert_eq!((at_sender.0, at_receiver.1), (0, 0));
        ended = step(&mut elements, 1) == Step::Ended;
    }
    assert_eq!(elements[1].end(), Some(&Value::from(i64::from(MESSAGES))));
    assert_eq!(ran, 11 * MESSAGES + 1, "all ticks ran, too");
}

#[test]
fn elements_that_wait_in_a_cycle_continue() {
    for seed in 0..200 {
        let count = 2 + (seed % 3) as u32;
        let depth = 9;
        let make = |element: &mut Element| {
            element.limit_mailbox(500 * (1 + seed % 5));
            let placement = Placement::RoundRobin;
            let workers = element.array("workers", (count as usize).into(), &placement, |_| Worker::default()).unwrap();
            element.start(|cx| {
                cx.when_quiet(Callback::to(workers.all()));
                (0..count as i32)
                    .for_each(|at| cx.send(workers.at(at), Load::Double { left: depth, bytes: vec![1; 400] }));
            });
        };
        let value = Network::new(&Arc::new(Elements::single_site(count)), seed, make).run().unwrap();
        assert_eq!(value, Value::from(i64::from(count) * ((2 << depth) - 1)), "seed {seed}");
    }
}

#[test]
fn a_circle_is_noticed_beside_chares_that_always_run() {
    let depth = 9;
    let make = |me| {
        let (mut element, _) = element(me, 2, 1, 500);
        let last = (2 << depth) - 1;
        let worker = |_| Worker { came: 0, last };
        let workers = element.array("circle", 2.into(), &Placement::RoundRobin, worker).unwrap();
        let tickers = element.array("tickers", 2.into(), &Placement::RoundRobin, |_| Worker::default()).unwrap();
        (element, workers, tickers)
    };
    let ((first, workers, tickers), (second, ..)) = (make(0), make(1));
    let mut elements = [first, second];
    elements[0].start(|cx| {
        for at in 0..2 {
            cx.send(tickers.at(at), Load::Tick { left: u32::MAX });
            cx.send(workers.at(at), Load::Double { left: depth, bytes: vec![1; 400] });
        }
    });
    let ended = (0..TURNS_MAX as usize).any(|turn| step(&mut elements, turn % 2) == Step::Ended);
    assert!(ended, "the circle stands still");
    assert_eq!(elements[0].end(), Some(&Value::from(2 * ((2_i64 << depth) - 1))));
}

#[test]
fn broadcasts_to_a_parked_chare_are_bounded() {
    let (sender, workers) = element(0, 2, 4, BOUND);
    let (receiver, _) = element(1, 2, 4, BOUND);
    let mut elements = [sender, receiver];
    let broadcasts = MESSAGES / 2;
    elements[0].start(|cx| {
        // Chare 1 sends enough to the first element to be parked. Chare 3, which gets the last copies, is not parked.
        cx.send(workers.at(1), Load::Double { left: 1, bytes: vec![1; 3 * BOUND as usize] });
        (0..broadcasts).for_each(|_| cx.send(workers.all(), Load::Bytes { bytes: vec![7; MESSAGE_BYTES] }));
    });
    while let Some((_, letter)) = elements[0].take_batch() {
        elements[1].receive(Pe(0), &letter).unwrap();
    }
    let all = elements[0].waiting_bytes().1;
    let is_idle = (0..TURNS_MAX).any(|_| step(&mut elements, 1) == Step::Idle);
    assert!(is_idle, "only the parked chare has messages");
    let slack = MESSAGE_BYTES as u64 + 100 + CHARE_BATCH_BYTES as u64;
    let (here, left) = (elements[1].waiting_bytes().0, elements[0].waiting_bytes().1);
    assert!(here <= BOUND + slack && left + BOUND + 2 * slack >= all, "{here} here, {left} of {all} left");
    let ends = (0..TURNS_MAX as usize).any(|turn| {
        step(&mut elements, turn % 2);
        elements.iter().all(|element| element.waiting_bytes() == (0, 0))
    });
    assert!(ends, "the broadcasts stand still");
}

#[test]
fn elements_with_other_limits_are_refused_and_not_waited_for() {
    let other = || Element::new(Pe(1), Arc::new(Elements::single_site(2)));
    let told = |bound: Option<u64>, to: &mut Element| {
        let mut first = Element::new(Pe(0), Arc::new(Elements::single_site(2)));
        bound.into_iter().for_each(|bound| first.limit_mailbox(bound));
        first.announce_mailbox_bound();
        first.take_batch().map(|(_, letter)| to.receive(Pe(0), &letter))
    };
    let mut second = other();
    second.limit_mailbox(1 << 20);
    let why = told(Some(8 << 20), &mut second).unwrap().unwrap_err().to_string();
    assert!(why.contains("1048576 bytes at element 1, 8388608 bytes at element 0"), "{why}");
    let why = told(Some(8 << 20), &mut other()).unwrap().unwrap_err().to_string();
    assert!(why.contains("268435456 bytes at element 1, 8388608 bytes at element 0"), "{why}");
    assert_eq!(told(Some(1 << 20), &mut second), Some(Ok(())));
    assert_eq!(told(None, &mut second), None, "the usual limit needs no letter");
}

#[test]
fn a_message_longer_than_the_bound_arrives() -> Result<(), ChareError> {
    let (sender, workers) = element(0, 2, 2, 100);
    let (receiver, _) = element(1, 2, 2, 100);
    let mut elements = [sender, receiver];
    elements[0].start(|cx| {
        (0..MESSAGES).for_each(|_| cx.send(workers.at(1), Load::Bytes { bytes: vec![3; MESSAGE_BYTES] }));
    });
    for _ in 0..TURNS_MAX {
        if step(&mut elements, 1) == Step::Ended {
            return Ok(());
        }
        step(&mut elements, 0);
    }
    panic!("the program never ends");
}
