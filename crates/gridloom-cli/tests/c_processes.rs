//! C programs in both worlds: compiled with `cc` against the header and the library, and started by `gridloom simulate` and
//! `gridloom deploy`.

#[allow(dead_code, reason = "other tests use the rest of it")]
mod support;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, OnceLock};

use gridloom::Message;
use gridloom::process::{DEPLOY_VARIABLE, Process, ProcessError, StackKind};
use support::{folder, gridloom};

/// Two hosts, each of 1e9 operations a second.
const PLATFORM: &str = "
[[host]]
name = 'laptop'
speed = '1Gf'
[[host]]
name = 'desk'
speed = '1Gf'
[[link]]
name = 'lan'
bandwidth = '100MBps'
latency = '1ms'
[[route]]
from = 'laptop'
to = 'desk'
links = ['lan']
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder with the library under the name that programs know it by; `None` if there is no C compiler.
fn libraries() -> Option<&'static PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        if Command::new("cc").arg("--version").output().is_err() {
            eprintln!("skipped: there is no C compiler 'cc' here");
            return None;
        }
        // Cargo builds the library for these tests, beside their own program.
        let built = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        let made = folder("c-library");
        for kind in ["so", "a"] {
            let own = made.join(format!("libgridloom.{kind}"));
            let from = built.join(format!("libgridloom_capi.{kind}"));
            // Another test's program may be at it: they run side by side, under one name each.
            let new = made.join(format!("new-{}.{kind}", std::process::id()));
            let _ = std::fs::remove_file(&new);
            std::os::unix::fs::symlink(&from, &new).unwrap();
            std::fs::rename(&new, &own).unwrap();
        }
        Some(made)
    });
    made.as_ref()
}

