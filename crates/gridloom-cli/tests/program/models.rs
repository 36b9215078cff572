//! Models of functions: measured with `gridloom calibrate`, and stored.

use crate::support::{self, Grid, file, library, status_and_stderr};
use serde_json::json;

#[test]
fn functions_are_calibrated() {
    let grid = Grid::start();
    let models = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("calibrated-models");
    // Models of an earlier run of the tests.
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
    // The server has learned the same points, and the agent has received them.
    let known = grid.json(&["models", "cli/scale"]);
    let calls = known["models"][0]["by_work"].as_array().unwrap().iter().map(|point| point["calls"].as_u64().unwrap());
    assert_eq!(json!(calls.sum::<u64>()), one["calls"], "{known} {one}");
    assert!(one_running.close_input().success());
    let kept = std::fs::read_to_string(models.join("one.json")).unwrap();
    assert!(kept.contains("cli/scale"), "{kept}");

    // A crash ends the calibration of its server, and is reported with the results so far.
    let _two = grid.serve("two", &[]);
    let mut command = grid.command(&["calibrate", "abort_now"]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && text.contains("crashed its worker process"), "{text}");
    let (status, said) = status_and_stderr(grid.command(&["calibrate", "scale", "--sizes", "k=1..2"]));
    assert!(status == 1 && said.contains("no argument 'k'"), "{said}");
    // A range of one size has no second end to reach, and no points to predict in between.
    let output = grid.command(&["calibrate", "scale", "--sizes", "n=1000", "--server", "two"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.starts_with("cli/scale on two: error -; "), "{text}");
    assert!(!text.contains("budget"), "{text}");
}

#[test]
fn a_grid_without_servers_cannot_be_calibrated() {
    let grid = Grid::start();
    let (status, said) = status_and_stderr(grid.command(&["calibrate"]));
    let says = format!("the agent at {} knows no server that offers a function; start one", grid.address);
    assert!(status == 1 && said.contains(&says), "{said}");
}

#[test]
fn a_folder_that_cannot_keep_models_is_reported_at_start() {
    let grid = Grid::start();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let models = file("no-folder", "a file") + "/models";
    // It ends at once, because its port is in use.
    let (code, error) = status_and_stderr(grid.serve_command(
        "kept",
        &[&support::idl()],
        &["--library", library(), "--models", &models, "--listen", &listen],
    ));
    assert_eq!(code, 1, "{error}");
    assert!(error.contains(&format!("kept: models cannot be stored in {models}: ")), "{error}");
}
