//! Files about machines and users: platforms in TOML and XML, which are also the lists of hosts of `gridloom up`, deployments, and
//! the rules of a grid. No text makes the parsers panic, and routes of accepted platforms are found or refused.

#![no_main]

use gridloom_base::limits::RULES_BYTES_MAX;
use gridloom_platform::{HostId, Platform, deployment, rules};
use libfuzzer_sys::fuzz_target;

/// Number of hosts between which routes are computed.
const HOSTS_MAX: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut load = |name: &str| match name {
        "profile" => Ok("PERIODICITY 1.0\n0.0 1.0\n0.5 0.5\n".to_string()),
        // A file that names itself.
        "self" => Ok(text.to_string()),
        _ => Err("there is no such file".to_string()),
    };
    if let Ok(platform) = Platform::parse(text, "p", &mut load) {
        let count = platform.hosts().len().min(HOSTS_MAX);
        let hosts = || (0..count).map(|host| HostId(host as u32));
        for (from, to) in hosts().flat_map(|from| hosts().map(move |to| (from, to))) {
            let _ = platform.route(from, to);
        }
    }
    let _ = deployment::parse_with_positions(text, "d");
    if rules::parse(text, "r").is_ok() {
        assert!(text.len() as u64 <= RULES_BYTES_MAX + 3, "with a byte order mark");
    }
});
