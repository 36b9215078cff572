//! `gridloom chares run` with elements that are processes. The program is this test binary.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use gridloom::Message;
use gridloom::chares::{
    self, AsyncContext, Callback, Chare, Context, Contribution, Job, Migrate, Pe, Placement, Value,
};
use gridloom::process::DEPLOY_VARIABLE;

use crate::support::{gridloom, succeeds};

/// Environment variable that selects the program's case.
pub(crate) const CASE: &str = "GRIDLOOM_TEST_CHARES";

/// Returns a `gridloom chares run` of that case of the program below, with these options.
pub(crate) fn chares_run(case: &str, options: &[&str]) -> Command {
    let own = std::env::current_exe().unwrap().display().to_string();
    let words = ["--", &own, "--exact", "--ignored", "--nocapture", "chares::a_program_of_chares"];
    let mut command = gridloom(&[&["chares", "run"], options, &words].concat());
    command.env(CASE, case).env_remove("GRIDLOOM_TESTBED_HOST");
    command
}

#[derive(Clone, Message)]
enum Ask {
    Square {
        of: f64,
    },
    Ball {
        left: u32,
    },
    Keep {
        bytes: Vec<u8>,
    },
    Hop {
        left: u32,
    },
    Spin,
    Fall,
    /// The receiver makes the first chare of its process compute for ever, and then fails.
    Stick,
    Stop,
}

/// True when the first chare is in an entry method that never ends.
static COMPUTES: AtomicBool = AtomicBool::new(false);

struct BallChare {
    began: f64,
    kept: usize,
}

impl Migrate for BallChare {
    type State = (f64, usize);

    fn pack(&self) -> (f64, usize) {
        (self.began, self.kept)
    }
}

impl Chare for BallChare {
    type Message = Ask;

    fn entry(&mut self, message: Ask, cx: &mut Context<'_, BallChare>) {
        let index = cx.index()[0];
        match message {
            Ask::Square { of } => {
                let own = of + f64::from(index);
                cx.contribute(Contribution::sum(own * own), Callback::exit());
            }
            Ask::Ball { left } => {
                if self.began == 0.0 {
                    self.began = cx.now();
                }
                match left {
                    0 => cx.exit(cx.now() - self.began),
                    _ => cx.send(cx.array().at(1 - index), Ask::Ball { left: left - 1 }),
                }
            }
            Ask::Keep { bytes } => {
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "the message is whole");
                self.kept += bytes.len();
            }
            Ask::Hop { left } => {
                self.kept += 1;
                cx.migrate_to(Pe((cx.element().0 + 1) % cx.elements().count()));
                match left {
                    0 => cx.when_quiet(cx.array().at(0)),
                    _ => cx.send(cx.array().section([index, 1 - index]), Ask::Hop { left: left - 1 }),
                }
            }
            Ask::Spin if cx.element() != Pe(0) => cx.exit(f64::from(cx.element().0)),
            Ask::Spin => {
                let began = std::time::Instant::now();
                while began.elapsed() < std::time::Duration::from_micros(100) {}
                cx.send(cx.this(), Ask::Spin);
            }
            Ask::Fall if index == 1 => std::process::abort(),
            Ask::Fall => {}
            Ask::Stick if index == 0 => {
                COMPUTES.store(true, Ordering::Relaxed);
                loop {
                    std::thread::park();
                }
            }
            Ask::Stick if COMPUTES.load(Ordering::Relaxed) => cx.fail("no more of it"),
            Ask::Stick => {
                if self.kept == 0 {
                    cx.send(cx.array().at(0), Ask::Stick);
                }
                self.kept += 1;
                cx.send(cx.this(), Ask::Stick);
            }
            Ask::Stop => cx.contribute(Contribution::sum(self.kept as i64), Callback::exit()),
        }
    }

    fn on_result(&mut self, _: u32, _: Value, cx: &mut Context<'_, BallChare>) {
        cx.send(cx.array().all(), Ask::Stop);
    }
}

