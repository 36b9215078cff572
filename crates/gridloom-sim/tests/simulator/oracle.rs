//! Compares replays of scenarios with the dates computed by SimGrid.
//!
//! The data are stored outside the repository (`GRIDLOOM_SHARED`, or `../shared` next to it). Without them, the test
//! passes and prints a note.

use std::fs;
use std::path::{Path, PathBuf};

use gridloom_flow::Reach;
use gridloom_sim::replay::{Scenario, run};
use serde_json::Value;

/// Maximum difference of agreeing dates, absolute in seconds and relative.
const CLOSE: f64 = 1e-9;
/// Maximum difference of any date.
const FAR: f64 = 1e-3;
/// Minimum fraction of agreeing dates.
const CLOSE_PART: f64 = 0.999;

fn folder() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named = std::env::var_os("GRIDLOOM_SHARED").map(PathBuf::from);
    let beside = ["../shared", "../../shared"].map(|path| repository.join(path));
    let found = named.iter().chain(&beside).find(|path| path.is_dir());
    found.unwrap_or(&beside[0]).join("data/simulation/oracle")
}

#[test]
fn replays_give_the_reference_dates() {
    let Some((close, count, worst)) = compare(Reach::AsReference) else { return };
    assert_eq!(close, count);
    assert!(worst <= 1e-12);
}

/// The model as defined differs where the reference leaves links out of a solution.
#[test]
fn the_model_itself_is_near_the_reference() {
    let Some((close, count, worst)) = compare(Reach::Connected) else { return };
    assert!(worst <= FAR);
    assert!(close as f64 >= CLOSE_PART * count as f64);
}

/// Returns the number of agreeing dates, the number of all dates, and the greatest difference.
fn compare(reach: Reach) -> Option<(usize, usize, f64)> {
    let folder = folder();
    let Ok(entries) = fs::read_dir(&folder) else {
        println!("no reference data at {}: nothing checked", folder.display());
        return None;
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut count, mut close, mut worst) = (0, 0, 0.0f64);
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let name = file.file_name().unwrap().to_string_lossy();
        let scenario = Scenario::parse(&text, &name).unwrap();
        let mut failed = Vec::new();
        for (activity, ended) in scenario.activities.iter().zip(run(&scenario, reach)) {
            let date = expected["finish_times"][&activity.name].as_f64().unwrap();
            let error = (ended.end_s - date).abs() / date.max(1.0);
            if error > CLOSE {
                println!("{name}: {} ends at {} instead of {date}", activity.name, ended.end_s);
            }
            count += 1;
            close += usize::from(error <= CLOSE);
            worst = worst.max(error);
            failed.extend(ended.failed.then_some(activity.name.as_str()));
        }
        let mut reference: Vec<&str> =
            expected["failed"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        failed.sort_unstable();
        reference.sort_unstable();
        assert_eq!(failed, reference, "what fails in {name}");
    }
    println!("{reach:?}: {} scenarios, {close} of {count} dates close, the worst off by {worst:e}", files.len());
    Some((close, count, worst))
}
