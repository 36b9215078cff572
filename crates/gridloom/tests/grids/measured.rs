//! Measured blocks of simulated processes: a recording of them makes another run identical to the bit.

use crate::support;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use gridloom::process::{Main, Measure, Process, RunReport, StackKind, simulate};
use gridloom::{Error, SimulateConfig};

const PLATFORM: &str = "
[[host]]
name = 'a'
speed = '1Gf'
[[host]]
name = 'b'
speed = '3Gf'
[[link]]
name = 'l'
bandwidth = '100MBps'
latency = '1ms'
[[route]]
from = 'a'
to = 'b'
links = ['l']
";

const CLIENTS: usize = 5;

struct Test {
    config: SimulateConfig,
    mains: BTreeMap<String, Main>,
    kind: StackKind,
}

impl Test {
    fn new(name: &str, kind: StackKind) -> Test {
        let mut deployment = "[[process]]\nhost = 'a'\nfunction = 'server'\n".to_string();
        for _ in 0..CLIENTS {
            let _ = writeln!(deployment, "[[process]]\nhost = 'b'\nfunction = 'client'");
        }
        let folder = support::folder(name, &[("platform.toml", PLATFORM), ("deployment.toml", &deployment)]);
        let config = SimulateConfig {
            platform: folder.join("platform.toml"),
            deployment: Some(folder.join("deployment.toml")),
            ..SimulateConfig::default()
        };
        let mains = BTreeMap::from([
            ("server".to_string(), Arc::new(|me| server(me).map_err(Error::from)) as Main),
            ("client".to_string(), Arc::new(|me| client(me).map_err(Error::from)) as Main),
        ]);
        Test { config, mains, kind }
    }

    fn file(&self) -> PathBuf {
        self.config.platform.with_file_name("measures")
    }

    fn record(&self) -> RunReport {
        let config = SimulateConfig { record: Some(self.file()), ..self.config.clone() };
        simulate(&config, &self.mains, self.kind).unwrap()
    }

    fn replay(&self) -> Result<RunReport, Error> {
        let config = SimulateConfig { replay: Some(self.file()), ..self.config.clone() };
        simulate(&config, &self.mains, self.kind)
    }
}

fn server(mut me: Process) -> Result<(), gridloom::process::ProcessError> {
    me.listen(1)?;
    for _ in 0..2 * CLIENTS {
        let (from, bytes) = me.wait_for("numbers", None, None)?;
        let sum = me.measure("sum", Measure::Always, |_| work(&bytes))?.expect("it was run");
        me.send_bytes(from, "sum", sum.to_le_bytes().to_vec())?;
    }
    Ok(())
}

fn client(mut me: Process) -> Result<(), gridloom::process::ProcessError> {
    let server = me.connect("a", 1, 10.0)?;
    for _ in 0..2 {
        let bytes = me.measure("make \"numbers\"", Measure::Once, |_| vec![work(b"numbers") as u8; 100])?;
        me.send_bytes(server, "numbers", bytes.expect("it was run"))?;
        me.wait_for("sum", Some(server), None)?;
    }
    Ok(())
}

/// Takes long enough to differ from run to run.
fn work(bytes: &[u8]) -> u64 {
    (0..20_000_u64).fold(bytes.len() as u64, |sum, number| std::hint::black_box(sum ^ (number * number)))
}

#[test]
fn a_replay_has_the_hash_of_its_record_with_either_kind_of_stack() {
    for kind in [StackKind::Coroutine, StackKind::Thread] {
        let test = Test::new(&format!("record-{kind:?}"), kind);
        let recorded = test.record();
        for _ in 0..2 {
            let replayed = test.replay().unwrap();
            assert_eq!(replayed.trace_hash, recorded.trace_hash);
            assert_eq!(replayed.seconds.to_bits(), recorded.seconds.to_bits());
        }
        let text = std::fs::read_to_string(test.file()).unwrap();
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 1 + 4 * CLIENTS);
        assert!(text.contains("\n1\t\"server@a\"\t\"sum\"\t10\t"), "{text}");
    }
}

#[test]
fn what_is_charged_is_the_files_and_part_of_the_hash() {
    let test = Test::new("charged", StackKind::Coroutine);
    let recorded = test.record();
    let text = std::fs::read_to_string(test.file()).unwrap();
    let longer = text.lines().map(|line| match line.strip_prefix("1\t\"server@a\"\t\"sum\"\t10\t") {
        Some(_) => "1\t\"server@a\"\t\"sum\"\t10\t0.5\t5e9".to_string(),
        None => line.to_string(),
    });
    std::fs::write(test.file(), longer.collect::<Vec<_>>().join("\n")).unwrap();
    let replayed = test.replay().unwrap();
    assert_ne!(replayed.trace_hash, recorded.trace_hash);
    assert!((replayed.seconds - recorded.seconds - 5.0).abs() < 0.1, "{replayed:?} {recorded:?}");
}

#[test]
fn a_block_that_the_file_does_not_have_ends_the_run_and_is_named() {
    let test = Test::new("missing", StackKind::Thread);
    test.record();
    let text = std::fs::read_to_string(test.file()).unwrap();
    let fewer: Vec<&str> = text.lines().filter(|line| !line.contains("\"sum\"\t10\t")).collect();
    std::fs::write(test.file(), fewer.join("\n")).unwrap();
    let error = test.replay().unwrap_err().to_string();
    assert!(error.contains("the measured block 'sum', run 10, of process 1, server@a; it has 9 runs of it"), "{error}");
}

#[test]
fn a_disk_without_room_is_an_error() {
    let mut test = Test::new("full", StackKind::Coroutine);
    test.config.record = Some("/dev/full".into());
    let error = simulate(&test.config, &test.mains, test.kind).unwrap_err().to_string();
    assert!(error.contains("cannot record measured blocks in /dev/full"), "{error}");
}
