//! Keys in files: what each step writes, and errors of wrong, missing and shared files.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gridloom_keys::{
    DAY, Grant, Identity, KeysError, KeysFolder, Patterns, Record, Refusal, Request, Revoked, Role, UnixTime,
};

/// A folder for one test, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let folder = std::env::temp_dir().join(format!("gridloom-keys-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Place(folder)
    }

    fn keys(&self, user: &str) -> KeysFolder {
        KeysFolder::at(self.0.join(user))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn now() -> UnixTime {
    UnixTime::now()
}

fn later(duration: Duration) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(now().as_secs()) + duration)
}

fn identity(role: Role, name: &str) -> Identity {
    Identity::new("lab", role, name).unwrap()
}

fn administrator() -> Identity {
    identity(Role::Administrator, "root")
}

fn modes(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mode = fs::metadata(&path).unwrap().mode() & 0o777;
        match path.is_dir() {
            true => {
                assert_eq!(mode, 0o700, "{}", path.display());
                modes(&path);
            }
            false => assert_eq!(mode, 0o600, "{}", path.display()),
        }
    }
}

#[test]
fn a_request_is_approved_and_installed_and_the_certificate_is_accepted() {
    let place = Place::new("whole");
    let (head, laptop) = (place.keys("head"), place.keys("laptop"));
    let grid = head.create(&administrator(), now()).unwrap();
    let new = laptop.grid("lab").unwrap();
    let functions = Patterns::new(["linalg/*".parse().unwrap()]).unwrap();
    let text = new.request(Role::Client, "alice", &functions, false, now()).unwrap().to_pem();
    assert!(
        text.starts_with("Request for a certificate of the client 'alice' of the grid 'lab'\nFunctions: linalg/*\n")
    );
    assert!(matches!(new.own(), Err(KeysError::Missing(why)) if why.contains("waits for approval")));
    let again = new.request(Role::Client, "alice", &functions, false, now()).unwrap_err().to_string();
    assert!(again.contains("waits for approval") && again.contains("--replace"), "{again}");

    let request = Request::from_pem(text.as_bytes(), now()).unwrap();
    grid.add_pending(&request, now()).unwrap();
    assert_eq!(grid.pending(now()).unwrap(), std::slice::from_ref(&request));
    fs::write(grid.path().join("requests/notes.pem"), "of the administrator").unwrap();
    assert!(grid.pending(later(31 * DAY)).unwrap().is_empty());
    assert_eq!(fs::read_dir(grid.path().join("requests")).unwrap().count(), 1, "only the expired one is removed");
    fs::remove_file(grid.path().join("requests/notes.pem")).unwrap();
    grid.add_pending(&request, now()).unwrap();
    let grant = Grant { functions, ..Grant::new(identity(Role::Client, "alice")) };
    let issued = grid.approve(&request, &grant, false, now()).unwrap();
    assert!(grid.pending(now()).unwrap().is_empty());
    let certificate =
        new.install(issued.to_pem().as_bytes(), Some(grid.authority().unwrap().fingerprint()), now()).unwrap();
    assert_eq!(certificate, issued.certificate);
    assert!(new.requested(now()).unwrap().is_none());
    // Installing it a second time changes nothing.
    new.install(issued.to_pem().as_bytes(), None, now()).unwrap();
    let own = new.membership().unwrap().credentials.certificate();
    let trust = grid.trust().unwrap();
    assert_eq!(trust.verify(std::slice::from_ref(&own.der), now()).unwrap().identity.name(), "alice");
    modes(&place.0.join("head"));
    modes(&place.0.join("laptop"));
    assert_eq!(laptop.memberships().unwrap().0.iter().count(), 1);

    let records = grid.issued().unwrap();
    assert_eq!(records.iter().map(|record| record.identity.name()).collect::<Vec<_>>(), ["root", "alice"]);
    assert_eq!(records[1].pem, certificate.to_pem());
    grid.revoke(&[Revoked::Identity(certificate.identity.clone())], "left", now()).unwrap();
    assert!(matches!(
        grid.trust().unwrap().verify(std::slice::from_ref(&own.der), now()),
        Err(Refusal::Revoked { .. })
    ));
    new.add_revocations(&grid.revocations().unwrap()).unwrap();
    let refused = new.install(issued.to_pem().as_bytes(), None, now()).unwrap_err();
    assert!(matches!(refused, KeysError::Refused(Refusal::Revoked { .. })), "{refused}");
    // The same person gets a new certificate, which the revocation does not concern.
    let request = new.request(Role::Client, "alice", &Patterns::all(), false, now()).unwrap();
    let issued = grid.approve(&request, &grant, false, now()).unwrap();
    let later = later(Duration::from_secs(2));
    assert!(grid.trust().unwrap().verify(std::slice::from_ref(&issued.certificate.der), later).is_ok());
    new.install(issued.to_pem().as_bytes(), None, later).unwrap();
}

