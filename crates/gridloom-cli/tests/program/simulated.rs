//! Platforms and simulations: their output, and errors in them.

use crate::support::{self, file, gridloom, library, status_and_stderr, succeeds, write_executable};
use serde_json::json;

#[test]
fn a_platform_that_is_no_grid_is_reported_immediately() {
    let hosts = |role: &str| {
        format!(
            "[[host]]\nname = \"a\"\nspeed = \"1Gf\"\n[[host]]\nname = \"b\"\nspeed = \"1Gf\"\nproperties = {{ role = \"{role}\" }}\n"
        )
    };
    let wrong = file("role.toml", &hosts("sever"));
    let (code, error) = status_and_stderr(gridloom(&["platform", "show", &wrong]));
    assert_eq!(code, 1);
    assert!(error.contains(":4:1: host 'b' has the role 'sever'; expected agent, server, client or none"), "{error}");
    let apart = file("apart.toml", &hosts("server"));
    support::succeeds(gridloom(&["platform", "show", &apart]));
    let (code, error) = status_and_stderr(gridloom(&["simulate", "-p", &apart, "--", "true"]));
    assert_eq!(code, 1);
    assert!(error.contains("no route from 'b' to 'a', which a grid needs"), "{error}");
}

#[test]
fn what_cannot_be_written_is_reported_before_the_simulation() {
    let platform = file(
        "written.toml",
        "[[host]]\nname = \"a\"\nspeed = \"1Gf\"\n[[host]]\nname = \"b\"\nspeed = \"1Gf\"\n[[star]]\nname = \"lan\"\n\
         hosts = [\"a\", \"b\"]\nbandwidth = \"1GBps\"\nlatency = \"50us\"\n",
    );
    for option in ["--timeline", "--report"] {
        let (code, error) =
            status_and_stderr(gridloom(&["simulate", "-p", &platform, option, "/no/folder/file", "--", "true"]));
        assert_eq!(code, 1);
        assert!(error.contains("cannot write /no/folder/file: No such file"), "{error}");
    }
}

/// Returns the node of a graph in DOT whose label begins with that line.
fn node_of<'a>(dot: &'a str, name: &str) -> &'a str {
    let line = |line: &&str| {
        [format!("[label=\"{name}\\n"), format!("[label=\"{name}\"")].iter().any(|label| line.contains(label))
    };
    dot.lines().find(line).unwrap_or_else(|| panic!("no {name} in {dot}")).trim_start().split(' ').next().unwrap()
}

#[test]
fn a_gateway_is_between_the_sites_that_it_joins() {
    let host = |name: &str| format!("[[host]]\nname = \"{name}\"\nspeed = 1\n");
    let link = |name: &str| format!("[[link]]\nname = \"{name}\"\nbandwidth = 1\nlatency = 0\n");
    let route =
        |from: &str, to: &str, links: &str| format!("[[route]]\nfrom = \"{from}\"\nto = \"{to}\"\nlinks = {links}\n");
    let text = [
        host("here"),
        host("there"),
        "[[router]]\nname = \"gateway\"\n".to_string(),
        link("campus"),
        link("wan"),
        route("here", "gateway", "[\"campus\"]"),
        route("gateway", "there", "[\"wan\"]"),
        route("here", "there", "[\"campus\", \"wan\"]"),
    ];
    let dot = succeeds(gridloom(&["platform", "show", &file("gateway.toml", &text.concat()), "--dot"]));
    let row = ["here", "campus", "gateway", "wan", "there"].map(|name| node_of(&dot, name));
    assert_eq!(dot.matches(" -- ").count(), 4, "{dot}");
    for pair in row.windows(2) {
        let edges = [format!("{} -- {}\n", pair[0], pair[1]), format!("{} -- {}\n", pair[1], pair[0])];
        assert!(edges.iter().any(|edge| dot.contains(edge)), "{pair:?} in {dot}");
    }
}

