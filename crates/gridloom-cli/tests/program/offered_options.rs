//! Gangs that restart from checkpoints, write timelines, have processors of their own, fail, and leave processes behind.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::checkpoints::{ABORT_FILE, Folder, ROUNDS, ends_with};
use crate::offered_programs::offered_script;
use crate::support::{Grid, Running, gridloom, process_ended, serve_command, status_and_stderr};

const ROUNDS_OF_SUMS: i64 = 6;

/// Returns the option that offers the program of [`crate::checkpoints`]. One element aborts in some round if there is
/// no such file.
fn sums(fall: &str) -> String {
    let own = std::env::current_exe().unwrap();
    let words = "--exact --ignored --nocapture checkpoints::a_program_with_checkpoints";
    let variables = format!("export {ROUNDS}={ROUNDS_OF_SUMS} {ABORT_FILE}='{fall}'");
    offered_script("sums", &format!("{variables}\nexec '{}' {words}\n", own.display()))
}

fn serve(grid: &Grid, name: &str, options: &[&str]) -> Running {
    Running::start(serve_command(&grid.address, name, &[], &[options, &["--slots=2", "--quiet"]].concat()))
}

fn run(grid: &Grid, options: &[&str], name: &str) -> Command {
    gridloom(&[&["chares", "run", "--agent", &grid.address], options, &["--", name]].concat())
}

#[test]
fn a_gang_restarts_from_its_checkpoint_and_another_continues_from_it() {
    let (grid, folder) = (Grid::start(), Folder::new("gang"));
    let (kept, trace) = (folder.path("kept"), folder.path("trace.json"));
    let (program, kept) = (sums(&folder.path("fallen")), format!("--checkpoints={kept}"));
    let (_one, _two) = (serve(&grid, "one", &[&program, &kept]), serve(&grid, "two", &[&program, &kept]));
    let options = ["-n", "4", "--checkpoint", "sums", "--restarts", "1", "--trace", &trace];
    let output = run(&grid, &options, "sums").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{error}");
    assert!(error.contains("restarts all elements; 0 restarts left"), "{error}");
    assert!(error.contains("from the last checkpoint of 'sums'"), "{error}");
    assert!(error.contains("left no record, for example because they were killed: 1\n"), "{error}");
    let events: Vec<serde_json::Value> = serde_json::from_str(&std::fs::read_to_string(&trace).unwrap()).unwrap();
    let named = events.iter().filter(|event| event["name"] == "process_name");
    assert_eq!(named.count(), 4);
    let ran = events.iter().filter(|event| event["ph"] == "B" && event["args"]["chare"] == "(0)");
    // Each round except the one in which the element aborts is counted once.
    let rounds = ran.filter(|event| event["name"] == "Counter.Count").count() as i64;
    assert!((ROUNDS_OF_SUMS..=ROUNDS_OF_SUMS + 1).contains(&rounds), "{rounds}");
    // The program had ended. The sum is restored without another round.
    let out = ends_with(run(&grid, &["-n", "3", "--restart", "sums"], "sums"), ROUNDS_OF_SUMS);
    assert_eq!(out.matches("a process began").count(), 3);
    let (status, error) = status_and_stderr(run(&grid, &["-n", "3", "--restart", "others"], "sums"));
    assert!(status != 0 && error.contains("--restart others: the servers have no complete checkpoint"), "{error}");
}

#[test]
fn servers_without_one_folder_for_checkpoints_keep_none() {
    let (grid, folder) = (Grid::start(), Folder::new("apart"));
    let program = sums(&folder.path("fallen"));
    let own = |name: &str| format!("--checkpoints={}", folder.path(name));
    let (_one, two) = (serve(&grid, "one", &[&program, &own("one")]), serve(&grid, "two", &[&program, &own("two")]));
    let refused = |options: &[&str], why: &str| {
        let (status, error) = status_and_stderr(run(&grid, options, "sums"));
        assert!(status != 0 && error.contains(why), "{options:?}: {error}");
    };
    refused(&["-n", "4", "--checkpoint", "sums"], "keep checkpoints in different folders: start all");
    refused(&["-n", "4", "--checkpoint", "memory"], "on its own machine only: with --agent use a name");
    for name in ["../sums", "/tmp/sums", ".sums"] {
        refused(&["-n", "2", "--checkpoint", name], "on servers, checkpoints are given by name, not by folder");
    }
    drop(two);
    let _two = serve(&grid, "three", &[&program]);
    refused(
        &["-n", "4", "--checkpoint", "sums"],
        "the server stores no checkpoints; 'gridloom serve --checkpoints DIR'",
    );
    assert!(!folder.0.join("sums").exists());
}

