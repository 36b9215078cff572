//! The command: seeds, scenarios, and the errors about them.

use std::process::{Command, Output};

use serde_json::{Value, json};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gridloom-soak")).args(arguments).output().unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn error(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn it_runs_seeds_and_takes_a_scenario() {
    let report: Value = serde_json::from_str(&printed(&["--seeds", "20", "--json"])).unwrap();
    assert_eq!((&report["seeds"], &report["failure"]), (&json!(20), &json!(null)));
    assert!(
        report["faults"].as_object().unwrap().len() > 3 && report["reached"]["a datum was given"].as_u64() > Some(20)
    );
    let scenario = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("crash.faults");
    std::fs::write(&scenario, "at 100ms kill server-1 # gone\nat 1s restart server-1\n").unwrap();
    let name = scenario.to_str().unwrap();
    let report: Value = serde_json::from_str(&printed(&["--seeds", "3", "--scenario", name, "--json"])).unwrap();
    assert_eq!(report["faults"], json!({ "kill": 3, "restart": 3 }));
    std::fs::write(&scenario, "at 1s kil server-1\n").unwrap();
    let text = error(&["--scenario", name]);
    assert!(
        text.starts_with(&format!("gridloom-soak: {name}:1:7: unknown fault 'kil'; did you mean 'kill'?")),
        "{text}"
    );
    std::fs::write(&scenario, "at 1s kill server-9\n").unwrap();
    let text = error(&["--scenario", name]);
    let expected = format!("gridloom-soak: {name}:1:12: no node is called 'server-9'; there are agent, ");
    assert!(text.starts_with(&expected), "{text}");
    assert!(printed(&["--invariants"]).contains("everything is given back\n"));
}
