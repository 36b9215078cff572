//! Workers of the users of one grid.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::node_keys::{PublicFolder, looking, session_and_server, why_not_confined};
use crate::support::{Grid, Running, admit_user, file, gridloom, idl, skipped, status_and_stderr, succeeds};

const IDL: &str = "Module os;
Define pid(OUT int *pid) Calls \"C\" pid = getpid();
";

/// Calls a function without arguments for the user with these keys, and returns its result.
fn called(grid: &Grid, keys: &Path, function: &str, result: &str) -> i64 {
    let mut command = gridloom(&["call", function, "--agent", &grid.address, "--json"]);
    command.env("GRIDLOOM_KEYS", keys);
    let shown: serde_json::Value = serde_json::from_str(&succeeds(command)).unwrap();
    let value = shown["results"][result].as_i64().or(shown[result].as_i64());
    value.unwrap_or_else(|| panic!("{shown}"))
}

#[test]
fn users_of_offered_functions_share_workers_unless_the_operator_separates_them() {
    let (grid, idl) = (Grid::start(), file("worker-users.idl", IDL));
    let (anna, bert) = (admit_user("anna-offered", "*"), admit_user("bert-offered", "*"));
    for (options, is_separate) in [(&["--separate-users"][..], true), (&[], false)] {
        let arguments = [&["--library", "libc.so.6"], options].concat();
        let _server = Running::start(grid.serve_command("one", &[&idl], &arguments));
        let pids = [&anna, &anna, &bert, &anna].map(|keys| called(&grid, keys, "os/pid", "pid"));
        assert_eq!(pids[0], pids[1]);
        assert_eq!([pids[1] != pids[2], pids[2] != pids[3]], [is_separate; 2], "{pids:?}");
    }
}

/// Returns the number of a user of this system; `None` if there is no such user.
fn number_of(user: &str) -> Option<i64> {
    let output = std::process::Command::new("getent").args(["passwd", user]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.split(':').nth(2)?.parse().ok()
}

#[test]
fn users_of_the_grid_run_functions_as_users_of_the_system() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skipped("only root can run functions as other users");
    }
    let system_users = ["daemon", "games", "nobody"];
    let Some(numbers) = system_users.map(number_of).into_iter().collect::<Option<Vec<i64>>>() else {
        return skipped("there are no users daemon, games and nobody");
    };
    let (grid, open) = (Grid::start(), PublicFolder::new());
    let [anna, bert, nobody, daemon, carol] =
        ["anna-system", "bert-system", "nobody", "daemon", "carol-system"].map(|name| admit_user(name, "*"));
    let mapping =
        ["--run-as-user", "anna-system=daemon", "--run-as-user", "bert-system=games", "--run-as-user", "@user"];
    let (server, look) = looking_as(&grid, &open, &mapping);
    assert_eq!([&anna, &bert, &nobody].map(|keys| look(keys, "user").unwrap()).to_vec(), numbers);
    assert_eq!(look(&anna, "user"), Ok(numbers[0]), "each user has a worker");
    // Functions find keys that their user may read.
    for keys in [&anna, &bert] {
        assert_eq!(look(keys, &session_and_server(&open)[0]), Ok(0));
    }
    for (keys, why) in [
        (&daemon, "'daemon' is a system account (UID 1; accounts of people start at 1000)"),
        (&carol, "its machine has no account 'carol-system'; the operator can assign one with --run-as-user"),
    ] {
        let error = look(keys, "user").unwrap_err();
        assert!(error.contains("refused the call of 'cli/look'") && error.contains(why), "{error}");
    }
    drop(server);
    let (_server, look) = looking_as(&grid, &open, &["--run-as-user", "anna-system=daemon", "--run-as", "nobody"]);
    assert_eq!([&anna, &carol].map(|keys| look(keys, "user").unwrap()), [numbers[0], numbers[2]]);
    for (option, why) in [
        ("anna=root", "functions of users do not run as root"),
        ("anna=no-such-user", "there is no such user"),
        ("anna", "expected USER=ACCOUNT"),
    ] {
        let refused = grid.serve_command("none", &[&idl()], &["--run-as-user", option]);
        let (code, error) = status_and_stderr(refused);
        assert!(code == 1 && error.contains(&format!("--run-as-user {option}: ")) && error.contains(why), "{error}");
    }
}

