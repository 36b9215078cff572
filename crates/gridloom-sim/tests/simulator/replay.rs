//! Tests of small scenarios with dates worked out by hand, and of the errors for invalid ones.

use gridloom_flow::Reach;
use gridloom_sim::replay::{ActivityResult, Scenario, run};
use serde_json::{Value, json};

/// Two hosts connected by a split-duplex link of 1 MB/s and 10 ms, and by a fat pipe in one direction.
fn scenario(model: &str, crosstraffic: bool, profiles: Value, activities: Value) -> Value {
    json!({
        "model": model,
        "crosstraffic": crosstraffic,
        "platform": {
            "hosts": [{"name": "a", "speed": 1e9, "cores": 1}, {"name": "b", "speed": 2e9, "cores": 2}],
            "links": [{"name": "wire", "bandwidth": 1e6, "latency": 0.01, "policy": "SPLITDUPLEX"}],
            "routes": [{"src": "a", "dst": "b", "links": ["wire:UP"], "symmetrical": true}],
            "profiles": profiles,
        },
        "activities": activities,
    })
}

fn ends(scenario: &Value) -> Vec<ActivityResult> {
    run(&Scenario::parse(&scenario.to_string(), "test.json").unwrap(), Reach::Connected)
}

fn assert_dates(scenario: &Value, expected: &[f64]) {
    let found: Vec<f64> = ends(scenario).iter().map(|ended| ended.end_s).collect();
    let close = |(found, expected): (&f64, &f64)| (found - expected).abs() <= 1e-12 * expected.max(1.0);
    assert!(found.len() == expected.len() && found.iter().zip(expected).all(close), "{found:?}, not {expected:?}");
}

fn transfer(name: &str, src: &str, dst: &str, bytes: u64, start: f64) -> Value {
    json!({"name": name, "type": "comm", "src": src, "dst": dst, "bytes": bytes, "start": start})
}

#[test]
fn lone_transfers_follow_the_formulas() {
    let one = || json!([transfer("t", "a", "b", 1_000_000, 2.0)]);
    assert_dates(&scenario("LV08", false, json!([]), one()), &[2.0 + 13.01 * 0.01 + 1.0 / 0.97]);
    assert_dates(&scenario("CM02", true, json!([]), one()), &[2.0 + 0.01 + 1.0]);
    assert_dates(&scenario("CM02", true, json!([]), json!([transfer("t", "a", "a", 10_000_000, 0.0)])), &[1e-3]);
    let nothing = json!([transfer("t", "b", "a", 0, 0.0)]);
    assert_dates(&scenario("LV08", true, json!([]), nothing), &[0.1301]);
}

#[test]
fn both_directions_disturb_each_other_by_a_twentieth() {
    let both = || json!([transfer("t", "a", "b", 1_000_000, 0.0), transfer("u", "b", "a", 1_000_000, 0.0)]);
    assert_dates(&scenario("CM02", true, json!([]), both()), &[1.06, 1.06]);
    assert_dates(&scenario("CM02", false, json!([]), both()), &[1.01, 1.01]);
}

#[test]
fn followers_wait_and_failures_count_as_ends() {
    let profiles = json!([{"element": "b", "kind": "state", "events": [[0.75, 0], [2.0, 1]], "loop_after": null}]);
    let activities = json!([
        {"name": "broken", "type": "exec", "host": "b", "flops": 2e9, "start": 0},
        {"name": "late", "type": "exec", "host": "b", "flops": 2e9, "start": 1.0, "after": ["broken"]},
        {"name": "good", "type": "exec", "host": "a", "flops": 1e9, "start": 0, "after": ["late", "broken"]},
    ]);
    let found = ends(&scenario("LV08", true, profiles, activities));
    let expected = [(0.0, 0.75, true), (1.0, 1.0, true), (1.0, 2.0, false)];
    assert_eq!(found, expected.map(|(start_s, end_s, failed)| ActivityResult { start_s, end_s, failed }));
}

