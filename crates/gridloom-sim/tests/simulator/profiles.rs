//! Tests of processes on a platform whose profiles change speeds, links and hosts, on both kinds of stack.

use std::sync::{Arc, Mutex};

use gridloom_base::time::seconds_to_ns;
use gridloom_base::{SplitMix64, Time};
use gridloom_flow::NetworkModel;
use gridloom_platform::Platform;
use gridloom_process::{Incoming, ProcessMessage, ProcessSpec, ProcessWorld};
use gridloom_sim::faults::Scenario;
use gridloom_sim::process::{Runner, SimProcess, StackKind};
use gridloom_sim::{SimConfig, Simulation};

const KINDS: [StackKind; 2] = [StackKind::Coroutine, StackKind::Thread];

/// Two hosts of 1 Gflop/s, connected by a link of a megabyte per second and 10 ms.
const PAIR: &str = "[[host]]\nname = 'a'\nspeed = '1Gf'\n[[host]]\nname = 'b'\nspeed = '1Gf'\n\
                    [[link]]\nname = 'wire'\nbandwidth = '1MBps'\nlatency = '10ms'\n\
                    [[route]]\nfrom = 'a'\nto = 'b'\nlinks = ['wire']\n";

type Notes = Arc<Mutex<Vec<String>>>;

struct Case {
    runner: Runner,
    simulation: Arc<Mutex<Simulation>>,
    platform: Arc<Platform>,
    kind: StackKind,
    notes: Notes,
}

impl Case {
    /// Creates the pair of hosts with a profile: its target, kind, events and other keys.
    fn new(kind: StackKind, profile: &str) -> Case {
        let text = format!("{PAIR}[[profile]]\n{profile}\n");
        let platform = Arc::new(Platform::parse(&text, "pair.toml", &mut |_| Err("no files".into())).unwrap());
        let config = SimConfig { network: NetworkModel::WARM_TCP, message_overhead_bytes: 0, ..SimConfig::default() };
        let simulation = Arc::new(Mutex::new(Simulation::new(platform.clone(), config)));
        let runner = Runner::new(simulation.clone(), Arc::new(|_, _, _, _, _| {}));
        Case { runner, simulation, platform, kind, notes: Notes::default() }
    }

    /// Adds a process, which is restarted with its host.
    fn process(&mut self, host: &str, start_s: f64, body: impl Fn(&mut SimProcess, &Notes) + Clone + Send + 'static) {
        let spec = ProcessSpec { function: "main".into(), host: host.into(), arguments: Vec::new() };
        let (notes, id) = (self.notes.clone(), self.platform.host(host).unwrap());
        let make = Box::new(move || -> gridloom_sim::process::Body {
            let (body, notes) = (body.clone(), notes.clone());
            Box::new(move |mut process: SimProcess| body(&mut process, &notes))
        });
        self.runner.add_restarting(id, spec, Time(seconds_to_ns(start_s)), self.kind, make, true).unwrap();
    }

    fn faults(&mut self, text: &str) {
        let scenario = Scenario::parse(text, "f").unwrap();
        let mut simulation = self.simulation.lock().unwrap();
        let strikes = scenario.strikes(&Default::default(), &mut SplitMix64::new(0), simulation.now());
        simulation.schedule(strikes);
    }

    /// Returns the notes of the processes, and how the run ended.
    fn run(mut self) -> (Vec<String>, String) {
        let outcome = self.runner.run();
        (self.notes.lock().unwrap().clone(), outcome.map_or_else(|deadlock| deadlock.to_string(), |()| "well".into()))
    }
}

fn note(notes: &Notes, process: &SimProcess, text: &str) {
    notes.lock().unwrap().push(format!("{:.3} {text}", process.now().seconds()));
}

/// Runs a case on both kinds of stack, which must give the same result, and returns it.
fn on_both(profile: &str, prepare: impl Fn(&mut Case)) -> (Vec<String>, String) {
    let [one, other] = KINDS.map(|kind| {
        let mut case = Case::new(kind, profile);
        prepare(&mut case);
        case.run()
    });
    assert_eq!(one, other);
    one
}

