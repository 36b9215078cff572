//! Keys as users of agents, servers and programs see them: made at the first start, found by all programs of the user, and
//! named in errors when they are missing or of another grid.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::bounds::{output_of, until_true};
use crate::support::{
    Grid, Running, compiled, copy_executable, file, first_line, gridloom, idl, keys, library, line_with, logging,
    make_grid, serve_command, status_and_stderr, succeeds,
};

/// Returns a command of a user with that configuration folder.
fn of_user(config: &Path, arguments: &[&str]) -> Command {
    let mut command = gridloom(arguments);
    command.env_remove("GRIDLOOM_KEYS").env("XDG_CONFIG_HOME", config);
    command
}

/// Returns a configuration folder without files of Gridloom.
fn config(name: &str) -> PathBuf {
    let folder = crate::support::folder("node-keys").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns the arguments of a server of the tests' functions.
fn serve<'a>(idl: &'a str, agent: &'a str) -> Vec<&'a str> {
    vec!["serve", idl, "--library", library(), "--quiet", "--agent", agent, "--name", "one", "--listen", "127.0.0.1:0"]
}

#[test]
fn the_first_agent_makes_a_grid_whose_keys_all_programs_of_the_user_find() {
    let (own, strange) = (config("own"), config("strange"));
    let agent = Running::start(of_user(&own, &["agent", "--listen", "127.0.0.1:0", "--quiet"]));
    let address = agent.line.strip_prefix("agent listening on ").unwrap().to_string();
    let keys = own.join("gridloom/keys");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    let mut grids = std::fs::read_dir(&keys).unwrap().map(|entry| entry.unwrap().path());
    let grid = grids.find(|path| path.is_dir()).unwrap();
    assert_eq!((mode(&keys), mode(&grid), mode(&grid.join("own.key"))), (0o700, 0o700, 0o600));
    let idl = idl();
    let serve = serve(&idl, &address);
    let _server = Running::start(of_user(&own, &serve));
    assert!(succeeds(of_user(&own, &["servers", "--agent", &address])).contains("one"));

    // A user without keys, such as an attacker on the same machine, can connect neither as a client nor as a server.
    let (code, error) = status_and_stderr(of_user(&strange, &["functions", "--agent", &address]));
    let missing = strange.join("gridloom/keys");
    assert_eq!(code, 1);
    for part in [&format!("there are no keys in {}", missing.display()), "'gridloom keys request'"] {
        assert!(error.contains(part) && !missing.exists(), "{part}: {error}");
    }
    // The server makes a grid of its own.
    let (code, error) = status_and_stderr(of_user(&strange, &serve));
    assert_eq!(code, 1);
    assert!(error.contains("the peer's certificate is of the grid ") && missing.exists(), "{error}");
}

#[test]
fn keys_of_another_grid_are_refused_with_the_reason_of_both_sides() {
    let other = config("other").join("keys");
    make_grid(&other, "elsewhere");
    let (mut agent, mut log) = logging(&mut gridloom(&["agent", "--listen", "127.0.0.1:0"]));
    let address = first_line(&mut agent).strip_prefix("agent listening on ").unwrap().to_string();
    let with_others = |arguments: &[&str]| {
        let mut command = gridloom(arguments);
        let (code, error) = status_and_stderr(command.env("GRIDLOOM_KEYS", &other));
        assert_eq!(code, 1);
        error
    };
    let error = with_others(&["functions", "--agent", &address]);
    let authority = |keys: &Path| {
        let mut command = gridloom(&["keys", "list", "--json"]);
        command.env("GRIDLOOM_KEYS", keys);
        let listed: serde_json::Value = serde_json::from_str(&succeeds(command)).unwrap();
        listed["grids"][0]["authority"].as_str().unwrap().to_string()
    };
    let both = format!(
        "the peer's certificate is of the grid 'tests' (authority {}), this node belongs to the grid 'elsewhere' \
         (authority {})",
        authority(keys()),
        authority(&other)
    );
    assert!(error.contains(&both), "{error}");
    let line = line_with(&mut log, "a connection was turned away");
    assert!(line.contains("the peer belongs to another grid than this side's certificate"), "{line}");
    let error = with_others(&serve(&idl(), &address));
    assert!(error.contains(&format!("cannot use the agent at {address}: ")), "{error}");
}

#[test]
fn a_node_without_keys_does_not_start() {
    // No folder can be created there, not even by root.
    let nowhere = Path::new("/proc/nowhere");
    for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
        let arguments = ["agent", "--listen", listen, "--advertise", "localhost:0"];
        let (code, error) = status_and_stderr(of_user(nowhere, &arguments));
        assert_eq!(code, 1);
        assert!(error.contains("/proc/nowhere/gridloom/keys"), "{error}");
    }
    // An agent on another machine has a grid: a new one is useless.
    let folder = config("remote");
    let (code, error) = status_and_stderr(of_user(&folder, &serve(&idl(), "192.0.2.1:7711")));
    assert_eq!(code, 1);
    for part in ["no keys for the grid of the agent at 192.0.2.1:7711", "'gridloom keys request'"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!folder.join("gridloom").exists());
    let mut command = gridloom(&["agent", "--listen", "127.0.0.1:0", "--keys-on-stdin"]);
    let (code, error) = status_and_stderr(&mut command);
    assert!(code == 1 && error.contains("no keys on standard input"), "{error}");
}