/// Compiles a program; `None` if there is no compiler.
fn compiled(source: &Path, name: &str, flags: &[&str]) -> Option<String> {
    let libraries = libraries()?;
    let program = folder("c-programs").join(name);
    let crates = root().join("crates");
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-UNDEBUG"]);
    command.arg("-I").arg(crates.join("gridloom-capi/include"));
    command.arg("-I").arg(crates.join("gridloom-core/include"));
    command.arg(source).arg("-o").arg(&program).args(flags);
    if !flags.contains(&"-ldl") {
        command.arg("-L").arg(libraries).arg("-lgridloom").arg(format!("-Wl,-rpath,{}", libraries.display()));
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(program.to_str().unwrap().to_string())
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/c").join(name)
}

fn example(name: &str) -> PathBuf {
    root().join("examples/processes").join(name)
}

/// A deployment: host, function, arguments.
fn deployment(name: &str, processes: &[(&str, &str, &str)]) -> String {
    let mut text = String::new();
    for (host, function, arguments) in processes {
        let _ = writeln!(text, "[[process]]\nhost = '{host}'\nfunction = '{function}'\narguments = [{arguments}]\n");
    }
    support::file(&format!("{name}.toml"), &text)
}

fn platform() -> String {
    static FILE: OnceLock<String> = OnceLock::new();
    FILE.get_or_init(|| support::file("c-platform.toml", PLATFORM)).clone()
}

fn run(mut command: Command) -> (Output, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    (output, out, error)
}

/// Runs it in simulation.
fn simulated(platform: &str, deployment: &str, program: &[&str]) -> (Output, String, String) {
    run(gridloom(&[&["simulate", "-p", platform, "-d", deployment, "--"], program].concat()))
}

/// Runs it for real.
fn deployed(deployment: &str, program: &[&str]) -> (Output, String, String) {
    run(gridloom(&[&["deploy", "-d", deployment, "--"], program].concat()))
}

/// Both worlds; what the program printed in each, without names of processes and the simulation's report.
fn in_both_worlds(platform: &str, deployment: &str, program: &[&str]) -> [String; 2] {
    let (output, out, error) = simulated(platform, deployment, program);
    assert!(output.status.success(), "simulated: {out}{error}");
    let own: String =
        out.lines().take_while(|line| !line.starts_with("simulated ")).map(|line| format!("{line}\n")).collect();
    let (output, out, error) = deployed(deployment, program);
    assert!(output.status.success(), "deployed: {out}{error}");
    let line = |line: &str| format!("{}\n", line.split_once("| ").unwrap().1);
    [own, out.lines().map(line).collect()]
}

fn two_sites() -> String {
    root().join("examples/two-sites.toml").display().to_string()
}

#[test]
fn messages_on_a_testbed_take_the_time_of_its_links() {
    let Some(program) = compiled(&example("ring.c"), "ring-on-testbed", &[]) else { return };
    let ring = example("ring.toml").display().to_string();
    let options = ["testbed", "run", "--no-grid", "--quiet", "-p", &two_sites(), "-d", &ring, "--", &program];
    let began = std::time::Instant::now();
    let (output, out, error) = run(gridloom(&options));
    if error.contains("this machine does not let this user have") {
        eprintln!("skipped: {error}");
        return;
    }
    assert!(output.status.success(), "{out}{error}");
    assert_eq!(out, "member@laptop| the token went 40 steps\n");
    // Ten rounds, in each of which the token crosses the link of 20 ms there and back.
    assert!(began.elapsed().as_secs_f64() > 10.0 * 2.0 * 0.02, "{:?}", began.elapsed());
}

#[test]
fn faults_start_no_grid_unless_they_strike_it() {
    let Some(program) = compiled(&example("ring.c"), "ring-and-faults", &[]) else { return };
    let ring = example("ring.toml").display().to_string();
    let simulate = |faults: Option<&str>| {
        let mut command = gridloom(&["simulate", "-p", &two_sites(), "-d", &ring]);
        // A grid would not start.
        command.env("GRIDLOOM_BLAS", "/no/such/library");
        if let Some(faults) = faults {
            command.args(["--faults", &support::file("c-ring.faults", faults)]);
        }
        command.args(["--", &program]);
        run(command)
    };
    let hash = |out: &str| out.lines().find(|line| line.starts_with("trace hash ")).unwrap().to_string();
    let (_, undisturbed, error) = simulate(None);
    assert_eq!(error, "");
    let (_, out, error) = simulate(Some("# nothing\n"));
    assert_eq!((hash(&out), error.as_str()), (hash(&undisturbed), ""));
    let (output, out, error) = simulate(Some("at 0.1s cut laptop cluster-1 for 1s\n"));
    assert!(output.status.success(), "{out}{error}");
    assert_ne!(hash(&out), hash(&undisturbed));
    let (output, _, error) = simulate(Some("at 0.1s kill desk\n"));
    assert!(!output.status.success() && error.contains("/no/such/library: no such library"), "{error}");
}

#[test]
fn a_client_has_a_server_multiply_matrices() {
    let Some(program) = compiled(&example("matmul.c"), "matmul", &[]) else { return };
    let deployment = example("deployment.toml").display().to_string();
    let outs = in_both_worlds(&two_sites(), &deployment, &[&program, "--set", "matmul.size=20"]);
    assert_eq!(outs, ["5 products are right\n"; 2]);
}

#[test]
fn the_program_of_the_documentation_runs() {
    let page = std::fs::read_to_string(root().join("docs/c-processes.md")).unwrap();
    let block = |language: &str| {
        let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
        rest.split_once("```").unwrap().0
    };
    let source = support::file("sum.c", block("c"));
    let Some(program) = compiled(Path::new(&source), "sum", &[]) else { return };
    let deployment = support::file("sum.toml", block("toml"));
    assert_eq!(in_both_worlds(&two_sites(), &deployment, &[&program]), ["the sum is 6.5\n"; 2]);
}

#[test]
fn a_pastry_node_welcomes() {
    let Some(program) = compiled(&example("pastry.c"), "pastry", &[]) else { return };
    let deployment = example("pastry.toml").display().to_string();
    let outs = in_both_worlds(&two_sites(), &deployment, &[&program]);
    for out in outs {
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            ["node 77 is welcome: 0 rows, leaves 69 to 84", "node 78 is welcome: 10 rows, leaves 70 to 85"]
        );
    }
}