/// Each chare sends its number on around the ring until it returns.
struct Ring {
    count: i32,
}

impl Chare for Ring {
    type Message = Ask;

    fn entry(&mut self, ask: Ask, cx: &mut Context<'_, Ring>) {
        cx.keep(ask);
    }
}

impl Ring {
    async fn run(cx: AsyncContext<Ring>) {
        let (own, count) = (cx.index()[0], cx.with(|ring| ring.count));
        let right = cx.array().at((own + 1) % count);
        let channel = (cx.channel(right), cx.channel(cx.array().at((own + count - 1) % count)));
        let mut number = Value::from(i64::from(own));
        for _ in 0..count {
            channel.0.send(number);
            number = channel.1.receive().await;
        }
        assert_eq!(number.integer(), Some(i64::from(own)));
        let sum = cx.all_reduce(Contribution::sum(i64::from(own))).await;
        cx.exit(sum);
    }
}

fn program(job: &mut Job<'_>) -> Result<(), gridloom::Error> {
    let case = std::env::var(CASE).unwrap();
    if case == "ring" {
        let count = 3 * job.elements().count() as i32;
        let rings = job.array(count as usize, Placement::RoundRobin, |_| Ring { count })?;
        job.spawn(rings, Ring::run);
        return Ok(());
    }
    if case == "unlike" {
        job.mailbox_bytes((8 << 20) * u64::from(job.element().0 + 1))?;
    }
    let (count, placement) = match case.as_str() {
        "spin" => (16, Placement::custom(|_, _| Pe(0))),
        _ => (job.elements().count() as usize, Placement::Blocks),
    };
    let players = job.migratable_array(count, placement, |_, state| {
        let (began, kept) = state.unwrap_or_default();
        BallChare { began, kept }
    })?;
    job.start(|cx| match case.as_str() {
        "squares" => cx.send(players.all(), Ask::Square { of: 1.0 }),
        "ball" => cx.send(players.at(0), Ask::Ball { left: 10 }),
        "fall" => cx.send(players.all(), Ask::Fall),
        "stick" => cx.send(players.at(1), Ask::Stick),
        "bulk" => {
            // More than can be in flight to an element at once, and more than can be queued for it.
            for number in 0..40 {
                cx.send(players.at(1), Ask::Keep { bytes: vec![number; 3 << 20] });
            }
            cx.when_quiet(players.at(0));
        }
        "hop" => cx.send(players.at(0), Ask::Hop { left: 8 }),
        "spin" => cx.send(players.all(), Ask::Spin),
        "nothing" | "unlike" => assert_eq!(cx.element(), Pe(0)),
        other => panic!("no case {other}"),
    });
    Ok(())
}

/// Run by the other tests as an element.
#[test]
#[ignore = "a process of another test"]
fn a_program_of_chares() {
    if std::env::var_os(DEPLOY_VARIABLE).is_some() {
        match chares::run(program) {
            Ok(ended) if ended.is_first => println!("ended with {:?}", ended.value),
            Ok(_) => {}
            Err(error) => {
                eprintln!("failed: {error}");
                std::process::exit(3);
            }
        }
    }
}

fn lines(text: &str, with: &str) -> Vec<String> {
    text.lines().filter(|line| line.contains(with)).map(str::to_string).collect()
}

#[test]
fn elements_that_are_processes_reduce_and_end() {
    let out = succeeds(chares_run("squares", &["-n", "3"]));
    assert_eq!(lines(&out, "ended"), ["element@0| ended with Floats([14.0])"]);
    let out = succeeds(chares_run("squares", &["-n", "1"]));
    assert_eq!(lines(&out, "ended"), ["element@0| ended with Floats([1.0])"]);
}