/// Starts a server with these options of the function that looks around. Returns it, and what a user sees, or the error.
fn looking_as(
    grid: &Grid,
    open: &PublicFolder,
    options: &[&str],
) -> (Running, impl Fn(&Path, &str) -> Result<i64, String>) {
    let (server, _) = looking(grid, open, &[], options);
    let address = grid.address.clone();
    let look = move |keys: &Path, what: &str| {
        let mut command = gridloom(&["call", "cli/look", what, "--agent", &address, "--json"]);
        let output = command.env("GRIDLOOM_KEYS", keys).output().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8(output.stderr).unwrap());
        }
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        Ok(shown["results"]["seen"].as_i64().or(shown["seen"].as_i64()).unwrap_or_else(|| panic!("{shown}")))
    };
    (server, look)
}

#[test]
fn functions_have_the_rights_of_their_user_if_workers_serve_one_user() {
    let (grid, open) = (Grid::start(), PublicFolder::new());
    let idl = file("other-function.idl", IDL);
    let _other = Running::start(grid.serve_command("other", &[&idl], &["--library", "libc.so.6"]));
    let [anna, bert] = [admit_user("anna-cli", "cli/*"), admit_user("bert-all", "*")];
    let program = open.0.join("gridloom");
    // A function that calls the function of the other server.
    let nested = format!("run:'{}' call os/pid --agent {} >/dev/null 2>&1", program.display(), grid.address);
    let session = session_and_server(&open)[0].clone();
    for (options, of_anna) in [(&["--separate-users"][..], 1), (&[], 0)] {
        let (_server, look) = looking_as(&grid, &open, options);
        assert_eq!([&anna, &bert].map(|keys| look(keys, &session)), [Ok(0), Ok(0)]);
        assert_eq!(
            [&anna, &bert].map(|keys| look(keys, &nested).map(i64::signum)),
            [Ok(of_anna), Ok(0)],
            "{options:?}"
        );
    }
}

#[test]
fn confined_functions_of_one_user_read_no_keys_of_another() {
    if let Some(why) = why_not_confined() {
        return skipped(&why);
    }
    let (grid, open) = (Grid::start(), PublicFolder::new());
    let [anna, bert] = [admit_user("anna-confined", "*"), admit_user("bert-confined", "*")];
    let (_server, look) = looking_as(&grid, &open, &["--separate-users", "--confine"]);
    let read = |number| format!("run:cat \"$GRIDLOOM_FUNCTION_KEYS\"/../{number}/tests/own.key >/dev/null 2>&1");
    let session = session_and_server(&open)[0].clone();
    assert_eq!([look(&anna, &read(0)), look(&bert, &read(1))], [Ok(0), Ok(0)]);
    assert_eq!([look(&anna, &read(1)), look(&bert, &read(0))].map(|seen| seen.map(i64::signum)), [Ok(1), Ok(1)]);
    assert_eq!([&anna, &bert].map(|keys| look(keys, &session)), [Ok(0), Ok(0)]);
}

#[test]
fn limits_of_workers_are_checked() {
    let grid = Grid::start();
    for (options, why) in [
        (["--worker-files", "10"], "10 is not in 64..=1048576"),
        (["--worker-processes", "0"], "0 is not in 1.."),
        (["--worker-time", "1ms"], "'1ms' is 0.001 s; expected at least 0.1 s, such as 90s or 2h"),
        (["--worker-time", "long"], "long"),
    ] {
        let (code, error) = status_and_stderr(grid.serve_command("none", &[&idl()], &options));
        assert!(code == 2 && error.contains(why), "{error}");
    }
    // The system permits the server fewer files.
    let command = grid.serve_command("none", &[&idl()], &["--worker-files", "5000"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 2000 && exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let (code, error) = status_and_stderr(limited);
    let why = "--worker-files 5000: the system permits the processes of this server 2000 open files; give at most that, or raise";
    assert!(code == 1 && error.contains(why), "{error}");
}
