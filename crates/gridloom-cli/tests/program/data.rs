//! Any client of the grid can list and delete shared data.

use serde_json::{Value, json};

use crate::support::{Grid, Running, file, folder, gridloom, status_and_stderr, succeeds};

/// `put` puts this many bytes under a name, `many` puts some bytes under this many names.
const IDL: &str = r#"Module data;
Define put(IN string name, IN int size, OUT int *code)
{
    char *bytes = calloc(size, 1);
    *code = grpc_shared_put_np(name, bytes, size, 1);
    free(bytes);
}
Define many(IN int names, OUT int *code)
{
    *code = 0;
    for (int i = 0; i < names && *code == 0; i++) {
        char name[32];
        snprintf(name, sizeof name, "many/%06d", i);
        *code = grpc_shared_put_np(name, name, 3, 0);
    }
}
"#;

fn serve(grid: &Grid, name: &str) -> Running {
    let idl = file("data.idl", IDL);
    let mut command = grid.serve_command(name, &[&idl], &["--slots", "1"]);
    command.env("GRIDLOOM_CACHE", folder("data-cache"));
    Running::start(command)
}

fn call(grid: &Grid, arguments: &[&str]) {
    let told = succeeds(grid.command(&[&["call"], arguments].concat()));
    assert_eq!(told, "code = 0\n", "{arguments:?}");
}

fn put(grid: &Grid, name: &str, size: &str) {
    call(grid, &["data/put", name, size]);
}

#[test]
fn names_are_listed_and_deleted() {
    let grid = Grid::start();
    let _one = serve(&grid, "one");
    assert_eq!(succeeds(grid.command(&["data"])), "no shared data\n");
    assert_eq!(grid.json(&["data"]), json!({ "names": [] }));
    for (name, size) in [("run/1", "2000000"), ("run/2", "7"), ("mesh", "5"), ("mesh", "6")] {
        put(&grid, name, size);
    }
    let page = succeeds(grid.command(&["data"]));
    let lines: Vec<&str> = page.lines().collect();
    assert!(lines[0].starts_with("name ") && lines[0].ends_with("keep  durable  owner         servers"), "{page}");
    let of_mesh: Vec<&str> = lines[1].split_whitespace().collect();
    let keys: Value = serde_json::from_str(&succeeds(gridloom(&["keys", "list", "--json"]))).unwrap();
    let own = keys["grids"][0]["certificate"]["name"].as_str().unwrap();
    assert_eq!(of_mesh, ["mesh", "2", "6", "B", "6", "bytes", "1", "no", own, "one"], "{page}");
    assert_eq!((lines.len(), lines[4]), (5, "3 names, 2 MB"), "{page}");

    let told = grid.json(&["data", "run/"]);
    let names: Vec<&Value> = told["names"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["run/1", "run/2"]);
    let first = json!({
        "name": "run/1", "version": 1, "kind": "2000000 bytes", "size_bytes": 2_000_000, "replicas": 1, "durable": false, "method": "auto", "servers": ["one"],
        "owner": own, "readers": [],
    });
    assert_eq!(told["names"][0], first);
    let none = succeeds(grid.command(&["data", "x"]));
    assert_eq!(none, "no shared data with a name that begins with 'x'\n");
    let none = succeeds(grid.command(&["data", "mehs"]));
    assert_eq!(none, "no shared data with a name that begins with 'mehs'; did you mean 'mesh'?\n");

    assert_eq!(succeeds(grid.command(&["data", "delete", "run/1"])), "'run/1' deleted\n");
    let output = grid.command(&["data", "delete", "run/2", "run/9", "mehs", "--json"]).output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!output.status.success() && told["deleted"] == json!(["run/2"]), "{told}");
    let errors: Vec<&str> =
        told["not_deleted"].as_array().unwrap().iter().map(|one| one["error"].as_str().unwrap()).collect();
    assert_eq!(errors, ["no shared data are named 'run/9'", "no shared data are named 'mehs'; did you mean 'mesh'?"]);
    let (code, error) = status_and_stderr(grid.command(&["data", "delete", "run/1"]));
    assert_eq!((code, error.as_str()), (1, "gridloom: no shared data are named 'run/1'\n"));
    assert_eq!(grid.json(&["data"])["names"].as_array().unwrap().len(), 1);
}

