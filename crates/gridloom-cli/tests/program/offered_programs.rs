//! `gridloom serve --program` and `gridloom chares run --agent`: elements that take slots of servers.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::chares::CASE;
use crate::support::{
    Grid, Running, folder, gridloom, process_ended, serve_command, status_and_stderr, succeeds, write_executable,
};

/// The arguments after the program's name: the case runs in this binary.
const WORDS: [&str; 4] = ["--exact", "--ignored", "--nocapture", "chares::a_program_of_chares"];

/// Returns the option that offers that case under its name. Each element first prints its process number.
fn offered(case: &str) -> String {
    let own = std::env::current_exe().unwrap();
    offered_script(case, &format!("export {CASE}={case}\necho pid $$\nexec '{}' \"$@\"\n", own.display()))
}

/// Returns the option that offers a shell script.
pub(crate) fn offered_script(name: &str, script: &str) -> String {
    // A separate file for each script: tests that run concurrently create others.
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    let path = folder("offered").join(format!("{name}-{made}.sh"));
    write_executable(&path, &format!("#!/bin/sh\n{script}"));
    format!("--program={name}={}", path.display())
}

/// Starts a server with that many slots, which offers two programs.
fn serve(grid: &Grid, name: &str, slots: &str) -> Running {
    serve_with(grid, name, &["--slots", slots])
}

fn serve_with(grid: &Grid, name: &str, options: &[&str]) -> Running {
    let (squares, spin) = (offered("squares"), offered("spin"));
    let options = [&[squares.as_str(), spin.as_str(), "--quiet"], options].concat();
    let server = Running::start(serve_command(&grid.address, name, &[], &options));
    assert!(server.line.ends_with(" offers 2 functions"), "{}", server.line);
    server
}

fn run(grid: &Grid, options: &[&str], name: &str) -> Command {
    gridloom(&[&["chares", "run", "--agent", &grid.address], options, &["--", name], &WORDS].concat())
}

/// Starts a run of the program that never ends, and waits until all of its elements run. Returns their processes.
fn spinning(grid: &Grid, number: usize) -> (Child, Vec<u32>) {
    let mut command = run(grid, &["-n", &number.to_string()], "spin");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pids = Vec::new();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    while pids.len() < number {
        let line = lines.next().expect("all elements say which processes they are").unwrap();
        pids.extend(line.split_once("| pid ").map(|(_, pid)| pid.parse::<u32>().unwrap()));
    }
    (child, pids)
}

/// Waits for its end. Returns its status and its standard error.
fn end(mut child: Child) -> (Option<i32>, String) {
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    (child.wait().unwrap().code(), error)
}

/// Checks that all slots are free: a run that needs them all ends normally.
fn squares_of_four(grid: &Grid) {
    let out = succeeds(run(grid, &["-n", "4"], "squares"));
    assert!(out.contains("element@0| ended with Floats([30.0])"), "{out}");
}

#[test]
fn a_gang_runs_on_the_slots_of_two_servers() {
    let grid = Grid::start();
    let (_one, _two) = (serve(&grid, "one", "2"), serve(&grid, "two", "2"));
    squares_of_four(&grid);
    let functions = grid.json(&["functions", "programs/squares"]);
    assert_eq!(functions["functions"][0]["servers"], serde_json::json!(["one", "two"]));
    let events = succeeds(run(&grid, &["-n", "3", "--json"], "squares"));
    let events: Vec<serde_json::Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ends = events.iter().filter(|event| event["event"] == "ended" && event["status"] == 0);
    let mut elements: Vec<&str> = ends.map(|event| event["process"].as_str().unwrap()).collect();
    elements.sort_unstable();
    assert_eq!(elements, ["element@0", "element@1", "element@2"]);
    assert_eq!(events.last().unwrap()["event"], "done");
    // A plain call does not have the places of the other elements.
    let (status, error) = status_and_stderr(grid.command(&["call", "programs/squares", "[]"]));
    assert!(status != 0 && error.contains("has the callback 'start'"), "{error}");
}

