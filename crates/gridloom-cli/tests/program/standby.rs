//! A standby agent: it takes over when the agent dies or hangs, and steps down when the agent is back.

use std::process::Command;

use crate::support::bounds::until;
use crate::support::{
    Grid, Log, Running, first_line, gridloom, idl, library, line_with, logging, serve_command, status_and_stderr,
    succeeds,
};

/// An agent, its standby, and two servers that know both.
struct Pair {
    agent: Option<Running>,
    standby: Running,
    log: Log,
    /// Address of the agent.
    address: String,
    both: String,
    _servers: [Running; 2],
}

/// Returns a free port. It is used at once, and a program that takes it meanwhile would fail the test.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn standby_command(address: &str, of: &str) -> Command {
    gridloom(&["agent", "--listen", address, "--standby-of", of, "--name", "spare", "--log", "info"])
}

impl Pair {
    fn start() -> Pair {
        let Grid { agent, address } = Grid::start();
        let spare = free_address();
        let (mut standby, log) = logging(&mut standby_command(&spare, &address));
        assert_eq!(first_line(&mut standby), format!("standby of the agent at {address}"));
        let (both, idl) = (format!("{address}+{spare}"), idl());
        let serve = |name| Running::start(serve_command(&both, name, &[&idl], &["--library", library()]));
        let servers = [serve("one"), serve("two")];
        Pair { agent: Some(agent), standby, log, address, both, _servers: servers }
    }

    fn call(&self, agent: &str) -> Command {
        gridloom(&["call", "--agent", agent, "cli/scale", "2", "[1, 2]"])
    }

    /// Waits until a program that knows both addresses can call.
    fn wait_for_calls(&self) {
        until("a call", || {
            let done = self.call(&self.both).output().unwrap();
            done.status.success().then(|| assert_eq!(done.stdout, b"y = [2.0,4.0]\n"))
        });
    }
}

#[test]
fn a_standby_takes_over_from_an_agent_that_dies_and_steps_down_when_it_is_back() {
    let mut pair = Pair::start();
    succeeds(pair.call(&pair.both));
    let address = pair.address.clone();
    pair.agent.take().unwrap().kill();
    line_with(&mut pair.log, "the standby takes over");
    pair.wait_for_calls();
    // The agent of before is started again, and all its servers register with it.
    pair.agent = Some(Grid::start_at(&address).agent);
    line_with(&mut pair.log, "the standby steps down");
    until("both servers", || {
        let servers = gridloom(&["servers", "--agent", &address, "--json"]).output().unwrap();
        let text = String::from_utf8(servers.stdout).unwrap();
        (text.contains("\"one\"") && text.contains("\"two\"")).then_some(())
    });
    pair.wait_for_calls();
    assert!(pair.standby.close_input().success());
}

#[test]
fn a_standby_takes_over_from_an_agent_that_hangs() {
    let mut pair = Pair::start();
    let agent = pair.agent.as_ref().unwrap().pid().to_string();
    let signal = |signal: &str| assert!(Command::new("kill").args([signal, &agent]).status().unwrap().success());
    signal("-STOP");
    line_with(&mut pair.log, "the standby takes over");
    pair.wait_for_calls();
    signal("-CONT");
    line_with(&mut pair.log, "the standby steps down");
    pair.wait_for_calls();
}

#[test]
fn a_standby_that_would_find_itself_is_refused() {
    let arguments = ["agent", "--listen", "127.0.0.1:0", "--standby-of", "127.0.0.1:9/agent", "--relay", "127.0.0.1:9"];
    let (code, error) = status_and_stderr(gridloom(&arguments));
    assert!(code == 1 && error.contains("the standby would find itself"), "{error}");
}

#[test]
fn a_standby_whose_port_is_in_use_takes_over_later() {
    let Grid { agent, address } = Grid::start();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let spare = taken.local_addr().unwrap().to_string();
    let (mut standby, mut log) = logging(&mut standby_command(&spare, &address));
    first_line(&mut standby);
    agent.kill();
    line_with(&mut log, "the standby cannot take over; trying again: cannot listen on");
    drop(taken);
    until("the standby", || gridloom(&["servers", "--agent", &spare]).output().unwrap().status.success().then_some(()));
}
