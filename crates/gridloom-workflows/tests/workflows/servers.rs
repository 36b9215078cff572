//! Files of recorded platforms.

use gridloom_map::Spec;
use gridloom_workflows::*;

#[test]
fn errors_are_named() {
    let cases = [
        ("{", "servers.json: line 1, column 1: the file ends in the middle of its JSON; expected a platform: {"),
        (r#"{"speed": [1], "client_bytes_per_s": [1], "speed": [2]}"#, "'speed' appears twice in one object"),
        (r#"{"platform": "desk"}"#, "expected an object, found the string \"desk\""),
        (r#"{"speed": [], "client_bytes_per_s": []}"#, "it has no servers"),
        (r#"{"speed": [1], "client_bytes_per_s": []}"#, "'speed' has 1 servers and 'client_bytes_per_s' 0"),
        (r#"{"speed": [1, 0], "client_bytes_per_s": [1, 1]}"#, "'speed' of server 1 is 0"),
        (
            r#"{"speed": [1, 1], "client_bytes_per_s": [1, 1], "direct_bytes_per_s": {"0-2": 1}}"#,
            "'0-2' is not a pair of servers 'A-B' from 0 to 1",
        ),
        (
            r#"{"speed": [1, 1], "client_bytes_per_s": [1, 1], "direct_bytes_per_s": {"0-1": -1}}"#,
            "the link '0-1' has -1 bytes/s",
        ),
        (
            r#"{"speed": [1, 1], "client_bytes_per_s": [1, 1], "direct_bytes_per_s": {"0-1": 1e7, "1-0": 1e6}}"#,
            "the link '1-0' has 1000000 bytes/s, and '0-1' 10000000: links are the same in both directions",
        ),
        (
            r#"{"speed": [1, 1], "client_bytes_per_s": [1, 1], "program_start_seconds": [0.01]}"#,
            "'speed' has 2 servers and 'program_start_seconds' 1",
        ),
        (
            r#"{"speed": [1, 1], "client_bytes_per_s": [1, 1], "program_start_seconds": [0, -1]}"#,
            "'program_start_seconds' of server 1 is -1; it must be 0 or above",
        ),
    ];
    for (text, expected) in cases {
        let said = Servers::parse(text, "servers.json").unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
    // A table of the links of all pairs would need terabytes.
    let many = format!(r#"{{"speed": [1{}], "client_bytes_per_s": []}}"#, ", 1".repeat(999_999));
    let said = Servers::parse(&many, "servers.json").unwrap_err().to_string();
    assert!(said.contains("'speed' has 1000000 servers, and the limit is 4096"), "{said}");
}

#[test]
fn links_are_alike_in_both_directions() {
    let text = r#"{"k": 0, "speed": [1, 2], "client_bytes_per_s": [10, 30], "direct_bytes_per_s": {"0-1": 5}}"#;
    let servers = Servers::parse(text, "servers.json").unwrap();
    assert_eq!((servers.direct(0, 1), servers.direct(1, 0), servers.direct(0, 0)), (Some(5.0), Some(5.0), None));
    assert_eq!(servers.relayed(0, 1), 7.5);
    let twice = text.replace("\"0-1\": 5", "\"0-1\": 5, \"1-0\": 5");
    assert_eq!(Servers::parse(&twice, "servers.json").unwrap().direct(0, 1), Some(5.0));
    // A platform with a name.
    let named = text.replace("\"k\": 0", "\"platform\": \"desk\"");
    assert_eq!(Servers::parse(&named, "servers.json").unwrap().len(), 2);
}

/// Ten short tasks without files on two servers: each takes its work plus the start of its program.
#[test]
fn the_start_of_a_program_is_part_of_each_task() {
    let tasks: Vec<String> = (0..10)
        .map(|task| format!(r#"{{"id": "t{task}", "work_seconds": 0.03, "inputs": [], "outputs": []}}"#))
        .collect();
    let workflow = Workflow::parse(&format!(r#"{{"tasks": [{}], "files": {{}}}}"#, tasks.join(", ")), "w").unwrap();
    let case = |starts: &str, model: Model| {
        let servers = format!(r#"{{"speed": [1, 3], "client_bytes_per_s": [1, 1]{starts}}}"#);
        let servers = Servers::parse(&servers, "s").unwrap();
        let case = Case { workflow: &workflow, servers: &servers, model };
        let plan = case.map(&Spec::parse("auto").unwrap()).unwrap();
        (case.evaluate(plan).unwrap().makespan_s, case.lower_bound_s())
    };
    for model in [Model::M0, Model::M1, Model::M2] {
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected} {model:?}");
        // Two on the slow server, eight on the fast one; or three and seven.
        near(case("", model).0, 0.08);
        // 0.05 s on the slow server, and 0.02 s plus a start of 0.01 s on the fast one: three and seven tasks.
        let (makespan_s, bound_s) = case(r#", "program_start_seconds": [0.02, 0.01]"#, model);
        near(makespan_s, 0.15);
        assert!(bound_s <= makespan_s && bound_s > case("", model).1, "{bound_s}");
    }
}
