//! Output of the program whose reader stops; and commands that find their grid without an agent.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::support::{Grid, Running, file, gridloom, idl, library, status_and_stderr, succeeds};

/// Returns an output without a reader.
fn unread() -> Stdio {
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(ours);
    Stdio::from(OwnedFd::from(theirs))
}

/// Returns the status of a command whose outputs have no reader, and its standard error.
fn status_unread(mut command: Command, has_errors_read: bool) -> (i32, String) {
    command.stdout(unread());
    let command = if has_errors_read { command.stderr(Stdio::piped()) } else { command.stderr(unread()) };
    let output = command.output().unwrap();
    (output.status.code().expect("no signal"), String::from_utf8(output.stderr).unwrap())
}

/// Starts a server without an agent. Returns it and its address.
fn serve_alone(name: &str, arguments: &[&str]) -> (Running, String) {
    let mut command = gridloom(&["serve", &idl(), "--no-agent", "--name", name, "--library", library(), "--quiet"]);
    command.args(arguments);
    let server = Running::start(command);
    let address = server.line.split_whitespace().nth(3).unwrap().to_string();
    (server, address)
}

#[test]
fn nobody_who_reads_is_no_panic() {
    let grid = Grid::start();
    let _one = grid.serve("one", &[]);
    let saved = file("readers-plan.json", "{}");
    let lists: [&[&str]; 6] = [
        &["heuristics"],
        &["functions"],
        &["servers"],
        &["models"],
        &["models", "--links"],
        &["call", "plus", "1", "1"],
    ];
    for arguments in lists {
        let (status, error) = status_unread(grid.command(arguments), true);
        assert_eq!((status, error.as_str()), (1, ""), "{arguments:?}");
    }
    let wrong: [(&[&str], i32); 4] = [
        (&["explain", &saved], 1),
        (&["functions", "--agent", "127.0.0.1:1"], 1),
        (&["nonsense"], 2),
        (&["call", "x"], 1),
    ];
    for (arguments, expected) in wrong {
        assert_eq!(status_unread(grid.command(arguments), false).0, expected, "{arguments:?}");
    }
    // It stops at the first line without a reader.
    let calibrate = ["calibrate", "scale", "--sizes", "n=10..100000", "--error", "1e-9", "--budget", "3600"];
    assert_eq!(status_unread(grid.command(&calibrate), false).0, 1);
}

#[test]
fn an_agent_whose_log_nobody_reads_continues() {
    let mut command = gridloom(&["agent", "--listen", "127.0.0.1:0"]);
    command.stderr(unread());
    let agent = Running::start(command);
    let address = agent.line.strip_prefix("agent listening on ").unwrap().to_string();
    let grid = Grid { agent, address };
    let _one = grid.serve("one", &[]);
    assert_eq!(succeeds(grid.command(&["call", "cli/plus", "1", "1"])), "sum = 2.0\n");
}

#[test]
fn a_server_whose_log_nobody_reads_continues() {
    let mut command = gridloom(&["serve", &idl(), "--no-agent", "--library", library(), "--log", "debug"]);
    command.stderr(unread());
    let server = Running::start(command);
    let address = server.line.split_whitespace().nth(3).unwrap();
    assert_eq!(status_and_stderr(gridloom(&["call", "cli/abort_now", "1", "--servers", address])).0, 1);
    assert_eq!(succeeds(gridloom(&["call", "cli/plus", "1", "1", "--servers", address])), "sum = 2.0\n");
    assert!(server.close_input().success());
}

