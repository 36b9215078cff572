//! The usage of users and the audit log, which outlive the agent.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Grid, Running, admit_user, file, folder, gridloom, make_grid, status_and_stderr, succeeds};

const IDL: &str = "Module os; Define nap(IN int seconds, OUT int *left) Calls \"C\" left = sleep(seconds);\n";

fn records(name: &str) -> std::path::PathBuf {
    let folder = folder("records").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn agent(records: &Path) -> Grid {
    let records = records.to_str().unwrap();
    let agent = Running::start(gridloom(&["agent", "--listen", "127.0.0.1:0", "--quiet", "--records", records]));
    let address = agent.line.strip_prefix("agent listening on ").unwrap().to_string();
    Grid { agent, address }
}

fn of(grid: &Grid, keys: &Path, arguments: &[&str]) -> Command {
    let mut command = grid.command(arguments);
    command.env("GRIDLOOM_KEYS", keys);
    command
}

/// Returns the entries by user, once a user has that many calls.
fn usage(grid: &Grid, user: &str, calls: u64) -> Vec<Value> {
    loop {
        let entries = grid.json(&["usage", "--by", "user"])["usage"].as_array().unwrap().clone();
        if entries.iter().any(|entry| entry["user"] == user && entry["succeeded"] == calls) {
            return entries;
        }
    }
}

#[test]
fn usage_and_audit_log_outlive_agent_and_server() {
    let records = records("whole");
    let grid = agent(&records);
    let idl = file("nap.idl", IDL);
    let serve =
        |grid: &Grid| Running::start(grid.serve_command("one", &[&idl], &["--library", "libc.so.6", "--slots", "1"]));
    let (greta, heidi) = (admit_user("greta", "*"), admit_user("heidi", "linalg/*"));
    let one = serve(&grid);
    for seconds in ["1", "0"] {
        succeeds(of(&grid, &greta, &["call", "os/nap", seconds]));
    }
    let (code, error) = status_and_stderr(of(&grid, &heidi, &["call", "os/nap", "0"]));
    assert!(code == 1 && error.contains("the certificate of 'heidi' permits linalg/*;"), "{error}");
    // A server that ends reports what it has not reported yet.
    assert!(one.close_input().success());
    let greta_used = usage(&grid, "greta", 2);
    assert_eq!(greta_used.len(), 1, "refused calls are no usage: {greta_used:?}");
    let seconds = greta_used[0]["slot_seconds"].as_f64().unwrap();
    assert!((1.0..30.0).contains(&seconds), "{seconds}");

    let stranger = folder("stranger");
    if !stranger.join("others").exists() {
        make_grid(&stranger, "others");
    }
    status_and_stderr(of(&grid, &stranger, &["functions"]));
    assert!(grid.agent.close_input().success());
    let mode = |name: &str| std::fs::metadata(records.join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("usage.json"), mode("audit.jsonl")), (0o600, 0o600));

    let grid = agent(&records);
    assert_eq!(usage(&grid, "greta", 2), greta_used);
    let one = serve(&grid);
    succeeds(of(&grid, &greta, &["call", "os/nap", "0"]));
    assert!(one.close_input().success());
    usage(&grid, "greta", 3);
    let page = succeeds(of(&grid, &greta, &["usage"]));
    assert!(page.starts_with("day         user ") && page.contains("greta ") && page.lines().count() == 2, "{page}");
    assert_eq!(succeeds(of(&grid, &greta, &["usage", "--until", "2020-01-01"])), "no usage in these days\n");
    assert_eq!(succeeds(of(&grid, &heidi, &["usage"])), "no usage in these days\n");
    let (code, error) = status_and_stderr(of(&grid, &heidi, &["usage", "--user", "greta"]));
    assert!(code == 1 && error.contains("'heidi' may see only the usage of 'heidi', not that of 'greta'"), "{error}");
    let (code, error) = status_and_stderr(grid.command(&["usage", "--since", "yesterday"]));
    assert!(code == 2 && error.contains("'yesterday' is not a day since 1970, such as 2026-11-29"), "{error}");

    assert!(grid.agent.close_input().success());
    let text = std::fs::read_to_string(records.join("audit.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let has = |expected: &[(&str, &str)]| {
        let is_it = |line: &&Value| expected.iter().all(|(name, value)| line[*name].as_str() == Some(value));
        assert!(lines.iter().any(|line| is_it(&line)), "{expected:?} in {text}");
    };
    has(&[("event", "join"), ("what", "server"), ("program", "one")]);
    has(&[("event", "leave"), ("what", "client"), ("user", "greta")]);
    has(&[("event", "call"), ("outcome", "refused"), ("user", "heidi"), ("what", "os/nap"), ("server", "one")]);
    has(&[("event", "call"), ("outcome", "done"), ("user", "greta"), ("what", "os/nap"), ("program", "gridloom")]);
    has(&[("event", "connect"), ("outcome", "refused")]);
    let folder = records.to_str().unwrap();
    let audit = |options: &[&str]| succeeds(gridloom(&[&["audit", "--records", folder], options].concat()));
    assert_eq!(audit(&["--json"]), text);
    let refused = audit(&["--user", "heidi", "--event", "call", "--outcome", "refused"]);
    let rows: Vec<&str> = refused.lines().collect();
    assert!(
        rows.len() == 2 && rows[0].starts_with("time  ") && rows[1].contains(" os/nap at one by gridloom "),
        "{refused}"
    );
    assert_eq!(
        audit(&["--json", "--lines", "2"]).lines().collect::<Vec<_>>(),
        text.lines().collect::<Vec<_>>()[lines.len() - 2..]
    );
    assert_eq!(audit(&["--since", "2999-01-01"]), "no such events\n");
    assert!(audit(&["--since", "2020-01-01T12:00:00"]).lines().count() > lines.len());
    let calls = lines.iter().filter(|line| line["event"] == "call" && line["outcome"] == "done");
    assert_eq!(calls.map(|line| line["count"].as_u64().unwrap()).sum::<u64>(), 3, "{text}");
}

#[test]
fn the_audit_log_is_followed() {
    let records = records("followed");
    let grid = agent(&records);
    let arguments = ["audit", "--records", records.to_str().unwrap(), "--event", "join", "--json", "--follow"];
    let mut following = gridloom(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    for user in ["ivan", "jana"] {
        succeeds(of(&grid, &admit_user(user, "*"), &["functions"]));
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!((&line["user"], &line["event"]), (&user.into(), &"join".into()));
    }
    following.kill().unwrap();
    following.wait().unwrap();
    let (code, error) = status_and_stderr(gridloom(&["audit", "--records", "/nowhere"]));
    assert!(code == 1 && error.contains("/nowhere: there is no audit log; an agent of this user"), "{error}");
    let (code, error) = status_and_stderr(gridloom(&["audit", "--event", "calls"]));
    assert!(code == 2 && error.contains("'calls'"), "{error}");
}

#[test]
fn two_agents_do_not_share_a_folder_of_records() {
    let records = records("shared");
    let grid = agent(&records);
    let mut second = gridloom(&["agent", "--listen", "127.0.0.1:0", "--quiet", "--records", records.to_str().unwrap()]);
    let (code, error) = status_and_stderr(&mut second);
    assert!(code == 1 && error.contains("another agent keeps its records there; --records FOLDER names"), "{error}");
    // A damaged file is kept aside.
    assert!(grid.agent.close_input().success());
    std::fs::write(records.join("usage.json"), "{").unwrap();
    let mut again = gridloom(&["agent", "--listen", "127.0.0.1:0", "--records", records.to_str().unwrap()]);
    let (running, mut log) = crate::support::logging(&mut again);
    let line = crate::support::line_with(&mut log, "the usage of users cannot be read");
    assert!(line.contains("usage.json.unreadable, and a new one begins"), "{line}");
    drop(running);
    assert_eq!(std::fs::read_to_string(records.join("usage.json.unreadable")).unwrap(), "{");
}
