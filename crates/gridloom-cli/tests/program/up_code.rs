//! `gridloom up` sends the folder of a program to hosts: with a stub in place of `ssh`, with a real `sshd`, and in
//! Slurm. The tests of the Python package check how Python uses the folder.

use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::up::{HEAD, Lab, host, pid};
use super::{up_slurm, up_ssh};
use crate::support::bounds::output_of;
use crate::support::{process_ended, status_and_stderr, succeeds};

/// `found` returns whether Python would find that file, `version` which folder the server has.
const SENT: &str = r#"Module sent;
Globals { #include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h> }
Define version(OUT int *version) { *version = VERSION; }
Define found(IN string file, OUT int *found) {
  const char *folders = getenv("PYTHONPATH");
  char path[4096];
  *found = 0;
  if (folders) {
    snprintf(path, sizeof path, "%.*s/%s", (int)strcspn(folders, ":"), folders, file);
    *found = access(path, R_OK) == 0;
  }
}
"#;

const SERVER: &str = r#"role = "server", serve = "sent.idl --models none", code = "program""#;

/// Writes a folder beside the file of hosts.
fn write_folder(lab: &Lab, version: u32) {
    let folder = lab.folder.join("program");
    for inner in ["package", ".git", "__pycache__"] {
        std::fs::create_dir_all(folder.join(inner)).unwrap();
    }
    let version = SENT.replace("VERSION", &version.to_string());
    for (file, text) in [("sent.idl", version.as_str()), ("package/one.py", "one = 1\n"), (".git/HEAD", "none\n")] {
        std::fs::write(folder.join(file), text).unwrap();
    }
    std::fs::write(folder.join("large.txt"), vec![b'x'; 20_000]).unwrap();
}

/// Returns the line about the folder among lines of JSON.
fn code_of(lines: &[Value]) -> &Value {
    lines.iter().find(|line| line["code"].is_string()).unwrap_or_else(|| panic!("{lines:?}"))
}

fn call(lab: &Lab, agent: &str, words: &[&str]) -> String {
    succeeds(lab.command(&[&["call", "--agent", agent, "--json"], words].concat()))
}

/// Returns the number of folders that are kept for that user.
fn copies(home: &Path) -> usize {
    let entries = std::fs::read_dir(home.join(".cache/gridloom/code")).unwrap();
    entries.filter(|entry| entry.as_ref().unwrap().path().join("sent.idl").exists()).count()
}

#[test]
fn a_folder_goes_to_hosts_that_have_no_copy_and_servers_use_it() {
    let lab = Lab::new("code", &[host("head", HEAD), host("a", SERVER), host("b", SERVER)].concat());
    write_folder(&lab, 1);
    let (lines, code) = lab.json(lab.up());
    assert_eq!(code, 0, "{lines:?}");
    let first = code_of(&lines);
    let files: Vec<_> = first["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(files, ["large.txt", "package/one.py", "sent.idl"]);
    assert_eq!((&first["sent_to"], &first["held_by"]), (&json!(["a", "b"]), &json!([])));
    let agent = lines.last().unwrap()["agent"].as_str().unwrap();
    assert_eq!(call(&lab, agent, &["sent/version"]), "{\"results\":{\"version\":1}}\n");
    for (file, found) in [("package/one.py", 1), (".git/HEAD", 0)] {
        assert_eq!(call(&lab, agent, &["sent/found", file]), format!("{{\"results\":{{\"found\":{found}}}}}\n"));
    }
    // One copy exists, the other does not.
    let (lines, _) = lab.json(lab.up());
    let held = code_of(&lines);
    let of_json = |code: &Value| [&code["hash"], &code["sent_to"], &code["held_by"]].map(Value::clone);
    assert_eq!(of_json(held), [first["hash"].clone(), json!([]), json!(["a", "b"])]);
    write_folder(&lab, 2);
    let output = output_of(&mut lab.up());
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(text.contains("; sent to a, b\n  large.txt: 19.53 KiB (20000 bytes)\n"), "{text}");
    for server in ["a", "b"] {
        assert!(errors.contains(&format!("{server}: 'server-{server}' still runs with the folder")), "{errors}");
    }
    assert_eq!(call(&lab, agent, &["sent/version"]), "{\"results\":{\"version\":1}}\n");
    let (before, _) = lab.status();
    let mut restart = lab.up();
    restart.arg("--restart");
    let (lines, code) = lab.json(restart);
    assert_eq!(code, 0, "{lines:?}");
    assert_eq!(call(&lab, agent, &["sent/version"]), "{\"results\":{\"version\":2}}\n");
    let (after, _) = lab.status();
    assert_eq!(before["server-a"]["code"], first["hash"]);
    assert_eq!(after["server-a"]["code"], code_of(&lines)["hash"]);
    assert_ne!(pid(&before["server-a"]), pid(&after["server-a"]));
}

#[test]
fn copies_are_bounded_and_that_of_a_server_stays() {
    let lab = Lab::new("copies", &[host("head", HEAD), host("a", SERVER)].concat());
    write_folder(&lab, 0);
    succeeds(lab.up());
    let home = lab.folder.join("hosts/a");
    for version in 1..8 {
        write_folder(&lab, version);
        assert!(output_of(&mut lab.up()).status.success());
    }
    // The copy of the server, the last one, and four between them.
    assert_eq!(copies(&home), 6);
    let first = lab.status().0["server-a"]["code"].as_str().unwrap().to_string();
    assert!(home.join(".cache/gridloom/code").join(first).join("package/one.py").exists());
}

/// Returns the folder in which that lab's host `a` keeps its copies.
fn folder_of_copies(lab: &Lab) -> PathBuf {
    lab.folder.join("hosts/a/.cache/gridloom/code")
}

/// True if a copy is as it was sent, apart from files that Python creates there.
fn is_whole(copy: &Path) -> bool {
    let text = |file: &str| std::fs::read_to_string(copy.join(file)).unwrap_or_default();
    text("sent.idl").contains("Define version")
        && text("package/one.py") == "one = 1\n"
        && !copy.join("package/two.py").exists()
}

#[test]
fn a_copy_that_is_damaged_is_replaced() {
    let lab = Lab::new("code-damaged", &[host("head", HEAD), host("a", SERVER)].concat());
    write_folder(&lab, 1);
    let (lines, _) = lab.json(lab.up());
    let home = lab.folder.join("hosts/a");
    let copy = folder_of_copies(&lab).join(code_of(&lines)["hash"].as_str().unwrap());
    let damages: [fn(&Path); 4] = [
        |copy| std::fs::write(copy.join("sent.idl"), "").unwrap(),
        |copy| std::fs::remove_file(copy.join("package/one.py")).unwrap(),
        |copy| std::fs::write(copy.join("package/two.py"), "two = 2\n").unwrap(),
        |copy| {
            std::fs::remove_dir_all(copy).unwrap();
            std::fs::write(copy, "no folder").unwrap();
        },
    ];
    for damage in damages {
        succeeds(lab.command(&["down"]));
        damage(&copy);
        let (lines, code) = lab.json(lab.up());
        assert_eq!((code, &code_of(&lines)["sent_to"]), (0, &json!(["a"])), "{lines:?}");
        assert!(is_whole(&copy) && copies(&home) == 1);
    }
    // Files that Python creates there are no damage.
    std::fs::create_dir_all(copy.join("package/__pycache__")).unwrap();
    std::fs::write(copy.join("package/__pycache__/one.cpython-311.pyc"), "").unwrap();
    let (lines, _) = lab.json(lab.up());
    assert_eq!((&code_of(&lines)["held_by"], copies(&home)), (&json!(["a"]), 1));
}

#[test]
fn a_damaged_copy_that_a_server_uses_stays_and_gets_another_beside_it() {
    let lab = Lab::new("code-beside", &[host("head", HEAD), host("a", SERVER)].concat());
    write_folder(&lab, 1);
    let (lines, _) = lab.json(lab.up());
    let agent = lines.last().unwrap()["agent"].as_str().unwrap().to_string();
    let hash = code_of(&lines)["hash"].clone();
    let first = folder_of_copies(&lab).join(hash.as_str().unwrap());
    let second = first.with_file_name(format!("{}.2", hash.as_str().unwrap()));
    std::fs::remove_file(first.join("package/one.py")).unwrap();
    let found = |one: &str| {
        assert_eq!(
            call(&lab, &agent, &["sent/found", "package/one.py"]),
            format!("{{\"results\":{{\"found\":{one}}}}}\n")
        )
    };
    for sent in [json!(["a"]), json!([])] {
        let mut up = lab.up();
        let output = output_of(up.arg("--json"));
        let lines: Vec<Value> =
            String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(code_of(&lines)["sent_to"], sent);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains(
                "'server-a' still runs with another copy of the folder of code, which may be damaged: --restart"
            ),
            "{said}"
        );
        assert!(!is_whole(&first) && is_whole(&second));
        found("0");
    }
    let mut restart = lab.up();
    restart.arg("--restart");
    let (lines, code) = lab.json(restart);
    assert_eq!((code, &code_of(&lines)["held_by"]), (0, &json!(["a"])), "{lines:?}");
    found("1");
    assert_eq!(lab.status().0["server-a"]["code"], hash);
    // No server uses the first copy any more: it is removed, and the next copy gets its name.
    std::fs::write(second.join("package/two.py"), "two = 2\n").unwrap();
    let (lines, _) = lab.json(lab.up());
    assert_eq!(code_of(&lines)["sent_to"], json!(["a"]));
    assert!(is_whole(&first) && !is_whole(&second));
}

/// Hosts with the same home folder can see that a server uses a copy.
#[test]
fn a_server_holds_its_copy() {
    let lab = Lab::new("code-held", &[host("head", HEAD), host("a", SERVER)].concat());
    write_folder(&lab, 1);
    let (lines, _) = lab.json(lab.up());
    let used = format!(".used-{}", code_of(&lines)["hash"].as_str().unwrap());
    let file = lab.folder.join("hosts/a/.cache/gridloom/code").join(used);
    let file = std::fs::File::options().read(true).write(true).open(file).unwrap();
    assert!(flock(&file, FlockOperation::NonBlockingLockExclusive).is_err());
    let server = pid(&lab.status().0["server-a"]);
    succeeds(lab.command(&["down"]));
    process_ended(server);
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
}

#[test]
fn what_gitignore_leaves_out_is_named_and_no_server_serves_it() {
    let lab = Lab::new("code-ignored", &[host("head", HEAD), host("a", SERVER)].concat());
    write_folder(&lab, 1);
    let ignored = lab.folder.join("program/.gitignore");
    std::fs::write(&ignored, "*.txt\n").unwrap();
    let (lines, code) = lab.json(lab.up());
    assert_eq!((code, &code_of(&lines)["ignored"]), (0, &json!(["large.txt"])), "{lines:?}");
    std::fs::write(&ignored, "*.idl\n").unwrap();
    let (code, why) = status_and_stderr(lab.up());
    assert!(code == 1 && why.contains("serve names 'sent.idl'") && why.contains("is not sent"), "{why}");
    std::fs::write(lab.folder.join("program/.gridloomignore"), "!sent.idl\n").unwrap();
    let output = output_of(&mut lab.up());
    assert!(output.status.success());
    std::fs::write(&ignored, "*.idl\nlarge.txt\npackage/\n").unwrap();
    let text = succeeds(lab.up());
    assert!(text.contains("\n  left out by .gitignore or .gridloomignore: large.txt, package\n"), "{text}");
}

#[test]
fn a_folder_that_was_cut_short_is_not_used() {
    let lab = Lab::new("code-cut", &[host("head", HEAD), host("cut", SERVER)].concat());
    write_folder(&lab, 1);
    let (lines, code) = lab.json(lab.up());
    let cut = lines.iter().find(|line| line["host"] == "cut").unwrap();
    assert!(code == 3 && cut["error"].as_str().unwrap().contains("was not received completely"), "{lines:?}");
    succeeds(lab.up());
    assert_eq!((lab.status().1, copies(&lab.folder.join("hosts/cut"))), (0, 1));
}

#[test]
fn a_folder_that_cannot_be_sent_is_refused_before_anything_starts() {
    let lab = Lab::new("code-none", &[host("head", HEAD), host("a", SERVER)].concat());
    let (code, why) = status_and_stderr(lab.up());
    assert!(code == 1 && why.contains("host 'a': code: '") && why.contains("program': No such file"), "{why}");
    std::fs::create_dir(lab.folder.join("program")).unwrap();
    let (code, why) = status_and_stderr(lab.up());
    assert!(code == 1 && why.contains("has no file that could be sent"), "{why}");
    assert!(!lab.folder.join("hosts/head").exists());
}

#[test]
fn a_folder_goes_by_ssh_also_through_a_jump_host() {
    let mut lab = Lab::new("code-ssh", "");
    let Some([head, a, _]) = up_ssh::hosts(&mut lab) else { return };
    let built = up_ssh::BUILT;
    let jump = format!("{SERVER}, jump = \"127.0.0.1:{head}\"");
    let both = format!("{SERVER}, agent_listen = \"127.0.0.1:0\"").replace("\"server\"", "\"agent, server\"");
    lab.write(&[up_ssh::host("head", head, built, &both), up_ssh::host("a", a, built, &jump)].concat());
    write_folder(&lab, 3);
    let (lines, code) = lab.json(lab.up());
    assert_eq!(code, 0, "{lines:?}");
    assert_eq!(code_of(&lines)["sent_to"], json!(["a", "head"]));
    let agent = lines.last().unwrap()["agent"].as_str().unwrap();
    assert_eq!(call(&lab, agent, &["sent/version"]), "{\"results\":{\"version\":3}}\n");
    assert_eq!(call(&lab, agent, &["sent/found", "package/one.py"]), "{\"results\":{\"found\":1}}\n");
    for name in ["head", "a"] {
        assert_eq!(copies(&lab.folder.join("homes").join(name)), 1);
    }
    let (lines, _) = lab.json(lab.up());
    assert_eq!(code_of(&lines)["held_by"], json!(["a", "head"]));
}

/// The nodes share the home folder: one of them receives it.
#[test]
fn nodes_of_an_allocation_get_the_folder_once() {
    let Some(slurm) = up_slurm::Slurm::start() else { return };
    let job = slurm.allocate(&["--nodes=2"]);
    let mut lab = slurm.lab("code-slurm", "sent.idl --models none");
    let file = lab.folder.join("grid.toml");
    let text = std::fs::read_to_string(&file).unwrap().replace("role = ", "code = \"program\", role = ");
    std::fs::write(&file, text).unwrap();
    write_folder(&lab, 4);
    lab.variables.push(("XDG_CACHE_HOME", lab.folder.join(".cache").to_str().unwrap().into()));
    let (lines, code) = lab.json(up_slurm::up(&lab, &["--job", &job]));
    assert_eq!(code, 0, "{lines:?}");
    let code = code_of(&lines);
    let number = |key: &str| code[key].as_array().unwrap().len();
    assert_eq!((number("sent_to"), number("held_by"), copies(&lab.folder)), (1, 1, 1), "{code}");
    let agent = lines.last().unwrap()["agent"].as_str().unwrap();
    assert_eq!(call(&lab, agent, &["sent/version"]), "{\"results\":{\"version\":4}}\n");
    succeeds(lab.command(&["down"]));
}
