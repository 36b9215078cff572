//! Workers of the users of one grid.

use std::path::Path;

use crate::support::{Grid, Running, admit_user, file, gridloom, succeeds};

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
