//! `gridloom deploy`: when processes start and end, and the resulting exit status. The programs are shell scripts that
//! report, as Gridloom's programs do, that they have read which process they are. Programs that use Gridloom are in
//! `c` and in the Python tests.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{file, folder, gridloom, process_ended, quoted, status_and_stderr, succeeds};
use crate::up::{Lab, host, path};

/// Returns a `gridloom deploy` of a script in which `$1` is the name of the process's function.
fn deploy(name: &str, deployment: &str, script: &str) -> Command {
    let deployment = file(&format!("{name}.toml"), deployment);
    let mut command = gridloom(&["deploy", "-d", &deployment, "--", "sh", "-c", &scripted(script)]);
    command.env_remove("GRIDLOOM_TESTBED_HOST");
    command
}

fn scripted(script: &str) -> String {
    let function = "$(echo \"$GRIDLOOM_PROCESS\" | sed 's/.*\"function\":\"\\([^\"]*\\)\".*/\\1/')";
    format!(": > \"$GRIDLOOM_PROCESS_READY\"; set -- \"{function}\"\n{script}")
}

fn send(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

/// Starts the command and returns its first line.
fn start(mut command: Command) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    (child, output, line)
}

#[test]
fn kill_times_are_kept_while_a_later_start_is_waited_for() {
    let alive = folder("deploy").join(format!("alive-{}", std::process::id())).display().to_string();
    let alive = quoted(&alive);
    let deployment = "[[process]]\nhost = 'x'\nfunction = 'first'\nkill_time = 0.3\n\
                      [[process]]\nhost = 'x'\nfunction = 'later'\nstart_time = 1.5\n\
                      [[process]]\nhost = 'x'\nfunction = 'never'\nstart_time = 0.2\nkill_time = 0.1\n";
    let script = format!(
        "case $1 in\n\
         first) while true; do date +%s%N > {alive}.new; mv {alive}.new {alive}; sleep 0.02; done ;;\n\
         later) test $(( $(date +%s%N) - $(cat {alive}) )) -gt 600000000 && echo it was gone ;;\n\
         never) echo it was started ;;\n\
         esac"
    );
    assert_eq!(succeeds(deploy("kill-times", deployment, &script)), "later@x| it was gone\n");
}

#[test]
fn a_signal_ends_all_and_nothing_starts_any_more() {
    let deployment = "[[process]]\nhost = 'x'\nfunction = 'runs'\n\
                      [[process]]\nhost = 'x'\nfunction = 'later'\nstart_time = 1\n";
    for (signal, status) in [("-TERM", 143), ("-INT", 130)] {
        let (mut child, mut output, line) = start(deploy("signal", deployment, "echo $1 $$; exec sleep 1000"));
        let pid: u32 = line.trim().strip_prefix("runs@x| runs ").unwrap().parse().unwrap();
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(status));
        process_ended(pid);
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
    }
}

#[test]
fn a_failure_is_the_status_of_the_run() {
    let deployment = "[[process]]\nhost = 'x'\nfunction = 'one'\n[[process]]\nhost = 'y'\nfunction = 'two'\n";
    let (status, error) = status_and_stderr(deploy("failure", deployment, "test $1 = one || exit 7"));
    assert!(status == 7 && error.starts_with("gridloom: two@y ended with exit status: 7\n"), "{error}");
    let (status, error) = status_and_stderr(deploy("crash", deployment, "test $1 = one || kill -SEGV $$"));
    assert_eq!(status, 139, "{error}");
}

#[test]
fn after_a_failure_the_others_are_ended_or_run_on() {
    let deployment = "[[process]]\nhost = 'x'\nfunction = 'stays'\n[[process]]\nhost = 'y'\nfunction = 'fails'\n";
    // One of them ignores the request to end.
    let script = "case $1 in stays) trap '' TERM; while true; do sleep 0.1; done ;; fails) exit 5 ;; esac";
    let with = |options: &[&str], script: &str| {
        let deployment = file("after-failure.toml", deployment);
        let mut command = gridloom(&["deploy", "-d", &deployment]);
        command.args(options).args(["--", "sh", "-c", &scripted(script)]);
        command.env_remove("GRIDLOOM_TESTBED_HOST");
        status_and_stderr(command)
    };
    let told = "gridloom: fails@y ended with exit status: 5\ngridloom: still running: stays@x";
    let ended = "; they are ended in 0.1 s\ngridloom: ended after the failure: stays@x\n";
    assert_eq!(with(&["--grace", "0.1"], script), (5, format!("{told}{ended}")));
    let until = "\ngridloom: ended at the end of --until: stays@x\n";
    assert_eq!(with(&["--keep-going", "--until", "1"], script), (5, format!("{told}{until}")));
    let (status, error) = with(&["--until", "0.1"], "exec sleep 1000");
    assert_eq!((status, error.as_str()), (1, "gridloom: ended at the end of --until: stays@x, fails@y\n"));
}

