//! The secret of a grid, as users see it: created at the first start, found by all programs of the user, and named in
//! errors when it is missing or differs.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{
    Grid, Running, compiled, copy_executable, file, first_line, gridloom, idl, library, line_with, logging,
    serve_command, status_and_stderr, succeeds,
};

/// Returns a command of a user with that configuration folder.
fn of_user(config: &Path, arguments: &[&str]) -> Command {
    let mut command = gridloom(arguments);
    command.env_remove("GRIDLOOM_SECRET").env_remove("GRIDLOOM_SECRET_FILE").env("XDG_CONFIG_HOME", config);
    command
}

/// Returns a configuration folder without files of Gridloom.
fn config(name: &str) -> PathBuf {
    let folder = crate::support::folder("secret").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn the_first_agent_makes_a_secret_that_all_programs_of_the_user_find() {
    let (own, strange) = (config("own"), config("strange"));
    let agent = Running::start(of_user(&own, &["agent", "--listen", "127.0.0.1:0", "--quiet"]));
    let address = agent.line.strip_prefix("agent listening on ").unwrap().to_string();
    let file = own.join("gridloom/secret");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let serve = ["serve", &idl(), "--library", library(), "--quiet", "--agent", &address, "--name", "one", "--listen"];
    let _server = Running::start(of_user(&own, &[&serve[..], &["127.0.0.1:0"]].concat()));
    assert!(succeeds(of_user(&own, &["servers", "--agent", &address])).contains("one"));

    // A user without the secret, such as an attacker on the same machine, can connect neither as a client nor as a server.
    let (code, error) = status_and_stderr(of_user(&strange, &["functions", "--agent", &address]));
    let missing = strange.join("gridloom/secret");
    assert_eq!(code, 1);
    assert!(error.contains("grid secret does not match: this side has no secret, since there is no file"), "{error}");
    assert!(error.contains(missing.to_str().unwrap()) && !missing.exists(), "{error}");
    let (code, error) = status_and_stderr(of_user(&strange, &[&serve[..], &["127.0.0.1:0"]].concat()));
    assert_eq!(code, 1);
    assert!(error.contains("grid secret does not match: this side's secret is from") && missing.exists(), "{error}");
    let by_variable = gridloom(&["functions", "--agent", &address]);
    let (_, error) = status_and_stderr(by_variable);
    assert!(error.contains("this side's secret is from GRIDLOOM_SECRET; set it to the same value"), "{error}");
}

#[test]
fn a_node_without_a_secret_does_not_start() {
    // No folder can be created there, not even by root.
    let nowhere = Path::new("/proc/nowhere");
    for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
        let arguments = ["agent", "--listen", listen, "--advertise", "localhost:0"];
        let (code, error) = status_and_stderr(of_user(nowhere, &arguments));
        assert_eq!(code, 1);
        assert!(error.contains("cannot store a grid secret in '/proc/nowhere/gridloom/secret'"), "{error}");
    }
    // An agent on another machine has a secret: a new one is useless.
    let folder = config("remote");
    let arguments = ["serve", &idl(), "--library", library(), "--agent", "192.0.2.1:7711"];
    let (code, error) = status_and_stderr(of_user(&folder, &arguments));
    assert_eq!(code, 1);
    assert!(
        error.contains("no grid secret for the agent at 192.0.2.1:7711") && error.contains("copy its secret here"),
        "{error}"
    );
    assert!(!folder.join("gridloom").exists());
}

#[test]
fn blank_secrets_and_files_that_others_read_are_refused() {
    let folder = config("refused");
    let file = folder.join("mine");
    let agent = |name: &str, value: &Path| {
        let mut command = of_user(&folder, &["agent", "--listen", "127.0.0.1:0"]);
        command.env(name, value);
        let (code, error) = status_and_stderr(command);
        assert_eq!(code, 1, "{error}");
        error
    };
    for blank in ["", "  ", "\n"] {
        let error = agent("GRIDLOOM_SECRET", Path::new(blank));
        assert!(error.contains("GRIDLOOM_SECRET is set and blank"), "{error}");
    }
    std::fs::write(&file, "hunter2").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = agent("GRIDLOOM_SECRET_FILE", &file);
    let path = file.to_str().unwrap();
    for part in ["GRIDLOOM_SECRET_FILE: ", path, "(mode 0644)", &format!("chmod 600 '{path}'")] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let error = agent("GRIDLOOM_SECRET_FILE", &folder.join("none"));
    assert!(error.contains("GRIDLOOM_SECRET_FILE: ") && error.contains(folder.to_str().unwrap()), "{error}");
    // The same rules apply to the user's own file.
    std::fs::create_dir_all(folder.join("gridloom")).unwrap();
    std::fs::copy(&file, folder.join("gridloom/secret")).unwrap();
    let (code, error) = status_and_stderr(of_user(&folder, &["functions", "--agent", "127.0.0.1:1"]));
    assert!(code == 1 && error.contains("gridloom/secret") && error.contains("(mode 0644)"), "{error}");
}

#[test]
fn the_command_shows_makes_and_replaces_the_secret_and_never_prints_it() {
    let folder = config("command");
    let (code, error) = status_and_stderr(of_user(&folder, &["secret"]));
    assert!(code == 1 && error.contains("there is no grid secret"), "{error}");
    let shown = |arguments: &[&str]| {
        let shown = succeeds(of_user(&folder, &[&["secret", "--json"], arguments].concat()));
        let secret = std::fs::read_to_string(folder.join("gridloom/secret")).unwrap();
        assert!(!shown.contains(secret.trim()) && secret.trim().len() == 64);
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert!(shown["carry"].as_str().unwrap().starts_with("ssh HOST 'umask 077; "), "{shown}");
        shown["fingerprint"].as_str().unwrap().to_string()
    };
    let made = shown(&["--make"]);
    assert_eq!(shown(&["--make"]), made, "one that is there stays");
    assert_eq!(shown(&[]), made);
    assert_ne!(shown(&["--replace"]), made);
    assert!(succeeds(of_user(&folder, &["secret"])).contains("to copy it to the machine HOST, run here:\n  ssh HOST"));
}

