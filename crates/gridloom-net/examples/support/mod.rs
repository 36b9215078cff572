//! Keys of an example's processes. The process that starts the others makes an authority, and sends each its keys.

use std::io::Write;
use std::process::Child;
use std::sync::LazyLock;

use gridloom_keys::{Authority, Role, UnixTime};
use gridloom_net::identity::{IssuedKeys, Keys, NodeKeys};

static AUTHORITY: LazyLock<Authority> =
    LazyLock::new(|| Authority::new("example", UnixTime::now()).expect("the system has random bytes"));

fn issue(role: Role) -> IssuedKeys {
    IssuedKeys::by_authority(&AUTHORITY, role, "example").expect("the system has random bytes")
}

/// Returns keys of a client.
pub fn keys() -> Keys {
    issue(Role::Client).keys().expect("they are new")
}

/// Sends keys of a server to a process through its standard input.
pub fn send_keys(to: &mut Child) {
    let mut input = to.stdin.take().expect("piped");
    writeln!(input, "{}", issue(Role::Server).to_line()).expect("it reads its keys");
}

/// Receives keys through standard input.
pub fn receive_keys() -> Keys {
    let line = std::io::stdin().lines().next().expect("a line").expect("text");
    NodeKeys::from_line(&line).expect("keys").own
}
