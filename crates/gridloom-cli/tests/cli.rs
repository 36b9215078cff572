//! The program as its users meet it: real processes, their output and their exit status.

mod support;

use std::process::Command;

use serde_json::json;
use support::{Grid, file, gridloom, library, process_ended, said, succeeds, workers_of};

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
fn functions_are_calibrated() {
    let grid = Grid::start();
    let models = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("calibrated-models");
    // What an earlier run of the tests has kept.
    let _ = std::fs::remove_dir_all(&models);
    let one_running = grid.serve("one", &["--slots", "2", "--models", models.to_str().unwrap()]);
    let done = grid.json(&["calibrate", "scale", "--sizes", "n=1000..1000000", "--error", "0.5", "--budget", "20"]);
    let [one] = &done["calibrated"].as_array().unwrap()[..] else { panic!("{done}") };
    let points = one["points"].as_array().unwrap();
    assert_eq!(
        (&one["server"], &one["unit"], &one["has_failed"]),
        (&json!("one"), &json!("flop"), &json!(false)),
        "{one}"
    );
    assert!(points.len() >= 5 && points[0]["sizes"] == json!({ "n": 1000 }), "{one}");
    assert_eq!(points.last().unwrap()["size"], json!(1e6), "{one}");
    // The server has learned the same points, and the agent knows them.
    let known = grid.json(&["models", "cli/scale"]);
    let calls = known["models"][0]["by_work"].as_array().unwrap().iter().map(|point| point["calls"].as_u64().unwrap());
    assert_eq!(json!(calls.sum::<u64>()), one["calls"], "{known} {one}");
    assert!(one_running.close_input().success());
    let kept = std::fs::read_to_string(models.join("one.json")).unwrap();
    assert!(kept.contains("cli/scale"), "{kept}");

    // A crash ends the calibration of its server, and is told with what was reached.
    let _two = grid.serve("two", &[]);
    let mut command = grid.command(&["calibrate", "abort_now"]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && text.contains("crashed its worker process"), "{text}");
    let (status, said) = said(grid.command(&["calibrate", "scale", "--sizes", "k=1..2"]));
    assert!(status == 1 && said.contains("no argument 'k'"), "{said}");
    // One size is a range that has no end to miss, and nothing between points.
    let output = grid.command(&["calibrate", "scale", "--sizes", "n=1000", "--server", "two"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.starts_with("cli/scale on two: error -; "), "{text}");
    assert!(!text.contains("budget"), "{text}");
}

#[test]
fn a_grid_without_servers_cannot_be_calibrated() {
    let grid = Grid::start();
    let (status, said) = said(grid.command(&["calibrate"]));
    let says = format!("the agent at {} knows no server that offers a function; start one", grid.address);
    assert!(status == 1 && said.contains(&says), "{said}");
}

#[test]
fn arrays_come_from_and_go_to_files() {
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
    let (code, error) = said(grid.command(&["call", "cli/stats", "[[1]]", "--out", out]));
    assert_eq!(code, 1);
    assert!(error.contains("say NAME=FILE.npy with one of the results mean, largest"), "{error}");
    let (_, error) = said(grid.command(&["call", "cli/scale", "1", "@/nowhere.npy"]));
    assert!(error.starts_with("gridloom: argument 'x': /nowhere.npy: No such file"), "{error}");
}

#[test]
fn wrong_calls_are_explained() {
    let grid = Grid::start();
    let _server = grid.serve("one", &[]);
    let error = |arguments: &[&str]| {
        let (code, error) = said(grid.command(arguments));
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
    assert!(error(&["call", "cli/plus", "one", "2"]).contains("argument 'a': 'one' is no number"));
    let crash = error(&["call", "cli/abort_now", "1"]);
    assert!(crash.contains("crashed its worker process on server 'one'"), "{crash}");
    // The server lives on.
    assert_eq!(succeeds(grid.command(&["call", "cli/plus", "1", "1"])), "sum = 2.0\n");
    let (code, usage) = said(grid.command(&["call"]));
    assert_eq!(code, 2);
    assert!(usage.starts_with("gridloom: the following required arguments were not provided"), "{usage}");
}

#[test]
fn a_plain_server_says_so() {
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
    let (code, error) = said(grid.serve_command("two", &[&other], &[]));
    assert_eq!(code, 1);
    assert!(error.contains("refused server 'two'"), "{error}");
    assert!(error.contains("'cli/plus(a, b: float64) -> sum: float64' there"), "{error}");
    assert!(error.contains("'cli/plus(a: int32) -> sum: float64' here"), "{error}");
    let (code, error) = said(grid.serve_command("one", &[&support::idl()], &[]));
    assert_eq!(code, 1);
    assert!(error.contains("has the name 'one'; choose one with --name"), "{error}");
}

#[test]
fn what_cannot_be_offered_is_refused_at_start() {
    let grid = Grid::start();
    let error = |files: &[&str], arguments: &[&str]| {
        let (code, error) = said(grid.serve_command("bad", files, arguments));
        assert_eq!(code, 1, "{error}");
        error
    };
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
    // Of a BLAS that lacks something, what it has is offered, and nothing is no offer.
    let mut command = grid.serve_command("poor", &["builtin:linalg"], &[]);
    let (code, poor) = said(command.env("GRIDLOOM_BLAS", library()));
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
fn a_secret_keeps_strangers_out() {
    let grid = Grid::start();
    let mut command = grid.command(&["functions"]);
    let (code, error) = said(command.env("GRIDLOOM_SECRET", "guess"));
    assert_eq!(code, 1);
    assert!(error.contains("grid secret does not match; set GRIDLOOM_SECRET"), "{error}");
    let mut command = support::serve_command(&grid.address, "stranger", &[&support::idl()], &["--library", library()]);
    let (code, error) = said(command.env("GRIDLOOM_SECRET", "guess"));
    assert_eq!(code, 1);
    let says = format!("cannot use the agent at {}: the agent there refused: grid secret does not match", grid.address);
    assert!(error.contains(&says), "{error}");
}

#[test]
fn a_server_that_no_agent_will_ever_take_ends() {
    let grid = Grid::start();
    let one = grid.serve("one", &[]);
    let ready = one.line.split_whitespace().nth(3).unwrap();
    let mut command = support::serve_command(ready, "two", &[&support::idl()], &["--library", library()]);
    let (code, error) = said(&mut command);
    assert_eq!(code, 1);
    assert!(error.contains("'one' answers there, which is a server; give the agent's address"), "{error}");
    for address in ["here", "127.0.0.1", "127.0.0.1:port", ":7711", "127.0.0.1:0"] {
        let (code, error) = said(gridloom(&["serve", "builtin:linalg", "--agent", address]));
        assert_eq!(code, 2);
        let says = format!("'{address}' is no address of an agent; expected HOST:PORT, such as 127.0.0.1:7711");
        assert!(error.contains(&says), "{error}");
    }
}

#[test]
fn a_missing_agent_is_named() {
    let (code, error) = said(gridloom(&["functions", "--agent", "127.0.0.1:1"]));
    assert_eq!(code, 1);
    let says = "the agent at 127.0.0.1:1: nobody listens there (connection refused); start one with 'gridloom agent'";
    assert!(error.contains(says), "{error}");
    let (code, error) = said(gridloom(&["functions", "--agent", "nowhere.invalid:1"]));
    assert_eq!(code, 1);
    assert!(
        error.contains("nowhere.invalid:1: the name cannot be resolved (") && error.contains("HOST:PORT"),
        "{error}"
    );
}

#[test]
fn other_hosts_are_let_in_only_on_demand() {
    for arguments in [&["agent", "--listen", "0.0.0.0:0"][..], &["serve", "x.idl", "--listen", "0.0.0.0:0"]] {
        let (code, error) = said(gridloom(arguments));
        assert_eq!(code, 1);
        assert!(error.contains("nothing is encrypted; pass --trust-this-network"), "{error}");
    }
    let (_, error) = said(gridloom(&["agent", "--listen", "0.0.0.0:0", "--trust-this-network"]));
    assert!(error.contains("say with --advertise"), "{error}");
    let advertised = ["agent", "--listen", "0.0.0.0:0", "--trust-this-network", "--advertise", "localhost:0", "--json"];
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
    support::line_with(&mut log, "lost server 'one'");
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
    // A free port of an address where nobody else listens: the first agent had it.
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
fn a_platform_that_is_no_grid_is_told_at_once() {
    let hosts = |role: &str| {
        format!(
            "[[host]]\nname = \"a\"\nspeed = \"1Gf\"\n[[host]]\nname = \"b\"\nspeed = \"1Gf\"\nproperties = {{ role = \"{role}\" }}\n"
        )
    };
    let wrong = file("role.toml", &hosts("sever"));
    let (code, error) = said(gridloom(&["platform", "show", &wrong]));
    assert_eq!(code, 1);
    assert!(error.contains(":4:1: host 'b' has the role 'sever'; expected agent, server, client or none"), "{error}");
    let apart = file("apart.toml", &hosts("server"));
    support::succeeds(gridloom(&["platform", "show", &apart]));
    let (code, error) = said(gridloom(&["simulate", "-p", &apart, "--", "true"]));
    assert_eq!(code, 1);
    assert!(error.contains("no route from 'b' to 'a', which a grid needs"), "{error}");
}

#[test]
fn what_cannot_be_written_is_told_before_the_simulation() {
    let platform = file(
        "written.toml",
        "[[host]]\nname = \"a\"\nspeed = \"1Gf\"\n[[host]]\nname = \"b\"\nspeed = \"1Gf\"\n[[star]]\nname = \"lan\"\n\
         hosts = [\"a\", \"b\"]\nbandwidth = \"1GBps\"\nlatency = \"50us\"\n",
    );
    for option in ["--timeline", "--report"] {
        let (code, error) = said(gridloom(&["simulate", "-p", &platform, option, "/no/folder/file", "--", "true"]));
        assert_eq!(code, 1);
        assert!(error.contains("cannot write /no/folder/file: No such file"), "{error}");
    }
}

#[test]
fn a_platform_is_drawn() {
    let platform = format!("{}/../../examples/two-sites.toml", env!("CARGO_MANIFEST_DIR"));
    let svg = std::env::temp_dir().join(format!("gridloom-drawing-{}.svg", std::process::id()));
    succeeds(gridloom(&["platform", "show", &platform, "--svg", svg.to_str().unwrap()]));
    let drawn = std::fs::read_to_string(&svg).unwrap();
    for part in ["<svg xmlns", ">laptop<", ">client, agent<", ">40 Gflop/s<", ">wan<", ">6.25 MB/s · 20 ms<", ">there<"]
    {
        assert!(drawn.contains(part), "no {part} in {drawn}");
    }
    assert_eq!(drawn.matches("<g").count(), drawn.matches("</g>").count());
    let (code, error) = said(gridloom(&["platform", "show", &platform, "--svg", "/no/folder/a.svg"]));
    assert_eq!(code, 1);
    assert!(error.contains("cannot write '/no/folder/a.svg': No such file"), "{error}");

    let large = file(
        "large.toml",
        "[[host]]\nname = \"a<b\"\nspeed = 1\n[[cluster]]\nname = \"c\"\nhosts = \"n-[0-999]\"\nspeed = \"1Gf\"\n\
         bandwidth = \"1Gbps\"\nlatency = \"50us\"\nbackbone = { bandwidth = \"10Gbps\", latency = 0 }\n\
         [[link]]\nname = \"up\"\nbandwidth = 1\nlatency = 0\n[[route]]\nfrom = \"a<b\"\nto = \"c\"\nlinks = [\"up\"]\n",
    );
    succeeds(gridloom(&["platform", "show", &large, "--svg", svg.to_str().unwrap()]));
    let drawn = std::fs::read_to_string(&svg).unwrap();
    std::fs::remove_file(&svg).unwrap();
    for part in [">1,000 hosts<", ">n-0 … n-999<", ">1,000 links<", ">c_backbone<", ">a&lt;b<"] {
        assert!(drawn.contains(part), "no {part} in {drawn}");
    }
    assert!(drawn.matches("<rect").count() < 30, "a large cluster is one box");
    let listed = succeeds(gridloom(&["platform", "show", &large]));
    assert!(listed.lines().count() < 12 && listed.contains("each of 1,000 hosts"), "{listed}");
    let all = succeeds(gridloom(&["platform", "show", &large, "--all"]));
    assert_eq!(all.lines().filter(|line| line.starts_with("host ")).count(), 1001);
    assert_eq!(all.lines().filter(|line| line.starts_with("route ")).count(), 1001);
}

#[test]
fn a_deployment_that_does_not_fit_the_program_is_told() {
    let platform = format!("{}/../../examples/two-sites.toml", env!("CARGO_MANIFEST_DIR"));
    let ran = |deployment: &str| {
        let file = file("fits.toml", deployment);
        let mut command = gridloom(&["simulate", "-p", &platform, "-d", &file, "--", "true"]);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap().replace(&file, "fits.toml"))
    };
    let refused = |text: &str| (Some(1), format!("gridloom: {text}\n"));
    assert_eq!(ran(""), refused("fits.toml: no process is deployed"));
    let mars = "[[process]]\nhost = 'mars'\nfunction = 'server'\n";
    assert_eq!(ran(mars), refused("fits.toml: the platform has no host 'mars'"));
    // A program may call one of its own processes 'server'; this one has none.
    let (code, error) = ran("[[process]]\nhost = 'desk'\nfunction = 'server'\n");
    assert_eq!(code, Some(0));
    assert_eq!(
        error,
        "gridloom: the program used no grid and ran no processes of the deployment; nothing was simulated\n"
    );
    let (code, error) = said(gridloom(&["testbed", "run", "-p", "nowhere.toml", "--", "true"]));
    assert_eq!((code, error.as_str()), (1, "gridloom: nowhere.toml: No such file or directory (os error 2)\n"));
}

#[test]
fn platforms_are_shown() {
    let platform = file(
        "two.toml",
        "[[host]]\nname = \"a\"\nspeed = \"1Gf\"\n[[host]]\nname = \"b\"\nspeed = \"2Gf\"\ncores = 4\n\
         [[host]]\nname = \"c\"\nspeed = \"1Gf\"\n[[link]]\nname = \"ab\"\nbandwidth = \"1GBps\"\nlatency = \"1ms\"\n\
         [[route]]\nfrom = \"a\"\nto = \"b\"\nlinks = [\"ab\"]\n",
    );
    let ask = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&succeeds(gridloom(&[&["platform"], arguments, &["--json"]].concat()))).unwrap()
    };
    let shown = ask(&["show", &platform]);
    assert_eq!(shown["hosts"][1]["name"], "b");
    assert_eq!(shown["hosts"][1]["cores"], 4);
    assert_eq!(shown["links"][1]["name"], "ab");
    assert_eq!(ask(&["route", &platform, "a", "b"]), json!({ "latency": 0.001, "links": ["ab"] }));
    assert_eq!(ask(&["route", &platform, "a", "c"]), json!({ "latency": 0.0, "links": [] }));
    assert_eq!(succeeds(gridloom(&["platform", "route", &platform, "a", "c"])), "no route\n");
    let (code, error) = said(gridloom(&["platform", "route", &platform, "a", "x"]));
    assert_eq!((code, error.as_str()), (1, "gridloom: the platform has no host 'x'\n"));
    let listed = succeeds(gridloom(&["platform", "show", &platform]));
    assert!(listed.contains("2 Gflop/s  4 cores") && listed.contains("over ab"), "{listed}");
    assert_eq!(shown["routes"][0]["links"], json!(["ab"]));
}

#[test]
fn interfaces_are_checked_and_shown() {
    let idl = support::idl();
    assert_eq!(succeeds(gridloom(&["idl", "check", &idl])), format!("{idl}: 4 functions\n"));
    assert!(succeeds(gridloom(&["idl", "show", &idl])).starts_with("cli/plus(a, b: float64) -> sum: float64\n"));
    let wrong = file("check.idl", "Module cli;\nDefine f(IN in a)\n");
    let (code, error) = said(gridloom(&["idl", "check", &wrong]));
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
    assert!(succeeds(gridloom(&["heuristics"])).starts_with("auto\n"));
}

#[test]
fn a_simulation_that_is_told_to_end_ends_its_program() {
    let platform = format!("{}/../../examples/two-sites.toml", env!("CARGO_MANIFEST_DIR"));
    let script = "trap 'echo told; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let mut command = gridloom(&["simulate", "-p", &platform, "--", "sh", "-c", script]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let kill = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(lines.next().unwrap().unwrap(), "told");
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn programs_are_simulated() {
    let platform = file(
        "grid.toml",
        "[[host]]\nname = \"laptop\"\nspeed = \"1Gf\"\n[[host]]\nname = \"node\"\nspeed = \"2Gf\"\n\
         [[link]]\nname = \"wire\"\nbandwidth = \"1MBps\"\nlatency = \"1ms\"\n\
         [[route]]\nfrom = \"laptop\"\nto = \"node\"\nlinks = [\"wire\"]\n",
    );
    let (idl, program) = (support::idl(), env!("CARGO_BIN_EXE_gridloom"));
    let report = support::folder("simulated").join("report.json");
    let simulate = |arguments: &[&str]| {
        let mut command = gridloom(&["simulate", "-p", &platform, "--functions", &idl, "--json"]);
        command.args(arguments).args(["--", program, "call", "cli/scale", "2", "[1, 2]"]);
        command
    };
    let execute = ["--execute", "--library", library(), "--report", report.to_str().unwrap()];
    let output = simulate(&execute).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("y = [2.0,4.0]"));
    let said_report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert!(said_report["seconds"].as_f64().unwrap() > 0.001);
    assert!(said_report["bytes_by_link"]["wire"].as_f64().unwrap() >= 16.0, "{printed}");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&std::fs::read_to_string(&report).unwrap()).unwrap(),
        said_report
    );
    // The same again, to the last event.
    assert_eq!(String::from_utf8(simulate(&execute).output().unwrap().stdout).unwrap(), printed);

    // The program's own status; its report is of this run, not of the last.
    let mut command = gridloom(&["simulate", "-p", &platform, "--report", report.to_str().unwrap(), "--", "sh", "-c"]);
    assert_eq!(command.arg("exit 7").status().unwrap().code(), Some(7));
    assert!(!report.exists());
    let (code, error) = said(gridloom(&["simulate", "-p", &platform, "--network", "lv09", "--", "true"]));
    assert_eq!((code, error.as_str()), (1, "gridloom: no network model 'lv09'; there are warm-tcp, cm02, lv08\n"));
    let wrong = file("wrong.toml", "[[host]]\nname = \"a\"\nsped = 1\n");
    let (code, error) = said(gridloom(&["simulate", "-p", &wrong, "--", "true"]));
    assert_eq!(code, 1);
    assert!(error.starts_with(&format!("gridloom: {wrong}:3:1: unknown key 'sped'")), "{error}");
}