/// Adds a process on `b` that notes when messages arrive, until the connection closes.
fn listener(case: &mut Case) {
    case.process("b", 0.0, |process, notes| {
        process.listen(1).unwrap();
        while let Ok(Some(incoming)) = process.receive(None) {
            match incoming {
                Incoming::Message { letter, .. } => note(notes, process, &letter.kind),
                Incoming::Closed { .. } => return note(notes, process, "closed"),
            }
        }
        note(notes, process, "must end");
    });
}

fn letter(kind: &str, size: usize) -> ProcessMessage {
    ProcessMessage { kind: kind.into(), payload: vec![7; size] }
}

#[test]
fn a_computation_follows_the_speed_of_its_host() {
    let noted = on_both("host = 'a'\nkind = 'speed'\nevents = [[1, 0.5], [3, 0], [5, 1]]", |case| {
        case.process("a", 0.0, |process, notes| {
            // One Gflop at full speed, one at half speed in two seconds, none, one more.
            process.account_flops(3e9).unwrap();
            note(notes, process, "done");
        });
    });
    assert_eq!(noted, (vec!["6.000 done".into()], "well".into()));
}

#[test]
fn messages_follow_bandwidth_and_latency() {
    let send = |case: &mut Case| {
        listener(case);
        case.process("a", 0.0, |process, _| {
            process.sleep_until(Time(seconds_to_ns(0.001))).unwrap();
            let peer = process.connect("b", 1).unwrap();
            process.sleep_until(Time(seconds_to_ns(1.0))).unwrap();
            process.send(peer, letter("big", 999_996)).unwrap();
            process.sleep_until(Time(seconds_to_ns(5.0))).unwrap();
            process.close(peer);
        });
    };
    let (noted, _) = on_both("link = 'wire'\nkind = 'bandwidth'\nevents = [[1.51, 0.5e6]]", send);
    // Half of it is sent in half a second after the latency, the other half at half the rate.
    assert_eq!(noted, ["2.510 big", "5.010 closed"]);
    let (noted, _) = on_both("link = 'wire'\nkind = 'latency'\nevents = [[0.5, 0.3]]", send);
    assert_eq!(noted, ["2.300 big", "5.300 closed"]);
}

#[test]
fn a_link_that_is_off_is_a_cut_that_heals() {
    let profile = "link = 'wire'\nkind = 'state'\nevents = [[1.5, 0], [3, 1]]";
    let (noted, outcome) = on_both(profile, |case| {
        listener(case);
        case.process("a", 0.0, |process, _| {
            process.sleep_until(Time(seconds_to_ns(0.001))).unwrap();
            let peer = process.connect("b", 1).unwrap();
            process.sleep_until(Time(seconds_to_ns(1.0))).unwrap();
            process.send(peer, letter("cut in two", 999_990)).unwrap();
            process.sleep_until(Time(seconds_to_ns(2.0))).unwrap();
            process.send(peer, letter("into nothing", 0)).unwrap();
            let error = process.connect("b", 1).unwrap_err().to_string();
            assert_eq!(error, "cannot connect to b:1: no answer");
            process.close(peer);
        });
    });
    // The transfer in progress starts over, and later messages wait for it; the attempt to connect took five seconds.
    assert_eq!(noted, ["4.010 cut in two", "4.010 into nothing", "7.030 closed"]);
    assert_eq!(outcome, "well");
}

#[test]
fn a_host_that_is_off_takes_its_processes_and_starts_them_again() {
    let profile = "host = 'b'\nkind = 'state'\nevents = [[1, 0], [2, 1]]";
    let (noted, outcome) = on_both(profile, |case| {
        listener(case);
        case.process("a", 0.0, |process, notes| {
            for _ in 0..2 {
                let peer = loop {
                    match process.connect("b", 1) {
                        Ok(peer) => break peer,
                        Err(_) => process.sleep_until(process.now() + seconds_to_ns(0.1)).unwrap(),
                    }
                };
                process.send(peer, letter("hello", 0)).unwrap();
                let until = process.now() + seconds_to_ns(1.5);
                match process.receive(Some(until)).unwrap() {
                    Some(Incoming::Closed { why, .. }) => note(notes, process, &why),
                    other => note(notes, process, &format!("{other:?}")),
                }
            }
        });
    });
    let times: Vec<&str> = noted.iter().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(times, ["hello", "must end", "main@b:1 has closed it", "hello", "None", "closed"]);
    assert!(noted[1].starts_with("1.000") && noted[2].starts_with("1.010"), "{noted:?}");
    assert_eq!(outcome, "well");
}