#[test]
fn a_platform_is_a_graph() {
    let platform = format!("{}/../../examples/two-sites.toml", env!("CARGO_MANIFEST_DIR"));
    let dot = succeeds(gridloom(&["platform", "show", &platform, "--dot"]));
    for part in [
        "label=\"two-sites.toml\\n4 hosts, 5 links\"",
        "label=\"there\\nstar · 2 hosts\"",
        "label=\"laptop\\n2 Gflop/s\\nclient,agent\"",
        "label=\"wan\\n6.25 MB/s · 20 ms\"",
    ] {
        assert!(dot.contains(part), "no {part} in {dot}");
    }
    assert_eq!((dot.matches("subgraph").count(), dot.matches('{').count()), (2, dot.matches('}').count()));
    assert_eq!(dot.matches(" -- ").count(), 4 * 2 + 2, "members and hubs, hubs and wan: {dot}");

    let large = file(
        "large.toml",
        "[[host]]\nname = \"a<b\"\nspeed = 1\n[[cluster]]\nname = \"c\"\nhosts = \"n-[0-999]\"\nspeed = \"1Gf\"\n\
         bandwidth = \"1Gbps\"\nlatency = \"50us\"\nbackbone = { bandwidth = \"10Gbps\", latency = 0 }\n\
         [[link]]\nname = \"up\"\nbandwidth = 1\nlatency = 0\n[[route]]\nfrom = \"a<b\"\nto = \"c\"\nlinks = [\"up\"]\n",
    );
    let dot = succeeds(gridloom(&["platform", "show", &large, "--dot"]));
    let cluster = "label=\"c\\nstar · 1,000 hosts\\nn-0 … n-999\\n1 Gflop/s each\\n";
    for part in [cluster, "1,000 links: 125 MB/s · 50 µs each", "link c_backbone: 1.25 GB/s · 0 s", "label=\"a<b\\n"]
    {
        assert!(dot.contains(part), "no {part} in {dot}");
    }
    assert_eq!(dot.matches(" [label=").count(), 1 + 3, "a large cluster is one node: {dot}");
    let dragonfly = file(
        "dragonfly.xml",
        "<?xml version='1.0'?>\n<platform version=\"4.1\"><cluster id=\"d\" topology=\"DRAGONFLY\" \
         topo_parameters=\"3,4;4,3;5,1;2\" prefix=\"n-\" radical=\"0-119\" suffix=\"\" speed=\"1Gf\" bw=\"1GBps\" \
         lat=\"1us\"/></platform>\n",
    );
    let dot = succeeds(gridloom(&["platform", "show", &dragonfly, "--dot"]));
    let kinds = "green links (blades): 1 GB/s · 1 µs\\nblack links (chassis): 3 GB/s · 1 µs\\nblue links (groups): 4 GB/s · 1 µs";
    assert!(dot.contains(kinds), "{dot}");

    let listed = succeeds(gridloom(&["platform", "show", &large]));
    assert!(listed.lines().count() < 12 && listed.contains("each of 1,000 hosts"), "{listed}");
    let all = succeeds(gridloom(&["platform", "show", &large, "--all"]));
    assert_eq!(all.lines().filter(|line| line.starts_with("host ")).count(), 1001);
    assert_eq!(all.lines().filter(|line| line.starts_with("route ")).count(), 1001);
}

#[test]
fn graphviz_draws_a_platform() {
    let platform = format!("{}/../../examples/two-sites.toml", env!("CARGO_MANIFEST_DIR"));
    let folder = support::folder("graphviz");
    // The folder may have the stand-in of an earlier run.
    let _ = std::fs::remove_file(folder.join("dot"));
    let svg = folder.join("a.svg");
    let draw = |svg: &str| {
        let mut command = gridloom(&["platform", "show", &platform, "--svg", svg]);
        command.env("PATH", &folder);
        command
    };
    let (code, error) = status_and_stderr(draw(svg.to_str().unwrap()));
    assert!(code == 1 && error.contains("needs Graphviz") && error.contains("apt install graphviz"), "{error}");
    assert!(error.contains(&format!("gridloom platform show {platform} --dot | dot -Tsvg > ")), "{error}");

    // Stands in for Graphviz, which need not be installed.
    let dot = |script: &str| write_executable(&folder.join("dot"), &format!("#!/bin/sh\n{script}\n"));
    dot("echo $1; while read -r line; do echo \"$line\"; done");
    assert_eq!(succeeds(draw(svg.to_str().unwrap())), format!("wrote {}\n", svg.display()));
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("-Tsvg\ngraph {\n") && drawn.ends_with("}\n"), "{drawn}");
    let (code, error) = status_and_stderr(draw("/no/folder/a.svg"));
    assert_eq!(code, 1);
    assert!(error.contains("cannot write '/no/folder/a.svg': No such file"), "{error}");
    dot("echo 'syntax error' >&2; exit 2");
    let (code, error) = status_and_stderr(draw(svg.to_str().unwrap()));
    assert!(code == 1 && error.contains("dot -Tsvg failed (exit status: 2): syntax error"), "{error}");
}

#[test]
fn a_deployment_that_does_not_fit_the_program_is_reported() {
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
    let (code, error) = ran(mars);
    let told = "gridloom: fits.toml:2:8: the platform has no host 'mars'; it has: laptop, desk, ";
    assert!(code == Some(1) && error.starts_with(told), "{error}");
    // A program may name one of its own processes 'server'; this program has none.
    let (code, error) = ran("[[process]]\nhost = 'desk'\nfunction = 'server'\n");
    assert_eq!(code, Some(0));
    assert_eq!(
        error,
        "gridloom: the program used no grid and ran no processes of the deployment; nothing was simulated\n"
    );
    let (code, error) = status_and_stderr(gridloom(&["testbed", "run", "-p", "nowhere.toml", "--", "true"]));
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
    let (code, error) = status_and_stderr(gridloom(&["platform", "route", &platform, "a", "x"]));
    assert_eq!((code, error.as_str()), (1, "gridloom: the platform has no host 'x'\n"));
    let listed = succeeds(gridloom(&["platform", "show", &platform]));
    assert!(listed.contains("2 Gflop/s  4 cores") && listed.contains("over ab"), "{listed}");
    assert_eq!(shown["routes"][0]["links"], json!(["ab"]));
}

