//! `gridloom up` checks the Python of each host. `ssh` and Python are stubs here. Real ones are in the tests of the
//! Python package.

use std::path::Path;

use serde_json::{Value, json};

use super::up::{HEAD, Lab, host, path, pid};
use crate::support::bounds::output_of;
use crate::support::{succeeds, write_executable};

/// Writes a script that prints the answer of a Python.
fn write_python(file: &Path, python: &str, packages: &Value) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let said = json!({ "executable": path(file), "python": python, "packages": packages });
    write_executable(file, &format!("#!/bin/sh\necho '{said}'\n"));
}

const SERVER: &str = r#"role = "server", serve = "OFFER", python = "~/venv", packages = "numpy""#;

/// Returns a lab with the hosts `a` and `b`, and a Python on this machine.
fn lab(name: &str) -> Lab {
    let mut lab = Lab::new(name, &[host("head", HEAD), host("a", SERVER), host("b", SERVER)].concat());
    let here = lab.folder.join("python");
    write_python(&here, "3.12.4", &packages("2.3.1"));
    lab.variables.push(("GRIDLOOM_PYTHON", path(&here).into()));
    lab
}

fn packages(numpy: &str) -> Value {
    json!({ "gridloom": env!("CARGO_PKG_VERSION"), "numpy": numpy })
}

fn venv(lab: &Lab, host: &str) -> std::path::PathBuf {
    lab.folder.join("hosts").join(host).join("venv/bin/python")
}

#[test]
fn other_versions_on_hosts_are_reported_with_host_value_and_remedy() {
    let lab = lab("skew");
    write_python(&venv(&lab, "a"), "3.10.2", &packages("1.26.4"));
    write_python(&venv(&lab, "b"), "3.12.9", &packages("2.3.1"));
    let output = output_of(&mut lab.up());
    let errors = String::from_utf8(output.stderr).unwrap();
    let python = venv(&lab, "a");
    for told in [
        "gridloom: a: Python is 3.10.2 there and 3.12 here\n  remedy: name a Python 3.12 of that host".to_string(),
        format!(
            "gridloom: a: numpy is 1.26.4 there and 2.3.1 here\n  remedy: run '{} -m pip install numpy==2.3.1' there\n",
            python.display()
        ),
    ] {
        assert!(errors.contains(&told), "{errors}");
    }
    assert!(output.status.success() && !errors.contains("b: "), "{errors}");
    let (lines, _) = lab.json(lab.up());
    let of = |key: &str, value: &str| lines.iter().find(|line| line[key] == value).unwrap();
    assert_eq!(of("host", "b")["python"]["packages"]["numpy"], "2.3.1");
    let skew = of("skew", "numpy");
    assert_eq!(
        (&skew["hosts"], &skew["version"], &skew["expected"]),
        (&json!(["a"]), &json!("1.26.4"), &json!("2.3.1"))
    );
    // The folder of a virtual environment selects its interpreter.
    let words = std::fs::read_to_string(format!("/proc/{}/cmdline", pid(&lab.status().0["server-a"]))).unwrap();
    assert!(words.contains(&format!("--python\0{}\0", path(&python))), "{words}");
}

#[test]
fn where_python_lacks_a_package_no_server_starts() {
    let lab = lab("unfit");
    write_python(&venv(&lab, "a"), "3.12.9", &json!({ "gridloom": null, "numpy": null }));
    let (lines, code) = lab.json(lab.up());
    let of = |host: &str| lines.iter().find(|line| line["host"] == host).unwrap();
    assert_eq!((code, lines.last().unwrap()["failed"].clone()), (3, json!(2)), "{lines:?}");
    let python = venv(&lab, "a");
    let python = python.display();
    assert_eq!(of("a")["error"], json!(format!("its Python '{python}' (3.12.9) has no package gridloom, numpy")));
    let install = format!("run '{python} -m pip install gridloom numpy' there");
    assert!(of("a")["remedy"].as_str().unwrap().starts_with(&install), "{lines:?}");
    let why = of("b")["error"].as_str().unwrap();
    assert!(why.contains("venv' does not run: No such file"), "{why}");
    assert!(of("b")["remedy"].as_str().unwrap().contains("the property 'python'"), "{lines:?}");
    for host in ["a", "b"] {
        write_python(&venv(&lab, host), "3.12.9", &packages("2.3.1"));
    }
    succeeds(lab.up());
    assert_eq!(lab.status().1, 0);
}

#[test]
fn a_server_is_not_drained_for_a_python_that_lacks_something() {
    let lab = lab("unfit-restart");
    for host in ["a", "b"] {
        write_python(&venv(&lab, host), "3.12.9", &packages("2.3.1"));
    }
    succeeds(lab.up());
    let (before, _) = lab.status();
    write_python(&venv(&lab, "a"), "3.12.9", &json!({ "gridloom": "1", "numpy": null }));
    let mut restart = lab.up();
    restart.arg("--restart");
    let (lines, code) = lab.json(restart);
    let failed = lines.iter().find(|line| line["host"] == "a").unwrap();
    assert!(code == 3 && failed["error"].as_str().unwrap().contains("has no package numpy"), "{lines:?}");
    let (after, code) = lab.status();
    assert_eq!((code, pid(&before["server-a"])), (0, pid(&after["server-a"])), "{after}");
}