#[test]
fn a_name_is_explained() {
    let grid = Grid::start();
    let _one = serve(&grid, "one");
    put(&grid, "mesh", "1000000");
    put(&grid, "mesh", "2000000");
    let page = succeeds(grid.command(&["data", "explain", "mesh"]));
    assert_eq!(page, "mesh\nversion 2, current: 2000000 bytes, 2 MB\n  kept by one\n");
    let (_two, _three) = (serve(&grid, "two"), serve(&grid, "three"));
    let told = grid.json(&["data", "explain", "mesh"]);
    let version = json!({
        "version": 2, "state": "current", "kind": "2000000 bytes", "size_bytes": 2_000_000, "replicas": 1, "durable": false, "method": "auto", "servers": ["one"],
        "keepers": ["one"], "transferring_to": [], "readers": 0, "lost": null,
    });
    assert_eq!((&told["name"], &told["versions"]), (&json!("mesh"), &json!([version])));
    let source = json!({
        "server": "one", "seconds": 0.0, "sends": 1, "sends_to_others": 0, "latency_seconds": 0.0,
        "bandwidth_bytes_per_second": null, "link": "same host", "verdict": "taken",
    });
    let copy = |name: &str| json!({ "server": name, "is_in_transfer": false, "source_count": 1, "sources": [source] });
    assert_eq!(told["servers_without"], json!([copy("three"), copy("two")]));
    let page = succeeds(grid.command(&["data", "explain", "mesh"]));
    let rows = "server  from  takes  link       why\n\
                three   one     0 s  same host  the only source\n\
                two     one     0 s  same host  the only source\n";
    assert!(page.ends_with(&format!("\n\n{rows}")), "{page}");
    let (code, error) = status_and_stderr(grid.command(&["data", "explain", "mehs"]));
    assert_eq!((code, error.as_str()), (1, "gridloom: no shared data are named 'mehs'; did you mean 'mesh'?\n"));
}

#[test]
fn names_that_are_commands_or_no_names() {
    let grid = Grid::start();
    let _one = serve(&grid, "one");
    put(&grid, "delete", "3");
    assert_eq!(grid.json(&["data"])["names"][0]["name"], "delete");
    let page = succeeds(grid.command(&["data", "--", "delete"]));
    assert!(page.ends_with("\n1 name, 3 B\n"), "{page}");
    assert_eq!(succeeds(grid.command(&["data", "delete", "delete"])), "'delete' deleted\n");
    let long = "x".repeat(2000);
    for (name, why) in [
        ("", "it is empty"),
        ("a\nb", "the control character"),
        ("right\u{202e}left", "\\u{202e}"),
        (&long, "the limit is 1024"),
    ] {
        for command in ["delete", "explain"] {
            let (code, error) = status_and_stderr(grid.command(&["data", command, name]));
            assert!(code == 1 && error.contains(why) && error.len() < 200, "{error}");
        }
        // No name has this prefix, which is not an error.
        let listed = succeeds(grid.command(&["data", name]));
        assert!(listed.starts_with("no shared data"), "{listed}");
    }
    let (code, error) = status_and_stderr(gridloom(&["data", "delete"]));
    assert!(code == 2 && error.contains("<NAME>"), "{error}");
}

#[test]
fn a_list_has_any_number_of_pages() {
    let grid = Grid::start();
    let _one = serve(&grid, "one");
    // A message lists 4,096 names.
    call(&grid, &["data/many", "9000"]);
    let told = grid.json(&["data", "many/"]);
    let names: Vec<&str> = told["names"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.len() == 9000 && names.is_sorted(), "{}", names.len());
    let page = succeeds(grid.command(&["data"]));
    assert_eq!(page.lines().count(), 9002);
    assert!(page.ends_with("\n9,000 names, 27 kB\n") && page.matches("servers\n").count() == 1);
}
