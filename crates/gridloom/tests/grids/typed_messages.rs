//! Typed messages between processes in virtual time: values, errors that name the fault, and their costs.

use crate::support;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gridloom::process::{Main, PeerId, Process, ProcessError, RunReport, StackKind, simulate};
use gridloom::{Error, Message, SimulateConfig};

#[derive(Clone, PartialEq, Debug, Message)]
struct Point {
    x: f64,
    y: f64,
}

#[derive(Clone, PartialEq, Debug, Message)]
enum Shape {
    Nothing,
    Circle { centre: Point, radius: f64 },
    Polygon(Vec<Point>),
}

#[derive(Clone, PartialEq, Debug, Message)]
struct Drawing {
    title: String,
    shapes: Vec<Shape>,
    below: Option<Box<Drawing>>,
}

#[derive(Message)]
struct Area {
    value: f64,
}

#[derive(Message)]
struct Bye;

mod other {
    #[derive(gridloom::Message)]
    #[message(name = "Area")]
    pub struct Area {
        pub value: f32,
        pub unit: String,
    }
}

const PLATFORM: &str = "
[[host]]
name = 'a'
speed = '1Gf'
[[host]]
name = 'b'
speed = '1Gf'
[[link]]
name = 'l'
bandwidth = '1MBps'
latency = '1ms'
[[route]]
from = 'a'
to = 'b'
links = ['l']
";

type Notes = Arc<Mutex<Vec<String>>>;
type Body = fn(&mut Process, &Notes) -> Result<(), ProcessError>;

/// Runs `server` on a and `client` on b; returns their notes.
fn run(name: &str, server: Body, client: Body) -> (Vec<String>, RunReport) {
    let deployment = "[[process]]\nhost = 'a'\nfunction = 'server'\n[[process]]\nhost = 'b'\nfunction = 'client'\n";
    let folder = support::folder(name, &[("platform.toml", PLATFORM), ("deployment.toml", deployment)]);
    let config = SimulateConfig {
        platform: folder.join("platform.toml"),
        deployment: Some(folder.join("deployment.toml")),
        ..SimulateConfig::default()
    };
    let notes = Notes::default();
    let main = |body: Body| -> Main {
        let notes = notes.clone();
        Arc::new(move |mut process| body(&mut process, &notes).map_err(Error::from))
    };
    let mains = BTreeMap::from([("server".to_string(), main(server)), ("client".to_string(), main(client))]);
    let report = simulate(&config, &mains, StackKind::Coroutine).unwrap();
    let notes = notes.lock().unwrap().clone();
    (notes, report)
}

fn note(notes: &Notes, text: impl ToString) {
    notes.lock().unwrap().push(text.to_string());
}

fn reach(me: &mut Process) -> Result<PeerId, ProcessError> {
    me.connect("a", 1, 10.0)
}

fn drawing(depth: usize) -> Drawing {
    let point = |x: f64| Point { x, y: -x };
    Drawing {
        title: format!("Bild {depth}"),
        shapes: vec![
            Shape::Nothing,
            Shape::Circle { centre: point(1.0), radius: 2.0 },
            Shape::Polygon(vec![point(0.5), point(2.0)]),
        ],
        below: (depth > 0).then(|| Box::new(drawing(depth - 1))),
    }
}

#[test]
fn values_are_sent_waited_for_and_called_back_with() {
    fn server(me: &mut Process, notes: &Notes) -> Result<(), ProcessError> {
        me.listen(1)?;
        let told = notes.clone();
        me.on(move |me, from, drawing: Drawing| {
            note(&told, drawing.title);
            me.send(from, &Area { value: drawing.shapes.len() as f64 })
        });
        me.on(|_, _, Bye| Ok(()));
        while me.handle(None)? && me.waiting().is_empty() && notes.lock().unwrap().len() < 2 {}
        Ok(())
    }
    fn client(me: &mut Process, notes: &Notes) -> Result<(), ProcessError> {
        let server = reach(me)?;
        let sent = drawing(3);
        me.send(server, &sent)?;
        let (from, area) = me.wait::<Area>(None, Some(1.0))?;
        assert_eq!(from, server);
        note(notes, area.value);
        me.send(server, &Bye)
    }
    assert_eq!(run("values", server, client).0, ["Bild 3", "3"]);
}