#[test]
fn a_link_that_goes_off_fails_what_acknowledges_over_it() {
    let profiles = || json!([{"element": "wire:DOWN", "kind": "state", "events": [[0.5, 0]], "loop_after": null}]);
    let one = || json!([transfer("t", "a", "b", 1_000_000, 0.0)]);
    let failed = ends(&scenario("CM02", true, profiles(), one()));
    assert_eq!((failed[0].end_s, failed[0].failed), (0.5, true));
    assert_dates(&scenario("CM02", false, profiles(), one()), &[1.01]);
}

#[test]
fn speeds_loop() {
    // Half speed in [1, 2), [4, 5), ...: 1 + 0.5 + 2 + 0.5 Gflop until 5.
    let events = json!([[1.0, 0.5], [2.0, 1.0]]);
    let profiles = json!([{"element": "a", "kind": "speed", "events": events, "loop_after": 1.0}]);
    let work = json!([{"name": "e", "type": "exec", "host": "a", "flops": 4e9, "start": 0}]);
    assert_dates(&scenario("LV08", true, profiles, work), &[5.0]);
}

#[test]
fn what_has_no_speed_any_more_never_ends() {
    let profiles = json!([{"element": "a", "kind": "speed", "events": [[1.0, 0.0]], "loop_after": null}]);
    let work = json!([{"name": "e", "type": "exec", "host": "a", "flops": 4e9, "start": 0}]);
    assert_eq!(ends(&scenario("LV08", true, profiles, work))[0].end_s, f64::INFINITY);
}

#[test]
fn wrong_scenarios_are_explained_all_at_once() {
    let profiles = json!([
        {"element": "wirr", "kind": "bandwidth", "events": [[0, 1]]},
        {"element": "a", "kind": "speed", "events": [[2, 1], [1, 1]], "loop_after": -1},
    ]);
    let activities = json!([
        {"name": "one", "type": "comm", "src": "a", "dst": "c", "bytes": -5, "start": 0},
        {"name": "two", "type": "exec", "host": "b", "flops": 1, "priority": 0, "threads": 0, "after": ["thre"]},
        {"name": "three", "type": "sleep"},
    ]);
    let mut wrong = scenario("LV09", true, profiles, activities);
    wrong["platform"]["routes"][0]["links"] = json!(["wire", "wyre:UP"]);
    let error = Scenario::parse(&wrong.to_string(), "wrong.json").unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    let starts = [
        "wrong.json: model: no network model 'lv09'",
        "wrong.json: platform.routes[0].links[0]: link 'wire' is split-duplex: write wire:UP or wire:DOWN",
        "wrong.json: platform.routes[0].links[1]: unknown link 'wyre:UP'",
        "wrong.json: platform.profiles[0].element: unknown link 'wirr'; did you mean 'wire'?",
        "wrong.json: platform.profiles[1].events[1]: its date is before that of the previous event",
        "wrong.json: platform.profiles[1].loop_after: -1; expected a number, 0 or more",
        "wrong.json: activities[0] 'one'.dst: unknown host 'c'",
        "wrong.json: activities[0] 'one'.bytes: -5; expected a number, 0 or more",
        "wrong.json: activities[1] 'two'.after: unknown activity 'thre'; did you mean 'three'?",
        "wrong.json: activities[1] 'two'.priority: 0; expected a number above 0",
        "wrong.json: activities[1] 'two'.threads: 0; expected a whole number of 1 or more",
        "wrong.json: activities[2] 'three'.type: expected comm or exec",
    ];
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}\n  instead of {start}");
    }
    assert_eq!(lines.len(), starts.len(), "{error}");
}

#[test]
fn circles_and_missing_routes_are_named() {
    let error = |activities: Value| {
        let text = scenario("LV08", true, json!([]), activities).to_string();
        Scenario::parse(&text, "s.json").unwrap_err().to_string()
    };
    let after =
        |name: &str, before: &[&str]| json!({"name": name, "type": "exec", "host": "a", "flops": 1, "after": before});
    assert_eq!(
        error(json!([after("x", &["z"]), after("y", &["x"]), after("z", &["y"]), after("w", &["z"])])),
        "s.json: activities[0] 'x'.after: a cycle: x before y before z before x"
    );
    let mut lonely = scenario("LV08", true, json!([]), json!([transfer("t", "a", "b", 1, 0.0)]));
    lonely["platform"]["routes"] = json!([]);
    let error = Scenario::parse(&lonely.to_string(), "s.json").unwrap_err().to_string();
    assert_eq!(error, "s.json: activities[0] 't': no route from 'a' to 'b'");
    let error = Scenario::parse("{", "s.json").unwrap_err().to_string();
    assert!(error.starts_with("s.json: line 1, column 1: the file ends in the middle of its JSON"), "{error}");
}