#[test]
fn a_name_is_given_twice_only_on_request() {
    let place = Place::new("twice");
    let grid = place.keys("head").create(&administrator(), now()).unwrap();
    let ask = |user: &str| {
        let folder = place.keys(user).grid("lab").unwrap();
        folder.request(Role::Server, "node 7", &Patterns::all(), false, now()).unwrap()
    };
    let (one, other) = (ask("one"), ask("other"));
    let grant = Grant::new(identity(Role::Server, "node 7"));
    grid.approve(&one, &grant, false, now()).unwrap();
    let error = grid.approve(&other, &grant, false, now()).unwrap_err().to_string();
    assert!(error.contains("server 'node 7' of the grid 'lab' has a certificate of another key until"), "{error}");
    // The same key: a renewal.
    grid.approve(&one, &grant, false, now()).unwrap();
    grid.approve(&other, &grant, true, now()).unwrap();
    // Expired records are dropped.
    let after = later(91 * DAY);
    let other =
        place.keys("third").grid("lab").unwrap().request(Role::Server, "node 7", &Patterns::all(), false, after);
    grid.approve(&other.unwrap(), &grant, false, after).unwrap();
    assert_eq!(grid.issued().unwrap().len(), 1);
}

#[test]
fn own_certificates_are_renewed_and_others_issued_where_the_authority_is() {
    let place = Place::new("renew");
    let grid = place.keys("head").create(&administrator(), now()).unwrap();
    let membership = grid.membership().unwrap();
    let before = membership.credentials.certificate();
    let new = grid.renew(30 * DAY, now()).unwrap();
    assert!(new.serial != before.serial && new.identity == before.identity && new.not_after < before.not_after);
    assert!(grid.refresh(&membership).unwrap() && !grid.refresh(&membership).unwrap());
    assert_eq!(membership.credentials.certificate().serial, new.serial);
    grid.revoke(&[Revoked::Certificate(before.serial)], "renewed", now()).unwrap();
    assert!(grid.refresh(&membership).unwrap());
    assert_eq!(*membership.trust.revocations(), grid.revocations().unwrap());
    let job = Grant { lifetime: Duration::from_secs(3600), ..Grant::new(identity(Role::Server, "job 12")) };
    let bundle = grid.issue(&job, now()).unwrap();
    assert!(grid.trust().unwrap().verify(std::slice::from_ref(&bundle.issued.certificate.der), now()).is_ok());
    let elsewhere = place.keys("laptop").grid("lab").unwrap();
    let error = elsewhere.issue(&job, now()).unwrap_err().to_string();
    assert!(error.contains("the authority of the grid 'lab' is not on this machine"), "{error}");
}

