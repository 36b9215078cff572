//! C processes that end abnormally, faults, and invalid declarations.

use std::path::Path;
use std::process::Command;

use crate::support::{file, gridloom};

use super::{compiled, deployed, deployment, example, fixture, platform, run, simulated, two_sites};

#[test]
fn faults_start_no_grid_unless_they_hit_it() {
    let Some(program) = compiled(&example("ring.c"), "ring-and-faults", &[]) else { return };
    let ring = example("ring.toml").display().to_string();
    let simulate = |faults: Option<&str>| {
        let mut command = gridloom(&["simulate", "-p", &two_sites(), "-d", &ring]);
        // A grid could not start with this library.
        command.env("GRIDLOOM_BLAS", "/no/such/library");
        if let Some(faults) = faults {
            command.args(["--faults", &file("c-ring.faults", faults)]);
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
fn processes_end_on_request() {
    let Some(program) = compiled(&fixture("globals.c"), "globals-end", &[]) else { return };
    let text = "
        [[process]]\nhost = 'laptop'\nfunction = 'stubborn'\nkill_time = 5.5\n
        [[process]]\nhost = 'laptop'\nfunction = 'obedient'\nkill_time = 3.5\n
        [[process]]\nhost = 'desk'\nfunction = 'counter'\narguments = [3]\n";
    let deployment_file = file("c-end.toml", text);
    let (output, out, error) = simulated(&platform(), &deployment_file, &[&program]);
    assert!(output.status.success(), "{out}{error}");
    let expected = "process 3 is right\nended after 3 s: ";
    assert!(out.starts_with(expected) && out.contains("simulated 5.5"), "{out}");
    // No process ever sends anything.
    let deadlock = deployment("c-deadlock", &[("laptop", "waits", ""), ("desk", "counter", "2")]);
    let (output, _, error) = simulated(&platform(), &deadlock, &[&program]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("waits on laptop waits for a message"), "{error}");
}

#[test]
fn a_deadlock_names_types_and_peers() {
    let Some(program) = compiled(&fixture("debugged.c"), "deadlock", &[]) else { return };
    // With a second argument the client sends no request.
    let text = "[[process]]\nhost = 'desk'\nfunction = 'server'\n
        [[process]]\nhost = 'laptop'\nfunction = 'client'\narguments = ['desk', 'quiet']\n";
    let (output, _, error) = simulated(&platform(), &file("c-deadlock-named.toml", text), &[&program]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("server on desk waits for a message 'Hello'\n"), "{error}");
    assert!(error.contains("client on laptop waits for a message 'Hello' of server@desk:4000"), "{error}");
}

#[test]
fn a_process_that_runs_over_its_stack_is_named() {
    let Some(program) = compiled(&fixture("globals.c"), "globals-deep", &[]) else { return };
    let fine = deployment("c-fine", &[("laptop", "recurses", "200"), ("desk", "recurses", "100")]);
    let (output, out, error) = simulated(&platform(), &fine, &[&program]);
    assert!(output.status.success() && out.contains("200 frames are fine"), "{out}{error}");
    let deep = deployment("c-deep", &[("laptop", "sleeps", ""), ("desk", "recurses", "10000")]);
    let (output, _, error) = simulated(&platform(), &deep, &[&program]);
    assert_eq!(output.status.code(), Some(128 + 11), "{error}");
    assert!(error.contains("process 'recurses@desk' at 0.001000 s overflowed its stack of 1 MiB"), "{error}");
}

#[test]
fn a_process_that_ends_the_program_by_a_signal_is_named() {
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
fn all_that_fail_are_reported_and_the_first_gives_the_status() {
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
fn failures_are_reported_with_their_text() {
    let Some(program) = compiled(&fixture("globals.c"), "globals-fail", &[]) else { return };
    let one = deployment("c-fail", &[("laptop", "fails", "17")]);
    let (output, _, error) = simulated(&platform(), &one, &[&program]);
    assert_eq!(output.status.code(), Some(17));
    assert!(error.contains("process fails@laptop failed: it returned 17: as it was told by 17"), "{error}");
    let (output, _, error) = deployed(&one, &[&program]);
    assert_eq!(output.status.code(), Some(17));
    assert!(error.contains("it returned 17: as it was told by 17"), "{error}");
    for (options, expected) in [
        (&["--verbose"][..], "'--verbose' is not an option of this program; options are --set"),
        (&["--log", "loud"], "'loud' is not a log level"),
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
        ("GRIDLOOM_MESSAGE(m, struct m { void *p; });", ".c:2: ", "void has no type to convert"),
        ("typedef int number;\nGRIDLOOM_MESSAGE(m, struct m { number n; });", ".c:3: ", "'number' is not a known type"),
        ("GRIDLOOM_MESSAGE(m, struct m { int n; } __attribute__((aligned(16))););", ".c:2: ", "expected ';'"),
        (
            "GRIDLOOM_TYPES(typedef int number_t;);\n#define number_t long\n\
             GRIDLOOM_MESSAGE(m, struct m { number_t n; });",
            ".c:4: ",
            "8 bytes at multiples of 8 for the compiler, and 4 at multiples of 4",
        ),
        (
            // The constructor acts like another file of the program.
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
        let source = file(&format!("wrong-{number}.c"), &source);
        let Some(program) = compiled(Path::new(&source), &format!("wrong-{number}"), &["-Wno-attributes"]) else {
            return;
        };
        let (output, _, error) = simulated(&platform(), &one, &[&program]);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(place) && error.contains(expected), "{error}");
    }
}