#[test]
fn a_token_goes_round_a_ring_and_twice_in_the_same_way() {
    let Some(program) = compiled(&example("ring.c"), "ring", &[]) else { return };
    let small = example("ring.toml").display().to_string();
    assert_eq!(in_both_worlds(&two_sites(), &small, &[&program]), ["the token went 40 steps\n"; 2]);
    let members: Vec<(String, String)> = (0..1000)
        .map(|at| {
            let next = (at + 1) % 1000;
            let host = |at: usize| if at.is_multiple_of(2) { "laptop" } else { "desk" };
            let first = if at == 0 { ", 'first'" } else { "" };
            (host(at).into(), format!("{}, '{}', {}, 2{first}", 5000 + at, host(next), 5000 + next))
        })
        .collect();
    let members: Vec<(&str, &str, &str)> =
        members.iter().map(|(host, arguments)| (host.as_str(), "member", arguments.as_str())).collect();
    let large = deployment("ring-1000", &members);
    let [one, two] = [(); 2].map(|()| simulated(&platform(), &large, &[&program]));
    assert!(one.1.starts_with("the token went 2000 steps\n"), "{}{}", one.1, one.2);
    assert_eq!(one.1, two.1, "with the time and the trace's hash");
}

#[test]
fn messages_of_all_shapes_go_there_and_back() {
    let Some(program) = compiled(&fixture("shapes.c"), "shapes", &[]) else { return };
    let deployment = deployment("c-shapes", &[("laptop", "server", ""), ("desk", "client", "'laptop'")]);
    assert_eq!(in_both_worlds(&platform(), &deployment, &[&program]), ["all shapes are right\n"; 2]);
}

#[test]
fn processes_talk_and_measure_and_log() {
    let Some(program) = compiled(&fixture("talk.c"), "talk", &[]) else { return };
    let deployment = deployment("c-talk", &[("desk", "server", ""), ("laptop", "client", "'desk', 'two words'")]);
    let config = support::file("c-config.toml", "[matrix]\nsize = 100\nscale = 10\nname = 'from the file'\n");
    let options = ["--config", &config, "--set", "matrix.size=300", "--log", "info,talk.client=debug"];
    let program = [&[program.as_str()][..], &options].concat();
    let platform = platform();
    let worlds = [vec!["simulate", "-p", &platform, "-d", &deployment, "--"], vec!["deploy", "-d", &deployment, "--"]];
    for world in worlds {
        let mut command = gridloom(&[&world[..], &program].concat());
        command.env("GRIDLOOM_SET_MATRIX_SIZE", "200").env("GRIDLOOM_SET_MATRIX_SCALE", "20");
        let (output, out, error) = run(command);
        assert!(output.status.success(), "{out}{error}");
        assert!(out.contains("all talk is right\n"), "{out}");
        let lines: Vec<&str> = error.lines().filter(|line| line.contains("[talk.all]")).collect();
        assert_eq!(lines.len(), 1, "{error}");
        assert!(lines[0].ends_with("info [talk.all] client@laptop: shown 1"), "{}", lines[0]);
    }
}

#[test]
fn each_process_has_its_own_globals() {
    for (name, flags) in [("globals", &[][..]), ("globals-fixed", &["-no-pie"]), ("globals-now", &["-Wl,-z,now"])] {
        let Some(program) = compiled(&fixture("globals.c"), name, flags) else { return };
        let processes: Vec<String> = (1..=5).map(|own| own.to_string()).collect();
        let processes: Vec<(&str, &str, &str)> =
            processes.iter().map(|own| ("laptop", "counter", own.as_str())).collect();
        let deployment = deployment(&format!("c-{name}"), &processes);
        let expected: Vec<String> = (1..=5).map(|own| format!("process {own} is right")).collect();
        for out in in_both_worlds(&platform(), &deployment, &[&program]) {
            let mut lines: Vec<&str> = out.lines().collect();
            lines.sort_unstable();
            assert_eq!(lines, expected);
        }
    }
}

#[test]
fn shared_globals_are_seen_to_be_shared() {
    let Some(program) = compiled(&fixture("globals.c"), "globals-shared", &[]) else { return };
    let deployment = deployment("c-shared", &[("laptop", "counter", "1"), ("laptop", "counter", "2")]);
    // The program's own check fails, as it must if nothing keeps the processes apart.
    let (output, out, error) = simulated(&platform(), &deployment, &[&program, "--set", "gridloom.globals=shared"]);
    assert!(!output.status.success() && error.contains("Assertion"), "{out}{error}");
}

