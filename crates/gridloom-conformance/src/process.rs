//! The conformance suite of processes: the same code must behave the same in every world.
//!
//! The cases use [`ProcessWorld`]. `gridloom-sim` runs them in the simulated world and `gridloom-net` on real sockets.
//! There are two hosts, `a` and `b`.

use std::sync::mpsc::{Sender, channel};

use gridloom_base::limits::{SEND_QUEUE_BYTES_MAX, URGENT_BYTES_MAX};
use gridloom_base::time::{MILLISECOND_NS, SECOND_NS};
use gridloom_process::{Incoming, PeerId, ProcessError, ProcessMessage, ProcessWorld};

/// The code of a process.
pub type ProcessBody = Box<dyn FnOnce(&mut dyn ProcessWorld) + Send>;

/// Runs the suite's processes, each a `(host, name, code)`, until all have returned.
pub type ProcessRunner<'a> = &'a mut dyn FnMut(Vec<(&'static str, &'static str, ProcessBody)>);

/// A case: its name and its code.
pub type Case = (&'static str, fn(ProcessRunner<'_>));

pub const CASES: &[Case] = &[
    ("a message is sent and answered", there_and_back),
    ("messages of a connection keep their order, and the close is last", order_and_close),
    ("two processes that send much to each other both receive it", both_ways),
    ("a time limit is observed", time_limit),
    ("connecting where no process listens is an error", nobody_there),
    ("a closed connection accepts nothing more", closed_takes_nothing),
    ("several senders are distinguished", several_senders),
    ("sent messages arrive even if the sender has unread ones", unread_and_gone),
    ("a closed connection stays closed on both sides", stays_closed),
    ("a process may connect to itself", with_itself),
    ("an offer without room is returned and accepted later", offered),
    ("an urgent message overtakes queued ones", urgent_passes),
    ("an offered message arrives even if its sender closes", offered_and_closed),
    ("a closed connection accepts no offer and nothing urgent", closed_takes_no_offer),
];

fn note(notes: &Sender<String>, text: String) {
    notes.send(text).expect("the case listens until all processes have ended");
}

fn letter(kind: &str, payload: Vec<u8>) -> ProcessMessage {
    ProcessMessage { kind: kind.into(), payload }
}