#[test]
fn chares_that_wait_find_one_another_across_processes() {
    let out = succeeds(chares_run("ring", &["-n", "3", "--sites", "3", "--latency", "1ms"]));
    assert_eq!(lines(&out, "ended"), ["element@0| ended with Integers([36])"]);
}

#[test]
fn messages_between_sites_are_delayed_and_others_are_not() {
    let seconds = |options: &[&str]| {
        let out = succeeds(chares_run("ball", options));
        let told = &lines(&out, "ended with Floats")[0];
        told.trim_end_matches("])").rsplit('[').next().unwrap().parse::<f64>().unwrap()
    };
    let apart = seconds(&["-n", "2", "--sites", "2", "--latency", "40ms"]);
    assert!(apart >= 10.0 * 0.04, "ten messages over 40 ms took {apart} s");
    let apart = seconds(&["-n", "2", "--sites", "2", "--filter", "delay=20ms", "--filter", "jitter=1ms"]);
    assert!(apart >= 10.0 * 0.02, "ten messages over 20 ms and more took {apart} s");
    let together = seconds(&["-n", "4", "--sites", "2", "--latency", "10s"]);
    assert!(together < 10.0, "elements of one site took {together} s");
}

/// Every filter alone, and all of them.
const FILTERS: [&[&str]; 6] = [
    &["--filter", "compress"],
    &["--filter", "rate=400MBps"],
    &["--filter", "delay=3ms"],
    &["--filter", "jitter=5ms"],
    &["--filter", "stripe=3"],
    &["--filter=compress", "--filter=rate=1MBps", "--filter=stripe=2", "--filter=delay=3ms", "--filter=jitter=5ms"],
];

#[test]
fn each_message_passes_each_filter_whole_and_once() {
    for filters in FILTERS {
        let out = succeeds(chares_run("hop", &[&["-n", "2", "--sites", "2"], filters].concat()));
        assert_eq!(lines(&out, "ended"), ["element@0| ended with Integers([511])"], "{filters:?}");
        // More than can be queued for an element, and more than the filters let pass at once.
        let out = succeeds(chares_run("bulk", &[&["-n", "2", "--sites", "2"], filters].concat()));
        let whole = format!("element@0| ended with Integers([{}])", 40 * (3 << 20));
        assert_eq!(lines(&out, "ended"), [whole], "{filters:?}");
    }
}

#[test]
fn messages_wait_for_their_turn_by_the_rate() {
    let began = std::time::Instant::now();
    succeeds(chares_run("bulk", &["-n", "2", "--sites", "2", "--filter", "rate=100MBps"]));
    let seconds = began.elapsed().as_secs_f64();
    assert!(seconds >= 40.0 * f64::from(3 << 20) / 100e6, "126 MB at 100 MB/s took {seconds} s");
}

#[test]
fn much_for_an_element_waits_and_arrives() {
    let out = succeeds(chares_run("bulk", &["-n", "2"]));
    assert_eq!(lines(&out, "ended"), [format!("element@0| ended with Integers([{}])", 40 * (3 << 20))]);
}

#[test]
fn messages_find_chares_that_move_at_each_of_them() {
    let out = succeeds(chares_run("hop", &["-n", "2"]));
    assert_eq!(lines(&out, "ended"), ["element@0| ended with Integers([511])"]);
}

