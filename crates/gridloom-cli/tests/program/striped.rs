//! The filter `stripe` from end to end: messages that overtake each other, a connection that breaks, and more
//! connections than a process may have. The program is this test binary.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use gridloom::Message;
use gridloom::chares::{self, Chare, Context, Placement};
use rustix::net::Shutdown;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use crate::support::bounds::output_of;
use crate::support::{file, gridloom, skipped, succeeds};

/// Environment variable that selects the program's case.
const CASE: &str = "GRIDLOOM_TEST_STRIPED";
const MESSAGES: u32 = 60;
/// Every sixth message is long.
const LONG_IN: u32 = 6;

#[derive(Clone, Message)]
enum Ask {
    Begin,
    /// One of many messages, in order.
    Next {
        number: u32,
        bytes: Vec<u8>,
    },
    /// A message that goes back and forth.
    Ball {
        breaks: bool,
    },
}

#[derive(Default)]
struct Node {
    came: u32,
}

impl Chare for Node {
    type Message = Ask;

    fn entry(&mut self, ask: Ask, cx: &mut Context<'_, Node>) {
        let other = cx.array().at(1 - cx.index()[0]);
        match ask {
            Ask::Begin => (0..MESSAGES).for_each(|number| {
                let length = if number.is_multiple_of(LONG_IN) { 4 << 20 } else { 40_000 };
                cx.send(other.clone(), Ask::Next { number, bytes: vec![number as u8; length] });
            }),
            Ask::Next { number, bytes } => {
                if number != self.came || bytes.iter().any(|byte| *byte != number as u8) {
                    cx.fail(format!("message {number} came in place of {}", self.came));
                }
                self.came += 1;
                if self.came == MESSAGES {
                    cx.exit(i64::from(self.came));
                }
            }
            Ask::Ball { breaks } => {
                if breaks {
                    break_second_connection();
                }
                cx.send(other, Ask::Ball { breaks: false });
            }
        }
    }
}

/// Duplicates a descriptor of this process, if the system permits it.
fn again(number: i32) -> rustix::io::Result<OwnedFd> {
    pidfd_getfd(pidfd_open(getpid(), PidfdFlags::empty())?, number, PidfdGetfdFlags::empty())
}

/// Breaks the second of the connections that this process has opened. Nothing else in the process is notified.
fn break_second_connection() {
    let is_socket = |path: &Path| fs::read_link(path).is_ok_and(|of| of.to_string_lossy().starts_with("socket:"));
    let paths =
        fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path()).filter(|path| is_socket(path));
    let mut numbers: Vec<i32> =
        paths.map(|path| path.file_name().unwrap().to_str().unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    let sockets = numbers.into_iter().map(|number| again(number).unwrap());
    let dialled = |socket: &TcpStream| matches!(socket.peer_addr(), Ok(SocketAddr::V4(_)));
    let dialled: Vec<TcpStream> = sockets.map(TcpStream::from).filter(dialled).collect();
    assert_eq!(dialled.len(), 3, "{dialled:?}");
    rustix::net::shutdown(&dialled[1], Shutdown::Both).unwrap();
}

/// The other tests run this one as an element, or as all elements in simulation.
#[test]
#[ignore = "a process of another test"]
fn a_program_of_chares() {
    let Ok(case) = std::env::var(CASE) else { return };
    let ended = chares::run(move |job| {
        let nodes = job.array(2, Placement::Blocks, |_| Node::default())?;
        job.start(|cx| match case.as_str() {
            "break" => cx.send(nodes.at(1), Ask::Ball { breaks: true }),
            _ => cx.send(nodes.at(0), Ask::Begin),
        });
        Ok(())
    });
    match ended {
        Ok(ended) => println!("ended with {:?}", ended.value),
        Err(error) => {
            eprintln!("failed: {error}");
            std::process::exit(3);
        }
    }
}

fn words(own: &str) -> [&str; 6] {
    ["--", own, "--exact", "--ignored", "--nocapture", "striped::a_program_of_chares"]
}

fn own() -> String {
    std::env::current_exe().unwrap().display().to_string()
}

fn run(case: &str, options: &[&str]) -> Command {
    let mut command = gridloom(&[&["chares", "run"], options, &words(&own())].concat());
    command.env(CASE, case).env_remove("GRIDLOOM_TESTBED_HOST");
    command
}