#[test]
fn a_server_may_have_the_longest_name() {
    let name = "x".repeat(255);
    let mut command = gridloom(&["serve", "--no-functions", "--no-agent", "--quiet", "--name", &name]);
    let server = Running::start({
        command.env("GRIDLOOM_MODELS", "none");
        command
    });
    assert!(server.line.starts_with(&format!("server {name} on ")), "{}", server.line);
}

#[test]
fn a_node_uses_the_grid_that_is_named() {
    let keys = config("several");
    make_grid(&keys, "first");
    make_grid(&keys, "second");
    let agent = |arguments: &[&str]| {
        let mut command = gridloom(&[&["agent", "--listen", "127.0.0.1:0", "--quiet"], arguments].concat());
        command.env("GRIDLOOM_KEYS", &keys);
        command
    };
    let (code, error) = status_and_stderr(agent(&[]));
    assert!(code == 1 && error.contains("several grids: first, second; choose one with --grid GRID"), "{error}");
    let (code, error) = status_and_stderr(agent(&["--grid", "third"]));
    assert!(code == 1 && error.contains("there are no keys of the grid 'third'"), "{error}");
    let agent = Running::start(agent(&["--grid", "second"]));
    let address = agent.line.strip_prefix("agent listening on ").unwrap();
    // The program finds out which grid it is.
    let mut command = gridloom(&["functions", "--agent", address]);
    command.env("GRIDLOOM_KEYS", &keys);
    succeeds(command);
    // The variable chooses, too.
    let by_variable = |grid: &str| {
        let mut command = gridloom(&["functions", "--agent", address]);
        command.env("GRIDLOOM_KEYS", &keys).env("GRIDLOOM_GRID", grid);
        command
    };
    succeeds(by_variable("second"));
    let (code, error) = status_and_stderr(by_variable("first"));
    assert!(code == 1 && error.contains("this node belongs to the grid 'first'"), "{error}");
}