#[test]
fn with_json_each_event_is_a_line() {
    let deployment = "[[process]]\nhost = 'x'\nfunction = 'speaks'\n[[process]]\nhost = 'y'\nfunction = 'dies'\nstart_time = 0.3\n\
                      [[process]]\nhost = 'y'\nfunction = 'killed'\nkill_time = 0.3\n";
    let file = file("json.toml", deployment);
    let script =
        "case $1 in speaks) echo 'a \"line\"'; echo odd >&2 ;; dies) kill -SEGV $$ ;; killed) exec sleep 1000 ;; esac";
    let mut command = gridloom(&["deploy", "-d", &file, "--json", "--", "sh", "-c", &scripted(script)]);
    let output = command.env_remove("GRIDLOOM_TESTBED_HOST").output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(139), ""));
    let events: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ended = |process: &str, status: Option<i32>, signal: Option<i32>, was_killed: bool| json!({ "event": "ended", "process": process, "status": status, "signal": signal, "was_killed": was_killed });
    for expected in [
        json!({ "event": "output", "process": "speaks@x", "stream": "stdout", "text": "a \"line\"" }),
        json!({ "event": "output", "process": "speaks@x", "stream": "stderr", "text": "odd" }),
        ended("speaks@x", Some(0), None, false),
        ended("dies@y", None, Some(11), false),
        ended("killed@y", None, Some(9), true),
    ] {
        assert!(events.contains(&expected), "{expected} is not among {events:?}");
    }
    assert_eq!(events.last(), Some(&json!({ "event": "done", "status": 139 })));
    let (code, error) = status_and_stderr(gridloom(&["deploy", "-d", "/nowhere", "--json", "--", "true"]));
    assert!(code == 1 && serde_json::from_str::<Value>(&error).unwrap()["error"].is_string(), "{error}");
}

#[test]
fn each_process_may_be_of_its_own_program() {
    let one = "[[process]]\nhost = 'x'\nfunction = 'one'\nprogram = ['sh', '-c', ': > \"$GRIDLOOM_PROCESS_READY\"; echo own']\n";
    let two = "[[process]]\nhost = 'y'\nfunction = 'two'\nstart_time = 0.5\n";
    assert_eq!(succeeds(deploy("programs", &format!("{one}{two}"), "echo $1")), "one@x| own\ntwo@y| two\n");
    let none = file("no-program.toml", &format!("{one}{two}"));
    let (status, error) = status_and_stderr(gridloom(&["deploy", "-d", &none]));
    assert!(status == 1 && error.contains("which program is 'two@y' a process of?"), "{error}");
    assert_eq!(succeeds(gridloom(&["deploy", "-d", &file("own-program.toml", one)])), "one@x| own\n");
}

#[test]
fn nothing_else_starts_if_the_first_ends_before_it_asks() {
    let deployment =
        file("first.toml", "[[process]]\nhost = 'x'\nfunction = 'one'\n[[process]]\nhost = 'y'\nfunction = 'two'\n");
    let mut command =
        gridloom(&["deploy", "-d", &deployment, "--", "sh", "-c", "echo \"$GRIDLOOM_DEPLOYMENT\" >&2; exit 2"]);
    command.env_remove("GRIDLOOM_TESTBED_HOST");
    let (status, error) = status_and_stderr(command);
    assert_eq!(status, 2);
    let deployment = std::fs::canonicalize(deployment).unwrap().display().to_string();
    let expected = "gridloom: one@x ended with exit status: 2\ngridloom: nothing else was started\n";
    // Its output arrives through another pipe.
    assert_eq!(error.replace(&format!("one@x| {deployment}\n"), ""), expected);
}

#[test]
fn a_program_that_never_asks_who_it_is_has_run_no_process() {
    let deployment = file("never-asks.toml", "[[process]]\nhost = 'x'\nfunction = 'f'\n");
    let (status, error) = status_and_stderr(gridloom(&["deploy", "-d", &deployment, "--", "true"]));
    assert_eq!(status, 1);
    assert!(error.starts_with("gridloom: f@x ended without asking which process it is: "), "{error}");
}