/// Runs a command; returns its status and its standard error.
fn fails(mut command: Command) -> (Option<i32>, String) {
    let output = output_of(&mut command);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Returns the messages of a simulation in the order in which they were sent, and in that in which they arrived.
fn letters(trace: &str) -> (Vec<String>, Vec<String>) {
    let events: Vec<serde_json::Value> = serde_json::from_str(&fs::read_to_string(trace).unwrap()).unwrap();
    let in_order = |phase: &str| {
        let letters = events.iter().filter(|event| event["ph"] == phase && event["name"] == "chares");
        letters.map(|event| event["id"].as_str().unwrap().to_string()).collect()
    };
    (in_order("s"), in_order("f"))
}

#[test]
fn messages_keep_their_order_where_batches_do_not() {
    let site =
        |site: &str| format!("[[host]]\nname = \"{site}\"\nspeed = \"1Gf\"\nproperties = {{ site = \"{site}\" }}\n");
    let wan = "[[link]]\nname = \"wan\"\nbandwidth = \"1Gbps\"\nlatency = \"5ms\"\n\
               [[route]]\nfrom = \"east\"\nto = \"west\"\nlinks = [\"wan\"]\n";
    let platform = file("striped.toml", &[&site("east"), &site("west"), wan].concat());
    for filters in [&["--filter", "stripe=4"][..], &["--filter", "compress", "--filter", "stripe=2"]] {
        let of_filters = gridloom(&[&["chares", "deployment", "-p", &platform], filters].concat());
        let deployment = file("striped-elements.toml", &succeeds(of_filters));
        let own = own();
        let trace = file("striped.json", "");
        let options = ["simulate", "-p", &platform, "-d", &deployment, "--trace", &trace];
        let mut command = gridloom(&[&options[..], &words(&own)].concat());
        command.env(CASE, "order").env_remove("GRIDLOOM_TESTBED_HOST");
        let told = succeeds(command);
        assert!(told.contains(&format!("ended with Integers([{MESSAGES}])")), "{filters:?}: {told}");
        let (sent, came) = letters(&trace);
        assert!(sent.len() >= MESSAGES as usize && sent != came, "{filters:?}: no letter overtakes another: {came:?}");
        // Real processes behave in the same way.
        let told = succeeds(run("order", &[&["-n", "2", "--sites", "2"], filters].concat()));
        assert!(told.contains(&format!("element@0| ended with Integers([{MESSAGES}])")), "{filters:?}: {told}");
    }
}

#[test]
fn a_connection_that_breaks_among_several_ends_the_program_and_is_named() {
    if let Err(error) = again(2) {
        return skipped(&format!("a process cannot have its own descriptors again (pidfd_getfd): {error}"));
    }
    let options = ["-n", "2", "--sites", "2", "--filter", "stripe=3", "--until", "60"];
    let (status, error) = fails(run("break", &options));
    assert_eq!(status, Some(3), "{error}");
    assert!(error.contains("was lost before the program ended: connection 2 of 3 ended early: "), "{error}");
    let failed: Vec<&str> = error.lines().filter(|line| line.contains("failed: ")).collect();
    assert_eq!(failed.len(), 2, "both elements end by themselves: {error}");
}

/// Returns the program with 64 connections of each of its processes, and with that limit of descriptors.
fn limited(ulimit: &str, options: &[&str]) -> Command {
    let script = format!("ulimit {ulimit} && exec \"$0\" \"$@\"");
    let run = run("order", &[options, &["--filter", "stripe=16", "--until", "60"]].concat());
    let mut limited = Command::new("sh");
    limited.args(["-c", &script]).arg(run.get_program()).args(run.get_args());
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => _ = limited.env(name, value),
            None => _ = limited.env_remove(name),
        }
    }
    limited
}

#[test]
fn more_connections_than_a_process_may_have_are_refused_with_the_numbers() {
    let (status, error) = fails(limited("-n 60", &["-n", "5", "--sites", "5"]));
    assert_eq!(status, Some(3), "{error}");
    let why = "64 connections need";
    let remedy = "the limit of this process is 60: raise the limit (ulimit -Hn), or give fewer elements, or fewer connections (stripe=NUMBER)";
    assert!(error.contains(why) && error.contains(remedy), "{error}");
    // Each element of a process has 32 connections, and the limit is per process.
    let (status, error) = fails(limited("-n 60", &["-n", "4", "--sites", "2", "--ppn", "2"]));
    assert_eq!(status, Some(3), "{error}");
    assert!(error.contains("the process of elements 0, 1: 64 connections need") && error.contains(remedy), "{error}");
}

#[test]
fn a_soft_limit_that_is_too_low_is_raised() {
    let told = succeeds(limited("-Sn 60", &["-n", "5", "--sites", "5"]));
    assert!(told.contains(&format!("element@0| ended with Integers([{MESSAGES}])")), "{told}");
}