#[test]
fn a_wrong_message_is_an_error_with_its_place_and_the_process_continues() {
    fn server(me: &mut Process, notes: &Notes) -> Result<(), ProcessError> {
        me.listen(1)?;
        let told = notes.clone();
        me.on(move |_, _, area: Area| {
            note(&told, format!("area {}", area.value));
            Ok(())
        });
        for _ in 0..5 {
            me.handle(None)?;
        }
        // A wait for it returns the error here, and sends none to the peer.
        let error = me.wait::<Area>(None, None).map(|(_, area)| area.value).unwrap_err();
        note(notes, error);
        Ok(())
    }
    fn client(me: &mut Process, notes: &Notes) -> Result<(), ProcessError> {
        let server = reach(me)?;
        let strange = || other::Area { value: 1.0, unit: "m2".into() };
        me.send(server, &strange())?;
        me.send(server, &strange())?;
        let mut right = gridloom::layout::MessageCodec::<Area>::new().unwrap().encode(&Area { value: 7.0 }).unwrap();
        me.send_bytes(server, "Area", right[..right.len() - 3].to_vec())?;
        me.send_bytes(server, "Area", b"hostile".to_vec())?;
        for _ in 0..4 {
            note(notes, me.wait_for("nothing", Some(server), Some(1.0)).unwrap_err());
        }
        me.send(server, &Area { value: 5.0 })?;
        right[5] = b'X';
        me.send_bytes(server, "Area", right)
    }
    let differences = "a:1 failed: message 'Area': sender and receiver declare it differently: 'Area.value' is 'float \
                       value' for the sender and 'double value' for the receiver; 'Area.unit' exists for the sender only";
    let notes = run("wrong", server, client).0;
    let expected = [
        format!("server@{differences}"),
        // The second message carries no declaration, since the first one's is known.
        format!("server@{differences}"),
        "server@a:1 failed: message 'Area': its blocks take 8 bytes, but 5 were received".into(),
        "server@a:1 failed: message 'Area': raw bytes were received under its name, which is that of a typed message: \
         send an object of that type, or use another name for bytes"
            .into(),
        "area 5".into(),
    ];
    assert_eq!(notes[..5], expected);
    assert!(notes[5].starts_with("message 'Area': "), "{}", notes[5]);
}

#[test]
fn values_that_no_message_can_hold_are_refused_before_they_are_sent() {
    fn server(me: &mut Process, notes: &Notes) -> Result<(), ProcessError> {
        me.listen(1)?;
        let (_, payload) = me.wait_for("Drawing", None, None)?;
        // A message that was refused has not sent the declaration to anybody.
        note(notes, payload.windows(6).any(|text| text == b"struct"));
        Ok(())
    }
    fn client(me: &mut Process, notes: &Notes) -> Result<(), ProcessError> {
        let server = reach(me)?;
        let error = me.send(server, &Drawing { title: "a\0b".into(), ..drawing(0) }).unwrap_err();
        assert!(matches!(&error, ProcessError::WrongMessage { kind, .. } if kind == "Drawing"));
        note(notes, error);
        me.send(server, &drawing(0))
    }
    let notes = run("refused", server, client).0;
    assert!(notes[0].starts_with("message 'Drawing', field 'title'"), "{}", notes[0]);
    assert_eq!(notes[1], "true");
}

#[test]
fn the_declaration_travels_once_per_connection() {
    fn server(me: &mut Process, notes: &Notes) -> Result<(), ProcessError> {
        me.listen(1)?;
        for _ in 0..4 {
            let (_, payload) = me.wait_for("Area", None, None)?;
            note(notes, payload.windows(6).any(|text| text == b"struct"));
        }
        Ok(())
    }
    fn client(me: &mut Process, _: &Notes) -> Result<(), ProcessError> {
        for _ in 0..2 {
            let server = reach(me)?;
            me.send(server, &Area { value: 1.0 })?;
            me.send(server, &Area { value: 2.0 })?;
        }
        Ok(())
    }
    assert_eq!(run("once", server, client).0, ["true", "false", "true", "false"]);
}

#[test]
fn the_same_program_produces_the_same_trace() {
    fn server(me: &mut Process, _: &Notes) -> Result<(), ProcessError> {
        me.listen(1)?;
        me.wait::<Drawing>(None, None).map(drop)
    }
    fn client(me: &mut Process, _: &Notes) -> Result<(), ProcessError> {
        let server = reach(me)?;
        me.send(server, &drawing(9))
    }
    let (one, two) = (run("trace", server, client).1, run("trace", server, client).1);
    assert_eq!(one, two);
    assert!(one.trace_hash.is_some() && one.seconds > 0.002);
}
