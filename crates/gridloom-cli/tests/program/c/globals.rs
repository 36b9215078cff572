//! Global variables of simulated C processes: one copy for each process, or shared.

use std::path::Path;

use crate::support::{file, skipped};

use super::{
    compiled, deployed, deployment, example, fixture, in_both_worlds, libraries, platform, simulated, two_sites,
};

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
    // The program's own check fails, as it must if the processes share their variables.
    let (output, out, error) = simulated(&platform(), &deployment, &[&program, "--set", "gridloom.globals=shared"]);
    assert!(!output.status.success() && error.contains("Assertion"), "{out}{error}");
}

#[test]
fn a_program_that_holds_the_library_itself_is_reported() {
    let archive = libraries().map(|folder| folder.join("libgridloom.a").display().to_string());
    let Some(archive) = archive else { return skipped("there is no C compiler 'cc' here") };
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
fn a_process_too_many_for_own_globals_is_reported() {
    let source = "#include <gridloom.h>\nGRIDLOOM_PROCESS(sleeps) { return gridloom_sleep(1) < 0; }\nGRIDLOOM_MAIN\n";
    let source = file("sleeps.c", source);
    let Some(program) = compiled(Path::new(&source), "sleeps", &[]) else { return };
    let many = deployment("c-many", &vec![("laptop", "sleeps", ""); 20_001]);
    let (output, _, error) = simulated(&platform(), &many, &[&program]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("process 20001 of this simulation cannot have its own copy"), "{error}");
    assert!(error.contains("at most 20000 processes"), "{error}");
    let (output, out, error) = simulated(&platform(), &many, &[&program, "--set", "gridloom.globals=shared"]);
    assert!(output.status.success() && out.contains("simulated 1.000000 s"), "{out}{error}");
}
