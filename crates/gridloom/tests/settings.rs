//! Configuration and log of a Rust program of processes. This is a single test, since they apply to the whole program.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use std::ffi::OsString;

use gridloom::process::{Level, Main, Process, StackKind, log_accepts, read_settings, simulate};
use gridloom::{Error, SimulateConfig};

fn words(text: &str) -> Vec<OsString> {
    text.split(' ').map(OsString::from).collect()
}

fn one(me: Process) -> Result<(), Error> {
    assert_eq!(me.config::<i64>("matrix.size")?, Some(64));
    assert_eq!(me.config::<f64>("matrix.scale")?, Some(0.5));
    assert_eq!(me.config::<String>("name")?, None);
    let wrong = me.config::<bool>("matrix.size").unwrap_err().to_string();
    assert!(wrong.starts_with("the configuration's 'matrix.size' is '64'; it has to be"), "{wrong}");
    Ok(())
}

#[test]
fn a_process_reads_what_the_program_was_given() {
    let folder = support::folder(
        "settings",
        &[
            ("c.toml", "log = 'error'\n[matrix]\nsize = 4\nscale = 0.5\n"),
            ("deployment.toml", "[[process]]\nhost = 'a'\nfunction = 'one'\n"),
        ],
    );
    let mut given = words("own --set matrix.size=64 --config FILE --log=warning,matmul=debug -- --log");
    given[4] = folder.join("c.toml").into_os_string();
    assert_eq!(read_settings(&given).unwrap(), ["own", "--", "--log"]);
    assert!(log_accepts(Level::Debug, "matmul.server") && !log_accepts(Level::Info, "other"));
    let platform = support::star(&[("a", "1Gf"), ("b", "1Gf")], "100MBps", "1ms");
    let config = SimulateConfig {
        deployment: Some(folder.join("deployment.toml")),
        reference_flops: Some(1e9),
        ..support::simulation("settings", &platform, "", &[])
    };
    simulate(&config, &BTreeMap::from([("one".to_string(), Arc::new(one) as Main)]), StackKind::Coroutine).unwrap();
    let wrong = |text: &str| read_settings(&words(text)).unwrap_err().to_string();
    assert!(wrong("--log loud").contains("levels are debug"));
    assert!(wrong("--config /nowhere.toml").contains("/nowhere.toml"));
    assert!(wrong("--set a").contains("NAME=VALUE"));
}