#[test]
fn elements_that_are_threads_of_one_process_do_what_processes_do() {
    for (elements, ppn) in [("2", "2"), ("3", "3"), ("5", "2")] {
        let by = ["-n", elements, "--ppn", ppn];
        let out = succeeds(chares_run("squares", &by));
        let number = elements.parse::<i64>().unwrap();
        let label = format!("element@0-{}| ended with", ppn.parse::<u32>().unwrap() - 1);
        let squares: f64 = (1..=number).map(|at| (at * at) as f64).sum();
        assert_eq!(lines(&out, "ended"), [format!("{label} Floats([{squares:.1}])")]);
        let out = succeeds(chares_run("ring", &by));
        let chares = 3 * number;
        assert_eq!(lines(&out, "ended"), [format!("{label} Integers([{}])", chares * (chares - 1) / 2)]);
        let out = succeeds(chares_run("bulk", &by));
        assert_eq!(lines(&out, "ended"), [format!("{label} Integers([{}])", 40 * (3 << 20))]);
    }
    let out = succeeds(chares_run("hop", &["-n", "2", "--ppn", "2", "--sites", "2", "--latency", "1ms"]));
    assert_eq!(lines(&out, "ended"), ["element@0-1| ended with Integers([511])"]);
    let out = succeeds(chares_run("spin", &["-n", "2", "--ppn", "2", "--balance", "refine", "--until", "60"]));
    assert_eq!(lines(&out, "ended"), ["element@0-1| ended with Floats([1.0])"]);
}

#[test]
fn a_thread_that_fails_ends_the_others_with_its_error() {
    let output = chares_run("nothing", &["-n", "3", "--ppn", "3"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{error}");
    let why = "failed: the program can never end: no message is waiting or in transit on 3 elements";
    assert!(error.contains(&format!("element@0-2| {why}")), "{error}");
}

#[test]
fn a_thread_that_fails_ends_a_process_that_computes() {
    let output = chares_run("stick", &["-n", "2", "--ppn", "2", "--until", "60"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains("element@0-1| failed: no more of it"), "{error}");
}

#[test]
fn elements_with_other_limits_for_what_waits_end_with_both() {
    let output = chares_run("unlike", &["-n", "2", "--until", "60"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains("8388608") && error.contains("16777216"), "{error}");
}

#[test]
fn a_balancer_moves_chares_from_the_element_that_has_all() {
    for balancer in ["greedy", "refine", "hierarchical", "grid-aware"] {
        let out = succeeds(chares_run("spin", &["-n", "2", "--balance", balancer, "--until", "60"]));
        assert_eq!(lines(&out, "ended"), ["element@0| ended with Floats([1.0])"], "{balancer}");
    }
}

#[test]
fn a_program_that_can_never_end_fails_and_reports_the_reason() {
    let output = chares_run("nothing", &["-n", "2"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{error}");
    let why = "the program can never end: no message is waiting or in transit on 2 elements";
    assert!(error.contains(&format!("element@0| failed: {why}")), "{error}");
    assert!(error.contains(&format!("element@1| failed: element 0 has ended the program: {why}")), "{error}");
}

#[test]
fn an_element_that_is_lost_ends_the_others() {
    let output = chares_run("fall", &["-n", "3"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{error}");
    assert!(!lines(&error, "failed: element 1 was lost before the program ended").is_empty(), "{error}");
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    for (options, why) in [
        (&["-n", "0"][..], "-n 0: from 1 to 1024 elements"),
        (&["-n", "2", "--sites", "3"], "--sites 3: from 1 to the number of elements, 2"),
        (&["-n", "1024", "--bind"], "--bind: 1024 elements, and this command may use"),
        (&["-n", "2", "--ppn", "3"], "--ppn 3: from 1 to the number of elements, 2"),
        (
            &["-n", "2", "--ppn", "2", "--checkpoint", "memory"],
            "--checkpoint memory: an element and the one with its copy",
        ),
        (&["--latency", "2m"], "expected 0s to 60s"),
        (&["--latency", "2ms"], "delay=2ms: filters apply between sites, and there is only one: use --sites 2"),
        (&["--filter", "fast"], "filter 'fast' is unknown; filters are compress, rate, stripe, delay, jitter"),
        (&["--filter", "stripe=1"], "stripe=1: expected 2 to 16 connections"),
        (&["--filter", "rate"], "filter rate needs a value, such as rate=10MBps"),
        (&["--balance", "fair"], "load balancer 'fair' is not known; there are none, greedy"),
    ] {
        let output = chares_run("nothing", options).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(why), "{options:?}: {error}");
    }
}
