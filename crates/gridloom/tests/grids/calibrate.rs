//! Functions calibrated on simulated servers, by the same state machines as for real.

use crate::support;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use gridloom::base::{Dtype, Meta};
use gridloom::perf::Size;
use gridloom::{Arg, CalibrateConfig, CalibrationCall, Error, Grid, Value};

fn servers() -> String {
    support::star(&[("client", "1Gf"), ("slow", "1Gf"), ("fast", "8Gf")], "1GBps", "50us")
}

/// An additional function beside the product.
const MORE: &str = r#"
Define scaled(IN string how, IN int m, IN int n, IN double a[m][n], OUT double b[m][n])
"no complexity" Calls "C" scaled(how, m, n, a, b);
"#;

fn grid(test: &str) -> Grid {
    Grid::simulate(support::simulation(test, &servers(), &format!("{}{MORE}", support::PRODUCT), &[])).unwrap()
}

fn sizes(ranges: &[(&str, i64, i64)]) -> BTreeMap<String, (i64, i64)> {
    ranges.iter().map(|(name, low, high)| (name.to_string(), (*low, *high))).collect()
}

/// A callback that ignores calls.
fn silent(_: &CalibrationCall) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn models_are_as_exact_as_requested_within_the_range() {
    let grid = grid("calibrate-exact");
    let config = CalibrateConfig { sizes: sizes(&[("n", 50, 1000)]), ..CalibrateConfig::default() };
    let mut told = 0;
    let mut tell = |_: &CalibrationCall| {
        told += 1;
        ControlFlow::Continue(())
    };
    let done = grid.calibrate("product", &config, None, &mut tell).unwrap();
    let names: Vec<&str> = done.iter().map(|one| one.server.as_str()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for one in &done {
        assert!(one.reached_goal && one.error.unwrap() <= 0.05 && one.why.is_none(), "{one:?}");
        let (first, last) = (&one.points[0], one.points.last().unwrap());
        assert_eq!((first.sizes["n"], last.sizes["n"], one.preempted), (50, 1000, 0));
    }
    assert_eq!(told, done.iter().map(|one| one.calls).sum::<usize>());
    // When it ends, the agent knows all of it.
    let view = grid.servers();
    for (server, one) in view.servers.iter().zip(&done) {
        let model = &server.functions["kernels/product"];
        assert_eq!((&server.name, model.by_work.calls()), (&one.server, one.calls as u64));
        for n in [60.0f64, 200.0, 500.0, 900.0] {
            let (work, speed) = (2.0 * n.powi(3), server.speed_flops.unwrap());
            let found = model.predict(Size::Work(work), Some(speed)).unwrap();
            assert!((found.seconds * speed / work - 1.0).abs() < 0.05 && !found.is_extrapolated, "{n}: {found:?}");
        }
    }
}

#[test]
fn a_range_ends_where_calls_take_too_long_and_has_a_usual_one() {
    let grid = grid("calibrate-long");
    let config = CalibrateConfig {
        budget: Duration::from_secs(10),
        servers: vec!["slow".into()],
        sizes: sizes(&[("n", 50, 100_000)]),
        ..CalibrateConfig::default()
    };
    let done = grid.calibrate("product", &config, None, &mut silent).unwrap();
    let [one] = &done[..] else { panic!("{done:?}") };
    let longest = one.points.last().unwrap().seconds;
    assert!(longest > 0.3 && longest < 1.1 && one.reached_goal, "{one:?}");
    assert!(one.why.as_ref().unwrap().contains("larger calls take longer than 1 s"), "{one:?}");
    let config = CalibrateConfig { sizes: BTreeMap::new(), ..config };
    let done = grid.calibrate("product", &config, None, &mut silent).unwrap();
    assert_eq!(done[0].points[0].sizes["n"], 16);
    assert!(done[0].reached_goal, "{done:?}");
}

#[test]
fn a_range_of_one_size_is_all_that_was_requested() {
    let grid = grid("calibrate-fixed");
    let config = CalibrateConfig { sizes: sizes(&[("n", 200, 200)]), ..CalibrateConfig::default() };
    for one in grid.calibrate("product", &config, None, &mut silent).unwrap() {
        assert!(one.reached_goal && one.why.is_none() && one.points.len() == 1, "{one:?}");
    }
}

#[test]
fn functions_without_a_complexity_are_measured_by_their_bytes_and_texts_have_to_be_set() {
    let grid = grid("calibrate-bytes");
    let ranges = sizes(&[("m", 10, 1000), ("n", 7, 7)]);
    let mut config = CalibrateConfig { sizes: ranges, ..CalibrateConfig::default() };
    let error = grid.calibrate("scaled", &config, None, &mut silent).unwrap_err().to_string();
    assert!(error.contains("argument 'how' is not a number") && error.contains("how=VALUE"), "{error}");
    config.set.insert("how".into(), Value::text("twice"));
    let done = grid.calibrate("scaled", &config, None, &mut silent).unwrap();
    assert!(done.iter().all(|one| one.unit == "B" && one.reached_goal), "{done:?}");
    let last = done[0].points.last().unwrap();
    assert_eq!((last.size, last.sizes["m"], last.sizes["n"]), (2.0 * 8.0 * 7000.0, 1000, 7));
}

#[test]
fn arguments_may_be_made_by_the_caller() {
    let grid = grid("calibrate-made");
    let config = CalibrateConfig { sizes: sizes(&[("order", 50, 400)]), ..CalibrateConfig::default() };
    let mut make = |sizes: &gridloom::Sizes| {
        let n = sizes["order"] as u64;
        let matrix = || Arg::Value(Value::placeholder(Meta::array(Dtype::Float64, &[n, n])));
        Ok(vec![("a".to_string(), matrix()), ("b".to_string(), matrix())])
    };
    let done = grid.calibrate("product", &config, Some(&mut make), &mut silent).unwrap();
    assert!(
        done.iter().all(|one| one.reached_goal && one.points.last().unwrap().size == 2.0 * 400f64.powi(3)),
        "{done:?}"
    );
}

#[test]
fn who_watches_can_stop_it() {
    let grid = grid("calibrate-stopped");
    let config = CalibrateConfig { sizes: sizes(&[("n", 50, 1000)]), ..CalibrateConfig::default() };
    let mut told = 0;
    let mut third = |_: &CalibrationCall| {
        told += 1;
        if told < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let done = grid.calibrate("product", &config, None, &mut third).unwrap();
    assert_eq!((told, done.iter().map(|one| one.calls).sum::<usize>()), (3, 3));
    for one in &done {
        assert!(!one.reached_goal && !one.has_failed && one.why.as_deref() == Some("it was stopped"), "{one:?}");
    }
    // The servers are idle again.
    let again = CalibrateConfig { error: 0.5, ..config };
    assert!(grid.calibrate("product", &again, None, &mut silent).unwrap().iter().all(|one| one.reached_goal));
}

#[test]
fn a_calibration_waits_until_the_server_is_idle() {
    let grid = grid("calibrate-waits");
    let product = grid.function("product").unwrap();
    let matrix = || Arg::Value(Value::placeholder(Meta::array(Dtype::Float64, &[1500, 1500])));
    let mut config = CalibrateConfig { sizes: sizes(&[("n", 50, 1000)]), ..CalibrateConfig::default() };
    config.servers = vec!["fast".into()];
    let mut others = Vec::new();
    // After the fourth call other calls follow, which take almost a second each.
    let mut count = 0;
    let mut done = grid
        .calibrate("product", &config, None, &mut |call| {
            count += 1;
            if count == 4 {
                others.extend((0..3).map(|_| product.submit((matrix(), matrix()), &[], None).unwrap()));
            }
            assert!(call.seconds.is_some_and(|s| s > 0.0) || count > 4);
            ControlFlow::Continue(())
        })
        .unwrap();
    let one = done.remove(0);
    assert!(one.preempted > 0 && one.reached_goal, "{one:?}");
    for point in &one.points {
        assert!((point.seconds * 8e9 / point.size - 1.0).abs() < 0.05, "disturbed: {point:?}");
    }
    others.into_iter().for_each(|call| drop(call.wait().unwrap()));
}

#[test]
fn what_cannot_be_calibrated_is_reported() {
    let grid = grid("calibrate-wrong");
    let said = |function: &str, config: CalibrateConfig| match grid.calibrate(function, &config, None, &mut silent) {
        Err(error @ (Error::Usage(_) | Error::UnknownFunction { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let with = |ranges: &[(&str, i64, i64)]| CalibrateConfig { sizes: sizes(ranges), ..CalibrateConfig::default() };
    for (said, expected) in [
        (said("prodct", with(&[])), "did you mean kernels/product"),
        (said("product", with(&[("k", 1, 2)])), "has no size argument 'k'; its sizes are n"),
        (said("product", with(&[("n", 0, 2)])), "sizes n=0..2; expected FROM..TO with 1 <= FROM <= TO"),
        (said("product", with(&[("n", 20, 2)])), "sizes n=20..2"),
        (said("product", CalibrateConfig { error: f64::NAN, ..with(&[]) }), "an error of NaN"),
        (said("product", CalibrateConfig { budget: Duration::ZERO, ..with(&[]) }), "a budget of 0 s"),
        (
            said("product", CalibrateConfig { servers: vec!["quick".into()], ..with(&[]) }),
            "no server 'quick'; there are: fast, slow",
        ),
    ] {
        assert!(said.contains(expected), "{said}");
    }
}
