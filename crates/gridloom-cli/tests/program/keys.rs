//! `gridloom keys`: a grid is made, a machine is admitted, its certificate renewed and revoked; and the errors on the way.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gridloom_keys::{Grant, Identity, KeysFolder, Role, UnixTime};

use crate::support::{folder, gridloom, status_and_stderr, succeeds};

/// Returns an empty folder for the keys of the machines of a test.
fn machines(name: &str) -> PathBuf {
    let machines = folder("keys").join(name);
    let _ = std::fs::remove_dir_all(&machines);
    std::fs::create_dir_all(&machines).unwrap();
    machines
}

/// Returns `gridloom keys` with the keys in that folder.
fn keys(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = gridloom(&[&["keys"], arguments].concat());
    command.env("GRIDLOOM_KEYS", folder).env("USER", "carol");
    command
}

fn error(folder: &Path, arguments: &[&str]) -> String {
    let (code, error) = status_and_stderr(keys(folder, arguments));
    assert!(code == 1 || code == 2, "{code}: {error}");
    error
}

fn json(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&succeeds(keys(folder, arguments))).unwrap()
}

/// Writes a file into that folder and returns its path.
fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn a_certificate_of_functions_shows_the_user_for_whom_they_act() {
    let place = machines("user");
    let identity = |role, name: &str| Identity::new("lab", role, name).unwrap();
    let grid =
        KeysFolder::at(place.join("head")).create(&identity(Role::Administrator, "carol"), UnixTime::now()).unwrap();
    let grant = Grant { user: Some("anna".into()), ..Grant::new(identity(Role::Functions, "s1")) };
    let functions = place.join("functions");
    KeysFolder::at(&functions).store(&grid.issue(&grant, UnixTime::now()).unwrap()).unwrap();
    let listed = succeeds(keys(&functions, &["list"]));
    let own = "own certificate: functions of the server 's1' of the grid 'lab', only for the user 'anna', functions *, until ";
    assert!(listed.contains(own), "{listed}");
    assert_eq!(json(&functions, &["list", "--json"])["grids"][0]["certificate"]["user"], "anna");
    let user = &json(&place.join("head"), &["list", "--json"])["grids"][0]["certificate"]["user"];
    assert!(user.is_null(), "{user}");
}

