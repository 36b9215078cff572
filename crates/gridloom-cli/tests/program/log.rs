//! The log of agent and servers.

use std::process::Command;

use crate::support::{
    Grid, Log, Running, first_line, folder, gridloom, idl, library, line_with, logging, make_grid, status_and_stderr,
    succeeds,
};

/// Starts a server without an agent and with these log options. Returns it with its address and its log.
fn serve(log: &[&str], set: impl FnOnce(&mut Command)) -> (Running, String, Log) {
    let mut command = gridloom(&["serve", &idl(), "--no-agent", "--name", "one", "--library", library()]);
    command.args(log);
    set(&mut command);
    let (mut server, log) = logging(&mut command);
    let address = first_line(&mut server).split_whitespace().nth(3).unwrap().to_string();
    (server, address, log)
}

/// Makes a call that succeeds and one that crashes its worker, and ends the server. Returns the rest of its log.
fn log_of_two_calls((server, address, log): (Running, String, Log)) -> Vec<String> {
    let call = |arguments: &[&str]| gridloom(&[&["call"], arguments, &["--servers", &address]].concat());
    assert_eq!(succeeds(call(&["cli/plus", "1", "1"])), "sum = 2.0\n");
    assert_eq!(status_and_stderr(call(&["cli/abort_now", "1"])).0, 1);
    assert!(server.close_input().success());
    // A server warns that its functions can read the authority's key, if another test has admitted a user.
    log.map(Result::unwrap).filter(|line| !line.contains("gridloom.keys: functions run as a user who")).collect()
}

fn number_of(lines: &[String], text: &str) -> usize {
    lines.iter().filter(|line| line.contains(text)).count()
}

#[test]
fn a_line_has_time_level_category_and_fields() {
    let lines = log_of_two_calls(serve(&[], |_| {}));
    let [crash] = &lines[..] else { panic!("{lines:#?}") };
    let (time, rest) = crash.split_once(' ').unwrap();
    assert!(time.starts_with("20") && time.contains('T') && time.ends_with('Z'), "{crash}");
    assert!(
        rest.trim_start().starts_with("WARN gridloom.worker: a function crashed its worker process node=\"one\" task="),
        "{crash}"
    );
    assert!(crash.contains(" why=\"function 'cli/abort_now' crashed its worker process on server 'one' ("), "{crash}");
}

#[test]
fn levels_hold_by_category() {
    let both = |lines: Vec<String>| {
        let worker = number_of(&lines, "DEBUG gridloom.worker: a task has ended node=\"one\" task=");
        let net = number_of(&lines, "DEBUG gridloom.net: connected node=\"one\" peer=");
        (worker, net, number_of(&lines, "WARN gridloom.worker: "))
    };
    assert_eq!(both(log_of_two_calls(serve(&["--log", "debug"], |_| {}))), (1, 2, 1));
    assert_eq!(both(log_of_two_calls(serve(&["--log", "off,gridloom.net=debug"], |_| {}))), (0, 2, 0));
    let by_variable = |command: &mut Command| {
        command.env("GRIDLOOM_LOG", "gridloom.worker=debug,matmul=error");
    };
    assert_eq!(both(log_of_two_calls(serve(&[], by_variable))), (1, 0, 1));
    assert_eq!(log_of_two_calls(serve(&["--log", "error"], by_variable)), [""; 0], "the command line counts");
    assert_eq!(log_of_two_calls(serve(&["--quiet"], by_variable)), [""; 0]);
}

#[test]
fn a_wrong_level_is_refused() {
    let (status, error) = status_and_stderr(gridloom(&["agent", "--log", "info,gridloom.net=loud"]));
    assert_eq!(status, 2, "{error}");
    assert!(error.contains("'loud' is not a log level; levels are debug, info, warning, error, off"), "{error}");
    let mut command = gridloom(&["serve", &idl()]);
    let (status, error) = status_and_stderr(command.env("GRIDLOOM_LOG", "loud"));
    assert!(status == 2 && error.contains("'loud' is not a log level"), "{error}");
}

#[test]
fn a_peer_that_is_turned_away_is_logged_with_its_address() {
    let (grid, mut log) = Grid::start_logging();
    let mut stranger = grid.command(&["functions"]);
    let other = folder("strangers").join(std::process::id().to_string());
    make_grid(&other, "another");
    assert_eq!(status_and_stderr(stranger.env("GRIDLOOM_KEYS", &other)).0, 1);
    line_with(&mut log, "WARN gridloom.net: a connection was turned away node=\"agent\"");
}