#[test]
fn a_program_that_holds_the_library_itself_is_told() {
    let archive = libraries().map(|folder| folder.join("libgridloom.a").display().to_string());
    let Some(archive) = archive else { return };
    let flags = [archive.as_str(), "-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];
    let program = compiled(&example("ring.c"), "ring-static", &flags).unwrap();
    let ring = example("ring.toml").display().to_string();
    let (output, _, error) = simulated(&two_sites(), &ring, &[&program]);
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("libgridloom.a") && error.contains("gridloom.globals=shared"), "{error}");
    let (output, out, error) = deployed(&ring, &[&program]);
    assert!(output.status.success() && out.contains("the token went 40 steps"), "{out}{error}");
}

#[test]
fn processes_that_are_told_to_end_do() {
    let Some(program) = compiled(&fixture("globals.c"), "globals-end", &[]) else { return };
    let text = "
        [[process]]\nhost = 'laptop'\nfunction = 'stubborn'\nkill_time = 5.5\n
        [[process]]\nhost = 'laptop'\nfunction = 'obedient'\nkill_time = 3.5\n
        [[process]]\nhost = 'desk'\nfunction = 'counter'\narguments = [3]\n";
    let deployment_file = support::file("c-end.toml", text);
    let (output, out, error) = simulated(&platform(), &deployment_file, &[&program]);
    assert!(output.status.success(), "{out}{error}");
    let expected = "process 3 is right\nended after 3 s: ";
    assert!(out.starts_with(expected) && out.contains("simulated 5.5"), "{out}");
    // Nobody will ever send anything.
    let deadlock = deployment("c-deadlock", &[("laptop", "waits", ""), ("desk", "counter", "2")]);
    let (output, _, error) = simulated(&platform(), &deadlock, &[&program]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("waits on laptop waits for a message"), "{error}");
}

#[test]
fn a_deadlock_names_types_and_peers() {
    let Some(program) = compiled(&fixture("debugged.c"), "deadlock", &[]) else { return };
    // With a second argument the client asks nothing.
    let text = "[[process]]\nhost = 'desk'\nfunction = 'server'\n
        [[process]]\nhost = 'laptop'\nfunction = 'client'\narguments = ['desk', 'quiet']\n";
    let (output, _, error) = simulated(&platform(), &support::file("c-deadlock-named.toml", text), &[&program]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("server on desk waits for a message 'Hello'\n"), "{error}");
    assert!(error.contains("client on laptop waits for a message 'Hello' of server@desk:4000"), "{error}");
}

#[test]
fn a_debugger_stops_in_processes_and_steps_over_calls_that_block() {
    if Command::new("gdb").arg("--version").output().is_err() {
        eprintln!("skipped: there is no debugger 'gdb' here");
        return;
    }
    let Some(program) = compiled(&fixture("debugged.c"), "debugged", &["-O0"]) else { return };
    let text = "[[process]]\nhost = 'desk'\nfunction = 'server'\n
        [[process]]\nhost = 'laptop'\nfunction = 'client'\narguments = ['desk']\n";
    let deployment = support::file("c-debugged.toml", text);
    // From the client's first line over connecting, sending and waiting: the server runs meanwhile.
    let words = "set pagination off|break gridloom_process_client|run|next|next|next|next|next|print answers|\
        print ((struct Hello *)got->data)->n|next|continue";
    let mut command = vec!["gdb", "-q", "-nx", "-batch"];
    words.split('|').for_each(|word| command.extend(["-ex", word]));
    command.extend(["--args", &program]);
    let (output, out, error) = simulated(&platform(), &deployment, &command);
    if error.contains("ptrace") {
        eprintln!("skipped: no process may be traced here");
        return;
    }
    assert!(output.status.success(), "{out}{error}");
    let places = ["gridloom_process_client (argc=2", "gridloom_connect", "gridloom_wait_for", "gridloom_message_free"];
    assert!(places.iter().all(|place| out.contains(place)), "{out}{error}");
    assert!(out.contains("$1 = 42") && out.contains("$2 = 42") && out.contains("exited normally"), "{out}{error}");
}

