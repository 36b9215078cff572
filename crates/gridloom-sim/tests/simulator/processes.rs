//! Tests of processes in virtual time, on both kinds of stack.

use std::sync::{Arc, Mutex};

use gridloom_base::Time;
use gridloom_base::time::SECOND_NS;
use gridloom_flow::NetworkModel;
use gridloom_platform::{HostId, Platform};
use gridloom_process::{Incoming, PeerId, ProcessError, ProcessMessage, ProcessSpec, ProcessWorld};
use gridloom_sim::process::{Deadlock, Runner, SimProcess, StackKind};
use gridloom_sim::{SimConfig, Simulation};

const KINDS: [StackKind; 2] = [StackKind::Coroutine, StackKind::Thread];

/// Returns hosts at a switch. A byte takes a microsecond on each of the two links between any pair; the latency of the
/// path is a millisecond.
fn platform(hosts: usize) -> Arc<Platform> {
    let mut text = String::new();
    for host in 0..hosts {
        text += &format!("[[host]]\nname = 'h{host}'\nspeed = '1Gf'\n");
        text += &format!("[[link]]\nname = 'l{host}'\nbandwidth = '1MBps'\nlatency = '0.5ms'\n");
    }
    for a in 0..hosts {
        for b in a + 1..hosts {
            text += &format!("[[route]]\nfrom = 'h{a}'\nto = 'h{b}'\nlinks = ['l{a}', 'l{b}']\n");
        }
    }
    Arc::new(Platform::parse(&text, "star.toml", &mut |_| Err("no files".into())).unwrap())
}

type Notes = Arc<Mutex<Vec<String>>>;

struct Case {
    runner: Runner,
    simulation: Arc<Mutex<Simulation>>,
    kind: StackKind,
    notes: Notes,
}

impl Case {
    fn new(kind: StackKind, hosts: usize) -> Case {
        let config = SimConfig { network: NetworkModel::WARM_TCP, message_overhead_bytes: 0, ..SimConfig::default() };
        let simulation = Arc::new(Mutex::new(Simulation::new(platform(hosts), config)));
        let runner = Runner::new(simulation.clone(), Arc::new(|_, _, _, _, _| {}));
        Case { runner, simulation, kind, notes: Notes::default() }
    }

    fn process(&mut self, host: u32, name: &str, body: impl FnOnce(&mut SimProcess, &Notes) + Send + 'static) {
        let spec = ProcessSpec { function: name.into(), host: format!("h{host}"), arguments: Vec::new() };
        let notes = self.notes.clone();
        let body = Box::new(move |mut process: SimProcess| body(&mut process, &notes));
        self.runner.add(HostId(host), spec, Time::ZERO, self.kind, body).unwrap();
    }

    fn run(mut self) -> (Result<(), Deadlock>, Vec<String>, f64, u64) {
        let outcome = self.runner.run();
        let notes = self.notes.lock().unwrap().clone();
        let simulation = self.simulation.lock().unwrap();
        (outcome, notes, simulation.now().seconds(), simulation.trace_hash())
    }
}

fn letter(kind: &str, size: usize) -> ProcessMessage {
    ProcessMessage { kind: kind.into(), payload: vec![7; size] }
}

fn note(notes: &Notes, process: &SimProcess, text: &str) {
    notes.lock().unwrap().push(format!("{:.6} {text}", process.now().seconds()));
}

