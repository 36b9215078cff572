//! Guarantees to simulated processes that wait, handle messages, measure and fail.

use crate::support;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gridloom::process::{Main, Measure, Process, ProcessError, RunReport, StackKind, simulate};
use gridloom::{Error, SimulateConfig};

fn platform() -> String {
    support::star(&[("a", "1Gf"), ("b", "1Gf")], "100MBps", "1ms")
}

const KERNELS: &str = "Module kernels;\nDefine idle(IN int n, OUT double c[n]) Calls \"C\" idle(n, c);\n";

type Notes = Arc<Mutex<Vec<String>>>;
type Body = fn(&mut Process, &Notes) -> Result<(), Error>;

fn config(test: &str, faults: &str, processes: &[(&str, Body)]) -> SimulateConfig {
    let process = |(name, _): &(&str, Body)| {
        let (function, host) = name.split_once('@').unwrap();
        format!("[[process]]\nhost = '{host}'\nfunction = '{function}'\n")
    };
    let deployment: String = processes.iter().map(process).collect();
    let folder = support::folder(test, &[("some.faults", faults), ("deployment.toml", &deployment)]);
    // With faults there is a grid, which has to offer a function.
    SimulateConfig {
        deployment: Some(folder.join("deployment.toml")),
        faults: (!faults.is_empty()).then(|| folder.join("some.faults")),
        reference_flops: Some(1e9),
        ..support::simulation(test, &platform(), KERNELS, &[])
    }
}

fn run(config: &SimulateConfig, processes: &[(&str, Body)]) -> (Result<RunReport, Error>, Vec<String>) {
    let notes = Notes::default();
    let main = |(name, body): &(&str, Body)| {
        let (body, notes) = (*body, notes.clone());
        let function = name.split_once('@').unwrap().0.to_string();
        let main: Main = Arc::new(move |mut process| body(&mut process, &notes));
        (function, main)
    };
    let mains: BTreeMap<String, Main> = processes.iter().map(main).collect();
    let report = simulate(config, &mains, StackKind::Coroutine);
    let notes = notes.lock().unwrap().clone();
    (report, notes)
}

fn note(notes: &Notes, text: impl ToString) {
    notes.lock().unwrap().push(text.to_string());
}

#[test]
fn a_wait_on_who_has_closed_is_an_error_every_time() {
    fn server(me: &mut Process, _: &Notes) -> Result<(), Error> {
        me.listen(1)?;
        let (client, _) = me.wait_for("hello", None, None)?;
        me.send_bytes(client, "last", vec![1])?;
        me.close(client);
        assert!(matches!(me.wait_for("x", Some(client), Some(9.0)), Err(ProcessError::Closed { .. })));
        assert!(matches!(me.wait_for("x", None, Some(1.0)), Err(ProcessError::TimedOut { .. })));
        Ok(())
    }
    fn client(me: &mut Process, _: &Notes) -> Result<(), Error> {
        let server = me.connect("a", 1, 1.0)?;
        me.send_bytes(server, "hello", vec![])?;
        // The process that handles messages notices the end first.
        me.handle_for(0.1)?;
        for _ in 0..3 {
            assert!(matches!(me.wait_for("x", Some(server), None), Err(ProcessError::Closed { .. })));
        }
        assert_eq!(me.wait_for("last", Some(server), None)?.1, [1]);
        assert!(matches!(me.wait_for("last", Some(server), None), Err(ProcessError::Closed { .. })));
        assert!(me.now() < 1.0);
        Ok(())
    }
    let processes: [(&str, Body); 2] = [("server@a", server), ("client@b", client)];
    run(&config("closed", "", &processes), &processes).0.unwrap();
}

#[test]
fn slow_timers_let_messages_have_their_turn_and_handle_for_ends() {
    fn server(me: &mut Process, notes: &Notes) -> Result<(), Error> {
        me.listen(1)?;
        let told = notes.clone();
        me.on_bytes("x", move |_, _, _| {
            note(&told, "x");
            Ok(())
        });
        let number = me.set_timer(0.01, true, |me| me.compute(2e7))?;
        me.handle_for(2.0)?;
        assert!((2.0..2.05).contains(&me.now()), "{}", me.now());
        assert!(me.cancel_timer(number));
        Ok(())
    }
    fn client(me: &mut Process, _: &Notes) -> Result<(), Error> {
        let server = me.connect("a", 1, 1.0)?;
        for _ in 0..10 {
            me.send_bytes(server, "x", vec![])?;
            me.sleep(0.1)?;
        }
        Ok(())
    }
    let processes: [(&str, Body); 2] = [("server@a", server), ("client@b", client)];
    let (report, notes) = run(&config("turns", "", &processes), &processes);
    report.unwrap();
    assert_eq!(notes.len(), 10);
}

