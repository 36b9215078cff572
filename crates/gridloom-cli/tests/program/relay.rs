//! A grid whose agent and servers are reached through a relay.

use crate::support::{Running, file, gridloom, idl, library, status_and_stderr, succeeds};

fn relay() -> (Running, String) {
    let relay = Running::start(gridloom(&["relay", "--listen", "127.0.0.1:0", "--quiet"]));
    let address = relay.line.strip_prefix("relay listening on ").unwrap().to_string();
    (relay, address)
}

#[test]
fn agent_and_servers_are_reached_through_a_relay() {
    let (relay, address) = relay();
    let start = |arguments: &[&str]| {
        let hidden = ["--listen", "0.0.0.0:0", "--relay", &address, "--quiet"];
        Running::start(gridloom(&[arguments, &hidden].concat()))
    };
    let agent = start(&["agent"]);
    let of_agent = agent.line.strip_prefix("agent listening on ").unwrap().to_string();
    assert_eq!(of_agent, format!("{address}/agent"));
    let idl = idl();
    let serve = |name| start(&["serve", &idl, "--library", library(), "--agent", &of_agent, "--name", name]);
    let (_one, _two) = (serve("one"), serve("two"));
    let servers = succeeds(gridloom(&["servers", "--json", "--agent", &of_agent]));
    assert_eq!(servers.matches(&format!("{address}/n")).count(), 2, "{servers}");
    let called = succeeds(gridloom(&["call", "--agent", &of_agent, "cli/scale", "2", "[1, 2]"]));
    assert_eq!(called, "y = [2.0,4.0]\n");
    assert!(relay.close_input().success());
}

#[test]
fn mistakes_are_named() {
    let error = |arguments: &[&str]| {
        let (code, error) = status_and_stderr(gridloom(arguments));
        assert_ne!(code, 0, "{arguments:?}");
        error
    };
    let wrong = error(&["relay", "--listen", "127.0.0.1:0", "--relay", "other:443"]);
    assert!(wrong.contains("relays do not use other relays"), "{wrong}");
    let wrong = error(&["agent", "--relay", "lab"]);
    assert!(wrong.contains("'lab' is not an address; expected HOST:PORT"), "{wrong}");
    let wrong = error(&["functions", "--agent", "relay.lab.org:443/node"]);
    assert!(
        wrong.contains("'node' after the address of a relay is not a node; expected 'agent' or nID@HOST"),
        "{wrong}"
    );
    let (_relay, address) = relay();
    let wrong = error(&["functions", "--agent", &format!("{address}/agent")]);
    assert!(wrong.contains(&format!("relay {address}: the node is not registered with the relay")), "{wrong}");
    // A relay has a role of its own.
    let wrong = error(&["functions", "--agent", &address]);
    assert!(wrong.contains(&address), "{wrong}");
    let no_keys = file("empty-keys.txt", "");
    let mut without = gridloom(&["relay", "--listen", "127.0.0.1:0"]);
    without.env("GRIDLOOM_KEYS", std::path::Path::new(&no_keys).with_extension("folder"));
    let (code, wrong) = status_and_stderr(without);
    assert!(code == 1 && wrong.contains("there are no keys in"), "{wrong}");
}