#[test]
fn scenarios_are_replayed() {
    let scenario = |host: &str| {
        json!({
            "model": "CM02", "crosstraffic": true,
            "platform": {
                "hosts": [{"name": "a", "speed": 1e9, "cores": 1}, {"name": "b", "speed": 2e9, "cores": 1}],
                "links": [{"name": "wire", "bandwidth": 1e6, "latency": 0.5, "policy": "SPLITDUPLEX"}],
                "routes": [{"src": "a", "dst": "b", "links": ["wire:UP"], "symmetrical": true}],
                "profiles": [{"element": "b", "kind": "state", "events": [[2.0, 0]], "loop_after": null}]
            },
            "activities": [
                {"name": "move", "type": "comm", "src": "a", "dst": "b", "bytes": 1_000_000, "start": 0},
                {"name": "work", "type": "exec", "host": host, "flops": 2e9, "start": 0, "after": ["move"]}
            ]
        })
        .to_string()
    };
    let good = file("scenario.json", &scenario("b"));
    let printed = succeeds(gridloom(&["sim", "replay", &good, "--json"]));
    assert_eq!(printed, "{\"failed\":[\"work\"],\"finish_times\":{\"move\":1.5,\"work\":2.0}}\n");
    let table = succeeds(gridloom(&["sim", "replay", &good]));
    assert!(table.contains("work      exec       1.500000000       2.000000000  failed\n"), "{table}");
    assert!(table.ends_with("2 activities, 1 failed, makespan 2.000000000 s\n"), "{table}");
    let wrong = file("wrong.json", &scenario("c"));
    let (code, error) = said(gridloom(&["sim", "replay", &wrong, "--json"]));
    assert_eq!(code, 1);
    assert!(error.starts_with(&format!("gridloom: {wrong}: activities[1] 'work'.host: unknown host 'c'")), "{error}");
}

