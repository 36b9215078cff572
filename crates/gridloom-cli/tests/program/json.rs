//! `--json` output of commands that need no grid, and of errors.

use serde_json::{Value, json};

use crate::support::{file, folder, gridloom, status_and_stderr, succeeds};

const IDL: &str = "Module m;\nDefine twice(IN int n, OUT int *r) \"r := 2 n\" { *r = 2 * n; }\n\
                   DefClass counter \"counts\" {\n  DefState { int total; }\n  DefMethod _initialize() { total = 0; }\n  \
                   DefMethod add(IN int n, OUT int *r) { total += n; *r = total; }\n}\n";

fn parsed(arguments: &[&str]) -> Value {
    let text = succeeds(gridloom(arguments));
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn descriptions_are_checked_shown_and_compiled() {
    let (right, wrong) = (file("json.idl", IDL), file("json-wrong.idl", "Module m;\nDefine f(IN in a)\n"));
    let counts = json!({ "file": right, "functions": 1, "compiled": 1, "classes": 1 });
    assert_eq!(parsed(&["idl", "check", "--json", &right]), json!({ "files": [counts] }));
    let output = gridloom(&["idl", "check", "--json", &wrong, &right]).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(1), 0));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = &told["files"][0]["error"];
    assert_eq!((&told["files"][1], &told["files"][0]["file"], &error["line"]), (&counts, &json!(wrong), &json!(2)));
    assert!(error["column"].is_u64() && !error["why"].as_str().unwrap().is_empty(), "{error}");

    let shown = parsed(&["idl", "show", &right, "--json"]);
    let function = json!({
        "name": "m/twice", "signature": "m/twice(n: int32) -> r: int32", "about": "r := 2 n",
        "c": "grpc_call(&handle, int n, int *r /* out */)",
    });
    assert_eq!(shown["functions"], json!([function]));
    let class = &shown["classes"][0];
    assert_eq!((&class["name"], &class["about"]), (&json!("m/counter"), &json!("counts")));
    let methods: Vec<&Value> = class["methods"].as_array().unwrap().iter().map(|method| &method["name"]).collect();
    assert_eq!(methods, ["m/counter.add"]);

    let library = folder("json").join("m.so").display().to_string();
    let made = parsed(&["idl", "compile", &right, "-o", &library, "--json"]);
    assert_eq!(made["libraries"].as_array().unwrap().len(), 2);
    assert!(made["warnings"].is_string(), "{made}");
    let (code, error) = status_and_stderr(gridloom(&["idl", "show", &wrong, "--json"]));
    let told: Value = serde_json::from_str(&error).unwrap();
    assert!(code == 1 && told["error"].as_str().unwrap().starts_with(&format!("{wrong}:2:")), "{error}");
}

#[test]
fn with_json_the_error_is_json_too() {
    for (arguments, status, what) in [
        (["explain", "/nowhere", "--json"], 1, "/nowhere"),
        (["functions", "--json", "--jsn"], 2, "unexpected argument '--jsn'"),
    ] {
        let (code, error) = status_and_stderr(gridloom(&arguments));
        let told: Value = serde_json::from_str(&error).unwrap_or_else(|_| panic!("{error}"));
        assert!(code == status && told["error"].as_str().unwrap().contains(what), "{code}: {error}");
    }
    let (_, error) = status_and_stderr(gridloom(&["simulate", "-p", "/nowhere", "--", "true", "--json"]));
    assert!(error.starts_with("gridloom: "), "the program's option: {error}");
}
