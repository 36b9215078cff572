//! Names in platform files: checked in Gridloom's format, replaced in formats of other programs.

use gridloom_base::NameKind;

use crate::Platform;

fn parse(text: &str, file: &str) -> Result<Platform, String> {
    Platform::parse(text, file, &mut |_| Err("no other file".into())).map_err(|error| error.to_string())
}

#[test]
fn names_of_hosts_and_links_are_checked() {
    let host = |name: &str| parse(&format!("[[host]]\nname = \"{name}\"\nspeed = \"1Gf\"\n"), "p.toml");
    host("node 7 (rack 2)").unwrap();
    for name in ["", " ", "a\\u001b[2J", "a\\u202e", "a\\nb", &"x".repeat(50_000)] {
        let error = host(name).unwrap_err();
        assert!(error.contains("cannot be the name of a host") && error.len() < 300, "{error}");
        assert!(!error.contains('\x1b'), "{error}");
    }
}

#[test]
fn names_of_simgrid_are_mapped() {
    let long = "x".repeat(300);
    let text = format!(
        "<?xml version='1.0'?><platform version='4.1'><zone id='AS0' routing='Full'>\
         <host id='a&#10;b' speed='1Gf'/><host id='{long}' speed='1Gf'/><link id='&#x202e;l' bandwidth='1Bps' latency='0us' \
         sharing_policy='SPLITDUPLEX'/><route src='a&#10;b' dst='{long}'><link_ctn id='&#x202e;l' direction='UP'/></route>\
         </zone></platform>"
    );
    let platform = parse(&text, "p.xml").unwrap();
    for name in ["a\nb", long.as_str()] {
        let host = platform.host(name).unwrap();
        assert_eq!(platform.hosts()[host.0 as usize].name, NameKind::Host.mapped(name));
    }
}
