//! Texts that name nodes, functions, data and sizes, from messages and command lines: refused, or unchanged when written and
//! read again.

#![no_main]

use gridloom_base::address::{ADDRESS_BYTES_MAX, ALTERNATIVES_MAX, NodeAddress, RelayTarget, check_place, host_of};
use gridloom_base::size::parse_size;
use gridloom_base::{NamePattern, Pattern};
use gridloom_core::data::Uri;
use gridloom_process::filter::FilterSpec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = (check_place(text), host_of(text), parse_size(text), Uri::parse(text));
    if let Ok(address) = text.parse::<NodeAddress>() {
        assert!(text.len() <= ADDRESS_BYTES_MAX && address.direct.len() + address.relayed.len() <= ALTERNATIVES_MAX);
        let relayed = address.relayed.iter().map(|path| format!("{}/{}", path.relay, path.target));
        let written: Vec<String> = address.direct.iter().cloned().chain(relayed).collect();
        assert_eq!(written.join("+").parse::<NodeAddress>().expect("it is one"), address);
    }
    if let Ok(target) = text.parse::<RelayTarget>() {
        assert_eq!(target.to_string().parse::<RelayTarget>().expect("it is one"), target);
    }
    if let Ok(pattern) = text.parse::<Pattern>() {
        let _ = pattern.matches("module/function");
    }
    let _ = (text.parse::<NamePattern>(), text.parse::<FilterSpec>());
});