#[test]
fn functions_of_a_revoked_user_get_no_certificate_until_the_user_is_admitted_again() {
    let place = Place::new("revoked-user");
    let (grid, now) = (place.keys("head").create(&administrator(), now()).unwrap(), now());
    let second = |count| UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs() + count));
    let of_anna = Grant { user: Some("anna".into()), ..Grant::new(identity(Role::Functions, "s1")) };
    let old = grid.issue(&of_anna, now).unwrap().issued.certificate;
    grid.revoke(&[Revoked::Identity(identity(Role::Client, "anna"))], "left", now).unwrap();
    let error = grid.issue(&of_anna, second(1)).unwrap_err();
    assert!(matches!(&error, KeysError::Refused(Refusal::Revoked { reason, .. }) if reason == "left"), "{error}");
    let of_bert = Grant { user: Some("bert".into()), ..of_anna.clone() };
    grid.issue(&of_bert, second(1)).unwrap();

    let request = place.keys("laptop").grid("lab").unwrap();
    let request = request.request(Role::Client, "anna", &Patterns::all(), false, now).unwrap();
    grid.approve(&request, &Grant::new(identity(Role::Client, "anna")), false, now).unwrap();
    // In the second of the revocation.
    let new = grid.issue(&of_anna, now).unwrap().issued.certificate;
    let revocations = grid.revocations().unwrap();
    assert!(revocations.of(&old).is_some() && revocations.of(&new).is_none());
}

#[test]
fn a_grid_is_made_once_even_by_many_at_a_time() {
    let place = Place::new("once");
    let keys = place.keys("head");
    let made = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| keys.create(&administrator(), now()).is_ok())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|made| *made).count()
    });
    assert_eq!(made, 1);
    let error = keys.create(&administrator(), now()).unwrap_err().to_string();
    assert!(error.contains("there are keys of the grid 'lab'") && error.contains("another name"), "{error}");
    keys.grid("lab").unwrap().own().unwrap();
    assert_eq!(keys.existing_or_new(now()).unwrap().grid(), "lab");
    let fresh = place.keys("fresh");
    let first = fresh.existing_or_new(now()).unwrap();
    assert_eq!(
        fresh.existing_or_new(now()).unwrap().own().unwrap().issued.certificate,
        first.own().unwrap().issued.certificate
    );
    let entries = fs::read_dir(keys.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(entries.into_iter().all(|name| name == "lab" || name == ".lock"), "a trial is left");
    // A reader finds a certificate and the key that belongs to it, also while both are replaced.
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                keys.grid("lab").unwrap().own().unwrap();
            }
        });
        (0..20).for_each(|_| drop(keys.grid("lab").unwrap().renew(DAY, now()).unwrap()));
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        reader.join().unwrap();
    });
    // Records of many at a time are complete. Certificates that nodes issue for themselves are not recorded.
    let grid = keys.grid("lab").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..4).for_each(|_| drop(grid.renew(DAY, now()).unwrap())));
        }
        let grant = Grant::new(identity(Role::Server, "node 1"));
        drop(grid.issue(&grant, now()).unwrap());
    });
    assert_eq!(grid.issued().unwrap().len(), 1 + 20 + 16);
}

#[test]
fn one_unusable_grid_and_a_waiting_request_do_not_disturb_others() {
    let place = Place::new("unusable");
    let keys = place.keys("user");
    keys.create(&administrator(), now()).unwrap();
    fs::create_dir(keys.path().join("other")).unwrap();
    fs::write(keys.path().join("other").join("own.pem"), "cut off").unwrap();
    let (usable, errors) = keys.memberships().unwrap();
    assert_eq!((usable.iter().count(), errors.len()), (1, 1));
    fs::remove_dir_all(keys.path().join("lab")).unwrap();
    assert!(keys.memberships().is_err());
    let waiting = place.keys("waiting");
    waiting.grid("elsewhere").unwrap().request(Role::Client, "alice", &Patterns::all(), false, now()).unwrap();
    assert_ne!(waiting.existing_or_new(now()).unwrap().grid(), "elsewhere");
}