#[test]
fn elements_that_want_processors_alone_get_them_or_do_not_start() {
    let grid = Grid::start();
    let count = gridloom_net::process::processors().unwrap().len();
    let program = offered_script("bound", "echo on $GRIDLOOM_PROCESSOR\nexit 3\n");
    let slots = format!("--slots={}", count + 1);
    let options = [&program, "--quiet", &slots];
    let _one = Running::start(serve_command(&grid.address, "one", &[], &options));
    let more = (count + 1).to_string();
    let (status, error) = status_and_stderr(run(&grid, &["-n", &more, "--bind"], "bound"));
    assert!(status != 0 && error.contains("processors are free: use a smaller -n"), "{error}");
    let output = run(&grid, &["-n", "1", "--bind"], "bound").output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let processor = out.trim().strip_prefix("element@0| on ").expect("it says which");
    assert!(output.status.code() == Some(3) && processor.parse::<usize>().is_ok(), "{out}");
}

#[test]
fn the_status_is_that_of_the_element_that_failed_first() {
    let (grid, folder) = (Grid::start(), Folder::new("first"));
    let (after_one, after_two) = (folder.path("one"), folder.path("two"));
    let waits = |file: &str| format!("while [ ! -e '{file}' ]; do sleep 0.01; done");
    let script = format!(
        "case \"$GRIDLOOM_PROCESS\" in\n*'\"1\"]'*) exit 7;;\n*'\"2\"]'*) {}; exit 9;;\nesac\n{}; exit 0\n",
        waits(&after_one),
        waits(&after_two)
    );
    let program = offered_script("fails", &script);
    let (_one, _two) = (serve(&grid, "one", &[&program]), serve(&grid, "two", &[&program]));
    let mut child = run(&grid, &["-n", "3"], "fails").stderr(Stdio::piped()).spawn().unwrap();
    let mut told = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        // Each end is reported while other elements of the same server still run.
        if line.contains("element@1 ended with exit status: 7") {
            std::fs::write(&after_one, "").unwrap();
        } else if line.contains("element@2 ended with exit status: 9") {
            std::fs::write(&after_two, "").unwrap();
        }
        told.push(line);
    }
    assert_eq!(child.wait().unwrap().code(), Some(7), "{told:?}");
    let count = |text: &str| told.iter().filter(|line| line.contains(text)).count();
    let ends = ["element@0 ended without", "element@1 ended", "element@2 ended"].map(count);
    assert_eq!(ends, [1, 1, 1], "{told:?}");
}

#[test]
fn what_an_element_leaves_behind_ends_with_the_gang() {
    let grid = Grid::start();
    // A process in a session of its own, and one that starts others.
    let leaves = "setsid sleep 1000 &\necho left $!\n(while :; do sleep 1000; done) &\necho left $!\nexit 5\n";
    let program = offered_script("leaves", leaves);
    let _one = serve(&grid, "one", &[&program]);
    let output = run(&grid, &["-n", "2"], "leaves").output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(5), "{out}");
    let left: Vec<u32> = out.lines().filter_map(|line| line.split_once("| left ")?.1.parse().ok()).collect();
    assert_eq!(left.len(), 4, "{out}");
    left.into_iter().for_each(process_ended);
    // The worker keeps running.
    assert_eq!(run(&grid, &["-n", "2"], "leaves").output().unwrap().status.code(), Some(5));
}

#[test]
fn what_an_element_leaves_behind_ends_with_a_command_that_is_killed() {
    let grid = Grid::start();
    let program = offered_script("stays", "setsid sleep 1000 &\necho left $!\nexec sleep 1000\n");
    let _one = serve(&grid, "one", &[&program]);
    let mut child = run(&grid, &["-n", "2"], "stays").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let left = lines.filter_map(|line| line.unwrap().split_once("| left ")?.1.parse().ok()).take(2);
    let left: Vec<u32> = left.collect();
    child.kill().unwrap();
    child.wait().unwrap();
    left.into_iter().for_each(process_ended);
}

#[test]
fn a_line_without_an_end_arrives_in_parts() {
    let grid = Grid::start();
    let long = "head -c 100000 /dev/zero | tr '\\0' x\nexit 5\n";
    let _one = serve(&grid, "one", &[&offered_script("long", long)]);
    let output = run(&grid, &["-n", "1"], "long").output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let parts: Vec<usize> =
        out.lines().map(|line| line.strip_prefix("element@0| ").expect("its label").len()).collect();
    assert_eq!((parts.iter().sum::<usize>(), parts.iter().max()), (100_000, Some(&8192)));
}
