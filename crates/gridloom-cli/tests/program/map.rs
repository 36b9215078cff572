//! `gridloom map`: printed plans that are read again, and files with errors.

use crate::support::{file, gridloom, status_and_stderr, succeeds};
use gridloom_base::SplitMix64;
use serde_json::{Value, json};

/// A chain beside tasks that all read one large file; `first` and `null` take no time.
fn workflow() -> String {
    let task = |id: &str, work: f64, inputs: &[&str], outputs: &[&str]| json!({ "id": id, "work_seconds": work, "inputs": inputs, "outputs": outputs });
    let mut tasks = vec![
        task("second", 3.0, &["x"], &["y"]),
        task("first", 0.0, &["in"], &["x"]),
        task("third", 2.0, &["y", "in"], &["out"]),
        task("null", 0.0, &["y"], &[]),
    ];
    tasks.extend((0..12).map(|n| task(&format!("read{n}"), 4.0 + f64::from(n) / 7.0, &["large", "x"], &["made"][..0])));
    let files = json!({ "in": 1e6, "x": 2e5, "y": 5e6, "out": 3e6, "large": 8e7, "made": 0 });
    json!({ "tasks": tasks, "files": files }).to_string()
}

/// Three servers; 0 and 2 have no direct link.
fn platform() -> String {
    json!({ "speed": [1.0, 2.5, 2.0], "client_bytes_per_s": [1e7, 2e7, 3e7], "direct_bytes_per_s": { "0-1": 9e7, "1-2": 1e8 } })
        .to_string()
}

fn asked(workflow: &str, platform: &str, arguments: &[&str]) -> Value {
    let base = ["map", "--workflow", workflow, "--platform", platform, "--json"];
    serde_json::from_str(&succeeds(gridloom(&[&base[..], arguments].concat()))).unwrap()
}