#[test]
fn a_machine_is_admitted_to_a_grid_and_later_revoked() {
    let place = machines("whole");
    let (head, node) = (place.join("head"), place.join("node"));
    let made = succeeds(keys(&head, &["init", "lab"]));
    assert!(made.contains("own certificate: administrator 'carol' of the grid 'lab', functions *, until "), "{made}");
    let mode = |path: &str| std::fs::metadata(head.join(path)).unwrap().mode() & 0o777;
    assert_eq!((mode("lab"), mode("lab/authority.key"), mode("lab/own.key")), (0o700, 0o600, 0o600));

    let request = ["request", "lab", "--role", "server", "--name", "node 7", "--functions", "linalg/*,fft/plan"];
    let request = succeeds(keys(&node, &request));
    let file = written(&place, "request.pem", &request);
    let fingerprint = request.lines().find_map(|line| line.strip_prefix("Fingerprint: ")).unwrap();
    let shown = succeeds(keys(&head, &["approve", &file, "--show"]));
    assert!(
        shown.starts_with("request of: server 'node 7' of the grid 'lab'\nfunctions: fft/plan linalg/*\n"),
        "{shown}"
    );
    assert!(shown.contains(fingerprint), "{shown}");
    let listed = succeeds(keys(&node, &["list"]));
    assert!(
        listed.contains(&format!("requested: server 'node 7' of the grid 'lab', fingerprint {fingerprint}")),
        "{listed}"
    );

    let output = keys(&head, &["approve", &file, "--fingerprint", fingerprint, "--days", "30"]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.starts_with("approved: server 'node 7' of the grid 'lab', functions fft/plan linalg/*, until "),
        "{told}"
    );
    assert!(told.contains(&format!("fingerprint of the key: {fingerprint}")), "{told}");
    let certificate = written(&place, "certificate.pem", std::str::from_utf8(&output.stdout).unwrap());
    let authority = json(&head, &["list", "--json"])["grids"][0]["authority"].as_str().unwrap().to_string();
    let installed = succeeds(keys(&node, &["install", &certificate, "--authority", &authority]));
    assert!(installed.starts_with("installed: server 'node 7'") && installed.contains(&authority), "{installed}");

    // Elsewhere than at the authority, a renewal is a request.
    let renewal = succeeds(keys(&node, &["renew"]));
    assert!(renewal.starts_with("Request for a certificate of the server 'node 7' of the grid 'lab'"), "{renewal}");
    let file = written(&place, "renewal.pem", &renewal);
    let refused = error(&head, &["approve", &file]);
    assert!(refused.contains("has a certificate of another key until") && refused.contains("--again"), "{refused}");
    let renewed = json(&head, &["approve", &file, "--again", "--json"]);
    let mut install = keys(&node, &["install", "-"]);
    let mut running = install.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(renewed["pem"].as_str().unwrap().as_bytes()).unwrap();
    assert!(running.wait_with_output().unwrap().status.success());
    assert_eq!(json(&node, &["list", "--json"])["grids"][0]["certificate"]["serial"], renewed["serial"]);
    assert!(succeeds(keys(&head, &["renew", "--days", "10"])).starts_with("renewed: administrator 'carol'"));

    let revoked = json(&head, &["revoke", "node 7", "--reason", "stolen", "--json"]);
    assert_eq!(revoked["revoked"].as_array().unwrap().len(), 3, "{revoked}");
    let listed = succeeds(keys(&head, &["list"]));
    assert_eq!(listed.matches("server 'node 7', functions fft/plan linalg/*, revoked at ").count(), 2, "{listed}");
    assert!(listed.contains(": stolen") && listed.contains("on this machine"), "{listed}");
    let all = json(&head, &["list", "--json"]);
    assert_eq!(all["grids"][0]["issued"].as_array().unwrap().len(), 4, "{all}");
    // A request that waits in the authority's folder is approved by its fingerprint.
    let alice = succeeds(keys(&place.join("alice"), &["request", "lab", "--name", "alice"]));
    let fingerprint = alice.lines().find_map(|line| line.strip_prefix("Fingerprint: ")).unwrap();
    std::fs::create_dir(head.join("lab/requests")).unwrap();
    let waiting = written(&head.join("lab/requests"), &format!("{fingerprint}.pem"), &alice);
    std::fs::set_permissions(&waiting, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(succeeds(keys(&head, &["list"])).contains("waits for approval: client 'alice' of the grid 'lab'"));
    assert_eq!(json(&head, &["approve", fingerprint, "--json"])["name"], "alice");
    assert!(!Path::new(&waiting).exists());
    // A serial number selects a certificate.
    let serial = all["grids"][0]["issued"][0]["serial"].as_str().unwrap();
    assert!(succeeds(keys(&head, &["revoke", serial])).starts_with("revoked: administrator 'carol'"));
    let listed = succeeds(keys(&head, &["list"]));
    assert!(!listed.contains("PRIVATE"), "{listed}");
}

#[test]
fn errors_name_the_value_and_the_remedy() {
    let place = machines("errors");
    let (head, node) = (place.join("head"), place.join("node"));
    assert!(succeeds(keys(&head, &["list"])).starts_with("no keys in "));
    let file = written(&place, "request.pem", &succeeds(keys(&node, &["request", "lab", "--name", "alice"])));
    for (arguments, why) in [
        (&["approve", &file][..], "there are no keys of the grid 'lab' in"),
        (&["renew"][..], "'gridloom keys init' makes a grid"),
        (&["revoke", "alice"][..], "there are no keys in"),
        (&["init", "a/b"][..], "the character '/' is not allowed"),
        (&["init", ".."][..], "begins with a dot"),
        (&["init", "lab", "--name", "a\x1b[2J"][..], "the control character '\\u{1b}' is not allowed"),
        (&["init", "lab", "--name", "a\u{202e}b"][..], "is not allowed"),
        (
            &["request", "lab", "--role", "root"][..],
            "'root' is not a role; use agent, server, client, administrator or relay",
        ),
        (&["request", "lab", "--name", "a\nb"][..], "the control character '\\n' is not allowed"),
        (&["request", "lab", "--functions", "linalg"][..], "such as 'linalg/*'"),
        (&["request", "lab", "--functions", "a/b/c"][..], "'/' is not allowed"),
    ] {
        let error = error(&head, arguments);
        assert!(error.contains(why) && !error.contains('\x1b'), "{arguments:?}: {error}");
    }
    succeeds(keys(&head, &["init", "lab"]));
    let here = |name: &str, text: &str| written(&place, name, text);
    let (blank, key) = (here("blank.pem", ""), std::fs::read_to_string(head.join("lab/own.key")).unwrap());
    let with_key = here("key.pem", &(std::fs::read_to_string(&file).unwrap() + &key));
    let own = std::fs::read_to_string(head.join("lab/own.pem")).unwrap();
    let missing = place.join("none.pem").to_str().unwrap().to_string();
    let long = here("long.pem", &"x".repeat(100_000));
    for (arguments, why) in [
        (&["init", "lab"][..], "there are keys of the grid 'lab'"),
        (&["approve", &missing][..], "No such file"),
        (&["approve", place.to_str().unwrap()][..], "it is a folder"),
        (&["approve", &blank][..], "blank.pem: it is not a request for a certificate"),
        (&["approve", &long][..], "which is the limit"),
        (&["approve", &with_key][..], "has a private key; never send one"),
        (&["approve", &here("own.pem", &own)][..], "not signed by its own key"),
        (&["approve", &file, "--days", "0"][..], "1..=3650"),
        (&["approve", &file, "--role", "boss"][..], "'boss' is not a role"),
        (&["approve", &file, "--fingerprint", "12"][..], "expected 40 hexadecimal digits"),
        (&["approve", &file, "--fingerprint", &"0".repeat(40)][..], "was expected; ask the requester"),
        (&["approve", &"0".repeat(40)][..], "no request with the fingerprint 0000"),
        (&["install", &missing][..], "No such file"),
        (&["install", &blank][..], "blank.pem: expected a certificate and that of its authority"),
        (&["revoke", "alice"][..], "no recorded certificate has the name 'alice'"),
        (&["revoke", "41000000000000000000000000000000"][..], "no certificate has the serial number"),
        (&["revoke", "carol", "--reason", " "][..], "not only blanks"),
        (&["renew", "--grid", "other"][..], "no keys of the grid 'other'"),
        (&["list", "--grid", "other"][..], "no keys of the grid 'other'"),
    ] {
        let error = error(&head, arguments);
        assert!(error.contains(why), "{arguments:?}: {error}");
    }
    // Servers beside the authority issue their certificates themselves.
    let revoked = succeeds(keys(&head, &["revoke", "carol", "--role", "server"]));
    assert_eq!(
        revoked,
        "revoked: server 'carol' of the grid 'lab', all certificates up to now\n\
         revoked: functions of the server 'carol' of the grid 'lab', all certificates up to now\n"
    );
    let waits = error(&node, &["request", "lab"]);
    assert!(waits.contains("waits for approval") && waits.contains("--replace"), "{waits}");
    succeeds(keys(&node, &["request", "lab", "--name", "alice", "--replace"]));
    let elsewhere = error(&node, &["approve", &file]);
    assert!(elsewhere.contains("the authority of the grid 'lab' is not on this machine"), "{elsewhere}");
    let unfinished = error(&node, &["renew"]);
    assert!(unfinished.contains("the request waits for approval"), "{unfinished}");

    // The key of another request: the first was replaced.
    let certificate = here("certificate.pem", &succeeds(keys(&head, &["approve", &file])));
    let replaced = error(&node, &["install", &certificate]);
    assert!(replaced.contains("no private key in") && replaced.contains("client 'alice'"), "{replaced}");
    let twice = error(
        &head,
        &["approve", &here("again.pem", &succeeds(keys(&node, &["request", "lab", "--name", "alice", "--replace"])))],
    );
    assert!(twice.contains("client 'alice' of the grid 'lab' has a certificate of another key"), "{twice}");

    std::fs::set_permissions(head.join("lab/authority.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let shared = error(&head, &["approve", &file]);
    assert!(shared.contains("(mode 0644); run: chmod 600 '"), "{shared}");
    let mut relative = gridloom(&["keys", "list"]);
    let (_, wrong) = status_and_stderr(relative.env("GRIDLOOM_KEYS", "keys"));
    assert!(wrong.contains("GRIDLOOM_KEYS is 'keys'; set it to an absolute path"), "{wrong}");
}

#[test]
fn the_configuration_folder_has_the_keys_of_several_grids() {
    let place = machines("several");
    let user = |arguments: &[&str]| {
        let mut command = gridloom(&[&["keys"], arguments].concat());
        command.env_remove("GRIDLOOM_KEYS").env("XDG_CONFIG_HOME", &place);
        command
    };
    succeeds(user(&["init", "lab"]));
    // By default, the grid is named after the host.
    let made: serde_json::Value = serde_json::from_str(&succeeds(user(&["init", "--json"]))).unwrap();
    let folder = place.join("gridloom/keys").join(made["grid"].as_str().unwrap());
    assert!(folder.join("own.pem").exists() && place.join("gridloom/keys/lab/own.pem").exists());
    let (_, error) = status_and_stderr(user(&["renew"]));
    assert!(error.contains("there are keys of several grids") && error.contains("choose one with --grid"), "{error}");
    succeeds(user(&["renew", "--grid", "lab"]));
    assert_eq!(succeeds(user(&["list"])).matches("own certificate: administrator").count(), 2);
}