#[test]
fn a_folder_of_sockets_that_is_not_the_users_alone_is_reported_and_tcp_used() {
    // The path of a socket is short.
    let folder = PathBuf::from(format!("/tmp/gridloom-test-sockets-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = gridloom(&["agent", "--listen", "127.0.0.1:0"]);
    let (mut agent, mut log) = logging(command.env("GRIDLOOM_SOCKETS", &folder));
    let line = line_with(&mut log, "nodes of this host are reached only over TCP");
    assert!(line.contains("(mode 0777); run: chmod 700"), "{line}");
    let address = first_line(&mut agent).strip_prefix("agent listening on ").unwrap().to_string();
    succeeds(gridloom(&["functions", "--agent", &address]));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "no socket was put there");
    std::fs::remove_dir(&folder).unwrap();
}

const LOOK: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether a variable is set ("env:NAME"), or a file of the server's process can be read ("proc:NAME"). */
int look(const char *what) {
    char path[256], byte;
    if (!strncmp(what, "env:", 4)) return getenv(what + 4) != NULL;
    if (!strcmp(what, "user")) return (int)getuid();
    snprintf(path, sizeof path, "/proc/%d/%s", (int)getppid(), what + 5);
    FILE *file = fopen(path, "r");
    int seen = file && fread(&byte, 1, 1, file) == 1;
    if (file) fclose(file);
    return seen;
}
"#;

/// A folder that every user can reach, unlike that of the build; removed at the end.
struct PublicFolder(PathBuf);

impl PublicFolder {
    fn new() -> PublicFolder {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("gridloom-secret-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        PublicFolder(folder)
    }

    /// Makes a copy of that file which every user can read and execute.
    fn copy(&self, from: &str) -> String {
        let copy = self.0.join(Path::new(from).file_name().unwrap());
        copy_executable(Path::new(from), &copy);
        copy.to_str().unwrap().to_string()
    }
}

impl Drop for PublicFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Starts a server of the function that looks around, with the command `front` before it. Returns the server and a
/// function that returns what it sees.
fn looking(grid: &Grid, open: &PublicFolder, front: &[&str], arguments: &[&str]) -> (Running, impl Fn(&str) -> i64) {
    let (source, idl) = (
        file("look.c", LOOK),
        file("look.idl", "Module cli;\nDefine look(IN string what, OUT int *seen) Calls \"C\" seen = look(what);\n"),
    );
    let (library, idl) = (open.copy(&compiled("look.so", &source)), open.copy(&idl));
    let program = open.copy(env!("CARGO_BIN_EXE_gridloom"));
    let serve =
        serve_command(&grid.address, "looking", &[&idl], &[&["--library", &library, "--quiet"], arguments].concat());
    let [words @ .., last] = &[front, &[program.as_str()]].concat()[..] else { unreachable!("the program is one") };
    let mut command = Command::new(words.first().unwrap_or(last));
    command.args(words.iter().chain([last]).skip(1)).args(serve.get_args());
    command.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let server = Running::start({
        command.env("THE_PASSWORD", "hunter2").env("WANTED", "yes");
        command
    });
    assert!(server.line.starts_with("server looking on "), "it did not start: {}", server.line);
    let address = grid.address.clone();
    let look = move |what: &str| {
        let shown = succeeds(gridloom(&["call", "cli/look", what, "--agent", &address, "--json"]));
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        shown["results"]["seen"].as_i64().or(shown["seen"].as_i64()).unwrap_or_else(|| panic!("{shown}"))
    };
    (server, look)
}

#[test]
fn functions_see_of_the_servers_environment_what_is_common_or_named() {
    let (grid, open) = (Grid::start(), PublicFolder::new());
    let (server, look) = looking(&grid, &open, &[], &["--env", "WANTED"]);
    let seen = |names: [&str; 5]| names.map(|name| look(&format!("env:{name}")));
    let names = ["PATH", "WANTED", "THE_PASSWORD", "GRIDLOOM_SECRET", "GRIDLOOM_TICKET"];
    assert_eq!(seen(names), [1, 1, 0, 0, 1]);
    drop(server);
    let (_server, look) = looking(&grid, &open, &[], &["--env", "*"]);
    assert_eq!(names.map(|name| look(&format!("env:{name}"))), [1, 1, 1, 0, 1], "all but the secret");
}

#[test]
fn functions_do_not_read_the_memory_of_their_server() {
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root || Command::new("setpriv").arg("--version").output().is_err() {
        return crate::support::skipped("another user than root is to be tried, which takes root and setpriv");
    }
    let (grid, open) = (Grid::start(), PublicFolder::new());
    // Functions that run as the server's own user: the server hides.
    let (server, look) = looking(&grid, &open, &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"], &[]);
    assert_eq!((look("user"), look("proc:environ"), look("proc:maps"), look("proc:status")), (65534, 0, 0, 1));
    drop(server);
    // A server that runs as root has its functions run as another user.
    let (server, look) = looking(&grid, &open, &[], &["--run-as", "nobody"]);
    assert_eq!((look("user"), look("proc:environ"), look("proc:maps"), look("proc:status")), (65534, 0, 0, 1));
    drop(server);
    let (code, error) = status_and_stderr(grid.serve_command("none", &[&idl()], &["--run-as", "nobody-of-that-name"]));
    assert!(code == 1 && error.contains("--run-as nobody-of-that-name: there is no such user"), "{error}");
}
