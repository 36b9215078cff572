//! Files of recorded platforms.

use gridloom_map::recorded::*;

#[test]
fn what_is_wrong_is_named() {
    let cases = [
        ("{", "servers.json: line 1, column 1: the file ends in the middle of its JSON; expected a platform: {"),
        (r#"{"speed": [1], "client_bytes_per_s": [1], "speed": [2]}"#, "'speed' stands twice in one object"),
        (r#"{"platform": "desk"}"#, "the text \"desk\" stands where an object is expected"),
        (r#"{"speed": [], "client_bytes_per_s": []}"#, "it has no servers"),
        (r#"{"speed": [1], "client_bytes_per_s": []}"#, "'speed' has 1 servers and 'client_bytes_per_s' 0"),
        (r#"{"speed": [1, 0], "client_bytes_per_s": [1, 1]}"#, "'speed' of server 1 is 0"),
        (
            r#"{"speed": [1, 1], "client_bytes_per_s": [1, 1], "direct_bytes_per_s": {"0-2": 1}}"#,
            "'0-2' is no pair of servers 'A-B' from 0 to 1",
        ),
        (
            r#"{"speed": [1, 1], "client_bytes_per_s": [1, 1], "direct_bytes_per_s": {"0-1": -1}}"#,
            "the link '0-1' has -1 bytes/s",
        ),
        (
            r#"{"speed": [1, 1], "client_bytes_per_s": [1, 1], "direct_bytes_per_s": {"0-1": 1e7, "1-0": 1e6}}"#,
            "the link '1-0' has 1000000 bytes/s, and '0-1' 10000000: links are alike both ways",
        ),
    ];
    for (text, expected) in cases {
        let said = Servers::parse(text, "servers.json").unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn links_are_alike_both_ways() {
    let text = r#"{"k": 0, "speed": [1, 2], "client_bytes_per_s": [10, 30], "direct_bytes_per_s": {"0-1": 5}}"#;
    let servers = Servers::parse(text, "servers.json").unwrap();
    assert_eq!((servers.direct(0, 1), servers.direct(1, 0), servers.direct(0, 0)), (Some(5.0), Some(5.0), None));
    assert_eq!(servers.relayed(0, 1), 7.5);
    let twice = text.replace("\"0-1\": 5", "\"0-1\": 5, \"1-0\": 5");
    assert_eq!(Servers::parse(&twice, "servers.json").unwrap().direct(0, 1), Some(5.0));
    // A platform that has a name.
    let named = text.replace("\"k\": 0", "\"platform\": \"desk\"");
    assert_eq!(Servers::parse(&named, "servers.json").unwrap().len(), 2);
}
