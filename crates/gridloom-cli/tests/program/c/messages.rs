//! Messages between C programs, in both worlds and on a testbed.

use std::path::Path;
use std::process::Command;

use crate::support::{file, gridloom, skipped};

use super::{compiled, deployment, example, fixture, in_both_worlds, platform, root, run, simulated, two_sites};

#[test]
fn messages_on_a_testbed_take_the_time_of_its_links() {
    let Some(program) = compiled(&example("ring.c"), "ring-on-testbed", &[]) else { return };
    let ring = example("ring.toml").display().to_string();
    let options =
        ["testbed", "run", "--no-grid", "--overload", "--quiet", "-p", &two_sites(), "-d", &ring, "--", &program];
    let began = std::time::Instant::now();
    let (output, out, error) = run(gridloom(&options));
    if error.contains("this machine does not let this user have") {
        skipped(error.trim_end());
        return;
    }
    assert!(output.status.success(), "{out}{error}");
    assert_eq!(out, "member@laptop| the token went 40 steps\n");
    // In each of the ten rounds the token crosses the link of 20 ms in both directions.
    assert!(began.elapsed().as_secs_f64() > 10.0 * 2.0 * 0.02, "{:?}", began.elapsed());
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
    let source = file("sum.c", block("c"));
    let Some(program) = compiled(Path::new(&source), "sum", &[]) else { return };
    let deployment = file("sum.toml", block("toml"));
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
    let config = file("c-config.toml", "[matrix]\nsize = 100\nscale = 10\nname = 'from the file'\n");
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
fn a_debugger_stops_in_processes_and_steps_over_calls_that_block() {
    if Command::new("gdb").arg("--version").output().is_err() {
        skipped("there is no debugger 'gdb' here");
        return;
    }
    let Some(program) = compiled(&fixture("debugged.c"), "debugged", &["-O0"]) else { return };
    let text = "[[process]]\nhost = 'desk'\nfunction = 'server'\n
        [[process]]\nhost = 'laptop'\nfunction = 'client'\narguments = ['desk']\n";
    let deployment = file("c-debugged.toml", text);
    // From the client's first line through connecting, sending and waiting, while the server runs.
    let words = "set pagination off|break gridloom_process_client|run|next|next|next|next|next|print answers|\
        print ((struct Hello *)got->data)->n|next|continue";
    let mut command = vec!["gdb", "-q", "-nx", "-batch"];
    words.split('|').for_each(|word| command.extend(["-ex", word]));
    command.extend(["--args", &program]);
    let (output, out, error) = simulated(&platform(), &deployment, &command);
    if error.contains("ptrace") {
        skipped("no process may be traced here");
        return;
    }
    assert!(output.status.success(), "{out}{error}");
    let places = ["gridloom_process_client (argc=2", "gridloom_connect", "gridloom_wait_for", "gridloom_message_free"];
    assert!(places.iter().all(|place| out.contains(place)), "{out}{error}");
    assert!(out.contains("$1 = 42") && out.contains("$2 = 42") && out.contains("exited normally"), "{out}{error}");
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
    let source = file("measured.c", source);
    let Some(program) = compiled(Path::new(&source), "measured", &[]) else { return };
    let processes = deployment("c-measured", &[("laptop", "collects", ""), ("desk", "works", "")]);
    let measures = file("c-measures", "");
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