#[test]
fn a_soak_runs_seeds_and_takes_a_scenario() {
    let text = succeeds(gridloom(&["soak", "--seeds", "20", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["seeds"], &report["failure"]), (&json!(20), &json!(null)));
    assert!(
        report["faults"].as_object().unwrap().len() > 3 && report["reached"]["a datum was given"].as_u64() > Some(20)
    );
    let folder = support::folder("soak");
    let scenario = folder.join("crash.faults");
    std::fs::write(&scenario, "at 100ms kill server-1 # gone\nat 1s restart server-1\n").unwrap();
    let name = scenario.to_str().unwrap();
    let text = succeeds(gridloom(&["soak", "--seeds", "3", "--scenario", name, "--json"]));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["faults"], json!({ "kill": 3, "restart": 3 }));
    std::fs::write(&scenario, "at 1s kil server-1\n").unwrap();
    let (code, error) = said(gridloom(&["soak", "--scenario", name]));
    assert_eq!(code, 1);
    assert!(error.starts_with(&format!("gridloom: {name}:1:7: unknown fault 'kil'; did you mean 'kill'?")), "{error}");
    std::fs::write(&scenario, "at 1s kill server-9\n").unwrap();
    let (_, error) = said(gridloom(&["soak", "--scenario", name]));
    assert!(
        error.starts_with(&format!("gridloom: {name}:1:12: no node is called 'server-9'; there are agent, ")),
        "{error}"
    );
    assert!(succeeds(gridloom(&["soak", "--invariants"])).contains("everything is given back\n"));
}

