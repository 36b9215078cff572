//! The calls on the servers: who makes them, and who may cancel them.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{Grid, Running, admit_user, file, status_and_stderr, succeeds};

const IDL: &str = "Module os; Define nap(IN int seconds, OUT int *left) Calls \"C\" left = sleep(seconds);\n";

/// Starts a server with one slot, whose function sleeps.
fn serve(grid: &Grid) -> Running {
    let idl = file("nap.idl", IDL);
    Running::start(grid.serve_command("one", &[&idl], &["--library", "libc.so.6", "--slots", "1"]))
}

fn nap(grid: &Grid) -> Child {
    let mut command: Command = grid.command(&["call", "os/nap", "600"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Returns the calls once there are `count` of them.
fn calls(grid: &Grid, count: usize) -> Vec<Value> {
    loop {
        let told = grid.json(&["calls"]);
        let calls = told["calls"].as_array().unwrap();
        if calls.len() == count {
            return calls.clone();
        }
    }
}

fn error_of(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn calls_are_listed_and_cancelled() {
    let grid = Grid::start();
    let _one = serve(&grid);
    assert_eq!(succeeds(grid.command(&["calls"])), "no calls\n");
    let first = nap(&grid);
    let running = calls(&grid, 1).remove(0);
    let second = nap(&grid);
    let both = calls(&grid, 2);
    let stages: Vec<&str> = both.iter().map(|call| call["stage"].as_str().unwrap()).collect();
    assert!(stages.contains(&"running") && both[0]["function"] == "os/nap" && both[0]["server"] == "one", "{both:?}");
    let page = succeeds(grid.command(&["top"]));
    assert!(page.contains("one                      1") && page.contains("os/nap"), "{page}");
    assert!(!page.contains("link from"), "there is one host: {page}");
    let look = grid.json(&["top"]);
    assert_eq!(look["links"], serde_json::json!([]));
    assert_eq!((&look["servers"][0]["calls"], look["servers"][0]["shown"].as_array().unwrap().len()), (&2.into(), 2));

    // After some seconds without an event, the clients report their pending requests.
    let waits = loop {
        let waits = grid.json(&["calls"])["waits"].as_array().unwrap().clone();
        if waits.len() == 2 {
            break waits;
        }
    };
    let texts: Vec<&str> = waits.iter().map(|program| program["for"][0].as_str().unwrap()).collect();
    assert!(
        texts.iter().all(|text| text.contains("calls at server 'one' (1): ") && text.contains("os/nap")),
        "{waits:?}"
    );
    assert!(waits.iter().all(|program| program["wait_seconds"].as_f64().unwrap() >= 2.0), "{waits:?}");
    let page = succeeds(grid.command(&["calls"]));
    assert!(page.contains("s without an event. It waits for:\n  calls at server 'one' (1): "), "{page}");

    let name = running["call"].as_str().unwrap();
    let told = grid.json(&["cancel", name]);
    assert_eq!(told["cancelled"], serde_json::json!([name]));
    assert!(error_of(first).contains("the call was cancelled"));
    assert_eq!(succeeds(grid.command(&["cancel", "--all"])), "1 call cancelled\n");
    assert!(error_of(second).contains("the call was cancelled"));
    assert_eq!(succeeds(grid.command(&["calls"])), "no calls\n");

    let (code, error) = status_and_stderr(grid.command(&["cancel", "7"]));
    assert!(code == 2 && error.contains("'7' is not a name such as t17@n2f3a90"), "{error}");
    let (code, error) = status_and_stderr(grid.command(&["cancel"]));
    assert!(code == 2 && error.contains("<CALL|--user <NAME>|--all>"), "{error}");
    let output = grid.command(&["cancel", name]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && text.contains("is not on a server; 'gridloom calls' lists"), "{text}");
}

/// Earlier, every client could cancel all calls and delete all data, and nobody saw whose they were.
#[test]
fn users_see_whose_calls_and_data_there_are_and_change_only_their_own() {
    let grid = Grid::start();
    let _one = serve(&grid);
    let (erik, fay) = (admit_user("erik", "*"), admit_user("fay", "linalg/*"));
    let of = |keys: &std::path::Path, arguments: &[&str]| {
        let mut command = grid.command(arguments);
        command.env("GRIDLOOM_KEYS", keys).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let own = nap(&grid);
    let owned = calls(&grid, 1).remove(0);
    let eriks = of(&erik, &["call", "os/nap", "600"]).spawn().unwrap();
    let both = calls(&grid, 2);
    let eriks_call = both.iter().find(|call| call["user"] == "erik").unwrap();
    assert_eq!((&eriks_call["program"], &eriks_call["host"]), (&"gridloom".into(), &owned["host"]));
    assert!(owned["host"].as_str().is_some_and(|host| !host.is_empty()), "{owned}");
    let page = succeeds(of(&erik, &["calls", "--user", "erik"]));
    assert!(page.contains("  erik: gridloom on ") && page.lines().count() == 2, "{page}");

    let refused = of(&erik, &["cancel", owned["call"].as_str().unwrap()]).output().unwrap();
    let text = String::from_utf8(refused.stdout).unwrap();
    let why =
        format!("was not cancelled: the call belongs to '{}', and 'erik' is not", owned["user"].as_str().unwrap());
    assert!(refused.status.code() == Some(1) && text.contains(&why), "{text}");
    assert_eq!(calls(&grid, 2).len(), 2);
    assert_eq!(succeeds(of(&erik, &["cancel", "--user", "erik"])), "1 call cancelled\n");
    assert!(error_of(eriks).contains("the call was cancelled"));
    assert_eq!(succeeds(grid.command(&["cancel", "--all"])), "1 call cancelled\n");
    assert!(error_of(own).contains("the call was cancelled"));

    let denied = of(&fay, &["call", "os/nap", "0"]).output().unwrap();
    let text = String::from_utf8(denied.stderr).unwrap();
    assert!(!denied.status.success() && text.contains("the certificate of 'fay' permits linalg/*;"), "{text}");
}