fn received(process: &mut SimProcess) -> (PeerId, ProcessMessage) {
    match process.receive(None).unwrap() {
        Some(Incoming::Message { from, letter }) => (from, letter),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_takes_the_latency_and_its_size_over_the_bandwidth() {
    for kind in KINDS {
        let mut case = Case::new(kind, 2);
        case.process(0, "server", |process, notes| {
            process.listen(4000).unwrap();
            let (from, letter) = received(process);
            note(notes, process, &format!("{} of {}", letter.kind, process.describe(from)));
            process.send(from, ProcessMessage { kind: "pong".into(), ..letter }).unwrap();
        });
        case.process(1, "client", |process, notes| {
            let server = process.connect("h0", 4000).unwrap();
            note(notes, process, "connected");
            process.send(server, letter("ping", 999_996)).unwrap();
            let (from, letter) = received(process);
            assert_eq!((from, letter.payload.len()), (server, 999_996));
            note(notes, process, &letter.kind);
        });
        let (outcome, notes, ..) = case.run();
        assert_eq!(outcome, Ok(()));
        assert_eq!(notes, ["0.002000 connected", "1.003000 ping of client@h1", "2.004000 pong"], "{kind:?}");
    }
}

#[test]
fn messages_arrive_in_order_and_the_close_after_them() {
    let mut case = Case::new(StackKind::Coroutine, 2);
    case.process(0, "server", |process, notes| {
        process.listen(1).unwrap();
        loop {
            match process.receive(None).unwrap() {
                Some(Incoming::Message { letter, .. }) => note(notes, process, &letter.payload.len().to_string()),
                Some(Incoming::Closed { .. }) => return note(notes, process, "closed"),
                None => unreachable!("no limit was given"),
            }
        }
    });
    case.process(1, "client", |process, _| {
        let server = process.connect("h0", 1).unwrap();
        for size in [100_000, 10, 1000] {
            process.send(server, letter("x", size)).unwrap();
        }
        process.close(server);
        assert!(matches!(process.send(server, letter("x", 1)), Err(ProcessError::Closed { .. })));
    });
    let (outcome, notes, ..) = case.run();
    assert_eq!(outcome, Ok(()));
    let order: Vec<&str> = notes.iter().map(|note| note.split_once(' ').unwrap().1).collect();
    assert_eq!(order, ["100000", "10", "1000", "closed"]);
}

#[test]
fn time_limits_sleeps_and_computations_take_their_time() {
    for kind in KINDS {
        let mut case = Case::new(kind, 2);
        case.process(0, "p", |process, notes| {
            let limit = process.now() + SECOND_NS / 2;
            assert_eq!(process.receive(Some(limit)), Ok(None));
            note(notes, process, "nothing came");
            process.account_flops(2e9).unwrap();
            note(notes, process, "computed");
            process.sleep_until(Time(3 * SECOND_NS)).unwrap();
            note(notes, process, "slept");
            process.account_computed("block", SECOND_NS / 4).unwrap();
            note(notes, process, "measured");
        });
        let expected = ["0.500000 nothing came", "2.500000 computed", "3.000000 slept", "3.250000 measured"];
        assert_eq!(case.run().1, expected);
    }
}

#[test]
fn who_is_not_there_is_an_error_and_so_is_a_port_twice() {
    let mut case = Case::new(StackKind::Coroutine, 2);
    case.process(0, "p", |process, notes| {
        let refused = process.connect("h1", 9).unwrap_err();
        note(notes, process, &refused.to_string());
        let unknown = process.connect("nowhere", 9).unwrap_err();
        note(notes, process, &unknown.to_string());
        let port = process.listen(0).unwrap();
        assert!(port > 0);
        let twice = process.listen(port).unwrap_err().to_string();
        note(notes, process, &twice.replace(&port.to_string(), "N"));
    });
    let expected = [
        "0.002000 cannot connect to h1:9: connection refused: nobody listens",
        "0.002000 no host 'nowhere' is known; known are h0, h1",
        "0.002000 cannot listen on port N of host 'h0': process 'p' listens there",
    ];
    assert_eq!(case.run().1, expected);
}

#[test]
fn a_deadlock_reports_the_cycle_and_ends_them() {
    for kind in KINDS {
        let mut case = Case::new(kind, 2);
        for host in 0..2 {
            case.process(host, "waiter", |process, notes| {
                let error = process.receive(None).unwrap_err();
                note(notes, process, &error.to_string());
                // A process that ignores the error is unwound.
                loop {
                    let _ = process.receive(None);
                }
            });
        }
        let (outcome, notes, ..) = case.run();
        let said = outcome.unwrap_err().to_string();
        assert_eq!(
            said,
            "deadlock at 0 s: every process waits\n  waiter on h0 waits for a message\n  waiter on h1 waits for a message"
        );
        assert_eq!(notes.len(), 2);
    }
}

#[test]
fn a_sender_waits_while_too_much_is_on_its_way() {
    let mut case = Case::new(StackKind::Coroutine, 2);
    case.process(0, "server", |process, _| {
        process.listen(1).unwrap();
        for _ in 0..5 {
            received(process);
        }
    });
    case.process(1, "client", |process, notes| {
        let server = process.connect("h0", 1).unwrap();
        for _ in 0..5 {
            process.send(server, letter("x", 3_000_000)).unwrap();
            note(notes, process, "sent");
        }
    });
    let (outcome, notes, ..) = case.run();
    assert_eq!(outcome, Ok(()));
    assert_eq!(notes[..2], ["0.002000 sent", "0.002000 sent"]);
    assert!(notes[2..].iter().all(|note| !note.starts_with("0.")), "{notes:?}");
}

fn ring(kinds: &[StackKind], processes: usize, rounds: usize) -> (f64, u64) {
    let mut case = Case::new(kinds[0], 8);
    for number in 0..processes {
        case.kind = kinds[number % kinds.len()];
        case.process((number % 8) as u32, "member", move |process, _| {
            process.listen(1000 + number as u16).unwrap();
            process.sleep_until(Time(SECOND_NS)).unwrap();
            let next = (number + 1) % processes;
            let right = process.connect(&format!("h{}", next % 8), 1000 + next as u16).unwrap();
            if number == 0 {
                process.send(right, letter("token", 100)).unwrap();
            }
            for round in 0..rounds {
                let token = loop {
                    if let Some(Incoming::Message { letter, .. }) = process.receive(None).unwrap() {
                        break letter;
                    }
                };
                if number > 0 || round + 1 < rounds {
                    process.send(right, token).unwrap();
                }
            }
        });
    }
    let (outcome, _, seconds, hash) = case.run();
    assert_eq!(outcome, Ok(()));
    (seconds, hash)
}

#[test]
fn the_same_processes_produce_the_same_trace_on_either_stack_and_on_both() {
    let on_coroutines = ring(&[StackKind::Coroutine], 100, 10);
    assert_eq!(on_coroutines, ring(&[StackKind::Coroutine], 100, 10));
    assert_eq!(on_coroutines, ring(&[StackKind::Thread], 100, 10));
    // Threads pass the turn among themselves until a coroutine is next.
    assert_eq!(on_coroutines, ring(&[StackKind::Thread, StackKind::Thread, StackKind::Coroutine], 100, 10));
}

#[test]
#[ignore = "a figure, not a check"]
fn ring_figure() {
    for kind in KINDS {
        let begin = std::time::Instant::now();
        ring(&[kind], 1000, 100);
        println!("{kind:?}: {:?}", begin.elapsed());
    }
}

#[test]
fn simulated_processes_conform() {
    let text = "[[host]]\nname = 'a'\nspeed = '1Gf'\n[[host]]\nname = 'b'\nspeed = '1Gf'\n\
                [[link]]\nname = 'l'\nbandwidth = '1GBps'\nlatency = '1ms'\n\
                [[route]]\nfrom = 'a'\nto = 'b'\nlinks = ['l']\n";
    let platform = Arc::new(Platform::parse(text, "two.toml", &mut |_| Err("no files".into())).unwrap());
    for (name, case) in gridloom_conformance::process::CASES {
        for kind in KINDS {
            println!("{name}, {kind:?}");
            case(&mut |processes| {
                let simulation = Arc::new(Mutex::new(Simulation::new(platform.clone(), SimConfig::default())));
                let mut runner = Runner::new(simulation, Arc::new(|_, _, _, _, _| {}));
                let failed = Arc::new(Mutex::new(Vec::new()));
                for (host, function, body) in processes {
                    let spec = ProcessSpec { function: function.into(), host: host.into(), arguments: Vec::new() };
                    let failed = failed.clone();
                    failed.lock().unwrap().push(format!("{function} on {host}"));
                    let body = Box::new(move |mut process: SimProcess| {
                        body(&mut process);
                        failed.lock().unwrap().pop();
                    });
                    runner.add(platform.host(host).unwrap(), spec, Time::ZERO, kind, body).unwrap();
                }
                runner.run().unwrap();
                assert!(failed.lock().unwrap().is_empty(), "some process panicked");
            });
        }
    }
}

/// Every difference between runs changes the hash: sleep times, starts and ends of processes, arrivals of messages.
#[test]
fn the_hash_distinguishes_runs_of_processes() {
    let hash = |body: fn(&mut SimProcess)| {
        let hashes = KINDS.map(|kind| {
            let mut case = Case::new(kind, 2);
            case.process(0, "one", move |process, _| body(process));
            case.process(1, "other", |process, _| drop(process.receive(Some(Time(SECOND_NS)))));
            case.run().3
        });
        assert_eq!(hashes[0], hashes[1]);
        hashes[0]
    };
    let bodies: [fn(&mut SimProcess); 5] = [
        |_| (),
        |process| process.sleep_until(Time(2 * SECOND_NS)).unwrap(),
        |process| process.sleep_until(Time(5 * SECOND_NS)).unwrap(),
        |process| drop(process.connect("h1", 7)),
        |process| drop(process.receive(Some(Time(5 * SECOND_NS + 1)))),
    ];
    let hashes: std::collections::BTreeSet<u64> = bodies.into_iter().map(hash).collect();
    assert_eq!(hashes.len(), bodies.len());
}