#[test]
fn a_printed_plan_has_the_same_makespan_when_read() {
    let (w, p) = (file("map-w.json", &workflow()), file("map-p.json", &platform()));
    let listed: Value = serde_json::from_str(&succeeds(gridloom(&["heuristics", "--json"]))).unwrap();
    let names = listed["heuristics"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
    for name in names.filter(|name| *name != "exhaustive") {
        for model in ["m0", "m1", "m2"] {
            let spec = if name == "auto" { "auto[steps=1000000]" } else { name };
            let made = asked(&w, &p, &["--model", model, "--heuristic", spec]);
            let seconds = |value: &Value, key: &str| value[key].as_f64().unwrap_or_else(|| panic!("{name}: {value}"));
            let plan = file(&format!("map-{name}-{model}.json"), &made.to_string());
            let again = asked(&w, &p, &["--model", model, "--plan", &plan]);
            assert_eq!(again["makespan_seconds"], made["makespan_seconds"], "{name} {model}");
            assert_eq!(again["start_seconds"], made["start_seconds"], "{name} {model}");
            assert_eq!(again["sources"], made["sources"], "{name} {model}");
            assert_eq!(made.get("sources").is_some(), model == "m2");
            assert!(seconds(&made, "makespan_seconds") >= seconds(&made, "lower_bound_seconds"), "{name}: {made}");
            assert!(seconds(&made, "map_seconds") >= 0.0);
            assert_eq!(made["assignment"].as_object().unwrap().len(), 16);
        }
    }
}

/// Returns tasks in layers, a quarter of which take no time, and a platform in which some servers cannot communicate.
fn drawn(seed: u64) -> (String, String) {
    let mut random = SplitMix64::new(seed);
    let (count, servers) = (20 + random.below(30), 2 + random.below(6));
    let mut files = serde_json::Map::new();
    let mut tasks = Vec::new();
    for task in 0..count {
        let mut inputs: Vec<u64> = (0..random.below(4).min(task)).map(|_| random.below(task)).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let inputs: Vec<String> = inputs.iter().map(|from| format!("f{from}")).collect();
        let work = if random.below(4) == 0 { 0.0 } else { 0.5 + random.below(1000) as f64 / 100.0 };
        files.insert(format!("f{task}"), json!(random.below(300_000_000)));
        tasks.push(json!({ "id": format!("t{task}"), "work_seconds": work, "inputs": inputs, "outputs": [format!("f{task}")] }));
    }
    let mut some = |least: u64| (0..servers).map(|_| (least + random.below(9 * least)) as f64).collect::<Vec<_>>();
    let (speed, client) = (some(1), some(10_000_000));
    let mut direct = serde_json::Map::new();
    for (a, b) in (0..servers).flat_map(|a| (a + 1..servers).map(move |b| (a, b))) {
        if random.below(3) > 0 {
            direct.insert(format!("{a}-{b}"), json!(20_000_000 + random.below(500_000_000)));
        }
    }
    let platform = json!({ "speed": speed, "client_bytes_per_s": client, "direct_bytes_per_s": direct });
    (json!({ "tasks": tasks, "files": files }).to_string(), platform.to_string())
}

#[test]
fn auto_is_never_behind_and_sources_are_of_servers() {
    for seed in 0..40 {
        let (workflow, platform) = drawn(seed);
        let (w, p) = (file("map-drawn-w.json", &workflow), file("map-drawn-p.json", &platform));
        for model in ["m0", "m1", "m2"] {
            let made = |heuristic: &str| asked(&w, &p, &["--model", model, "--heuristic", heuristic]);
            let makespan_s = |made: &Value| made["makespan_seconds"].as_f64().unwrap();
            let auto = made("auto[steps=1000000]");
            for other in ["heft", "cpop", "min-min", "max-min"] {
                let other_s = makespan_s(&made(other));
                assert!(makespan_s(&auto) <= other_s * (1.0 + 1e-9), "seed {seed}, {model}: {other} takes {other_s} s");
            }
            let by_file = auto.get("sources").and_then(Value::as_object).into_iter().flatten();
            let to: Vec<&String> = by_file.flat_map(|(_, sources)| sources.as_object().unwrap().keys()).collect();
            assert!(to.iter().all(|server| *server != "-1"), "seed {seed}: {}", auto["sources"]);
        }
    }
}

#[test]
fn a_link_may_be_as_slow_as_in_textbooks() {
    let workflow = json!({
        "tasks": [
            { "id": "a", "work_seconds": 2, "inputs": [], "outputs": ["x"] },
            { "id": "b", "work_seconds": 3, "inputs": ["x"], "outputs": [] },
        ],
        "files": { "x": 18 },
    });
    let platform = json!({ "speed": [1, 1], "client_bytes_per_s": [1, 1], "direct_bytes_per_s": { "0-1": 1 } });
    let (w, p) = (file("map-slow-w.json", &workflow.to_string()), file("map-slow-p.json", &platform.to_string()));
    assert_eq!(asked(&w, &p, &["--model", "m0", "--heuristic", "heft"])["makespan_seconds"], 5.0);
    // A number of seconds too small to add to others.
    let platform = platform.to_string().replace("[1,1],\"direct", "[1e-300,1],\"direct");
    let (_, told) = status_and_stderr(gridloom(&[
        "map",
        "--workflow",
        &w,
        "--platform",
        &file("map-slow-p2.json", &platform),
        "--model",
        "m1",
    ]));
    assert!(told.contains("bytes/s") && told.contains("1e18"), "{told}");
}

#[test]
fn a_platform_may_be_named_and_plans_are_readable() {
    let (w, p) = (file("map-w2.json", &workflow()), file("map-p2.json", &platform()));
    let wrapped = file("map-p3.json", &format!("{{\"platform\": {}, \"lower_bounds\": {{}}}}", platform()));
    let arguments = ["--model", "m1", "--heuristic", "heft"];
    assert_eq!(asked(&w, &p, &arguments)["assignment"], asked(&w, &wrapped, &arguments)["assignment"]);
    let text = succeeds(gridloom(&[&["map", "--workflow", &w, "--platform", &p], &arguments[..]].concat()));
    assert!(text.starts_with("heft: 16 tasks on 3 servers, mapped in ") && text.contains("  third\n"), "{text}");
    assert!(text.contains("\nmakespan ") && text.contains(" times the bound\nserver   tasks    busy\n"), "{text}");
    let named = file("map-p6.json", &platform().replacen('{', "{\"platform\": \"lab\", ", 1));
    assert_eq!(asked(&w, &p, &arguments)["assignment"], asked(&w, &named, &arguments)["assignment"]);
}

#[test]
fn tasks_of_a_large_workflow_are_listed_when_requested() {
    let task = |n: usize| json!({ "id": format!("t{n}"), "work_seconds": 1.0, "inputs": [], "outputs": [] });
    let many = json!({ "tasks": (0..100).map(task).collect::<Vec<_>>(), "files": {} }).to_string();
    let (w, p) = (file("map-w7.json", &many), file("map-p7.json", &platform()));
    let base = ["map", "--workflow", &w, "--platform", &p, "--heuristic", "heft"];
    let short = succeeds(gridloom(&base));
    assert!(
        short.ends_with("--tasks lists all tasks, --json prints the plan\n") && short.lines().count() < 10,
        "{short}"
    );
    assert!(succeeds(gridloom(&[&base[..], &["--tasks"]].concat())).contains("  t99\n"));
    let svg = file("map-7.svg", "");
    assert!(succeeds(gridloom(&[&base[..], &["--svg", &svg]].concat())).ends_with(&format!("wrote {svg}\n")));
    let (code, error) = status_and_stderr(gridloom(&[&base[..], &["--svg", "plan.png"]].concat()));
    assert!(code == 2 && error.contains("drawings are SVG, not png: name the file plan.svg"), "{error}");
}

#[test]
fn the_plan_is_drawn_with_its_copies() {
    let (w, p) = (file("map-w5.json", &workflow()), file("map-p5.json", &platform()));
    let svg = file("map.svg", "");
    let drawn = |model: &str| {
        let made = asked(&w, &p, &["--model", model, "--heuristic", "heft", "--svg", &svg]);
        (made, std::fs::read_to_string(&svg).unwrap().replace('\n', ""))
    };
    let (made, text) = drawn("m2");
    assert!(text.starts_with("<svg ") && text.contains("16 tasks by heft, model m2: "), "{text}");
    for (id, server) in made["assignment"].as_object().unwrap() {
        let start_s = made["start_seconds"][id].as_f64().unwrap();
        let kind = id.trim_end_matches(|c: char| c.is_ascii_digit());
        let bar = format!("'{id}', {kind} on server {server}: {start_s:.4} s to ");
        assert!(text.contains(&bar), "no '{bar}' in {text}");
    }
    let copied = |file: &str, from: &Value, to: &str| {
        let from = if *from == json!(-1) { "client".into() } else { format!("server {from}") };
        let to = if to == "-1" { "client".into() } else { format!("server {to}") };
        let bar = format!("<title>datum {file} {from} to {to}: ");
        assert!(text.contains(&bar), "no '{bar}' in {text}");
        assert!(text.contains(&format!(">{from} \u{2192} {to}<title>")), "no row for {from} to {to}: {text}");
    };
    let sources = made["sources"].as_object().unwrap();
    assert!(sources.contains_key("large"), "{made}");
    for (file, places) in sources {
        places.as_object().unwrap().iter().for_each(|(to, from)| copied(file, from, to));
    }
    let (_, text) = drawn("m0");
    assert!(text.contains("model m0") && text.contains("'third', third on server ") && !text.contains("<title>datum "));
}

#[test]
fn errors_in_a_file_are_reported() {
    let (w, p) = (workflow(), platform());
    let plan = asked(&file("map-w4.json", &w), &file("map-p4.json", &p), &["--model", "m1", "--heuristic", "heft"]);
    let refused = |w: &str, p: &str, plan: &str, model: &str| {
        let (w, p, plan) = (file("bad-w.json", w), file("bad-p.json", p), file("bad-plan.json", plan));
        let arguments = ["map", "--workflow", &w, "--platform", &p, "--model", model, "--plan", &plan];
        let (code, error) = status_and_stderr(gridloom(&arguments));
        assert_eq!(code, 1, "{error}");
        error
    };
    let says = |error: String, parts: &[&str]| {
        parts.iter().for_each(|part| assert!(error.contains(part), "'{part}' is not in: {error}"))
    };
    let good = plan.to_string();
    let changed = |at: &str, value: Value| {
        let mut plan = plan.clone();
        *plan.pointer_mut(at).unwrap() = value;
        plan.to_string()
    };
    says(refused(&w[..w.len() - 9], &p, &good, "m1"), &["bad-w.json: line 1, column ", "the file ends in the middle"]);
    says(refused(&w, "{\"speed\": [NaN]", &good, "m1"), &["bad-p.json: line 1, column 12: invalid JSON"]);
    says(refused(&w, &p.replace("[1.0", "[0.0"), &good, "m1"), &["'speed' of server 0 is 0"]);
    says(refused(&w, &p.replace("[1.0", "[-1.0"), &good, "m1"), &["'speed' of server 0 is -1"]);
    says(refused(&w, &p.replace("[10000000.0", "[0.0"), &good, "m1"), &["'client_bytes_per_s' of server 0 is 0"]);
    says(refused(&w.replace(":1000000.0", ":-1"), &p, &good, "m1"), &["file 'in' has -1 bytes"]);
    says(refused(&w.replace("[\"in\"]", "[\"y\"]"), &p, &good, "m1"), &["depend on one another in a cycle"]);
    says(refused(&w, &p, &good[..20], "m1"), &["bad-plan.json: line 1, column 20: "]);
    says(
        refused(&w, &p, &w, "m1"),
        &["'assignment' is missing", "it is a workflow, expected a plan of a workflow, as"],
    );
    says(
        refused(&w, &p, r#"{"format": "gridloom plan 1"}"#, "m1"),
        &["its format is 'gridloom plan 1', expected a plan of"],
    );
    says(
        refused(&w, &p, &good.replacen('{', "{\"plain\": false, \"plain\": true, ", 1), "m1"),
        &["'plain' appears twice"],
    );
    says(
        refused(&w.replace("200000.0", "200000.5"), &p, &good, "m1"),
        &["file 'x' has 200000.5 bytes", "whole number"],
    );
    says(
        refused(&w, &p, &changed("/assignment/first", json!(7)), "m1"),
        &["task 'first': there is no server 7", "0 to 2"],
    );
    says(
        refused(&w, &p, &changed("/assignment", json!({ "zeroth": 0 })), "m1"),
        &["has task 'zeroth', which is not in the workflow"],
    );
    says(refused(&w, &p, &changed("/assignment", json!({ "first": 0 })), "m1"), &["'assignment' lacks task"]);
    says(
        refused(&w, &p, &changed("/start_seconds/third", json!(0.0)), "m1"),
        &["task 'third' starts at 0 s", "is there at"],
    );
    says(refused(&w, &p, &changed("/start_seconds/third", json!(-1.0)), "m1"), &["task 'third' starts at -1 s"]);
    says(
        refused(&w, &p, &changed("/start_seconds/first", json!(1e9)), "m2"),
        &["is before task 'first', whose result it reads"],
    );
    let mut circle = plan.clone();
    circle["sources"] = json!({ "large": { "0": 1, "1": 0 } });
    circle["assignment"]["read0"] = json!(0);
    circle["assignment"]["read1"] = json!(1);
    says(refused(&w, &p, &circle.to_string(), "m2"), &["file 'large' never reaches server"]);
    circle["sources"] = json!({ "small": { "0": 1 } });
    says(refused(&w, &p, &circle.to_string(), "m2"), &["'sources' of file 'small': the workflow has no such file"]);
    let (w, p) = (file("map-w5.json", &w), file("map-p5.json", &p));
    let (code, error) = status_and_stderr(gridloom(&["map", "--workflow", &w, "--platform", &p, "--model", "m3"]));
    assert_eq!(code, 2);
    assert!(error.contains("'m3' is not a model; known: m0, m1, m2"), "{error}");
    let (code, error) =
        status_and_stderr(gridloom(&["map", "--workflow", &w, "--platform", &p, "--heuristic", "best"]));
    assert_eq!(code, 1);
    assert!(error.contains("unknown heuristic 'best'; known: "), "{error}");
}