#[test]
fn a_block_within_a_block_is_charged_once() {
    fn burns(me: &mut Process, _: &Notes) -> Result<(), Error> {
        let begin = me.now();
        let inner = me.measure("outer", Measure::Always, |me| {
            me.measure("inner", Measure::Always, |_| {
                let mut sum = 0u64;
                (0..30_000_000u64).for_each(|number| sum = std::hint::black_box(sum ^ number));
            })?;
            Ok::<f64, ProcessError>(me.now() - begin)
        })?;
        let (inner, both) = (inner.expect("it was run")?, me.now() - begin);
        assert!(inner > 0.0 && both < 1.5 * inner, "{inner} {both}");
        Ok(())
    }
    let processes: [(&str, Body); 1] = [("burns@a", burns)];
    run(&config("nested", "", &processes), &processes).0.unwrap();
}

#[test]
fn numbers_that_cannot_be_meant_are_named() {
    fn asks(me: &mut Process, notes: &Notes) -> Result<(), Error> {
        let told = |outcome: Result<(), ProcessError>| note(notes, outcome.unwrap_err());
        told(me.sleep(f64::NAN));
        told(me.sleep(f64::INFINITY));
        told(me.compute(f64::INFINITY));
        told(me.compute(-1.0));
        told(me.wait_for("x", None, Some(f64::NAN)).map(drop));
        told(me.handle(Some(f64::NAN)).map(drop));
        told(me.set_bare_timer(f64::NAN, false).map(drop));
        told(me.set_bare_timer(0.0, true).map(drop));
        Ok(())
    }
    let processes: [(&str, Body); 1] = [("asks@a", asks)];
    let (report, notes) = run(&config("numbers", "", &processes), &processes);
    report.unwrap();
    let expected = [
        "sleep: NaN seconds; give a finite time",
        "sleep: inf seconds; give a finite time",
        "compute: inf floating-point operations; give a finite number that is not negative",
        "compute: -1 floating-point operations; give a finite number that is not negative",
        "wait: NaN seconds; give a time",
        "handle: NaN seconds; give a time",
        "timer: NaN seconds; give a finite time",
        "timer that repeats: 0 seconds; give a period of at least a nanosecond",
    ];
    assert_eq!(notes, expected);
}

#[test]
fn faults_hit_processes_that_use_no_grid() {
    fn server(me: &mut Process, notes: &Notes) -> Result<(), Error> {
        me.listen(1)?;
        me.on_bytes("tick", |_, _, _| Ok(()));
        let until = 10.0;
        let mut client = None;
        while me.now() < until {
            match me.next(|_| true, Some(until - me.now()))? {
                Some(gridloom::process::ProcessEvent::Message { from, .. }) if client != Some(from) => {
                    client = Some(from);
                    note(notes, format!("begins at {:.0}", me.now()));
                }
                Some(gridloom::process::ProcessEvent::Closed { .. }) => {
                    note(notes, format!("closed at {:.0}", me.now()))
                }
                _ => {}
            }
        }
        Ok(())
    }
    fn ticks(me: &mut Process, notes: &Notes) -> Result<(), Error> {
        let server = me.connect("a", 1, 1.0)?;
        loop {
            let before = me.now();
            me.send_bytes(server, "tick", vec![])?;
            me.sleep(0.1)?;
            if me.now() > before + 1.0 {
                note(notes, format!("was away till {:.0}", me.now()));
            }
        }
    }
    let processes: [(&str, Body); 2] = [("server@a", server), ("ticks@b", ticks)];
    let faults = "at 2s kill ticks@b\nat 3s restart ticks@b\nat 5s pause ticks@b for 2s\nat 9s hang ticks@b\n";
    let (report, notes) = run(&config("struck", faults, &processes), &processes);
    assert_eq!(notes, ["begins at 0", "closed at 2", "begins at 3", "was away till 7"], "{report:?}");
    // A process that hangs forever does not keep others from ending.
    report.unwrap();
}

#[test]
fn a_run_that_only_waits_is_ended_on_request() {
    fn waits(me: &mut Process, _: &Notes) -> Result<(), Error> {
        me.listen(1)?;
        loop {
            me.handle(Some(1.0))?;
        }
    }
    let processes: [(&str, Body); 1] = [("waits@a", waits)];
    let config = SimulateConfig { until: Some(50.0), ..config("until", "", &processes) };
    let error = run(&config, &processes).0.unwrap_err().to_string();
    assert_eq!(error, "the run was to end at 50 s, but processes are still running: waits@a (waits for a message)");
    fn ends(_: &mut Process, _: &Notes) -> Result<(), Error> {
        Ok(())
    }
    let processes: [(&str, Body); 1] = [("waits@a", ends)];
    assert!(run(&config, &processes).0.unwrap().seconds < 1.0);
}
