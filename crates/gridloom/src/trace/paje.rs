//! Paje's trace format: definitions, then one event per line, with times in seconds. The details that an event has in Chrome's
//! format are part of its value here.
//!
//! Source: B. de Oliveira Stein, J. Chassin de Kergommeaux, G. Mounié: *Pajé trace file format*.

use std::io::{self, Write};

use gridloom_base::Time;

use super::{Arrow, Details, Format, Label, Track};

#[derive(Default)]
pub(super) struct Paje {
    end: Time,
}

/// Events by number: name and fields. All fields but the time are strings.
const EVENTS: [(&str, &[&str]); 11] = [
    ("PajeDefineContainerType", &["Alias", "Type", "Name"]),
    ("PajeDefineStateType", &["Alias", "Type", "Name"]),
    ("PajeDefineLinkType", &["Alias", "Type", "StartContainerType", "EndContainerType", "Name"]),
    ("PajeCreateContainer", &["Time", "Alias", "Type", "Container", "Name"]),
    ("PajeDestroyContainer", &["Time", "Name", "Type"]),
    ("PajePushState", &["Time", "Type", "Container", "Value"]),
    ("PajePopState", &["Time", "Type", "Container"]),
    ("PajeStartLink", &["Time", "Type", "Container", "Value", "StartContainer", "Key"]),
    ("PajeEndLink", &["Time", "Type", "Container", "Value", "EndContainer", "Key"]),
    ("PajeDefineEventType", &["Alias", "Type", "Name"]),
    ("PajeNewEvent", &["Time", "Type", "Container", "Value"]),
];

/// A picture contains groups, groups contain tracks, and tracks have states. Messages connect tracks.
const TYPES: &str = "0 Picture 0 \"simulation\"\n0 Group Picture \"host or link\"\n0 Track Group \"track\"\n\
                     1 State Track \"state\"\n2 Message Picture Track Track \"message\"\n9 Fault Track \"fault\"\n";

impl Format for Paje {
    fn head(&mut self, out: &mut dyn Write) -> io::Result<()> {
        for (number, (name, fields)) in EVENTS.iter().enumerate() {
            writeln!(out, "%EventDef {name} {number}")?;
            for field in *fields {
                writeln!(out, "% {field} {}", if *field == "Time" { "date" } else { "string" })?;
            }
            writeln!(out, "%EndEventDef")?;
        }
        writeln!(out, "{TYPES}3 0.000000000 all Picture 0 \"simulation\"")
    }

    fn group(&mut self, out: &mut dyn Write, at: Time, group: u32, name: &str) -> io::Result<()> {
        writeln!(out, "3 {} g{group} Group all {}", date(at), quoted(name))
    }

    fn track(&mut self, out: &mut dyn Write, at: Time, track: Track, name: &str) -> io::Result<()> {
        writeln!(out, "3 {} t{} Track g{} {}", date(at), track.number, track.group, quoted(name))
    }

    fn begin(&mut self, out: &mut dyn Write, at: Time, track: Track, name: &str, details: &Details) -> io::Result<()> {
        // A viewer colours states by value, so there should be few values: only the name and the computed block distinguish them.
        let block = details.get("block").and_then(|block| block.as_str());
        let value = block.map_or_else(|| name.to_string(), |block| format!("{name} {block}"));
        writeln!(out, "5 {} State t{} {}", date(at), track.number, quoted(&value))
    }

    fn end(&mut self, out: &mut dyn Write, at: Time, track: Track) -> io::Result<()> {
        self.end = self.end.max(at);
        writeln!(out, "6 {} State t{}", date(at), track.number)
    }

    fn mark(&mut self, out: &mut dyn Write, at: Time, track: Track, name: &str) -> io::Result<()> {
        self.end = self.end.max(at);
        writeln!(out, "10 {} Fault t{} {}", date(at), track.number, quoted(name))
    }

    fn arrow(
        &mut self,
        out: &mut dyn Write,
        at: Time,
        track: Track,
        arrow: Arrow,
        Label { key, name, details }: &Label<'_>,
    ) -> io::Result<()> {
        self.end = self.end.max(at);
        let (event, value) = match arrow {
            Arrow::Leaves => (7, format!("{name} {}", serde_json::to_string(details)?)),
            Arrow::Arrives => (8, (*name).to_string()),
        };
        writeln!(out, "{event} {} Message all {} t{} {key}", date(at), quoted(&value), track.number)
    }

    fn tail(&mut self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "4 {} all Picture", date(self.end))
    }
}

fn date(at: Time) -> String {
    let second = gridloom_base::time::SECOND_NS;
    format!("{}.{:09}", at.0 / second, at.0 % second)
}

/// Quotes a string. The format allows neither its delimiter nor line breaks inside strings.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "'").replace(char::is_control, " "))
}