#[test]
fn commands_take_servers_without_an_agent() {
    let ((_one, first), (_two, second)) = (serve_alone("one", &[]), serve_alone("two", &["--slowdown", "3"]));
    let both = format!("{first},{second}");
    let listed = succeeds(gridloom(&["servers", "--servers", &both]));
    assert!(listed.contains("\none ") && listed.contains("\ntwo "), "{listed}");
    let calibrate = ["calibrate", "scale", "--sizes", "n=100..10000", "--error", "1", "--servers", &both];
    assert!(succeeds(gridloom(&calibrate)).contains("cli/scale on two: "));
    // Servers keep what they have learned; a client that connects later receives it at once.
    let mut command = gridloom(&["models", "cli/scale", "--json"]);
    command.env("GRIDLOOM_SERVERS", &second);
    let known: serde_json::Value = serde_json::from_str(&succeeds(command)).unwrap();
    assert_eq!(known["models"][0]["server"], "two");
    assert!(known["models"][0]["by_work"].as_array().unwrap().len() > 1, "{known}");
    let output = gridloom(&["servers", "--servers", &format!("{first},127.0.0.1:1")]).output().unwrap();
    let warned = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && warned.contains("without the server at 127.0.0.1:1: "), "{warned}");
    assert!(warned.contains("connection refused"), "{warned}");
    let (status, error) = status_and_stderr(gridloom(&["servers", "--servers", "127.0.0.1:1,127.0.0.1:2"]));
    assert_eq!(status, 1);
    for part in [
        "cannot use the server at 127.0.0.1:1: ",
        "cannot use the server at 127.0.0.1:2: ",
        "gridloom serve --no-agent",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let (status, error) = status_and_stderr(gridloom(&["servers", "--servers", "here"]));
    assert!(status == 1 && error.contains("'here' is not an address of a server; expected HOST:PORT"), "{error}");
    let (status, error) = status_and_stderr(gridloom(&["servers", "--servers", &first, "--agent", &second]));
    assert!(status == 2 && error.contains("cannot be used with"), "{error}");
}

#[test]
fn addresses_of_servers_may_have_blanks_and_be_of_one_server() {
    let ((_one, first), (_two, second)) = (serve_alone("one", &[]), serve_alone("two", &[]));
    let alias = first.replace("127.0.0.1", "localhost");
    let all = format!("{first}, {second} ,{alias}");
    let mut by_name = gridloom(&["servers"]);
    by_name.env("GRIDLOOM_SERVERS", &all);
    for mut command in [gridloom(&["servers", "--servers", &all]), by_name] {
        let output = command.output().unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        assert!(listed.contains("\none ") && listed.contains("\ntwo "), "{listed}");
        // Each server was reached: none is left out.
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    }
    for empty in [format!("{first},"), format!(",{first}"), format!("{first}, ,{second}"), String::new()] {
        let (status, error) = status_and_stderr(gridloom(&["servers", "--servers", &empty]));
        assert!(status == 1 && error.contains("one of the servers' addresses is empty"), "'{empty}': {error}");
    }
    let mut command = gridloom(&["servers"]);
    command.env("GRIDLOOM_SERVERS", format!("{first},"));
    let (status, error) = status_and_stderr(command);
    assert!(status == 1 && error.contains("one of the servers' addresses is empty"), "{error}");
}

#[test]
fn devices_and_pipes_are_refused_as_files() {
    let pipe = file("readers-pipe.toml", "");
    std::fs::remove_file(&pipe).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let argument = format!("@{pipe}");
    let grid = Grid::start();
    let _one = grid.serve("one", &[]);
    for name in [pipe.as_str(), "/dev/zero"] {
        let commands: [&[&str]; 5] = [
            &["up", name],
            &["platform", "show", name],
            &["serve", &idl(), "--library", name],
            &["deploy", "--deployment", name],
            &["simulate", "-p", name, "--", "true"],
        ];
        for arguments in commands {
            let (status, error) = status_and_stderr(gridloom(arguments));
            assert!(status != 0 && error.contains("it is a device, pipe or socket"), "{arguments:?}: {error}");
        }
    }
    for name in [argument.as_str(), "@/dev/zero"] {
        let (status, error) = status_and_stderr(grid.command(&["call", "plus", name, "1"]));
        assert!(status != 0 && error.contains("it is a device, pipe or socket"), "{name}: {error}");
    }
    let numbers = file("readers-numbers.json", "");
    let units = "\u{feff}2".encode_utf16().flat_map(u16::to_le_bytes);
    std::fs::write(&numbers, units.collect::<Vec<u8>>()).unwrap();
    assert!(succeeds(grid.command(&["call", "plus", &format!("@{numbers}"), "1"])).contains('3'));
    std::fs::remove_file(pipe).unwrap();
}
