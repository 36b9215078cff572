//! `gridloom chares run --trace`: what the elements of a real run did, and when. The programs are those of `chares`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value as Json;

use super::chares::chares_run;
use crate::support::succeeds;

/// A file of a test, removed after it.
struct Trace(PathBuf);

impl Trace {
    fn new(name: &str) -> Trace {
        Trace(std::env::temp_dir().join(format!("gridloom-{}-{name}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }

    fn events(&self) -> Vec<Json> {
        serde_json::from_str(&self.text()).unwrap()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Name, chare, start and end in microseconds.
type Span = (String, String, f64, f64);

/// Returns the spans of each element. Panics if a span starts before the previous one has ended, or if time goes backwards.
fn spans(events: &[Json]) -> BTreeMap<u64, Vec<Span>> {
    let mut spans: BTreeMap<u64, Vec<Span>> = BTreeMap::new();
    let mut open: BTreeMap<u64, Span> = BTreeMap::new();
    let text = |json: &Json| json.as_str().unwrap_or_default().to_string();
    for event in events.iter().filter(|event| ["B", "E"].contains(&event["ph"].as_str().unwrap())) {
        let (element, at) = (event["pid"].as_u64().unwrap() - 1, event["ts"].as_f64().unwrap());
        let of_element = spans.entry(element).or_default();
        assert!(of_element.last().is_none_or(|last| last.3 <= at), "time goes back");
        match event["ph"].as_str() {
            Some("B") => {
                let span = (text(&event["name"]), text(&event["args"]["chare"]), at, at);
                assert!(open.insert(element, span).is_none(), "two spans of element {element} overlap");
            }
            _ => {
                let (name, chare, began, _) = open.remove(&element).expect("it has begun");
                of_element.push((name, chare, began, at));
            }
        }
    }
    assert!(open.is_empty(), "all spans have ended: {open:?}");
    spans
}

/// Returns the time at which each message was sent or received, by its key.
fn arrows(events: &[Json], end: &str) -> BTreeMap<String, f64> {
    let ends = events.iter().filter(|event| event["ph"] == end);
    ends.map(|event| (event["id"].as_str().unwrap().to_string(), event["ts"].as_f64().unwrap())).collect()
}

#[test]
fn each_entry_method_is_there_once_and_messages_arrive_after_they_were_sent() {
    let trace = Trace::new("ball.json");
    let out = succeeds(chares_run("ball", &["-n", "2", "--sites", "2", "--latency", "2ms", "--trace", trace.path()]));
    assert!(out.contains("ended with"), "{out}");
    let events = trace.events();
    let spans = spans(&events);
    let balls: Vec<&Span> = spans.values().flatten().filter(|span| span.0 == "BallChare.Ball").collect();
    let of = |chare: &str| balls.iter().filter(|span| span.1 == chare).count();
    assert_eq!((balls.len(), of("(0)"), of("(1)")), (11, 6, 5), "{balls:?}");
    for (element, spans) in &spans {
        let own = format!("({element})");
        assert!(spans.iter().all(|span| span.0 == "idle" || span.1 == own), "chares are where they were placed");
        let idle_us: f64 = spans.iter().filter(|span| span.0 == "idle").map(|span| span.3 - span.2).sum();
        assert!(idle_us >= 4.0 * 2e3, "element {element} waits for the other: {idle_us} us");
    }
    let (sent, came) = (arrows(&events, "s"), arrows(&events, "f"));
    assert!(came.len() >= 10, "ten balls cross: {came:?}");
    for (key, at) in &came {
        let sent = sent.get(key).unwrap_or_else(|| panic!("{key} was never sent"));
        // Elements share the clock, and the filter delays messages.
        assert!(at - sent >= 2e3, "{key} went at {sent} us and came at {at}");
    }
}

#[test]
fn moves_results_and_an_element_that_is_killed_are_in_the_other_format_too() {
    let trace = Trace::new("hop.paje");
    succeeds(chares_run("hop", &["-n", "2", "--trace", trace.path()]));
    let text = trace.text();
    let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    assert!(text.starts_with("%EventDef PajeDefineContainerType"), "{text}");
    assert_eq!(count("\"BallChare.Hop\""), 511);
    // Each chare that had the last hop is called back, until the program ends.
    assert!(count("\"BallChare.outcome 0\"") >= 1 && count("\"BallChare.Stop\"") >= 2, "{text}");
    let output = chares_run("fall", &["-n", "3", "--trace", trace.path()]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("lacks elements that left no record, for example because they were killed: 1"), "{error}");
    let text = trace.text();
    assert!(text.contains("\"element 0 (site 0)\"") && !text.contains("\"element 1 (site 0)\""), "{text}");
}

#[test]
fn a_file_that_cannot_be_written_is_refused_at_once() {
    let output = chares_run("nothing", &["--trace", "/nowhere/at/all.json"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("cannot write /nowhere/at/all.json"), "{error}");
}