#[test]
fn who_runs_over_its_stack_is_told() {
    let Some(program) = compiled(&fixture("globals.c"), "globals-deep", &[]) else { return };
    let fine = deployment("c-fine", &[("laptop", "recurses", "200"), ("desk", "recurses", "100")]);
    let (output, out, error) = simulated(&platform(), &fine, &[&program]);
    assert!(output.status.success() && out.contains("200 frames are fine"), "{out}{error}");
    let deep = deployment("c-deep", &[("laptop", "sleeps", ""), ("desk", "recurses", "10000")]);
    let (output, _, error) = simulated(&platform(), &deep, &[&program]);
    assert_eq!(output.status.code(), Some(128 + 11), "{error}");
    assert!(error.contains("process 'recurses@desk' at 0.001000 s ran over its stack of 1 MiB"), "{error}");
}

#[test]
fn who_ends_the_program_by_a_signal_is_told() {
    let Some(program) = compiled(&fixture("globals.c"), "globals-crash", &[]) else { return };
    for (signal, text) in [(11, "segmentation fault"), (6, "it called abort, or an assertion failed")] {
        let crash = deployment("c-crash", &[("laptop", "sleeps", ""), ("desk", "crashes", &signal.to_string())]);
        let (output, _, error) = simulated(&platform(), &crash, &[&program]);
        assert_eq!(output.status.code(), Some(128 + signal), "{error}");
        assert!(error.contains(&format!("process 'crashes@desk' at 0.500000 s: {text}\n")), "{error}");
        let (output, _, error) = deployed(&crash, &[&program]);
        assert_eq!(output.status.code(), Some(128 + signal), "{error}");
    }
}

#[test]
fn all_that_fail_are_told_and_the_first_gives_the_status() {
    let Some(program) = compiled(&fixture("globals.c"), "globals-two-fail", &[]) else { return };
    let two = deployment("c-two-fail", &[("laptop", "fails_late", "4"), ("desk", "fails", "3")]);
    let (output, _, error) = simulated(&platform(), &two, &[&program]);
    assert_eq!(output.status.code(), Some(3), "{error}");
    for line in [
        "gridloom: fails@desk failed at 0.000000 s: it returned 3: as it was told by 3\n",
        "gridloom: fails_late@laptop failed at 0.100000 s: it returned 4\n",
    ] {
        assert!(error.contains(line), "{error}");
    }
    let (output, _, error) = deployed(&two, &[&program]);
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains("fails_late@laptop ended with exit status: 4"), "{error}");
}

#[test]
fn a_process_too_many_for_own_globals_is_told() {
    let source = "#include <gridloom.h>\nGRIDLOOM_PROCESS(sleeps) { return gridloom_sleep(1) < 0; }\nGRIDLOOM_MAIN\n";
    let source = support::file("sleeps.c", source);
    let Some(program) = compiled(Path::new(&source), "sleeps", &[]) else { return };
    let many = deployment("c-many", &vec![("laptop", "sleeps", ""); 20_001]);
    let (output, _, error) = simulated(&platform(), &many, &[&program]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("process 20001 of this simulation cannot have its own copy"), "{error}");
    assert!(error.contains("at most 20000 processes"), "{error}");
    let (output, out, error) = simulated(&platform(), &many, &[&program, "--set", "gridloom.globals=shared"]);
    assert!(output.status.success() && out.contains("simulated 1.000000 s"), "{out}{error}");
}

#[test]
fn failures_are_told_with_their_text() {
    let Some(program) = compiled(&fixture("globals.c"), "globals-fail", &[]) else { return };
    let one = deployment("c-fail", &[("laptop", "fails", "17")]);
    let (output, _, error) = simulated(&platform(), &one, &[&program]);
    assert_eq!(output.status.code(), Some(17));
    assert!(error.contains("process fails@laptop failed: it returned 17: as it was told by 17"), "{error}");
    let (output, _, error) = deployed(&one, &[&program]);
    assert_eq!(output.status.code(), Some(17));
    assert!(error.contains("it returned 17: as it was told by 17"), "{error}");
    for (options, expected) in [
        (&["--verbose"][..], "'--verbose' is no option of this program; options are --set"),
        (&["--log", "loud"], "'loud' is no level"),
        (&["--set", "gridloom.globals=some"], "it may be 'own' or 'shared'"),
        (&["--config", "/nowhere.toml"], "/nowhere.toml: No such file"),
    ] {
        let (output, _, error) = simulated(&platform(), &one, &[&[program.as_str()], options].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(error.contains(expected), "{error}");
    }
    let other = deployment("c-other", &[("laptop", "unknown", "")]);
    let (_, _, error) = simulated(&platform(), &other, &[&program]);
    assert!(error.contains("no process function 'unknown'; it has: counter, crashes, fails, "), "{error}");
    let (output, _, error) = run(Command::new(&program));
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("gridloom simulate -p PLATFORM -d DEPLOYMENT"), "{error}");
}

