//! `gridloom up --slurm` that requests an allocation itself, with real Slurm daemons: a controller and two nodes on this machine.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::up::{Lab, pid};
use super::up_slurm::{Slurm, up};
use crate::support::bounds::{ProcessTimeout, WAIT_LIMIT, ends, output_of, until_true};
use crate::support::{process_ended, status_and_stderr, succeeds};

/// Returns a user with a file that requests it.
fn lab(slurm: &Slurm, name: &str, sbatch: &str) -> Lab {
    let lab = slurm.lab(name, "OFFER");
    let file = lab.folder.join("grid.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("role = ", &format!("sbatch = \"{sbatch}\", role = "))).unwrap();
    lab
}

/// Waits until at most `most` jobs wait or run.
fn wait_for_jobs(slurm: &Slurm, most: usize) {
    until_true(&format!("no more than {most} jobs wait or run"), || jobs(slurm).lines().count() <= most);
}

/// Returns numbers and states of the jobs that wait or run.
fn jobs(slurm: &Slurm) -> String {
    succeeds(slurm.command("squeue", &["--noheader", "--states=PENDING,RUNNING", "--format=%i %T"]))
}

#[test]
fn an_allocation_is_requested_and_released() {
    let Some(slurm) = Slurm::start() else { return };
    let lab = lab(&slurm, "allocate", "--nodes=2 --ntasks-per-node=3 --time=60");
    let (lines, code) = lab.json(up(&lab, &[]));
    assert_eq!((code, &lines.last().unwrap()["grid"]), (0, &json!("grid")), "{lines:?}");
    let agent = lines.last().unwrap()["agent"].as_str().unwrap();
    let called = succeeds(lab.command(&["call", "--agent", agent, "cli/scale", "2", "[1, 2]"]));
    assert_eq!(called, "y = [2.0,4.0]\n");
    let (parts, code) = lab.status();
    assert_eq!((code, parts.as_object().unwrap().len()), (0, 3), "{parts}");
    let words = std::fs::read_to_string(format!("/proc/{}/cmdline", pid(&parts["server-n2"]))).unwrap();
    assert!(words.contains("--slots\x003\x00"), "{words}");
    // The job is kept, and no other one is requested.
    let running = jobs(&slurm);
    succeeds(up(&lab, &[]));
    assert_eq!((lab.status(), jobs(&slurm)), ((parts.clone(), 0), running.clone()));
    let job = running.trim().strip_suffix(" RUNNING").unwrap_or_else(|| panic!("{running}"));
    let output = output_of(&mut lab.command(&["down"]));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors, format!("gridloom: the job {job} of Slurm has ended\n"));
    for part in ["agent", "server-n1", "server-n2"] {
        process_ended(pid(&parts[part]));
    }
    wait_for_jobs(&slurm, 0);
}

#[test]
fn a_refusal_by_slurm_is_reported_and_nothing_is_left() {
    let Some(slurm) = Slurm::start() else { return };
    for (sbatch, told) in [
        ("--partition=missing", "Slurm refuses the job: Batch job submission failed: Invalid partition name"),
        ("--nodes=3", "sinfo"),
        ("--time=1", "ends in "),
        ("--array=1-3", "sbatch has --array=1-3"),
        ("-a1-3", "sbatch has -a1-3"),
        ("--arr=1-3", "sbatch has --arr=1-3"),
    ] {
        let lab = lab(&slurm, "refused", sbatch);
        let (code, why) = status_and_stderr(up(&lab, &[]));
        assert!(code == 1 && why.contains(told), "{why}");
        assert_eq!(status_and_stderr(lab.command(&["down"])).0, 1, "nothing is known of it");
        wait_for_jobs(&slurm, 0);
    }
    let none = slurm.lab("asks-nothing", "OFFER");
    let (code, why) = status_and_stderr(up(&none, &[]));
    assert!(code == 1 && why.contains("give a host the property sbatch"), "{why}");
}

#[test]
fn a_job_waits_for_nodes_that_are_down() {
    let Some(slurm) = Slurm::start() else { return };
    let set = |state: &str| {
        succeeds(slurm.command("scontrol", &["update", "NodeName=n2", &format!("State={state}"), "Reason=test"]));
    };
    set("DOWN");
    let lab = lab(&slurm, "down", "--nodes=2 --time=60");
    let mut command = up(&lab, &["--json"]);
    let mut waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let bound = ProcessTimeout::of(&waiting);
    let errors = BufReader::new(waiting.stderr.take().unwrap()).lines().map_while(Result::ok);
    let waits = errors
        .filter(|line| line.contains(" has been waiting for "))
        .find(|line| line.contains("DOWN") || line.ends_with("NodeLimit"));
    assert!(waits.is_some(), "Slurm has not said within {} s that nodes are down", WAIT_LIMIT.as_secs());
    drop(bound);
    set("RESUME");
    assert!(ends("'up' starts on the nodes once they are there", waiting).status.success());
    assert_eq!(lab.status().1, 0);
}

#[test]
fn mistakes_in_the_file_are_found_before_slurm_is_called() {
    let Some(slurm) = Slurm::start() else { return };
    let lab = lab(&slurm, "mistakes", "--nodes=2");
    let file = lab.folder.join("grid.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    for (properties, told) in [
        (
            "serve = \"--run-code --cheap\"",
            "'gridloom serve' does not accept these arguments: unexpected argument '--cheap' found",
        ),
        ("serve = \"--run-code\", code = \"missing\"", "missing': No such file"),
        ("serve = \"--run-code\", code = \"empty\"", "has no file that could be sent"),
    ] {
        std::fs::create_dir_all(lab.folder.join("empty")).unwrap();
        let (begin, rest) = text.split_once("serve = ").unwrap();
        let (_, end) = rest.split_once("\", ").unwrap();
        std::fs::write(&file, format!("{begin}{properties}, {end}")).unwrap();
        let (code, why) = status_and_stderr(up(&lab, &[]));
        assert!(code == 1 && why.contains(told) && !why.contains("has accepted the job"), "{why}");
    }
}

#[test]
fn a_waiting_job_is_used_when_it_starts_or_is_cancelled() {
    let Some(slurm) = Slurm::start() else { return };
    let other = slurm.allocate(&["--nodes=2", "--exclusive"]);
    let lab = lab(&slurm, "waits", "--nodes=1 --time=60");
    let (code, why) = status_and_stderr(up(&lab, &["--queue-wait", "0.1"]));
    assert!(code == 1 && why.contains("has not started within 0.1 s: "), "{why}");
    wait_for_jobs(&slurm, 1);
    let mut command = up(&lab, &["--json"]);
    let mut waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _bound = ProcessTimeout::of(&waiting);
    let mut errors = BufReader::new(waiting.stderr.take().unwrap()).lines().map_while(Result::ok);
    let taken = errors.next().unwrap();
    assert!(taken.contains("run 'gridloom down grid'"), "{taken}");
    let waits = errors.next().unwrap();
    assert!(waits.contains(" has been waiting for 0 s: "), "{waits}");
    // The command ends, and the next one continues with the same job.
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    succeeds(slurm.command("scancel", &[&other]));
    let (lines, code) = lab.json(up(&lab, &[]));
    assert_eq!((code, &lines.last().unwrap()["servers"]), (0, &json!(1)), "{lines:?}");
    let job = taken.split_ascii_whitespace().find_map(|word| word.strip_suffix(';')).unwrap();
    assert_eq!(jobs(&slurm), format!("{job} RUNNING\n"));
    let (parts, _): (Value, _) = lab.status();
    assert!(parts.as_object().unwrap().contains_key("agent"), "{parts}");
}