/// `GRIDLOOM_UPDATE_DOCS=1 cargo test -p gridloom-cli --test cli help` writes them anew.
#[test]
fn the_documentation_has_the_help_texts() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands");
    let pages = [
        ("agent", &[&["agent"][..]][..]),
        ("serve", &[&["serve"]]),
        ("functions", &[&["functions"]]),
        ("servers", &[&["servers"]]),
        ("models", &[&["models"]]),
        ("calibrate", &[&["calibrate"]]),
        ("call", &[&["call"]]),
        ("simulate", &[&["simulate"]]),
        ("soak", &[&["soak"]]),
        ("deploy", &[&["deploy"]]),
        ("sim", &[&["sim", "replay"]]),
        (
            "testbed",
            &[
                &["testbed", "run"],
                &["testbed", "up"],
                &["testbed", "enter"],
                &["testbed", "cut"],
                &["testbed", "restore"],
                &["testbed", "show"],
                &["testbed", "down"],
                &["testbed", "check"],
            ],
        ),
        ("platform", &[&["platform", "show"], &["platform", "route"]]),
        ("idl", &[&["idl", "check"], &["idl", "show"]]),
        ("heuristics", &[&["heuristics"]]),
        ("explain", &[&["explain"]]),
        ("map", &[&["map"]]),
    ];
    for (page, commands) in pages {
        let path = docs.join(format!("{page}.md"));
        let mut text = std::fs::read_to_string(&path).unwrap_or_else(|_| format!("# gridloom {page}\n"));
        for command in commands {
            let mut help = Command::new(env!("CARGO_BIN_EXE_gridloom"));
            let help = succeeds({
                help.args(*command).arg("--help").env_remove("GRIDLOOM_AGENT");
                help
            });
            assert!(help.contains("Example"), "{command:?} has no example");
            let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
            let prompt = format!("```text\n$ gridloom {} --help\n", command.join(" "));
            let block = format!("{prompt}{}\n```\n", lines.join("\n").trim_end());
            if std::env::var_os("GRIDLOOM_UPDATE_DOCS").is_some() {
                let start = text.find(&prompt).unwrap_or_else(|| {
                    text.push('\n');
                    text.len()
                });
                let end = text[start..].find("\n```\n").map_or(text.len(), |length| start + length + 5);
                text.replace_range(start..end, &block);
                std::fs::write(&path, &text).unwrap();
            }
            assert!(
                text.contains(&block),
                "{} is not what 'gridloom {} --help' says",
                path.display(),
                command.join(" ")
            );
        }
    }
}
