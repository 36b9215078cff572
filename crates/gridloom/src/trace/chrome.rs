//! Chrome's trace event format: an array of events, one per line. Times are microseconds of virtual time.
//!
//! An arrow starts and ends at a slice of one nanosecond, since viewers bind arrows to slices. Where several slices would overlap,
//! they are placed a nanosecond apart, and `seconds` holds the actual time.
//!
//! Source: "Trace Event Format", the Catapult project.

use std::collections::BTreeMap;
use std::io::{self, Write};

use gridloom_base::Time;
use serde_json::{Value as Json, json};

use super::{Arrow, Details, Format, Label, Track};

#[derive(Default)]
pub(super) struct Chrome {
    has_events: bool,
    /// The earliest free time on each track for the next end of an arrow, nanoseconds.
    free_ns: BTreeMap<Track, u64>,
}

impl Chrome {
    fn event(&mut self, out: &mut dyn Write, kind: &str, ts_ns: u64, track: Track, rest: &str) -> io::Result<()> {
        let comma = if std::mem::replace(&mut self.has_events, true) { ",\n" } else { "" };
        let (micros, nanos, Track { group, number }) = (ts_ns / 1000, ts_ns % 1000, track);
        write!(out, "{comma}{{\"ph\":\"{kind}\",\"ts\":{micros}.{nanos:03},\"pid\":{group},\"tid\":{number}{rest}}}")
    }

    fn name(&mut self, out: &mut dyn Write, what: &str, track: Track, name: &str, rank: u32) -> io::Result<()> {
        let rest = format!(",\"name\":\"{what}_name\",\"args\":{}", json!({ "name": name }));
        self.event(out, "M", 0, track, &rest)?;
        let rest = format!(",\"name\":\"{what}_sort_index\",\"args\":{}", json!({ "sort_index": rank }));
        self.event(out, "M", 0, track, &rest)
    }
}

impl Format for Chrome {
    fn head(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"[\n")
    }

    fn group(&mut self, out: &mut dyn Write, _: Time, group: u32, name: &str) -> io::Result<()> {
        self.name(out, "process", Track { group, number: 0 }, name, group)
    }

    fn track(&mut self, out: &mut dyn Write, _: Time, track: Track, name: &str) -> io::Result<()> {
        self.name(out, "thread", track, name, track.number)
    }

    fn begin(&mut self, out: &mut dyn Write, at: Time, track: Track, name: &str, details: &Details) -> io::Result<()> {
        let rest = format!(",\"name\":{},\"args\":{}", json!(name), serde_json::to_string(details)?);
        self.event(out, "B", at.0, track, &rest)
    }

    fn end(&mut self, out: &mut dyn Write, at: Time, track: Track) -> io::Result<()> {
        self.event(out, "E", at.0, track, "")
    }

    fn mark(&mut self, out: &mut dyn Write, at: Time, track: Track, name: &str) -> io::Result<()> {
        self.event(out, "i", at.0, track, &format!(",\"s\":\"g\",\"name\":{}", json!(name)))
    }

    fn arrow(
        &mut self,
        out: &mut dyn Write,
        at: Time,
        track: Track,
        arrow: Arrow,
        Label { key, name, details }: &Label<'_>,
    ) -> io::Result<()> {
        let free_ns = self.free_ns.entry(track).or_default();
        let ts_ns = at.0.max(*free_ns);
        *free_ns = ts_ns + 1;
        let mut details = details.clone();
        if ts_ns > at.0 {
            details.insert("seconds".into(), Json::from(at.seconds()));
        }
        let (verb, kind, binding) = match arrow {
            Arrow::Leaves => ("send", "s", ""),
            Arrow::Arrives => ("receive", "f", ",\"bp\":\"e\""),
        };
        let slice = json!(format!("{verb} {name}"));
        let rest = format!(",\"dur\":0.001,\"name\":{slice},\"args\":{}", serde_json::to_string(&details)?);
        self.event(out, "X", ts_ns, track, &rest)?;
        let rest = format!(",\"cat\":\"message\",\"name\":{},\"id\":{}{binding}", json!(name), json!(key));
        self.event(out, kind, ts_ns, track, &rest)
    }

    fn tail(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"\n]\n")
    }
}