#[test]
fn declarations_that_cannot_be_are_refused_with_their_place() {
    let one = deployment("c-wrong", &[("laptop", "one", "")]);
    let cases = [
        ("#define N 3\nGRIDLOOM_MESSAGE(m, struct m { int a[N]; });", ".c:3: ", "GRIDLOOM_CONSTANT(name)"),
        ("GRIDLOOM_MESSAGE(m, struct m { int n; double *x; });", ".c:2: 'm.x'", "or GRIDLOOM_ONE for one"),
        ("GRIDLOOM_MESSAGE(m, struct m { void *p; });", ".c:2: ", "void says nothing"),
        ("typedef int number;\nGRIDLOOM_MESSAGE(m, struct m { number n; });", ".c:3: ", "'number' is no type"),
        ("GRIDLOOM_MESSAGE(m, struct m { int n; } __attribute__((aligned(16))););", ".c:2: ", "expected ';'"),
        (
            "GRIDLOOM_TYPES(typedef int number_t;);\n#define number_t long\n\
             GRIDLOOM_MESSAGE(m, struct m { number_t n; });",
            ".c:4: ",
            "8 bytes at multiples of 8 for the compiler, and 4 at multiples of 4",
        ),
        (
            // As another file of the program would.
            "GRIDLOOM_MESSAGE(m, struct m { int n; });\nGRIDLOOM_MESSAGE(o, struct o { int n; });\n\
             __attribute__((constructor)) static void another(void) {\n\
             static const gridloom_declaration d = {\"m\", \"o\", NULL, \"other.c\", 4, 4, 4, 0};\n\
             gridloom_declare(&d); }",
            "other.c:4: ",
            "message type 'm' is declared differently in",
        ),
    ];
    for (number, (text, place, expected)) in cases.into_iter().enumerate() {
        let source = format!("#include <gridloom.h>\n{text}\nGRIDLOOM_PROCESS(one) {{ return 0; }}\nGRIDLOOM_MAIN\n");
        let source = support::file(&format!("wrong-{number}.c"), &source);
        let Some(program) = compiled(Path::new(&source), &format!("wrong-{number}"), &["-Wno-attributes"]) else {
            return;
        };
        let (output, _, error) = simulated(&platform(), &one, &[&program]);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(place) && error.contains(expected), "{error}");
    }
}

// ---- C and Rust

/// As `struct Multiply` of the example.
#[derive(Message)]
struct Multiply {
    m: usize,
    k: usize,
    n: usize,
    #[message(length = "m * k")]
    a: Vec<f64>,
    #[message(length = "k * n")]
    b: Vec<f64>,
}

#[derive(Message, PartialEq, Debug)]
struct Product {
    m: usize,
    n: usize,
    #[message(length = "m * n")]
    c: Vec<f64>,
}

#[derive(Message)]
struct Done;

/// Declarations that are not the C program's.
mod other {
    use gridloom::Message;

    #[derive(Message)]
    pub struct Multiply {
        pub factor: f32,
    }
}

/// A client of the example, in Rust.
fn rust_client(mut process: Process) -> Result<(), gridloom::Error> {
    let host = process.spec().arguments[0].clone();
    let server = process.connect(&host, 4002, 30.0)?;
    let (a, b) = (vec![-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], vec![-2.0, -1.0, 0.5]);
    process.send(server, &Multiply { m: 2, k: 3, n: 1, a, b })?;
    let (_, product) = process.wait::<Product>(Some(server), Some(60.0))?;
    assert_eq!(product, Product { m: 2, n: 1, c: vec![5.0, -2.5] });

    process.send(server, &Multiply { m: 0, k: 1, n: 1, a: vec![], b: vec![1.0] })?;
    let error = process.wait::<Product>(Some(server), Some(60.0)).unwrap_err();
    let ProcessError::Remote { why, .. } = &error else { panic!("{error}") };
    assert_eq!(why, "code 1: nothing to multiply: 0 x 1 times 1 x 1");

    process.send(server, &other::Multiply { factor: 2.0 })?;
    let error = process.wait::<Product>(Some(server), Some(60.0)).unwrap_err().to_string();
    assert!(error.contains("sender and receiver declare it differently: ") && error.contains("factor"), "{error}");
    process.send(server, &Done)?;
    println!("rust and c agree");
    Ok(())
}