#[test]
fn grids_lie_side_by_side() {
    let place = Place::new("several");
    let keys = place.keys("user");
    let error = |grid: Option<&str>| keys.existing(grid).unwrap_err().to_string();
    assert!(error(None).contains("there are no keys in"), "{}", error(None));
    for grid in ["lab", "home"] {
        keys.create(&Identity::new(grid, Role::Administrator, "root").unwrap(), now()).unwrap();
    }
    assert_eq!(keys.existing(Some("home")).unwrap().grid(), "home");
    assert!(error(None).contains("several grids: home, lab; choose one with --grid"), "{}", error(None));
    assert!(error(Some("other")).contains("no keys of the grid 'other'"));
    assert!(error(Some("../lab")).contains("'/' is not allowed"));
    assert_eq!(keys.memberships().unwrap().0.iter().count(), 2);
}

#[test]
fn files_that_others_can_use_are_refused() {
    let place = Place::new("modes");
    let keys = place.keys("user");
    let grid = keys.create(&administrator(), now()).unwrap();
    let chmod = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for name in ["authority.key", "own.key", "own.pem", "authority.pem"] {
        let path = grid.path().join(name);
        chmod(&path, 0o640);
        let error = [grid.own().err(), grid.authority().err()].into_iter().flatten().next().unwrap().to_string();
        let remedy = format!("other users can use the file (mode 0640); run: chmod 600 '{}'", path.display());
        assert!(error.ends_with(&remedy), "{error}");
        chmod(&path, 0o600);
    }
    chmod(grid.path(), 0o750);
    let error = grid.own().unwrap_err().to_string();
    let path = grid.path().display();
    assert!(error.contains("folder (mode 0750)") && error.ends_with(&format!("chmod 700 '{path}'")), "{error}");
    chmod(grid.path(), 0o700);
    grid.own().unwrap();
}

