//! The program as users see it: real processes, their output and their exit status.

use std::path::Path;
use std::process::Command;

use crate::support::{self, Grid, file, gridloom, library, process_ended, status_and_stderr, succeeds, workers_of};
use serde_json::json;

#[test]
fn functions_are_listed_and_called() {
    let grid = Grid::start();
    let _one = grid.serve("one", &[]);
    let _two = grid.serve("two", &["--slots", "2", "--memory", "1GiB"]);
    let listed = grid.json(&["functions"]);
    let names: Vec<&str> =
        listed["functions"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cli/abort_now", "cli/plus", "cli/scale", "cli/stats"]);
    let scale = &listed["functions"][2];
    assert_eq!(scale["signature"], "cli/scale(a: float64, x: float64[n]; n: int32) -> y: float64[n]");
    assert_eq!((&scale["about"], &scale["servers"]), (&json!("y := a x"), &json!(["one", "two"])));
    let text = succeeds(grid.command(&["functions"]));
    assert!(
        text.contains(
            "cli/scale(a: float64, x: float64[n]; n: int32) -> y: float64[n]\n    y := a x\n    on one, two\n"
        )
    );

    let call = "grpc_call(&handle, int n, double a, const double *x /* [n] */, double *y /* [n], out */)";
    assert_eq!(scale["c"], call);
    let shown = succeeds(grid.command(&["functions", "scale", "cli/plus"]));
    assert!(
        shown.starts_with(&format!("cli/scale(a: float64, x: float64[n]; n: int32) -> y: float64[n]\n    {call}\n"))
    );
    assert!(shown.contains("\ncli/plus(") && !shown.contains("cli/stats"), "{shown}");
    let (code, error) = status_and_stderr(grid.command(&["functions", "cli/scales"]));
    assert!(code == 1 && error.contains("did you mean cli/scale"), "{error}");

    let servers = grid.json(&["servers"]);
    let [one, two] = &servers["servers"].as_array().unwrap()[..] else { panic!("{servers}") };
    assert_eq!((&one["name"], &one["slots"], &one["plain"]), (&json!("one"), &json!(1), &json!(false)));
    assert_eq!((&two["name"], &two["slots"], &two["memory_bytes"]), (&json!("two"), &json!(2), &json!(1 << 30)));
    assert!(succeeds(grid.command(&["servers"])).starts_with("server "));

    assert_eq!(succeeds(grid.command(&["call", "cli/plus", "2", "-0.5"])), "sum = 1.5\n");
    assert_eq!(grid.json(&["call", "scale", "2", "[1, 2, 3]"]), json!({ "results": { "y": [2.0, 4.0, 6.0] } }));
    // Sizes may be given too, in the order of the description.
    assert_eq!(grid.json(&["call", "cli/scale", "1", "2", "[4]"])["results"]["y"], json!([8.0]));
    let stats = grid.json(&["call", "cli/stats", "[[1, 2], [3, 6]]"]);
    assert_eq!(stats["results"], json!({ "mean": 3.0, "largest": 6.0 }));
}

#[test]
fn arrays_are_read_from_and_written_to_files() {
    let grid = Grid::start();
    let _server = grid.serve("one", &[]);
    let folder = support::folder("files");
    let (json_file, npy) = (folder.join("x.json"), folder.join("y.npy"));
    std::fs::write(&json_file, "[1, 2.5]").unwrap();
    let from = |path: &std::path::Path| format!("@{}", path.display());
    let out = npy.to_str().unwrap();
    let text = succeeds(grid.command(&["call", "cli/scale", "2", &from(&json_file), "--out", out]));
    assert_eq!(text, format!("y = float64[2], saved in {out}\n"));
    assert_eq!(grid.json(&["call", "cli/scale", "10", &from(&npy)])["results"]["y"], json!([20.0, 50.0]));
    let (code, error) = status_and_stderr(grid.command(&["call", "cli/stats", "[[1]]", "--out", out]));
    assert_eq!(code, 1);
    assert!(error.contains("use NAME=FILE.npy with one of the results mean, largest"), "{error}");
    let (_, error) = status_and_stderr(grid.command(&["call", "cli/scale", "1", "@/nowhere.npy"]));
    assert!(error.starts_with("gridloom: argument 'x': /nowhere.npy: No such file"), "{error}");
}

#[test]
fn wrong_calls_are_explained() {
    let grid = Grid::start();
    let _server = grid.serve("one", &[]);
    let error = |arguments: &[&str]| {
        let (code, error) = status_and_stderr(grid.command(arguments));
        assert_eq!(code, 1, "{error}");
        error
    };
    let unknown = error(&["call", "cli/scael", "1", "[1]"]);
    assert!(unknown.starts_with("gridloom: no server offers function 'cli/scael'; did you mean "), "{unknown}");
    assert!(unknown.contains("cli/scale"), "{unknown}");
    let few = error(&["call", "cli/plus", "1"]);
    assert_eq!(few, "gridloom: cli/plus(a, b: float64) -> sum: float64 takes 2 arguments, got 1\n");
    let shape = error(&["call", "cli/scale", "1", "2", "[1, 2, 3]"]);
    assert!(shape.contains('3') && shape.contains("'x'"), "{shape}");
    assert!(error(&["call", "cli/plus", "one", "2"]).contains("argument 'a': 'one' is not a number"));
    let crash = error(&["call", "cli/abort_now", "1"]);
    assert!(crash.contains("crashed its worker process on server 'one'"), "{crash}");
    // The server is still alive.
    assert_eq!(succeeds(grid.command(&["call", "cli/plus", "1", "1"])), "sum = 2.0\n");
    let (code, usage) = status_and_stderr(grid.command(&["call"]));
    assert_eq!(code, 2);
    assert!(usage.starts_with("gridloom: the following required arguments were not provided"), "{usage}");
    let (code, usage) = status_and_stderr(grid.command(&["serve"]).env("GRIDLOOM_PYTHON", "python3"));
    assert_eq!(code, 2);
    let offers = "serve [OPTIONS] <FILES...|--builtin <NAME>|--program <NAME=PATH>|--run-code|--no-functions>\n";
    assert!(usage.contains(offers) && !usage.contains("--python"), "{usage}");
}

#[test]
fn a_stateless_server_reports_it() {
    let grid = Grid::start();
    let _server = grid.serve("old", &["--plain"]);
    assert_eq!(grid.json(&["servers"])["servers"][0]["plain"], true);
    assert!(succeeds(grid.command(&["servers"])).contains("(plain)"));
    assert_eq!(succeeds(grid.command(&["call", "cli/plus", "1", "1"])), "sum = 2.0\n");
}

#[test]
fn one_name_with_two_signatures_is_refused() {
    let grid = Grid::start();
    let _server = grid.serve("one", &[]);
    let other =
        file("other.idl", "Module cli;\nDefine plus(IN int a, OUT double *sum) Calls \"C\" plus_one(a, sum);\n");
    let (code, error) = status_and_stderr(grid.serve_command("two", &[&other], &[]));
    assert_eq!(code, 1);
    assert!(error.contains("refused server 'two'"), "{error}");
    assert!(error.contains("'cli/plus(a, b: float64) -> sum: float64' there"), "{error}");
    assert!(error.contains("'cli/plus(a: int32) -> sum: float64' here"), "{error}");
    let (code, error) = status_and_stderr(grid.serve_command("one", &[&support::idl()], &[]));
    assert_eq!(code, 1);
    assert!(error.contains("has the name 'one'; choose another with --name"), "{error}");
}

#[test]
fn a_name_that_several_modules_have_is_reported_with_all_of_them() {
    let grid = Grid::start();
    let _server = grid.serve("one", &[]);
    let other = file(
        "twice.idl",
        "Module twice;\nDefine plus(IN double a, IN double b, OUT double *sum) Calls sum = plus(a, b);\n",
    );
    let _other = support::Running::start(grid.serve_command("two", &[&other], &[]));
    let (code, error) = status_and_stderr(grid.command(&["call", "plus", "1", "2"]));
    assert_eq!(code, 1);
    assert!(
        error.contains("'plus' by that name alone; there are 'cli/plus' and 'twice/plus': give the module"),
        "{error}"
    );
    assert_eq!(succeeds(grid.command(&["call", "twice/plus", "1", "2"])), "sum = 3.0\n");
}

#[test]
fn what_cannot_be_offered_is_refused_at_start() {
    let grid = Grid::start();
    let error = |files: &[&str], arguments: &[&str]| {
        let (code, error) = status_and_stderr(grid.serve_command("bad", files, arguments));
        assert_eq!(code, 1, "{error}");
        error
    };
    let (_, named) = status_and_stderr(grid.serve_command("bad", &["lapack"], &[]));
    assert!(
        named.contains("lapack: expected a .idl or .py file") && named.contains("mean 'builtin:lapack'?"),
        "{named}"
    );
    let missing = file("missing.idl", "Module cli;\nDefine f(IN int a, OUT int *b) Calls \"C\" nowhere(a, b);\n");
    let said_missing = error(&[&missing], &[]);
    assert!(said_missing.contains("function 'cli/f' cannot be offered: symbol 'nowhere' is in none"), "{said_missing}");
    assert!(error(&[&missing], &["--library", "/no/lib.so"]).contains("/no/lib.so: no such library"));
    let text = file("text.so", "no library\n");
    let unloadable = error(&[&missing, &support::idl()], &["--library", &text]);
    let says = format!("library {text} cannot be loaded: {text}: ");
    assert_eq!(unloadable.matches("cannot be").count(), 1, "once for all functions: {unloadable}");
    assert!(unloadable.contains(&says), "{unloadable}");
    let source = file(
        "unresolved.c",
        "double nowhere_to_be_found(double);\ndouble there(double x) { return nowhere_to_be_found(x); }\n",
    );
    let unresolved = support::compiled("unresolved.so", &source);
    let there = file("there.idl", "Module cli;\nDefine t(IN double x, OUT double *r) Calls \"C\" r = there(x);\n");
    assert!(error(&[&there], &["--library", &unresolved]).contains("undefined symbol: nowhere_to_be_found"));
    // A BLAS that lacks some functions is offered with the others; one that lacks all is not offered.
    let mut command = grid.serve_command("poor", &["builtin:linalg"], &[]);
    let (code, poor) = status_and_stderr(command.env("GRIDLOOM_BLAS", library()));
    assert_eq!(code, 1);
    assert!(poor.contains("function 'linalg/dgemm' cannot be offered: symbol 'cblas_dgemm' is in none"), "{poor}");
    let mut command = grid.serve_command("rich", &["builtin:linalg", &support::idl()], &[]);
    command.env("GRIDLOOM_BLAS", library());
    assert!(support::Running::start(command).line.ends_with(" offers 4 functions"));
    let wrong = file("wrong.idl", "Module cli;\nDefine f(IN in a)\n");
    assert!(error(&[&wrong], &[]).contains("wrong.idl:2:"));
    assert!(error(&["nothing.txt"], &[]).contains("expected a .idl or .py file"));
    assert!(error(&["nothing.idl"], &[]).contains("nothing.idl: No such file"));
}

#[test]
fn a_function_defined_in_two_files_is_refused_and_a_file_named_twice_is_read_once() {
    let grid = Grid::start();
    let idl = "Module pair;\nDefine f(IN int a, OUT int *b) Calls \"C\" f(a, b);\n";
    let (first, second) = (file("first.idl", idl), file("second.idl", idl));
    let (code, error) = status_and_stderr(grid.serve_command("bad", &[&first, &second], &[]));
    let says =
        format!("function 'pair/f' is defined twice, in {first} and in {second}: rename one of them, or leave one out");
    assert!(code == 1 && error.contains(&says), "{error}");
    let same = Path::new(&support::idl()).parent().unwrap().join(".").join("cli.idl").display().to_string();
    let command = |words: &[&str], arguments: &[&str]| {
        let mut command = grid.serve_command("good", words, arguments);
        command.env("GRIDLOOM_BLAS", library());
        support::Running::start(command).line.clone()
    };
    assert!(command(&[&support::idl(), &same], &[]).ends_with(" offers 4 functions"));
    let linalg = "builtin:linalg";
    assert!(command(&[linalg, &support::idl(), linalg], &["--builtin", "linalg"]).ends_with(" offers 4 functions"));
}

#[test]
fn an_address_where_another_process_listens_is_reported_with_the_remedy() {
    let grid = Grid::start();
    let busy = grid.address.as_str();
    let says = format!(
        "cannot listen on {busy}: another process listens there already; end it, or choose another port with --listen"
    );
    let (code, agent) = status_and_stderr(gridloom(&["agent", "--listen", busy]));
    assert!(code == 1 && agent.contains(&says), "{agent}");
    let (code, server) = status_and_stderr(grid.serve_command("late", &[&support::idl()], &["--listen", busy]));
    assert!(code == 1 && server.contains(&says), "{server}");
}

#[test]
fn a_server_without_functions_needs_an_explicit_option() {
    let grid = Grid::start();
    let command = support::serve_command(&grid.address, "none", &[], &["--no-functions", "--quiet"]);
    assert!(support::Running::start(command).line.ends_with(" offers 0 functions"));
    let (code, error) = status_and_stderr(support::serve_command(&grid.address, "none", &[], &[]));
    assert!(code == 2 && error.contains("FILES"), "{error}");
    let (code, error) =
        status_and_stderr(support::serve_command(&grid.address, "none", &[&support::idl()], &["--no-functions"]));
    assert!(code == 2 && error.contains("cannot be used with"), "{error}");
}

#[test]
fn numbers_out_of_range_are_reported_as_such() {
    let refused = |arguments: &[&str], status: i32, why: &str| {
        let (code, error) = status_and_stderr(gridloom(arguments));
        assert!(code == status && error.contains(why), "{arguments:?}: {code}: {error}");
    };
    refused(&["models", "f", "--size", "-5"], 2, "expected a finite number of at least 0");
    refused(&["serve", "f.idl", "--slowdown", "-1"], 2, "expected a number from 1 to 1000000");
    refused(&["serve", "f.idl", "--slots", "-1"], 2, "-1 is not in 1..=1024");
    refused(&["calibrate", "--budget", "-1"], 1, "--budget -1: expected seconds above 0");
    refused(&["calibrate", "--sizes", "m=0"], 2, "'m=0': expected NAME=FROM..TO with 1 <= FROM <= TO");
    refused(&["calibrate", "--sizes", "m=9..3"], 2, "1 <= FROM <= TO");
    for number in ["x", "-1"] {
        refused(&["explain", "plan.json", number], 2, "expected a task's number, counted from 0");
    }
}

#[test]
fn meaningless_durations_and_speeds_are_rejected() {
    for seconds in ["nan", "inf", "-inf", "-1", "1e300", "1 hour", ""] {
        let wrong = [
            gridloom(&["call", &format!("--timeout={seconds}"), "f"]),
            gridloom(&["deploy", "-d", "x", &format!("--grace={seconds}"), "--", "x"]),
            gridloom(&["mpirun", &format!("--until={seconds}"), "-n", "1", "x"]),
            gridloom(&["up", "grid.toml", &format!("--wait={seconds}")]),
            gridloom(&["down", &format!("--grace={seconds}")]),
            gridloom(&["top", &format!("--interval={seconds}")]),
        ];
        for command in wrong {
            let shown = format!("{command:?}");
            let (code, error) = status_and_stderr(command);
            assert!(code == 2 && error.contains("invalid value") && error.contains("seconds"), "{shown}: {error}");
        }
    }
    let serve = |option: &str| status_and_stderr(gridloom(&["serve", "--no-functions", "--no-agent", option]));
    let (code, error) = serve("--speed=20");
    assert!(
        code == 2 && error.contains("the speed 20 has no unit and is below 1 Mflop/s; write 20Gf, 20Mf"),
        "{error}"
    );
    let (code, error) = serve("--upload-limit=100");
    assert!(code == 2 && error.contains("'100' is 100 bytes per second; expected at least 64kBps"), "{error}");
    // A space may precede the unit: only the last option is invalid.
    let words =
        ["serve", "--no-functions", "--no-agent", "--speed", "20 Gf", "--upload-limit", "100 Mbps", "--slots=0"];
    let (code, error) = status_and_stderr(gridloom(&words));
    assert!(code == 2 && error.contains("--slots") && !error.contains("Gf"), "{error}");
}

#[test]
fn a_server_checks_that_its_paths_are_of_the_right_kind() {
    let folder = support::folder("kinds");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_string();
    std::fs::write(folder.join("file"), "x").unwrap();
    std::fs::create_dir_all(folder.join("folder")).unwrap();
    std::fs::write(folder.join("cgroup.procs"), "").unwrap();
    let refused = |option: &str, path: &str, why: &str| {
        let words = ["serve", "--no-agent", "--program", "a=/bin/sh", option, path];
        let (code, error) = status_and_stderr(gridloom(&words));
        assert!(
            code == 1 && error.contains(&format!("{option}: '{path}'")) && error.contains(why),
            "{words:?}: {error}"
        );
    };
    for option in ["--disk", "--durable", "--storage", "--models", "--checkpoints"] {
        for path in [&path("file"), "/dev/null"] {
            refused(option, path, "is not a folder; name a folder");
        }
    }
    for path in [&path("folder"), "/dev/null", &path("file"), &path("cgroup.procs")] {
        refused("--worker-group", path, "is not the list of processes of a control group; name the file cgroup.procs");
    }
    refused("--worker-group", &path("missing"), "No such file");
    for path in [&path("folder"), "/dev/null", &path("file"), &path("missing")] {
        refused("--python", path, "is not a program that can be started; name a Python interpreter");
    }
    assert_eq!(std::fs::read_to_string(folder.join("cgroup.procs")).unwrap(), "", "nothing was written");
}

#[test]
fn a_server_that_no_agent_will_ever_take_ends() {
    let grid = Grid::start();
    let one = grid.serve("one", &[]);
    let ready = one.line.split_whitespace().nth(3).unwrap();
    let mut command = support::serve_command(ready, "two", &[&support::idl()], &["--library", library()]);
    let (code, error) = status_and_stderr(&mut command);
    assert_eq!(code, 1);
    assert!(error.contains("'one' answers there, which is a server; give the agent's address"), "{error}");
    for address in ["here", "127.0.0.1", "127.0.0.1:port", ":7711", "127.0.0.1:0"] {
        let (code, error) = status_and_stderr(gridloom(&["serve", "builtin:linalg", "--agent", address]));
        assert_eq!(code, 2);
        let says = format!("'{address}' is not an address of an agent; expected HOST:PORT, such as 127.0.0.1:7711");
        assert!(error.contains(&says), "{error}");
    }
}

#[test]
fn a_missing_agent_is_named() {
    let (code, error) = status_and_stderr(gridloom(&["functions", "--agent", "127.0.0.1:1"]));
    assert_eq!(code, 1);
    let says =
        "the agent at 127.0.0.1:1: no program listens there (connection refused); start an agent with 'gridloom agent'";
    assert!(error.contains(says), "{error}");
    let (code, error) = status_and_stderr(gridloom(&["functions", "--agent", "nowhere.invalid:1"]));
    assert_eq!(code, 1);
    assert!(
        error.contains("nowhere.invalid:1: the name cannot be resolved (") && error.contains("HOST:PORT"),
        "{error}"
    );
}

#[test]
fn listening_on_all_addresses_needs_one_that_others_can_dial() {
    for arguments in [&["agent", "--listen", "0.0.0.0:0"][..], &["serve", "x.idl", "--listen", "0.0.0.0:0"]] {
        let (code, error) = status_and_stderr(gridloom(arguments));
        assert_eq!(code, 1);
        assert!(error.contains("can connect with --advertise"), "{error}");
    }
    let advertised = ["agent", "--listen", "0.0.0.0:0", "--advertise", "localhost:0", "--json"];
    let agent = support::Running::start(gridloom(&advertised));
    let ready: serde_json::Value = serde_json::from_str(&agent.line).unwrap();
    assert!(ready["address"].as_str().unwrap().starts_with("localhost:"), "{ready}");
    assert!(!ready["address"].as_str().unwrap().ends_with(":0"), "{ready}");
}

#[test]
fn a_killed_server_is_noticed() {
    let (grid, mut log) = Grid::start_logging();
    let one = grid.serve("one", &[]);
    let _two = grid.serve("two", &[]);
    let workers = workers_of(one.pid());
    assert_eq!(workers.len(), 1);
    one.kill();
    let line = support::line_with(&mut log, "lost a server");
    assert!(
        line.contains(" WARN gridloom.agent: lost a server node=\"agent\" peer=\"one\" address=\"127.0.0.1:"),
        "{line}"
    );
    let servers = grid.json(&["servers"]);
    let names: Vec<&str> = servers["servers"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["two"]);
    workers.into_iter().for_each(process_ended);
}

#[test]
fn processes_end_with_their_input_or_a_signal_and_leave_none_behind() {
    let grid = Grid::start();
    let with_input = grid.serve("input", &["--slots", "2"]);
    let (terminated, interrupted) = (grid.serve("term", &[]), grid.serve("int", &[]));
    let workers: Vec<u32> =
        [&with_input, &terminated, &interrupted].into_iter().flat_map(|server| workers_of(server.pid())).collect();
    assert_eq!(workers.len(), 4);
    assert!(with_input.close_input().success());
    assert!(terminated.signal("-TERM").success());
    assert!(interrupted.signal("-INT").success());
    workers.into_iter().for_each(process_ended);
    assert!(grid.agent.close_input().success());
}

#[test]
fn a_server_waits_for_its_agent() {
    // The first agent's port, which is free now.
    let grid = Grid::start_at("127.77.0.1:0");
    let address = grid.address.clone();
    assert!(grid.agent.signal("-TERM").success());
    let mut command = support::serve_command(&address, "early", &[&support::idl()], &["--library", library()]);
    let (mut server, mut log) = support::logging(&mut command);
    support::line_with(&mut log, "trying again");
    let _agent = support::Running::start(gridloom(&["agent", "--listen", &address]));
    assert!(support::first_line(&mut server).starts_with("server early on 127.0.0.1:"));
    support::line_with(&mut log, "registered with the agent");
}

#[test]
fn interfaces_are_checked_and_shown() {
    let idl = support::idl();
    assert_eq!(succeeds(gridloom(&["idl", "check", &idl])), format!("{idl}: 4 functions\n"));
    assert!(succeeds(gridloom(&["idl", "show", &idl])).starts_with("cli/plus(a, b: float64) -> sum: float64\n"));
    let shown = succeeds(gridloom(&["idl", "show", "--c", &idl]));
    assert!(
        shown.contains(" -> sum: float64\n    grpc_call(&handle, double a, double b, double *sum /* out */)\n"),
        "{shown}"
    );
    let wrong = file("check.idl", "Module cli;\nDefine f(IN in a)\n");
    let (code, error) = status_and_stderr(gridloom(&["idl", "check", &wrong]));
    assert_eq!(code, 1);
    assert!(error.starts_with(&format!("gridloom: {wrong}:2:")), "{error}");
}

#[test]
fn heuristics_are_listed() {
    let listed: serde_json::Value = serde_json::from_str(&succeeds(gridloom(&["heuristics", "--json"]))).unwrap();
    let heft = listed["heuristics"].as_array().unwrap().iter().find(|one| one["name"] == "heft").unwrap();
    assert_eq!(heft["name"], "heft");
    assert!(heft["source"].as_str().unwrap().contains("Topcuoglu"), "{heft}");
    assert!(!heft["parameters"].as_array().unwrap().is_empty(), "{heft}");
    let shown = succeeds(gridloom(&["heuristics"]));
    assert!(shown.starts_with("auto\n") && shown.contains("\ngreedy, or greedy_map\n"), "{shown}");
    let greedy = listed["heuristics"].as_array().unwrap().iter().find(|one| one["name"] == "greedy").unwrap();
    assert_eq!(greedy["aliases"], json!(["greedy_map"]));
}

/// The commands that `gridloom COMMAND --help` lists, each with its path.
fn subcommands(path: &[String], found: &mut Vec<Vec<String>>) {
    let help = help_of(path);
    let listed = help.split_once("\nCommands:\n").map_or("", |(_, behind)| behind.split("\n\n").next().unwrap());
    for line in listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
        let name = line.split_whitespace().next().unwrap();
        if name != "help" {
            let path = [path, &[name.to_string()]].concat();
            found.push(path.clone());
            subcommands(&path, found);
        }
    }
}

fn help_of(path: &[String]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridloom"));
    command.args(path).arg("--help").env_remove("GRIDLOOM_AGENT");
    succeeds(command)
}

/// `docs/site.py` fills in the help texts when the site is built.
#[test]
fn each_command_has_an_example_and_is_on_a_page() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands");
    let pages = std::fs::read_dir(docs).unwrap();
    let text: String = pages.map(|page| std::fs::read_to_string(page.unwrap().path()).unwrap()).collect();
    let mut commands = Vec::new();
    subcommands(&[], &mut commands);
    assert!(commands.len() > 40, "{commands:?}");
    for command in &commands {
        let (help, name) = (help_of(command), command.join(" "));
        if help.contains("\nCommands:\n") {
            continue;
        }
        assert!(help.contains("Example"), "{name} has no example");
        assert!(
            text.contains(&format!("```text\n$ gridloom {name} --help\n```\n")),
            "no page of docs/commands has {name}"
        );
    }
}