/// Started by the next test, as a process of a deployment.
#[test]
#[ignore = "a process of another test"]
fn the_client_in_rust() {
    if std::env::var_os(DEPLOY_VARIABLE).is_some() {
        let mains = [("client".to_string(), Arc::new(rust_client) as gridloom::process::Main)].into();
        gridloom::process::run(&mains, StackKind::Coroutine).unwrap();
    }
}

#[test]
fn a_client_in_rust_has_a_server_in_c_multiply_matrices() {
    let Some(program) = compiled(&example("matmul.c"), "matmul-rust", &[]) else { return };
    let own = std::env::current_exe().unwrap();
    let script = format!(
        "case \"${DEPLOY_VARIABLE}\" in\n*'\"function\":\"client\"'*) exec '{}' --exact --ignored --nocapture \
         the_client_in_rust;;\n*) exec '{program}';;\nesac\n",
        own.display()
    );
    let script = support::file("rust-and-c.sh", &script);
    let deployment = example("deployment.toml").display().to_string();
    let (output, out, error) = deployed(&deployment, &["sh", &script]);
    assert!(output.status.success() && out.contains("client@laptop| rust and c agree\n"), "{out}{error}");
    assert!(error.contains("done after 1 products"), "{error}");
}

#[test]
fn measured_blocks_are_recorded_and_replayed() {
    let source = "
        #include <gridloom.h>
        #include <stdio.h>
        GRIDLOOM_SIGNAL(done);
        GRIDLOOM_PROCESS(collects) {
            if (gridloom_listen(1) < 0) return 1;
            for (int i = 0; i < 3; i++) {
                gridloom_message *got;
                if (gridloom_wait_for(\"done\", GRIDLOOM_ANYONE, -1, &got) < 0) return 1;
                gridloom_message_free(got);
            }
            return 0;
        }
        GRIDLOOM_PROCESS(works) {
            gridloom_peer collector = gridloom_connect(\"laptop\", 1, 10);
            for (int i = 0; i < 3; i++) {
                GRIDLOOM_MEASURE(\"work\", GRIDLOOM_ALWAYS) for (volatile int n = 0; n < 100000; n++);
                if (gridloom_send(collector, \"done\", NULL) < 0) return 1;
            }
            return 0;
        }
        GRIDLOOM_MAIN";
    let source = support::file("measured.c", source);
    let Some(program) = compiled(Path::new(&source), "measured", &[]) else { return };
    let processes = deployment("c-measured", &[("laptop", "collects", ""), ("desk", "works", "")]);
    let measures = support::file("c-measures", "");
    let run_with = |flag: &str| {
        let options = ["simulate", "-p", &platform(), "-d", &processes, flag, &measures, "--", &program];
        run(gridloom(&options))
    };
    let (output, recorded, error) = run_with("--record");
    assert!(output.status.success() && recorded.contains("trace hash"), "{recorded}{error}");
    for _ in 0..2 {
        let (_, replayed, error) = run_with("--replay");
        assert_eq!(replayed, recorded, "{error}");
    }
    let text = std::fs::read_to_string(&measures).unwrap();
    std::fs::write(&measures, text.replace("\"work\"\t3\t", "\"work\"\t4\t")).unwrap();
    let (output, _, error) = run_with("--replay");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error.contains("the measured block 'work', run 3, of process 2, works@desk; it has 3 runs of it"),
        "{error}"
    );
    std::fs::write(&measures, "gridloom-measures 2\n").unwrap();
    let (output, _, error) = run_with("--replay");
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("c-measures:1: its format has version 2, and this reads 1"), "{error}");
}