#[test]
fn what_would_be_ignored_is_refused() {
    let work = json!([transfer("t", "a", "b", 1000, 0.0), {"name": "e", "type": "exec", "host": "a", "flops": 1}]);
    let good = scenario("LV08", true, json!([]), work);
    let error = |change: &dyn Fn(&mut Value)| {
        let mut wrong = good.clone();
        change(&mut wrong);
        Scenario::parse(&wrong.to_string(), "s.json").unwrap_err().to_string()
    };
    let at = |place: &'static str, value: Value| {
        error(&move |wrong: &mut Value| {
            let (parent, key) = place.rsplit_once('/').unwrap();
            wrong.pointer_mut(parent).unwrap()[key] = value.clone();
        })
    };
    let cases = [
        (at("/activities/0/after", json!("e")), "activities[0] 't'.after: \"e\"; expected a list of names"),
        (at("/activities/0/after", json!([null])), "activities[0] 't'.after: null; expected the name of an activity"),
        (at("/activities/0/afetr", json!(["e"])), "activities[0] 't': unknown key 'afetr'; did you mean 'after'?"),
        (at("/activities/1/strat", json!(1)), "activities[1] 'e': unknown key 'strat'; did you mean 'start'?"),
        (
            at("/platform/routes/0/symmetrical", json!("no")),
            "platform.routes[0].symmetrical: \"no\"; expected true or false",
        ),
        (at("/crosstrafic", json!(false)), "unknown key 'crosstrafic'; did you mean 'crosstraffic'?"),
        (
            at("/platform/links/0/latency", json!(1e308)),
            "platform.links[0].latency: 1e+308; expected a number, 0 or more, at most 1e12",
        ),
        (
            at("/platform/links/0/bandwidth", json!(1e-300)),
            "platform.links[0].bandwidth: 1e-300; expected a number above 0, from 1e-9 to 1e30",
        ),
        (
            error(&|wrong| drop(wrong["activities"][0].as_object_mut().unwrap().remove("src"))),
            "activities[0] 't'.src: missing; expected the name of a host",
        ),
    ];
    for (error, expected) in cases {
        assert!(error.starts_with(&format!("s.json: {expected}")), "{error}\n  instead of {expected}");
    }
    let twice = good.to_string().replace("\"start\":", "\"bytes\":7,\"start\":");
    let error = Scenario::parse(&twice, "s.json").unwrap_err().to_string();
    assert!(error.starts_with("s.json: line 1, column ") && error.contains("'bytes' appears twice"), "{error}");
    let mut noted = good.clone();
    noted["finish_times"] = json!({});
    noted["remark"] = json!("ours");
    assert!(Scenario::parse(&noted.to_string(), "s.json").is_ok());
}

#[test]
fn what_a_loop_keeps_still_never_ends() {
    let work = json!([{"name": "e", "type": "exec", "host": "a", "flops": 1e9, "start": 0}]);
    for loop_after in [1.0, 1e-5] {
        let profiles = json!([{"element": "a", "kind": "speed", "events": [[0, 0]], "loop_after": loop_after}]);
        assert_eq!(ends(&scenario("LV08", true, profiles, work.clone()))[0].end_s, f64::INFINITY);
    }
    let profiles = json!([{"element": "a", "kind": "speed", "events": [[0, 1]], "loop_after": 1e-9}]);
    let text = scenario("LV08", true, profiles, work).to_string();
    let error = Scenario::parse(&text, "s.json").unwrap_err().to_string();
    assert!(error.contains("a loop of 0.000000001 s; it must take at least 0.000001 s"), "{error}");
}