#[test]
fn programs_end_with_the_command_that_started_them() {
    let deployment = "[[process]]\nhost = 'x'\nfunction = 'f'\n";
    let platform = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/two-sites.toml");
    let simulated = gridloom(&["simulate", "-p", platform, "--", "sh", "-c", "echo f@x\\| $$; exec sleep 1000"]);
    for command in [deploy("orphan", deployment, "echo $$; exec sleep 1000"), simulated] {
        let (mut child, _, line) = start(command);
        let pid: u32 = line.trim().strip_prefix("f@x| ").unwrap().parse().unwrap();
        send(&child, "-KILL");
        child.wait().unwrap();
        process_ended(pid);
    }
}

#[test]
fn invalid_input_is_rejected() {
    let late = "[[process]]\nhost = 'x'\nfunction = 'f'\nstart_time = '1e30s'\n";
    let (status, error) = status_and_stderr(deploy("late", late, "true"));
    assert!(status == 1 && error.contains("late.toml:4:14: start_time is 1"), "{error}");
    let mut inside = deploy("inside", "[[process]]\nhost = 'x'\nfunction = 'f'\n", "true");
    let (status, error) = status_and_stderr(inside.env("GRIDLOOM_TESTBED_HOST", "here"));
    assert!(status == 1 && error.contains("this is host 'here' of a testbed"), "{error}");
}

#[test]
fn what_a_process_is_itself_it_does_not_hand_on() {
    let gang = [("GRIDLOOM_GANG", "{}"), ("GRIDLOOM_PROCESSOR", "0"), ("GRIDLOOM_DEPLOYMENT", "outer.toml")];
    let script = "echo ${GRIDLOOM_GANG-no} ${GRIDLOOM_PROCESSOR-no} ${GRIDLOOM_DEPLOYMENT-no}";
    // The programs differ, so the first process does not check the file.
    let other = "function = 'b'\nprogram = ['sh', '-c', ': > \"$GRIDLOOM_PROCESS_READY\"']\n";
    let deployment = format!("[[process]]\nhost = 'x'\nfunction = 'a'\n[[process]]\nhost = 'x'\n{other}");
    let mut command = deploy("inside", &deployment, script);
    assert_eq!(succeeds_with(&mut command, gang), "a@x| no no no\n");
    let hosts = "[[host]]\nname = 'a'\nspeed = '1Gf'\n[[host]]\nname = 'b'\nspeed = '1Gf'\n";
    let lan = "[[star]]\nname = 'lan'\nhosts = ['a', 'b']\nbandwidth = '1GBps'\nlatency = '50us'\n";
    let platform = file("inside.platform.toml", &format!("{hosts}{lan}"));
    let mut command = gridloom(&["simulate", "-p", &platform, "--", "sh", "-c", script]);
    assert_eq!(succeeds_with(&mut command, gang), "no no no\n");
}