#[test]
fn gangs_that_want_the_same_slots_run_one_after_the_other() {
    let grid = Grid::start();
    let (_one, _two, _three) = (serve(&grid, "one", "2"), serve(&grid, "two", "1"), serve(&grid, "three", "1"));
    let runs: Vec<Child> = (0..6)
        .map(|at| {
            let number = if at % 2 == 0 { "4" } else { "3" };
            run(&grid, &["-n", number], "squares").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for run in runs {
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_gang_waits_for_slots_that_another_has() {
    let grid = Grid::start();
    let (_one, _two) = (serve(&grid, "one", "2"), serve(&grid, "two", "2"));
    let (first, pids) = spinning(&grid, 3);
    let (mut child, mut error) = {
        let mut child =
            run(&grid, &["-n", "4"], "squares").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let error = BufReader::new(child.stderr.take().unwrap());
        (child, error)
    };
    let mut line = String::new();
    error.read_line(&mut line).unwrap();
    assert!(line.contains("which are in use"), "{line}");
    // A run that gives up before it has its slots leaves nothing behind.
    let (status, why) = status_and_stderr(run(&grid, &["-n", "4", "--until", "0.1"], "squares"));
    assert!(status == 1 && why.contains("ended at the end of --until: "), "{why}");
    drop_run(first);
    pids.into_iter().for_each(process_ended);
    line.clear();
    error.read_line(&mut line).unwrap();
    assert!(line.contains("starts 4 elements"), "{line}");
    assert!(child.wait().unwrap().success());
}

/// Kills the command, as with `kill -9`.
fn drop_run(mut run: Child) {
    run.kill().unwrap();
    run.wait().unwrap();
}

#[test]
fn elements_end_with_the_command_that_runs_them() {
    let grid = Grid::start();
    let (_one, _two) = (serve(&grid, "one", "2"), serve(&grid, "two", "2"));
    let (run, pids) = spinning(&grid, 4);
    drop_run(run);
    pids.into_iter().for_each(process_ended);
    squares_of_four(&grid);
}

#[test]
fn an_element_that_is_killed_ends_the_run_and_frees_the_slots() {
    let grid = Grid::start();
    let (_one, _two) = (serve(&grid, "one", "2"), serve(&grid, "two", "2"));
    let (run, pids) = spinning(&grid, 4);
    assert!(Command::new("kill").args(["-KILL", &pids[1].to_string()]).status().unwrap().success());
    let (status, error) = end(run);
    assert!(status.is_some_and(|status| status != 0), "{error}");
    // The others end by themselves, or are ended without a message.
    assert_eq!(error.matches("ended with signal: 9").count(), 1, "{error}");
    pids.into_iter().for_each(process_ended);
    squares_of_four(&grid);
}

#[test]
fn a_program_that_is_none_of_elements_fails() {
    let grid = Grid::start();
    let options = ["--program=x=/bin/true", "--slots=4", "--quiet"];
    let _one = Running::start(serve_command(&grid.address, "one", &[], &options));
    let (status, error) = status_and_stderr(run(&grid, &["-n", "4"], "x"));
    assert_eq!(status, 1, "{error}");
    assert_eq!(error.matches("ended without asking which process it is").count(), 4, "{error}");
}

#[test]
fn a_server_that_is_killed_ends_the_run_and_its_elements() {
    let grid = Grid::start();
    let (_one, two) = (serve(&grid, "one", "2"), serve(&grid, "two", "2"));
    let (run, pids) = spinning(&grid, 4);
    two.kill();
    let (status, error) = end(run);
    assert!(status.is_some_and(|status| status != 0), "{error}");
    assert!(error.contains("server 'two' was lost"), "{error}");
    pids.into_iter().for_each(process_ended);
}

#[test]
fn what_cannot_run_is_refused_in_words() {
    let grid = Grid::start();
    let nothing = "no server offers a program 'squares', nor any other: 'gridloom serve --program squares=PATH' does";
    let (status, error) = status_and_stderr(run(&grid, &[], "squares"));
    assert!(status != 0 && error.contains(nothing), "{error}");
    let _one = serve(&grid, "one", "2");
    for (options, name, why) in [
        (
            &["-n", "2"][..],
            "sqares",
            "no server offers a program 'sqares'; there are: spin, squares; did you mean 'squares'?",
        ),
        (&["-n", "3"], "squares", "-n 3: the servers that offer 'squares' have 2 slots (one 2); give -n 2 or fewer"),
        (&["-n", "0"], "squares", "-n 0: from 1 to 1024 elements"),
        (&["--latency", "1ms"], "squares", "filters apply between sites, and all servers are in one"),
        (&["--sites", "2"], "squares", "cannot be used with"),
    ] {
        let (status, error) = status_and_stderr(run(&grid, options, name));
        assert!(status != 0 && error.contains(why), "{options:?}: {error}");
    }
    for (program, why) in [
        ("x", "expected NAME=PATH"),
        ("x=/no/such/file", "--program x=/no/such/file: there is no such file"),
        ("a b=/bin/true", "' ' is not allowed"),
    ] {
        let (status, error) = status_and_stderr(gridloom(&["serve", "--no-agent", "--program", program]));
        assert!(status != 0 && error.contains(why), "{program}: {error}");
    }
}

#[test]
fn messages_between_sites_of_servers_pass_filters() {
    let grid = Grid::start();
    let ball = offered("ball");
    let serve = |name: &str, site: &str| {
        Running::start(serve_command(&grid.address, name, &[], &[&ball, "--slots=1", "--quiet", "--site", site]))
    };
    let (_one, _two) = (serve("one", "home"), serve("two", "away"));
    let out = succeeds(run(&grid, &["-n", "2", "--filter", "compress", "--latency", "40ms"], "ball"));
    let told = out.lines().find(|line| line.contains("ended with Floats")).expect("the ball has come back");
    let seconds: f64 = told.trim_end_matches("])").rsplit('[').next().unwrap().parse().unwrap();
    assert!(seconds >= 10.0 * 0.04, "ten messages over 40 ms took {seconds} s");
}