#[test]
fn who_is_to_start_on_a_host_that_is_off_starts_with_it() {
    let start = |case: &mut Case| {
        case.process("b", 0.5, |process, notes| note(notes, process, "begins"));
        case.process("a", 0.0, |process, _| process.account_flops(1e9).unwrap());
    };
    let (noted, outcome) = on_both("host = 'b'\nkind = 'state'\nevents = [[0, 0], [2, 1]]", start);
    assert_eq!((noted, &*outcome), (vec!["2.000 begins".to_string()], "well"));
    let (noted, outcome) = on_both("host = 'b'\nkind = 'state'\nevents = [[0, 0]]", start);
    assert_eq!(noted, [""; 0]);
    assert_eq!(outcome, "deadlock at 1 s: every process waits\n  main on b waits for its host to be on");
}

#[test]
fn a_profile_that_repeats_for_ever_hides_no_deadlock() {
    let profile = "link = 'wire'\nkind = 'bandwidth'\nevents = [[0, 1e6], [1, 0.5e6]]\nloop_after = 1";
    let (_, outcome) = on_both(profile, |case| case.process("a", 0.0, |process, _| drop(process.receive(None))));
    assert_eq!(outcome, "deadlock at 0 s: every process waits\n  main on a waits for a message");
}

/// Nothing else runs meanwhile: the run continues until the host is on again.
#[test]
fn a_crashed_host_starts_its_processes_again_also_if_they_are_alone() {
    let begin = |case: &mut Case| {
        case.process("b", 0.0, |process, notes| {
            note(notes, process, "begins");
            if process.sleep_until(process.now() + 2_000_000_000).is_ok() {
                note(notes, process, "ends");
            }
        });
    };
    let expected = ["0.000 begins", "4.000 begins", "6.000 ends"];
    let none = "link = 'wire'\nkind = 'latency'\nevents = [[0.5, 0.3]]";
    let (noted, outcome) = on_both(none, |case| {
        begin(case);
        case.faults("at 1s off b for 3s\nat 9s on a");
    });
    assert_eq!((noted.iter().map(String::as_str).collect::<Vec<_>>(), &*outcome), (expected.to_vec(), "well"));
    let (noted, outcome) = on_both("host = 'b'\nkind = 'state'\nevents = [[1, 0], [4, 1]]", begin);
    assert_eq!((noted.iter().map(String::as_str).collect::<Vec<_>>(), &*outcome), (expected.to_vec(), "well"));
}

#[test]
fn a_host_that_stays_off_ends_the_run_whatever_else_changes() {
    let loops = "link = 'wire'\nkind = 'bandwidth'\nevents = [[0, 1e6], [1, 0.5e6]]\nloop_after = 1";
    let (noted, outcome) = on_both(loops, |case| {
        case.process("b", 0.0, |process, notes| {
            note(notes, process, "begins");
            drop(process.sleep_until(Time(seconds_to_ns(5.0))));
        });
        case.faults("at 1s off b");
    });
    assert_eq!((noted, &*outcome), (vec!["0.000 begins".to_string()], "well"));
}

#[test]
fn who_is_restarted_while_its_host_is_off_starts_once() {
    let none = "link = 'wire'\nkind = 'latency'\nevents = [[0.5, 0.3]]";
    let (noted, outcome) = on_both(none, |case| {
        case.process("b", 0.0, |process, notes| {
            note(notes, process, "begins");
            drop(process.sleep_until(Time(seconds_to_ns(5.0))));
        });
        case.faults("at 1s off b\nat 2s restart main@b\nat 3s on b");
    });
    assert_eq!(
        (noted.iter().map(String::as_str).collect::<Vec<_>>(), &*outcome),
        (vec!["0.000 begins", "3.000 begins"], "well")
    );
}