/// Connects as soon as a process listens there.
fn reach(world: &mut dyn ProcessWorld, host: &str, port: u16) -> PeerId {
    for _ in 0..1000 {
        match world.connect(host, port) {
            Ok(peer) => return peer,
            Err(ProcessError::CannotConnect { .. }) => {
                let at = world.now() + 10 * MILLISECOND_NS;
                world.sleep_until(at).expect("the world has not ended");
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("nobody listens at {host}:{port}");
}

fn next_letter(world: &mut dyn ProcessWorld) -> (PeerId, ProcessMessage) {
    match world.receive(None).expect("the world has not ended") {
        Some(Incoming::Message { from, letter }) => (from, letter),
        other => panic!("expected a message, got {other:?}"),
    }
}

fn there_and_back(run: ProcessRunner<'_>) {
    let (here, notes) = channel();
    let there = here.clone();
    run(vec![
        (
            "a",
            "server",
            Box::new(move |world| {
                assert_eq!(world.listen(4001), Ok(4001));
                let (from, got) = next_letter(world);
                note(&here, format!("{} from {}", got.kind, world.describe(from)));
                world.send(from, letter("pong", got.payload)).expect("the client waits for it");
                assert!(matches!(world.receive(None), Ok(Some(Incoming::Closed { peer, .. })) if peer == from));
            }),
        ),
        (
            "b",
            "client",
            Box::new(move |world| {
                let server = reach(world, "a", 4001);
                note(&there, format!("to {}", world.describe(server)));
                world.send(server, letter("ping", vec![1, 2, 3])).expect("the server waits for it");
                let (from, got) = next_letter(world);
                assert_eq!((from, &*got.kind, got.payload), (server, "pong", vec![1, 2, 3]));
                world.close(server);
            }),
        ),
    ]);
    assert_eq!(notes.try_iter().collect::<Vec<String>>(), ["to server@a:4001", "ping from client@b"]);
}

fn order_and_close(run: ProcessRunner<'_>) {
    let (heard, notes) = channel();
    run(vec![
        (
            "a",
            "server",
            Box::new(move |world| {
                world.listen(4002).expect("the port is free");
                loop {
                    match world.receive(None).expect("the world has not ended") {
                        Some(Incoming::Message { letter, .. }) => note(&heard, letter.payload.len().to_string()),
                        Some(Incoming::Closed { .. }) => return note(&heard, "closed".into()),
                        None => unreachable!("no time limit was given"),
                    }
                }
            }),
        ),
        (
            "b",
            "client",
            Box::new(|world| {
                let server = reach(world, "a", 4002);
                for size in [100_000, 0, 3, 2_000_000, 10] {
                    world.send(server, letter("x", vec![7; size])).expect("the server takes all");
                }
                world.close(server);
            }),
        ),
    ]);
    assert_eq!(notes.try_iter().collect::<Vec<String>>(), ["100000", "0", "3", "2000000", "10", "closed"]);
}

fn both_ways(run: ProcessRunner<'_>) {
    const SIZE: usize = 24 << 20;
    let exchange = |world: &mut dyn ProcessWorld, peer: PeerId| {
        for part in 0..4u8 {
            world.send(peer, letter("much", vec![part; SIZE / 4])).expect("the other reads meanwhile");
        }
        for part in 0..4u8 {
            let (_, got) = next_letter(world);
            assert_eq!((got.payload.len(), got.payload[0]), (SIZE / 4, part));
        }
        // The process that finishes first lets the other close the connection.
        world.send(peer, letter("done", Vec::new())).expect("the other waits for it");
        assert_eq!(&*next_letter(world).1.kind, "done");
    };
    run(vec![
        (
            "a",
            "server",
            Box::new(move |world| {
                world.listen(4003).expect("the port is free");
                let (from, _) = next_letter(world);
                exchange(world, from);
            }),
        ),
        (
            "b",
            "client",
            Box::new(move |world| {
                let server = reach(world, "a", 4003);
                world.send(server, letter("hello", Vec::new())).expect("the server waits for it");
                exchange(world, server);
            }),
        ),
    ]);
}

fn time_limit(run: ProcessRunner<'_>) {
    run(vec![(
        "a",
        "waiter",
        Box::new(|world| {
            world.listen(4004).expect("the port is free");
            let until = world.now() + SECOND_NS / 20;
            assert_eq!(world.receive(Some(until)), Ok(None));
            assert!(world.now() >= until);
            let until = world.now() + SECOND_NS / 20;
            world.sleep_until(until).expect("the world has not ended");
            assert!(world.now() >= until);
        }),
    )]);
}

fn nobody_there(run: ProcessRunner<'_>) {
    run(vec![(
        "a",
        "caller",
        Box::new(|world| {
            let error = world.connect("b", 4005).expect_err("nobody listens");
            assert_eq!(error.to_string(), "cannot connect to b:4005: connection refused: nobody listens");
            let error = world.connect("nowhere", 4005).expect_err("there is no such host");
            assert_eq!(error.to_string(), "no host 'nowhere' is known; known are a, b");
            world.listen(4005).expect("the port is free");
            assert!(matches!(world.listen(4005), Err(ProcessError::CannotListen { port: 4005, .. })));
            assert!(world.listen(0).expect("some port is free") > 0);
        }),
    )]);
}

fn closed_takes_nothing(run: ProcessRunner<'_>) {
    run(vec![
        (
            "a",
            "server",
            Box::new(|world| {
                world.listen(4006).expect("the port is free");
                let (from, _) = next_letter(world);
                world.close(from);
                let error = world.send(from, letter("late", Vec::new())).expect_err("it was closed");
                assert!(matches!(error, ProcessError::Closed { .. }), "{error}");
            }),
        ),
        (
            "b",
            "client",
            Box::new(|world| {
                let server = reach(world, "a", 4006);
                world.send(server, letter("hello", Vec::new())).expect("the server waits for it");
                assert!(matches!(world.receive(None), Ok(Some(Incoming::Closed { peer, .. })) if peer == server));
                let error = world.send(server, letter("late", Vec::new())).expect_err("it was closed");
                assert!(matches!(error, ProcessError::Closed { .. }), "{error}");
            }),
        ),
    ]);
}

fn several_senders(run: ProcessRunner<'_>) {
    let client = |number: u8| -> ProcessBody {
        Box::new(move |world| {
            let server = reach(world, "a", 4007);
            world.send(server, letter("number", vec![number])).expect("the server waits for it");
            let (_, got) = next_letter(world);
            assert_eq!(got.payload, [number, number]);
        })
    };
    run(vec![
        (
            "a",
            "server",
            Box::new(|world| {
                world.listen(4007).expect("the port is free");
                let letters: Vec<(PeerId, ProcessMessage)> = {
                    let mut letters = Vec::new();
                    while letters.len() < 3 {
                        letters.push(next_letter(world));
                    }
                    letters
                };
                for (from, got) in letters {
                    let payload = [&got.payload[..], &got.payload[..]].concat();
                    world.send(from, letter("twice", payload)).expect("it waits for it");
                }
            }),
        ),
        ("a", "client", client(1)),
        ("b", "client", client(2)),
        ("b", "client", client(3)),
    ]);
}

fn unread_and_gone(run: ProcessRunner<'_>) {
    const SIZE: usize = 300_000;
    let pause = |world: &mut dyn ProcessWorld, ns: u64| {
        let at = world.now() + ns;
        world.sleep_until(at).expect("the world has not ended");
    };
    let client = move |closes: bool| -> ProcessBody {
        Box::new(move |world| {
            let server = reach(world, "a", 4008);
            world.send(server, letter("hello", Vec::new())).expect("the server waits for it");
            pause(world, SECOND_NS / 5);
            world.send(server, letter("much", vec![7; SIZE])).expect("the server takes it");
            if closes {
                world.close(server);
            }
        })
    };
    run(vec![
        (
            "a",
            "server",
            Box::new(move |world| {
                world.listen(4008).expect("the port is free");
                for _ in 0..2 {
                    let (from, _) = next_letter(world);
                    world.send(from, letter("unread", vec![1; 100])).expect("the client is there");
                }
                pause(world, SECOND_NS / 2);
                let mut got = Vec::new();
                while got.len() < 2 {
                    match world.receive(None).expect("the world has not ended") {
                        Some(Incoming::Message { letter, .. }) => got.push(letter.payload.len()),
                        Some(Incoming::Closed { why, .. }) => assert!(!got.is_empty(), "{why}"),
                        None => unreachable!("no time limit was given"),
                    }
                }
                assert_eq!(got, [SIZE, SIZE]);
            }),
        ),
        ("b", "closes", client(true)),
        ("b", "returns", client(false)),
    ]);
}

fn stays_closed(run: ProcessRunner<'_>) {
    run(vec![
        (
            "a",
            "server",
            Box::new(|world| {
                world.listen(4009).expect("the port is free");
                let (from, _) = next_letter(world);
                assert!(!world.is_closed(from));
                world.send(from, letter("last", Vec::new())).expect("the client waits for it");
                world.close(from);
                assert!(world.is_closed(from));
                world.close(from);
                assert!(world.is_closed(from));
            }),
        ),
        (
            "b",
            "client",
            Box::new(|world| {
                let server = reach(world, "a", 4009);
                world.send(server, letter("hello", Vec::new())).expect("the server waits for it");
                assert!(!world.is_closed(server));
                next_letter(world);
                assert!(matches!(world.receive(None), Ok(Some(Incoming::Closed { peer, .. })) if peer == server));
                assert!(world.is_closed(server));
                let until = world.now() + SECOND_NS / 100;
                assert_eq!(world.receive(Some(until)), Ok(None));
                assert!(world.is_closed(server));
            }),
        ),
    ]);
}

fn with_itself(run: ProcessRunner<'_>) {
    run(vec![(
        "a",
        "alone",
        Box::new(|world| {
            world.listen(4010).expect("the port is free");
            let there = reach(world, "a", 4010);
            world.send(there, letter("to me", vec![1])).expect("it is taken");
            let (here, got) = next_letter(world);
            assert_ne!(here, there);
            assert_eq!(&*got.kind, "to me");
            world.send(here, letter("back", vec![2])).expect("it is taken");
            assert_eq!(next_letter(world).0, there);
            world.close(there);
            assert!(matches!(world.receive(None), Ok(Some(Incoming::Closed { peer, .. })) if peer == here));
        }),
    )]);
}

/// Returns a process with a connection to itself. Nothing is read until the process waits. Its code gets the connecting
/// end.
fn alone(
    port: u16,
    code: impl FnOnce(&mut dyn ProcessWorld, PeerId) + Send + 'static,
) -> (&'static str, &'static str, ProcessBody) {
    let body = move |world: &mut dyn ProcessWorld| {
        world.listen(port).expect("the port is free");
        let there = reach(world, "a", port);
        code(world, there);
    };
    ("a", "alone", Box::new(body))
}

/// Size of one message of [`fill`], in bytes.
const PART_BYTES: usize = 64 << 10;

/// Offers messages of type `bulk` until one is returned. Returns the number of accepted messages.
fn fill(world: &mut dyn ProcessWorld, peer: PeerId) -> usize {
    // This is more than any system's buffers and the bytes that may be queued.
    let most = (64 << 20) / PART_BYTES;
    for taken in 0..most {
        let one = letter("bulk", vec![taken as u8; PART_BYTES]);
        if let Some(back) = world.offer(peer, one.clone()).expect("the connection is open") {
            assert_eq!(back, one);
            return taken;
        }
    }
    panic!("{most} messages were accepted, and none was read");
}

/// Receives the messages of [`fill`] with these numbers.
fn drain(world: &mut dyn ProcessWorld, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let (_, got) = next_letter(world);
        assert_eq!((&*got.kind, got.payload.len(), got.payload[0]), ("bulk", PART_BYTES, number as u8));
    }
}

fn offered(run: ProcessRunner<'_>) {
    run(vec![alone(4011, |world, there| {
        let taken = fill(world, there);
        assert!((taken * PART_BYTES) as u64 >= SEND_QUEUE_BYTES_MAX, "{taken} were taken");
        world.send(there, letter("last", Vec::new())).expect("it waits for room");
        drain(world, 0..taken);
        assert_eq!(&*next_letter(world).1.kind, "last");
        assert_eq!(world.offer(there, letter("more", Vec::new())), Ok(None));
        assert_eq!(&*next_letter(world).1.kind, "more");
    })]);
}

fn urgent_passes(run: ProcessRunner<'_>) {
    run(vec![alone(4012, |world, there| {
        let taken = fill(world, there);
        for number in 0..3 {
            world.send_urgent(there, letter("urgent", vec![number])).expect("the connection is open");
        }
        let large = letter("urgent", vec![0; URGENT_BYTES_MAX as usize + 1]);
        assert!(matches!(world.send_urgent(there, large), Err(ProcessError::TooLarge { .. })));
        let (mut bulk, mut urgent, mut after) = (0, 0, 0);
        while bulk < taken || urgent < 3 {
            match next_letter(world).1 {
                got if &*got.kind == "urgent" => {
                    assert_eq!(got.payload, [urgent]);
                    urgent += 1;
                }
                got => {
                    assert_eq!(got.payload[0], bulk as u8);
                    bulk += 1;
                    after += usize::from(urgent > 0);
                }
            }
        }
        // All queued messages except the one that had begun.
        let waited = SEND_QUEUE_BYTES_MAX as usize / PART_BYTES;
        assert!(after + 2 > waited, "{after} of {taken} messages arrived after the first urgent one");
    })]);
}

fn offered_and_closed(run: ProcessRunner<'_>) {
    run(vec![alone(4013, |world, there| {
        let taken = fill(world, there);
        world.close(there);
        drain(world, 0..taken);
        assert!(matches!(world.receive(None), Ok(Some(Incoming::Closed { peer, .. })) if peer != there));
    })]);
}

fn closed_takes_no_offer(run: ProcessRunner<'_>) {
    run(vec![alone(4014, |world, there| {
        world.close(there);
        let error = world.offer(there, letter("late", Vec::new())).expect_err("it was closed");
        assert!(matches!(error, ProcessError::Closed { .. }), "{error}");
        let error = world.send_urgent(there, letter("late", Vec::new())).expect_err("it was closed");
        assert!(matches!(error, ProcessError::Closed { .. }), "{error}");
        let large = letter("large", vec![0; URGENT_BYTES_MAX as usize + 1]);
        assert!(matches!(world.send_urgent(there, large), Err(ProcessError::TooLarge { .. })));
    })]);
}