#[test]
fn a_simulation_that_is_asked_to_end_ends_its_program() {
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
    // A function without stated work.
    let mut command = gridloom(&["simulate", "-p", &platform, "--functions", &idl, "--"]);
    let output = command.args([program, "call", "cli/plus", "2", "1"]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("the work of 'cli/plus' is not declared: in simulation each call takes 1e6"), "{told}");
    assert!(told.contains("declare it with CalcOrder") && told.matches("not declared").count() == 1, "{told}");
    let said_report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert!(said_report["seconds"].as_f64().unwrap() > 0.001);
    assert!(said_report["bytes_by_link"]["wire"].as_f64().unwrap() >= 16.0, "{printed}");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&std::fs::read_to_string(&report).unwrap()).unwrap(),
        said_report
    );
    // The same run again, to the last event.
    assert_eq!(String::from_utf8(simulate(&execute).output().unwrap().stdout).unwrap(), printed);

    // Linear algebra is offered if it is available, and it must be available if it is requested by name.
    let functions = |arguments: &[&str]| {
        let mut command = gridloom(&["simulate", "-p", &platform, "--execute", "--library", library()]);
        command.args(["--functions", &idl]).args(arguments).args(["--", program, "functions"]).output().unwrap()
    };
    let has_library = String::from_utf8(functions(&[]).stdout).unwrap().contains("linalg/dgemm");
    let output = functions(&["--functions", "builtin:linalg"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.success(), has_library, "{error}");
    assert_eq!(error.contains("no library found for builtin:linalg: there is no "), !has_library, "{error}");

    // A file that cannot be written is an error, whatever the program's exit status.
    for (option, what) in [("--report", "/dev/full"), ("--timeline", "/dev/full")] {
        let output = simulate(&["--execute", "--library", library(), option, what]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{option}: {error}");
        assert!(error.contains("cannot write /dev/full"), "{option}: {error}");
    }

    // The exit status is the program's; the report is of this run, not of the previous one.
    let mut command = gridloom(&["simulate", "-p", &platform, "--report", report.to_str().unwrap(), "--", "sh", "-c"]);
    assert_eq!(command.arg("exit 7").status().unwrap().code(), Some(7));
    assert!(!report.exists());
    let (code, error) = status_and_stderr(gridloom(&["simulate", "-p", &platform, "--network", "lv09", "--", "true"]));
    assert_eq!((code, error.as_str()), (1, "gridloom: no network model 'lv09'; there are warm-tcp, cm02, lv08\n"));
    let wrong = file("wrong.toml", "[[host]]\nname = \"a\"\nsped = 1\n");
    let (code, error) = status_and_stderr(gridloom(&["simulate", "-p", &wrong, "--", "true"]));
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
    let (code, error) = status_and_stderr(gridloom(&["sim", "replay", &wrong, "--json"]));
    assert_eq!(code, 1);
    let told: serde_json::Value = serde_json::from_str(&error).unwrap();
    let told = told["error"].as_str().unwrap();
    assert!(told.starts_with(&format!("{wrong}: activities[1] 'work'.host: unknown host 'c'")), "{told}");
}

#[test]
fn a_platform_may_have_any_file_name() {
    use std::os::unix::ffi::OsStrExt;
    let good = file(
        "named.toml",
        "[[host]]\nname = \"a\"\nspeed = 1\n[[host]]\nname = \"b\"\nspeed = 1\n[[star]]\nname = \"s\"\nbandwidth = 1\nlatency = 0\n",
    );
    let odd = support::folder("named").join(std::ffi::OsStr::from_bytes(b"pl\xff.toml"));
    std::fs::copy(good, &odd).unwrap();
    let mut command = gridloom(&["simulate", "-p"]);
    let (code, error) = status_and_stderr(command.arg(&odd).args(["--", "true"]));
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("the program used no grid"), "{error}");
}

/// A command that was killed cannot remove its folder.
#[test]
fn a_left_over_folder_does_no_harm() {
    let platform = file(
        "left.toml",
        "[[host]]\nname = \"a\"\nspeed = 1\n[[host]]\nname = \"b\"\nspeed = 1\n[[star]]\nname = \"s\"\nbandwidth = 1\nlatency = 0\n",
    );
    let folder = support::folder("left").join(std::process::id().to_string());
    std::fs::create_dir(&folder).unwrap();
    let mut shell = std::process::Command::new("sh");
    shell.env("TMPDIR", &folder).args(["-c", "mkdir \"$TMPDIR/gridloom-simulate-$$\"; exec \"$@\"", "sh"]);
    let shell = shell.args([env!("CARGO_BIN_EXE_gridloom"), "simulate", "-p", &platform, "--", "true"]);
    assert_eq!(status_and_stderr(shell).0, 0);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "its own is taken away");
    std::fs::remove_dir_all(&folder).unwrap();
}