fn succeeds_with(command: &mut Command, variables: [(&str, &str); 3]) -> String {
    let output = command.envs(variables).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns a `gridloom deploy` of a script on the hosts of a lab.
fn deploy_on(lab: &Lab, deployment: &str, script: &str) -> Command {
    let file = lab.folder.join("processes.toml");
    std::fs::write(&file, deployment).unwrap();
    let hosts = lab.folder.join("grid.toml");
    let options = ["deploy", "-d", path(&file), "--hosts", path(&hosts), "--ssh", &lab.ssh, "--"];
    lab.command(&[&options[..], &["sh", "-c", &scripted(script)]].concat())
}

const ON_HOSTS: &str = "[[process]]\nhost = 'a'\nfunction = 'first'\n[[process]]\nhost = 'b'\nfunction = 'second'\n";

#[test]
fn processes_run_on_their_hosts() {
    let hosts = host("a", "folder = \"work\"") + &host("b", "user = \"ada\"");
    let lab = Lab::new("deploy-hosts", &hosts);
    std::fs::create_dir_all(lab.folder.join("hosts/a/work")).unwrap();
    let script = r#"folder=$(dirname "$PWD")
        echo "$1 in $(basename "$folder")/$(basename "$PWD"), $(ls "$GRIDLOOM_KEYS" | grep -c .) grid"
        echo "$GRIDLOOM_PROCESS" | grep -o '"addresses":[^}]*}'"#;
    let mut lines: Vec<String> = succeeds(deploy_on(&lab, ON_HOSTS, script)).lines().map(String::from).collect();
    lines.sort();
    let addresses = r#""addresses":{"a":"127.0.0.1","b":"127.0.0.1"}"#;
    let expected = [
        format!("first@a| {addresses}"),
        "first@a| first in a/work, 1 grid".into(),
        format!("second@b| {addresses}"),
        "second@b| second in hosts/b, 1 grid".into(),
    ];
    assert_eq!(lines, expected);
    let words = std::fs::read_to_string(lab.folder.join("words")).unwrap();
    assert!(words.contains("-l ada -- b gridloom host") && !words.contains("PRIVATE"), "{words}");
}

#[test]
fn a_failure_on_a_host_is_the_status_of_the_run() {
    let lab = Lab::new("deploy-failure", &(host("a", "") + &host("b", "")));
    let (status, errors) = status_and_stderr(deploy_on(&lab, ON_HOSTS, "test $1 = first || exit 7"));
    assert!(status == 7 && errors.contains("second@b ended with exit status: 7"), "{status}: {errors}");
    let (status, errors) =
        status_and_stderr(deploy_on(&lab, ON_HOSTS, "test $1 = first || rm \"$GRIDLOOM_PROCESS_READY\""));
    assert!(status == 1 && errors.contains("second@b| gridloom: it ended without asking"), "{status}: {errors}");
}

#[test]
fn processes_on_hosts_end_with_the_command() {
    let lab = Lab::new("deploy-end", &host("a", ""));
    let deployment = "[[process]]\nhost = 'a'\nfunction = 'runs'\n";
    // The program of a script has another number than the script, and time to end by itself.
    let ended = lab.folder.join("ended");
    let program =
        "trap 'sleep 0.2; : > \"$ENDED\"; exit' TERM; echo $$; exec > /dev/null 2>&1; while true; do sleep 0.05; done";
    let script = format!("export ENDED={}; sh -c {}; true", quoted(path(&ended)), quoted(program));
    for (script, is_program) in [("echo $$; exec sleep 1000", false), (script.as_str(), true)] {
        for signal in ["-TERM", "-KILL"] {
            let (mut child, _output, line) = start(deploy_on(&lab, deployment, script));
            let pid = line.trim().split(' ').next_back().unwrap().parse().unwrap();
            send(&child, signal);
            child.wait().unwrap();
            process_ended(pid);
            assert_eq!(std::fs::remove_file(&ended).is_ok(), is_program, "{signal}");
        }
    }
}

#[test]
fn what_a_process_has_started_ends_with_it() {
    let lab = Lab::new("deploy-left", &host("a", ""));
    let deployment = "[[process]]\nhost = 'a'\nfunction = 'leaves'\n";
    let output = succeeds(deploy_on(&lab, deployment, "sleep 1000 > /dev/null 2>&1 & echo $!"));
    process_ended(output.trim().strip_prefix("leaves@a| ").unwrap().parse().unwrap());
}

#[test]
fn hosts_that_cannot_reach_each_other_are_refused() {
    let other = host("b", "").replace("127.0.0.1", "192.0.2.7");
    let lab = Lab::new("deploy-addresses", &(host("a", "") + &other));
    let (status, errors) = status_and_stderr(deploy_on(&lab, ON_HOSTS, "echo ran >&2"));
    let told = "grid.toml: host 'a' has the loopback address 127.0.0.1, so host 'b' (192.0.2.7) cannot reach it; set the property \
                'address' of 'a'";
    assert!(status == 1 && errors.contains(told) && !errors.contains("ran"), "{status}: {errors}");
}

#[test]
fn nothing_starts_unless_all_hosts_answer() {
    let lab = Lab::new("deploy-silent", &(host("a", "") + &host("silent", "")));
    let deployment = ON_HOSTS.replace("'b'", "'silent'");
    let (status, errors) = status_and_stderr(deploy_on(&lab, &deployment, "echo ran >&2"));
    assert!(
        status == 1 && errors.contains("silent: it does not answer") && !errors.contains("ran"),
        "{status}: {errors}"
    );
    let (status, errors) = status_and_stderr(deploy_on(&lab, &deployment.replace("silent", "silnt"), "echo ran >&2"));
    assert!(status == 1 && errors.contains("no host 'silnt'; did you mean 'silent'?"), "{status}: {errors}");
}
