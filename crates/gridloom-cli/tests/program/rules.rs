//! The file of rules of a grid: checked, shown, and read by the agent whenever it changes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{
    Grid, Running, admit_user, file, first_line, gridloom, line_with, logging, make_grid, status_and_stderr, succeeds,
};

const IDL: &str = "Module os;
Define nap(IN int seconds, OUT int *left) Calls \"C\" left = sleep(seconds);
Define pid(OUT int *pid) Calls \"C\" pid = getpid();
";

const RULES: &str = "[groups]\nguests = ['hugo', 'guest-*']\n\n[everybody]\nfunctions = ['os/nap']\nslots = '50%'\n\n\
                     [group.guests]\nweight = 2\nmemory = '1GiB'\nwrite-names = ['~climate/*']\n\n[user.gina]\ncancel = ['group:guests']\n\
                     read-names = ['~climate/*']\n";

/// Runs a command of the user with these keys.
fn run(grid: &Grid, keys: &Path, arguments: &[&str]) -> Output {
    let mut command = grid.command(arguments);
    command.env("GRIDLOOM_KEYS", keys).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Writes a file that only its owner can change, whatever the umask is.
fn rules_file(name: &str, text: &str) -> String {
    let path = file(name, text);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    path
}

#[test]
fn an_agent_applies_its_rules_and_reads_them_again_when_they_change() {
    let rules = rules_file("rules-of-agent.toml", RULES);
    let (mut agent, mut log) = logging(&mut gridloom(&["agent", "--listen", "127.0.0.1:0", "--rules", &rules]));
    let address = first_line(&mut agent).strip_prefix("agent listening on ").unwrap().to_string();
    let grid = Grid { agent, address };
    let idl = file("rules.idl", IDL);
    let _one = Running::start(grid.serve_command("one", &[&idl], &["--library", "libc.so.6", "--slots", "2"]));
    let (gina, hugo) = (admit_user("gina", "*"), admit_user("hugo", "*"));

    assert!(run(&grid, &hugo, &["call", "os/nap", "0"]).status.success());
    let refused = stderr(&run(&grid, &hugo, &["call", "os/pid"]));
    assert!(refused.contains("the rules of the grid permit 'hugo' to call os/nap; ask an administrator"), "{refused}");
    // Administrators may call what their certificate permits.
    succeeds(grid.command(&["call", "os/pid"]));
    // One of the two slots is for others.
    let nap = |keys: &Path| {
        let mut command: Command = grid.command(&["call", "os/nap", "600"]);
        command.env("GRIDLOOM_KEYS", keys).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let naps = [nap(&hugo), nap(&hugo), nap(&gina)];
    let stages = |user: &str| {
        let calls = grid.json(&["calls"])["calls"].as_array().unwrap().clone();
        let own = calls.iter().filter(|call| call["user"] == user);
        own.map(|call| call["stage"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    while stages("hugo").len() < 2 || stages("gina") != ["running"] {}
    assert_eq!(stages("hugo").iter().filter(|stage| *stage == "running").count(), 1);
    // A user cancels calls of another one if the rules say so.
    let denied = run(&grid, &hugo, &["cancel", "--user", "gina"]);
    let text = String::from_utf8(denied.stdout).unwrap();
    assert!(!denied.status.success() && text.contains("nor do its rules permit it"), "{text}");
    let cancelled = run(&grid, &gina, &["cancel", "--user", "hugo"]);
    assert_eq!(String::from_utf8(cancelled.stdout).unwrap(), "2 calls cancelled\n");
    succeeds(grid.command(&["cancel", "--all"]));
    for nap in naps {
        assert!(stderr(&nap.wait_with_output().unwrap()).contains("the call was cancelled"));
    }

    let write = |text: &str| std::fs::write(&rules, text).unwrap();
    write("[everybody]\nfunctions = ['os/*']\n");
    while !run(&grid, &hugo, &["call", "os/pid"]).status.success() {}
    // A file with a mistake changes nothing.
    for (text, mistake) in [
        ("[everybody]\nfunctions = ['os']\n", ":2:14: 'os' is not a pattern of functions"),
        ("[everybdy]\n", ":1:2: unknown key 'everybdy' in file"),
    ] {
        write(text);
        let line = line_with(&mut log, "the rules of the grid remain as they were");
        assert!(line.contains(mistake) && line.contains("rules-of-agent.toml"), "{line}");
        assert!(run(&grid, &hugo, &["call", "os/pid"]).status.success());
    }
    // An editor may replace the file.
    std::fs::rename(rules_file("rules-new.toml", RULES), &rules).unwrap();
    while run(&grid, &hugo, &["call", "os/pid"]).status.success() {}
    std::fs::remove_file(&rules).unwrap();
    line_with(&mut log, "the rules of the grid remain as they were");
    assert!(!run(&grid, &hugo, &["call", "os/pid"]).status.success());
}

#[test]
fn a_file_of_rules_is_checked_and_shown() {
    let rules = rules_file("rules-shown.toml", RULES);
    let checked = succeeds(gridloom(&["rules", "check", &rules]));
    assert_eq!(checked, format!("{rules}: no mistakes; it has rules for 1 group and 1 user\n"));
    let shown = succeeds(gridloom(&["rules", "show", &rules, "--user", "hugo"]));
    assert_eq!(
        shown,
        "user 'hugo' (guests)\n  functions   os/nap\n  run-code    as the certificate states\n  weight      2\n  \
         slots       50 % of each server\n  memory      1 GiB of each server\n  disk        no limit\n  links       no limit\n  queue       no limit\n  cancel      none\n  \
         read-names  none\n  write-names ~climate/*\n"
    );
    let shown = succeeds(gridloom(&["rules", "show", &rules, "--user", "gina", "--json"]));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["slots"], &shown["weight"], &shown["memory"]), (&"50%".into(), &1.into(), &().into()));
    assert_eq!(shown["cancel"], serde_json::json!(["hugo", "guest-*"]));
    assert_eq!(
        (&shown["read-names"], &shown["write-names"]),
        (&serde_json::json!(["~climate/*"]), &serde_json::json!([]))
    );

    let wrong = rules_file("rules-wrong.toml", "[everybody]\nslots = 'half'\n");
    let why = format!("{wrong}:2:9: 'slots': 'half' is not a number of slots; use 1 to 4096, or a percentage");
    for arguments in [
        &["rules", "check", &wrong][..],
        &["rules", "show", &wrong],
        &["agent", "--listen", "127.0.0.1:0", "--rules", &wrong],
    ] {
        let (code, error) = status_and_stderr(gridloom(arguments));
        assert!(code == 1 && error.contains(&why), "{arguments:?}: {error}");
    }
    // Without --rules, the agent reads the file in the folder of the grid's keys.
    let keys = crate::support::folder("rules-of-grid").join(std::process::id().to_string());
    make_grid(&keys, "strict");
    std::fs::copy(&wrong, keys.join("strict/rules.toml")).unwrap();
    let mut command = gridloom(&["agent", "--listen", "127.0.0.1:0"]);
    let (code, error) = status_and_stderr(command.env("GRIDLOOM_KEYS", &keys));
    assert!(code == 1 && error.contains("strict/rules.toml:2:9: 'slots': 'half'"), "{error}");
    std::fs::set_permissions(&rules, std::fs::Permissions::from_mode(0o664)).unwrap();
    let (code, error) = status_and_stderr(gridloom(&["agent", "--listen", "127.0.0.1:0", "--rules", &rules]));
    assert!(code == 1 && error.contains("other users can change the file (mode 0664); run: chmod go-w '"), "{error}");
    let (code, error) = status_and_stderr(gridloom(&["rules", "check", "/nowhere/rules.toml"]));
    assert!(code == 1 && error.contains("/nowhere/rules.toml: No such file"), "{error}");
}