#[test]
fn damaged_files_are_named_with_the_line() {
    let place = Place::new("damaged");
    let keys = place.keys("user");
    let grid = keys.create(&administrator(), now()).unwrap();
    let other = keys.create(&Identity::new("other", Role::Administrator, "root").unwrap(), now()).unwrap();
    let text = |grid: &gridloom_keys::GridFolder, name: &str| fs::read_to_string(grid.path().join(name)).unwrap();
    let error_with = |name: &str, content: &str| {
        let path = grid.path().join(name);
        let before = fs::read(&path).ok();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let errors = [grid.own().err(), grid.authority().err(), grid.issued().err(), grid.trust().err()];
        let error = errors.into_iter().flatten().next().unwrap().to_string();
        match before {
            Some(before) => fs::write(&path, before).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        assert!(error.starts_with(path.to_str().unwrap()), "{error}");
        error
    };
    let issued = text(&grid, "issued");
    for (name, content, why) in [
        ("own.pem", "".to_string(), "expected one certificate, and there are 0"),
        ("own.pem", text(&grid, "own.pem").replacen("\nM", "\n!", 1), ":2: it is not a complete PEM text"),
        ("own.pem", text(&other, "own.pem"), "own.pem: the certificate is of the grid 'other'"),
        ("own.pem", text(&grid, "authority.pem"), "three parts"),
        ("own.key", text(&other, "own.key"), "the private key does not belong to the certificate"),
        ("own.key", "".to_string(), "expected one private key, and there are 0"),
        ("authority.pem", text(&grid, "own.pem"), "not the certificate of an authority"),
        ("authority.pem", text(&other, "authority.pem"), "it is the authority of the grid 'other'"),
        ("authority.key", text(&other, "authority.key"), "does not belong to the certificate of the authority"),
        ("issued", format!("{issued}{{\n"), ":2: column"),
        ("issued", issued.replace("\"functions\"", "\"funktions\""), ":1: column"),
        ("revoked", "\n\n{\"at\":1,\"reason\":\"x\"}\n".to_string(), ":3: expected either a serial or an identity"),
    ] {
        let error = error_with(name, &content);
        assert!(error.contains(why), "{name}: {error}");
    }
    let path = grid.path().join("issued");
    fs::write(&path, b"{}\n\xff").unwrap();
    assert!(grid.issued().unwrap_err().to_string().ends_with("issued:2: it is not UTF-8"));
    // What the program writes, it reads.
    fs::write(&path, &issued).unwrap();
    assert_eq!(Record::from_text(&issued).unwrap(), grid.issued().unwrap());
}

#[test]
fn certificates_of_others_are_not_installed() {
    let place = Place::new("install");
    let keys = place.keys("head");
    let grid = keys.create(&administrator(), now()).unwrap();
    let laptop = place.keys("laptop").grid("lab").unwrap();
    let request = laptop.request(Role::Client, "alice", &Patterns::all(), false, now()).unwrap();
    let grant = Grant::new(identity(Role::Client, "alice"));
    let issued = grid.approve(&request, &grant, false, now()).unwrap();
    let install = |text: &str| laptop.install(text.as_bytes(), None, now()).unwrap_err().to_string();
    let foreign = grid.issue(&Grant::new(identity(Role::Client, "bob")), now()).unwrap();
    assert!(install(&foreign.issued.to_pem()).contains("no private key in"), "{}", install(&foreign.issued.to_pem()));
    assert!(install(&foreign.to_pem()).contains("has a private key; never send one"));
    assert!(install(&issued.certificate.to_pem()).contains("there are 1 certificates"));
    assert!(install("").contains("there are 0 certificates"));
    let old = laptop.install(issued.to_pem().as_bytes(), None, later(91 * DAY)).unwrap_err().to_string();
    assert!(old.contains("has expired"), "{old}");
    let fake = place.keys("fake").create(&administrator(), now()).unwrap();
    let expected = Some(grid.authority().unwrap().fingerprint());
    let forged = fake.approve(&request, &grant, false, now()).unwrap().to_pem();
    let error = laptop.install(forged.as_bytes(), expected, now()).unwrap_err().to_string();
    assert!(error.contains("the fingerprint of the authority is"), "{error}");
    laptop.install(issued.to_pem().as_bytes(), expected, now()).unwrap();
    assert!(install(&forged).contains("has another authority here"));
    let other = place.keys("laptop").grid("other").unwrap();
    let error = other.install(issued.to_pem().as_bytes(), None, now()).unwrap_err().to_string();
    assert!(error.contains("is for the grid 'lab', not for 'other'"), "{error}");
}

#[test]
fn wrong_requests_are_refused() {
    let place = Place::new("requests");
    let grid = place.keys("head").create(&administrator(), now()).unwrap();
    let laptop = place.keys("laptop").grid("lab").unwrap();
    let text = laptop.request(Role::Client, "alice", &Patterns::all(), false, now()).unwrap().to_pem();
    let error = |text: &str, at| Request::from_pem(text.as_bytes(), at).unwrap_err().to_string();
    let own = fs::read_to_string(grid.path().join("own.pem")).unwrap();
    let key = fs::read_to_string(laptop.path().join("requested.key")).unwrap();
    for (text, at, why) in [
        ("hello", now(), "expected one section CERTIFICATE, and there are 0"),
        (&format!("{text}{own}"), now(), "there are 2"),
        (&own, now(), "not signed by its own key"),
        (&format!("{text}{key}"), now(), "has a private key; never send one"),
        (&text, later(31 * DAY), "make a new one"),
        (&"x".repeat(100_000), now(), "the limit is 65536"),
    ] {
        assert!(error(text, at).contains(why), "{}", error(text, at));
    }
    // A changed byte anywhere in the signed part.
    let begin = text.find("-----BEGIN").unwrap();
    let mut accepted = 0;
    for at in begin + 28..text.len() - 30 {
        let mut bytes = text.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        accepted += usize::from(bytes[at] != text.as_bytes()[at] && Request::from_pem(&bytes, now()).is_ok());
    }
    assert_eq!(accepted, 0);
    let other = place.keys("laptop").grid("other").unwrap();
    let request = other.request(Role::Client, "alice", &Patterns::all(), false, now()).unwrap();
    let error = grid.approve(&request, &Grant::new(identity(Role::Client, "alice")), false, now()).unwrap_err();
    assert!(error.to_string().contains("and this is the grid 'lab'"), "{error}");
}