#[test]
fn keys_that_others_read_and_those_of_another_role_are_refused() {
    let keys = config("refused");
    make_grid(&keys, "lab");
    let agent = |folder: &Path| {
        let mut command = gridloom(&["agent", "--listen", "127.0.0.1:0"]);
        let (code, error) = status_and_stderr(command.env("GRIDLOOM_KEYS", folder));
        assert_eq!(code, 1, "{error}");
        error
    };
    let error = agent(Path::new("mine"));
    assert!(error.contains("GRIDLOOM_KEYS is 'mine'; set it to an absolute path"), "{error}");
    let file = keys.join("lab/authority.key");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = agent(&keys);
    let path = file.to_str().unwrap();
    for part in [path, "(mode 0644)", &format!("chmod 600 '{path}'")] {
        assert!(error.contains(part), "{part}: {error}");
    }
    // Without the authority, the own certificate would be used, which is an administrator's.
    std::fs::remove_file(&file).unwrap();
    let error = agent(&keys);
    for part in
        ["is for the administrator", "this is to be the agent 'agent'", "'gridloom keys request lab --role agent'"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
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

/// Makes keys of a member of the tests' grid, as on another machine, and returns their folder.
fn admitted(role: &str, name: &str) -> PathBuf {
    let folder = config(name);
    let with = |keys: &Path, arguments: &[&str]| {
        let mut command = gridloom(&[&["keys"], arguments].concat());
        succeeds({
            command.env("GRIDLOOM_KEYS", keys);
            command
        })
    };
    let written = |file: &str, text: String| {
        let path = folder.join(file);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let own = folder.join("keys");
    let request = written("request.pem", with(&own, &["request", "tests", "--role", role, "--name", name]));
    let certificate = written("certificate.pem", with(keys(), &["approve", &request]));
    with(&own, &["install", &certificate]);
    own
}

const HOLD: &str = r#"
#include <stdio.h>

/* Creates FOLDER/begun, and returns when something is written to the pipe FOLDER/end. */
int hold(const char *folder) {
    char path[512], byte;
    snprintf(path, sizeof path, "%s/begun", folder);
    FILE *file = fopen(path, "w");
    if (!file || fclose(file)) return -1;
    snprintf(path, sizeof path, "%s/end", folder);
    file = fopen(path, "r");
    int read = file ? (int)fread(&byte, 1, 1, file) : -1;
    if (file) fclose(file);
    return read;
}
"#;

/// A call of `cli/hold` that runs until it is released.
struct HeldCall {
    folder: PathBuf,
    command: std::thread::JoinHandle<std::process::Output>,
}

impl HeldCall {
    fn start(grid: &Grid, name: &str, keys: &Path, sockets: Option<&Path>) -> HeldCall {
        let folder = config(name);
        assert!(Command::new("mkfifo").arg(folder.join("end")).status().unwrap().success());
        let mut command = grid.command(&["call", "cli/hold", folder.to_str().unwrap()]);
        command.env("GRIDLOOM_KEYS", keys).envs(sockets.map(|folder| ("GRIDLOOM_SOCKETS", folder)));
        let command = std::thread::spawn(move || output_of(&mut command));
        let call = HeldCall { folder, command };
        until_true("the call runs", || call.folder.join("begun").exists());
        call
    }

    fn release(self) -> std::process::Output {
        std::fs::write(self.folder.join("end"), "x").unwrap();
        self.command.join().unwrap()
    }
}

/// Returns a command that offers `cli/hold`.
fn holding_server(grid: &Grid, name: &str) -> Command {
    let definition = "Define hold(IN string folder, OUT int *read) Calls \"C\" read = hold(folder);";
    let idl = file("hold.idl", &format!("Module cli;\n{definition}\n"));
    let library = compiled("hold.so", &file("hold.c", HOLD));
    serve_command(&grid.address, name, &[&idl], &["--library", &library, "--slots", "3"])
}

#[test]
fn a_revoked_client_loses_its_connections_at_once_and_others_keep_theirs() {
    let (grid, mut log) = Grid::start_logging();
    let (mut server, mut server_log) = logging(&mut holding_server(&grid, "one"));
    assert!(first_line(&mut server).starts_with("server one on "));
    // Clients with other sockets use TCP.
    let sockets = PathBuf::from(format!("/tmp/gridloom-test-revoked-{}", std::process::id()));
    std::fs::create_dir(&sockets).unwrap();
    std::fs::set_permissions(&sockets, std::fs::Permissions::from_mode(0o700)).unwrap();
    let (anna, bert) = (admitted("client", "anna"), admitted("client", "bert"));
    let near = HeldCall::start(&grid, "call of anna", &anna, None);
    let far = HeldCall::start(&grid, "call of bert", &bert, Some(&sockets));
    let other = HeldCall::start(&grid, "other call", keys(), None);
    for (name, call) in [("anna", near), ("bert", far)] {
        succeeds(gridloom(&["keys", "revoke", name, "--reason", "left the group"]));
        let output = call.command.join().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{error}");
        assert!(error.contains(&format!("certificate revoked: client '{name}' of the grid 'tests', at ")), "{error}");
        assert!(error.contains(": left the group"), "{error}");
        for log in [&mut log, &mut server_log] {
            // A new connection may be turned away before.
            let line = line_with(log, "a connection was closed");
            assert!(line.contains(&format!("certificate revoked: client '{name}'")), "{line}");
        }
    }
    let output = other.release();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut command = grid.command(&["functions"]);
    let (code, error) = status_and_stderr(command.env("GRIDLOOM_KEYS", &anna));
    assert!(code == 1 && error.contains("certificate revoked: ") && error.contains("ask the administrator"), "{error}");
    std::fs::remove_dir_all(&sockets).unwrap();
}

#[test]
fn nodes_that_do_not_see_the_file_of_revocations_receive_them_from_each_other() {
    let (of_agent, of_server, dora) =
        (admitted("agent", "far agent"), admitted("server", "far server"), admitted("client", "dora"));
    let mut command = gridloom(&["agent", "--listen", "127.0.0.1:0", "--quiet"]);
    command.env("GRIDLOOM_KEYS", &of_agent);
    let agent = Running::start(command);
    let address = agent.line.strip_prefix("agent listening on ").unwrap().to_string();
    let grid = Grid { agent, address };
    let mut command = holding_server(&grid, "far");
    let (mut server, mut log) = logging(command.env("GRIDLOOM_KEYS", &of_server));
    assert!(first_line(&mut server).starts_with("server far on "));
    let (held, other) =
        (HeldCall::start(&grid, "call of dora", &dora, None), HeldCall::start(&grid, "not of dora", keys(), None));
    succeeds(gridloom(&["keys", "revoke", "dora", "--reason", "left"]));
    // The administrator's program brings the revocation to the agent, and the agent to the server.
    succeeds(grid.command(&["functions"]));
    let line = line_with(&mut log, "a connection was closed");
    assert!(line.contains("certificate revoked: client 'dora' of the grid 'tests'"), "{line}");
    let output = held.command.join().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("certificate revoked: client 'dora'"), "{error}");
    let output = other.release();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_revoked_server_ends_with_the_reason() {
    let grid = Grid::start();
    let (mut server, mut log) = logging(&mut grid.serve_command("revoked", &[&idl()], &[]));
    assert!(first_line(&mut server).starts_with("server revoked on "));
    succeeds(gridloom(&["keys", "revoke", "revoked", "--role", "server", "--reason", "was sold"]));
    let line = line_with(&mut log, "cannot use the agent");
    assert!(line.contains("certificate revoked: server 'revoked' of the grid 'tests', at "), "{line}");
    assert!(line.contains(": was sold"), "{line}");
}

#[test]
fn functions_that_can_read_the_key_of_the_authority_are_reported_once_others_are_admitted() {
    let own = config("readable").join("keys");
    make_grid(&own, "lab");
    let lines = || {
        let arguments =
            ["serve", &idl(), "--library", library(), "--name", "one", "--listen", "127.0.0.1:0", "--no-agent"];
        let mut command = gridloom(&arguments);
        let (mut server, log) = logging(command.env("GRIDLOOM_KEYS", &own).env("GRIDLOOM_LOG", "warning"));
        assert!(first_line(&mut server).starts_with("server one on "));
        drop(server);
        log.map(|line| line.unwrap())
            .filter(|line| line.contains("the key of the grid's authority"))
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(), [""; 0], "the grid has one user");
    let with = |folder: &Path, arguments: &[&str]| {
        let mut command = gridloom(arguments);
        succeeds({
            command.env("GRIDLOOM_KEYS", folder);
            command
        })
    };
    let request = own.with_file_name("request.pem");
    std::fs::write(&request, with(&own.with_file_name("laptop"), &["keys", "request", "lab", "--name", "anna"]))
        .unwrap();
    with(&own, &["keys", "approve", request.to_str().unwrap()]);
    let lines = lines();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let file = own.join("lab/authority.key");
    assert!(line.contains(file.to_str().unwrap()) && line.contains("--run-as"), "{line}");
}

const LOOK: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Whether a variable is set ("env:NAME"), or a file of the server's process can be read ("proc:NAME"); the exit status of
   a command ("run:COMMAND"). */
int look(const char *what) {
    char path[256], byte;
    if (!strncmp(what, "run:", 4)) return WEXITSTATUS(system(what + 4));
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
pub(crate) struct PublicFolder(pub(crate) PathBuf);

impl PublicFolder {
    pub(crate) fn new() -> PublicFolder {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("gridloom-public-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
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

    /// Returns a folder beside this one, for keys.
    fn beside(&self) -> PathBuf {
        self.0.with_extension("keys")
    }

    /// Makes a copy of the tests' keys for the user nobody.
    fn keys_of_nobody(&self) -> PathBuf {
        let copy = self.beside();
        let script = "rm -rf \"$1\" && cp -r \"$0\" \"$1\" && chown -R 65534:65534 \"$1\"";
        let status = Command::new("sh").args(["-c", script]).args([keys(), &copy]).status().unwrap();
        assert!(status.success());
        copy
    }
}

impl Drop for PublicFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
        // Most have none.
        let _ = std::fs::remove_dir_all(self.beside());
    }
}

/// Starts a server of the function that looks around, with the command `front` before it. Returns the server and a
/// function that returns what it sees.
pub(crate) fn looking(
    grid: &Grid,
    open: &PublicFolder,
    front: &[&str],
    arguments: &[&str],
) -> (Running, impl Fn(&str) -> i64) {
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
    if !front.is_empty() {
        command.env("GRIDLOOM_KEYS", open.keys_of_nobody());
        // Another user may not write to the folder that it names.
        command.env_remove("TMPDIR");
    }
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
    let names = ["PATH", "WANTED", "THE_PASSWORD", "GRIDLOOM_KEYS", "GRIDLOOM_FUNCTION_KEYS"];
    assert_eq!(seen(names), [1, 1, 0, 0, 1]);
    drop(server);
    let (_server, look) = looking(&grid, &open, &[], &["--env", "*"]);
    assert_eq!(names.map(|name| look(&format!("env:{name}"))), [1, 1, 1, 0, 1], "all but the keys of the server");
}

/// Returns commands that a function runs with the keys of its server's functions: one that opens a session, and one that
/// would be a server.
pub(crate) fn session_and_server(open: &PublicFolder) -> [String; 2] {
    let program = open.0.join("gridloom");
    let program = program.display();
    [
        format!("run:'{program}' servers >/dev/null 2>&1"),
        format!(
            "run:GRIDLOOM_KEYS=$GRIDLOOM_FUNCTION_KEYS '{program}' serve --grid tests --no-functions --models none 2>&1 | \
             grep -q \"is for the functions of the server 'looking'.* this is to be the server\""
        ),
    ]
}

#[test]
fn functions_open_sessions_but_are_no_servers() {
    let (grid, open) = (Grid::start(), PublicFolder::new());
    let (server, look) = looking(&grid, &open, &[], &[]);
    for command in session_and_server(&open) {
        assert_eq!(look(&command), 0, "{command}");
    }
    let keys = std::env::temp_dir().join(format!("gridloom-keys-{}", server.pid()));
    assert!(keys.is_dir());
    assert!(server.signal("-TERM").success());
    assert!(!keys.exists());
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
    // They read their keys and do not change them.
    for command in ["rm -f", "chmod 777", "touch", "mv -t /tmp", "cp /bin/sh"] {
        let command = format!("run:cd \"$GRIDLOOM_FUNCTION_KEYS\"/* && {command} own.key 2>/dev/null");
        assert_ne!(look(&command), 0, "{command}");
    }
    for command in
        ["rmdir $GRIDLOOM_FUNCTION_KEYS/*", "mkdir $GRIDLOOM_FUNCTION_KEYS/other", "mv $GRIDLOOM_FUNCTION_KEYS /tmp/x"]
    {
        assert_ne!(look(&format!("run:{command} 2>/dev/null")), 0, "{command}");
    }
    let folder = std::env::temp_dir().join(format!("gridloom-keys-{}/tests", server.pid()));
    let modes = ["", "own.key"].map(|name| std::fs::metadata(folder.join(name)).unwrap());
    assert_eq!(modes.map(|status| (status.uid(), status.mode() & 0o777)), [(0, 0o750), (0, 0o640)]);
    for command in session_and_server(&open) {
        assert_eq!(look(&command), 0, "{command}");
    }
    drop(server);
    let (code, error) = status_and_stderr(grid.serve_command("none", &[&idl()], &["--run-as", "nobody-of-that-name"]));
    assert!(code == 1 && error.contains("--run-as nobody-of-that-name: there is no such user"), "{error}");
}

/// Returns the reason for which this kernel cannot confine functions.
pub(crate) fn why_not_confined() -> Option<String> {
    let arguments = ["serve", "--no-functions", "--no-agent", "--confine", "--until-stdin-closes"];
    let output = output_of(&mut gridloom(&arguments));
    let error = String::from_utf8_lossy(&output.stderr);
    error.lines().find(|line| line.contains("--confine: ") && line.contains("landlock")).map(String::from)
}

#[test]
fn confined_functions_of_the_servers_user_do_not_read_its_keys() {
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root || Command::new("setpriv").arg("--version").output().is_err() {
        return crate::support::skipped("another user than root is to be tried, which takes root and setpriv");
    }
    if let Some(why) = why_not_confined() {
        return crate::support::skipped(&why);
    }
    let (grid, open) = (Grid::start(), PublicFolder::new());
    let front = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let keys = ["own.key", "authority.key"].map(|name| open.beside().join("tests").join(name));
    let read = keys.map(|key| format!("run:cat {} >/dev/null 2>&1", key.display()));
    let (server, look) = looking(&grid, &open, &front, &[]);
    assert_eq!((look("user"), read.each_ref().map(|command| look(command))), (65534, [0, 0]));
    drop(server);
    let (_server, look) = looking(&grid, &open, &front, &["--confine"]);
    assert_eq!((look("user"), read.each_ref().map(|command| look(command))), (65534, [1, 1]));
    assert_eq!(look("run:kill -0 $PPID"), 0, "the shell's parent is its worker");
    for command in session_and_server(&open) {
        assert_eq!(look(&command), 0, "{command}");
    }
}

#[test]
fn a_server_whose_own_key_functions_can_read_says_so_in_a_grid_of_others() {
    let (grid, keys) = (Grid::start(), admitted("server", "far offering"));
    let serve = ["serve", "--run-code", "--name", "far offering", "--agent", &grid.address];
    let (mut server, mut log) = logging(gridloom(&serve).env("GRIDLOOM_KEYS", &keys));
    let line = line_with(&mut log, "can read the private key of this server");
    assert!(line.contains("WARN") && line.contains("--confine") && line.contains("--run-as"), "{line}");
    assert!(first_line(&mut server).starts_with("server far offering on "));
}

#[test]
fn functions_of_another_user_can_be_confined_too() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return crate::support::skipped("only root can run functions as another user");
    }
    if let Some(why) = why_not_confined() {
        return crate::support::skipped(&why);
    }
    let (grid, open, outside) = (Grid::start(), PublicFolder::new(), PublicFolder::new());
    let file = outside.0.join("file");
    std::fs::write(&file, "text").unwrap();
    let read = format!("run:cat {} >/dev/null 2>&1", file.display());
    let (server, look) = looking(&grid, &open, &[], &["--run-as", "nobody"]);
    assert_eq!((look("user"), look(&read)), (65534, 0), "every user can read the file");
    drop(server);
    let (server, look) = looking(&grid, &open, &[], &["--run-as", "nobody", "--confine"]);
    assert_eq!((look("user"), look("proc:environ"), look("proc:status")), (65534, 0, 1));
    assert_ne!(look(&read), 0);
    assert_eq!(look("run:echo text > \"$TMPDIR/file\" && grep -q text \"$TMPDIR/file\""), 0);
    assert_ne!(look(&format!("run:rm -f {} 2>/dev/null", open.0.join("look.so").display())), 0);
    for command in session_and_server(&open) {
        assert_eq!(look(&command), 0, "{command}");
    }
    drop(server);
    let permitted = ["--run-as", "nobody", "--confine", "--readable", outside.0.to_str().unwrap()];
    let (_server, look) = looking(&grid, &open, &[], &permitted);
    assert_eq!(look(&read), 0);
}
