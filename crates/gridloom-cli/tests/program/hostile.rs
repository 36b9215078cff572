//! Attacks on agent, server and relay: nobody gets in, their memory stays bounded, and calls of others succeed meanwhile. The
//! benchmark `hostile` makes more connections and measures the calls.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gridloom_base::address::NodeAddress;
use gridloom_keys::KeysFolder;
use gridloom_net::identity::Keys;

use crate::support::attacks::{Attack, Attackers, Outcome, resident_kib};
use crate::support::{Grid, Running, admit_user, gridloom, idl, succeeds};

/// Connections of each attack.
const COUNT: usize = 150;
/// Slow connections during all attacks.
const SLOW: usize = 300;
/// Maximum growth of a process's memory: for the buffers of connections that are open at a time.
const GROWTH_KIB_MAX: u64 = 160 << 10;

fn keys_of(folder: &Path) -> Keys {
    let grid = KeysFolder::at(folder).existing(Some("tests")).unwrap();
    Keys::new(grid.membership().unwrap())
}

/// A folder for unix sockets of its own, so that a client uses TCP.
fn sockets(name: &str) -> PathBuf {
    let sockets = PathBuf::from(format!("/tmp/gridloom-test-hostile-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&sockets).unwrap();
    std::fs::set_permissions(&sockets, Permissions::from_mode(0o700)).unwrap();
    sockets
}

/// Calls a function as a user.
fn calls(grid: &Grid, keys: &Path, sockets: &Path) {
    let mut command = grid.command(&["call", "cli/plus", "1", "2"]);
    command.env("GRIDLOOM_KEYS", keys).env("GRIDLOOM_SOCKETS", sockets);
    assert_eq!(succeeds(command), "sum = 3.0\n");
}

/// Runs all attacks on a process while another user calls a function.
fn attack(attackers: &Attackers, attacks: &[Attack], pid: u32, call: impl Fn()) {
    call();
    let before = resident_kib(pid);
    let slow = attackers.slow(SLOW);
    for attack in attacks {
        let outcome = attackers.run(*attack, COUNT);
        let expected = match attack {
            Attack::Flood => Outcome { served: COUNT, ..Outcome::default() },
            _ => Outcome { refused: COUNT, ..Outcome::default() },
        };
        assert_eq!(outcome, expected, "{attack:?}");
        call();
        let growth = resident_kib(pid).saturating_sub(before);
        assert!(growth < GROWTH_KIB_MAX, "{attack:?}: the memory has grown by {growth} KiB");
    }
    drop(slow);
    call();
}

#[test]
fn attacks_on_agent_and_server_get_nowhere_and_calls_of_others_succeed() {
    let grid = Grid::start();
    let server = grid.serve("one", &[]);
    let (user, attacker) = (admit_user("victim", "cli/*"), admit_user("turncoat", "cli/*"));
    let sockets = sockets("nodes");
    let call = || calls(&grid, &user, &sockets);
    let address_of_server = server.line.split_whitespace().nth(3).unwrap().trim_end_matches(',').to_string();
    for (address, pid) in [(&grid.address, grid.agent.pid()), (&address_of_server, server.pid())] {
        let attackers = Attackers::new(address.parse().unwrap(), keys_of(&attacker), None);
        attack(&attackers, &Attack::ON_NODES, pid, call);
    }
    std::fs::remove_dir_all(&sockets).unwrap();
}

#[test]
fn attacks_on_a_relay_get_nowhere_and_calls_through_it_succeed() {
    let relay = Running::start(gridloom(&["relay", "--listen", "127.0.0.1:0", "--quiet"]));
    let address = relay.line.strip_prefix("relay listening on ").unwrap().to_string();
    let grid = Grid::start();
    let _server =
        Running::start(grid.serve_command("hidden", &[&idl()], &["--listen", "0.0.0.0:0", "--relay", &address]));
    let listed = grid.json(&["servers"]);
    let behind: NodeAddress = listed["servers"][0]["address"].as_str().unwrap().parse().unwrap();
    let target = behind.relayed[0].target.clone();
    let (user, attacker) = (admit_user("through", "cli/*"), admit_user("flooder", "cli/*"));
    let sockets = sockets("relay");
    let call = || calls(&grid, &user, &sockets);
    let attackers = Attackers::new(address.parse().unwrap(), keys_of(&attacker), Some(target));
    attack(&attackers, &Attack::ON_RELAYS, relay.pid(), call);
    std::fs::remove_dir_all(&sockets).unwrap();
}
