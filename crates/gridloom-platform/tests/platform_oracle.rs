//! Routes against the reference: each platform file that ships with SimGrid, and the routes as SimGrid resolves them.
//!
//! The data are outside the repository; without them the test passes and prints that. A route of no links and no latency
//! in the reference means that there is none.

use std::fs;
use std::path::{Path, PathBuf};

use gridloom_platform::Platform;
use serde_json::Value;

/// Relative tolerance for latencies.
const TOLERANCE: f64 = 1e-12;

/// `shared/data/simulation` beside the repository, or beside the folder that contains its worktrees.
fn data() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let beside = ["../shared/data/simulation", "../../shared/data/simulation"].map(|path| repository.join(path));
    beside.iter().find(|path| path.is_dir()).unwrap_or(&beside[0]).clone()
}

fn load(folder: &Path, name: &str) -> Result<String, String> {
    fs::read_to_string(folder.join(name)).map_err(|error| error.to_string())
}

/// The latencies as written: the JSON reader may be off in the last bit.
fn latencies(text: &str) -> Vec<f64> {
    let numbers = text.split("\"latency\":").skip(1);
    numbers.map(|rest| rest.split(',').next().unwrap().trim().parse().unwrap()).collect()
}

/// Compares one file; returns the number of routes, and the number of latencies that agree to the last bit.
fn check(folder: &Path, expected: &Value, latencies_s: &[f64]) -> (usize, usize) {
    let file = expected["platform"].as_str().unwrap();
    let text = load(folder, file).unwrap();
    let platform =
        Platform::parse(&text, file, &mut |name| load(folder, name)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(platform.hosts().len() as u64, expected["hosts"].as_u64().unwrap(), "hosts of {file}");
    assert_eq!(platform.links().len() as u64, expected["links"].as_u64().unwrap(), "links of {file}");
    let mut exact = 0;
    let routes = expected["routes"].as_array().unwrap();
    assert_eq!(routes.len(), latencies_s.len());
    for (route, &latency_s) in routes.iter().zip(latencies_s) {
        let end = |key: &str| platform.host(route[key].as_str().unwrap()).unwrap();
        let links: Vec<&str> = route["links"].as_array().unwrap().iter().map(|link| link.as_str().unwrap()).collect();
        let what = format!("{file}: {} -> {}", route["src"], route["dst"]);
        match platform.route(end("src"), end("dst")) {
            Err(error) => assert!(links.is_empty() && latency_s == 0.0, "{what}: {error}"),
            Ok(found) => {
                let names: Vec<&str> =
                    found.links.iter().map(|link| platform.links()[link.0 as usize].name.as_str()).collect();
                assert_eq!(names, links, "{what}");
                let error = (found.latency_s - latency_s).abs();
                assert!(error <= TOLERANCE * latency_s, "{what}: latency {} instead of {latency_s}", found.latency_s);
                exact += usize::from(found.latency_s == latency_s);
            }
        }
    }
    (routes.len(), exact)
}

#[test]
fn platform_routes_are_those_of_the_reference() {
    let folder = data();
    let Ok(entries) = fs::read_dir(folder.join("routes")) else {
        println!("no reference data at {}: nothing checked", folder.display());
        return;
    };
    let mut names: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let (mut files, mut routes) = (0, 0);
    for path in names {
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let (count, exact) = check(&folder.join("platforms"), &expected, &latencies(&text));
        println!("{stem}: {count} routes, {exact} latencies to the last bit");
        files += 1;
        routes += count;
    }
    println!("{files} files and {routes} routes checked");
}
