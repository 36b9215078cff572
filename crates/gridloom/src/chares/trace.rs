//! The timeline of a real run of processing elements, in the formats of [`crate::trace`].
//!
//! An element is a group with one track for its entry methods and one for its messages. Times count from the start of the run.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use gridloom_base::Time;

use super::timeline::{Activity, Event, Record, record_of};
use crate::Error;
use crate::trace::{Arrow, Details, Format, Label, Track, format_of};

/// Gaps in a timeline.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TimelineGaps {
    /// Run and number of each element that left no record because it was killed.
    pub elements: Vec<(u32, u32)>,
    /// Number of events that the elements dropped because their buffers were full.
    pub events: u64,
}

/// Writes the records that the elements left in `folder`. `elements` has the number of elements of each run; `began_ns`
/// is the time at which the run began.
///
/// # Errors
/// If a file cannot be read or written.
pub fn write_element_trace(file: &Path, folder: &Path, elements: &[u32], began_ns: u64) -> Result<TimelineGaps, Error> {
    let mut lacks = TimelineGaps::default();
    let mut records = Vec::new();
    let all = (0..).zip(elements).flat_map(|(run, count)| (0..*count).map(move |element| (run, element)));
    for (run, element) in all {
        match record_of(folder, run, element)? {
            Some(record) => {
                lacks.events += record.dropped;
                records.push(record);
            }
            None => lacks.elements.push((run, element)),
        }
    }
    let cannot = |error: io::Error| Error::Input(format!("cannot write the trace to {}: {error}", file.display()));
    let mut out = BufWriter::new(File::create(file).map_err(cannot)?);
    write(&mut out, &mut *format_of(file), &records, began_ns).map_err(cannot)?;
    Ok(lacks)
}

fn write(out: &mut dyn Write, format: &mut dyn Format, records: &[Record], began_ns: u64) -> io::Result<()> {
    let start = Time(0);
    format.head(out)?;
    let mut named: Vec<u32> = Vec::new();
    for Record { element, site, .. } in records {
        if !named.contains(element) {
            named.push(*element);
            let tracks = Tracks::of(*element);
            format.group(out, start, tracks.runs.group, &format!("element {element} (site {site})"))?;
            format.track(out, start, tracks.runs, &format!("element {element}"))?;
            format.track(out, start, tracks.letters, &format!("element {element}: messages"))?;
        }
    }
    // The begin and end of each event: time, record, event number, and which of the two. At equal times, those of one
    // element keep their order.
    let mut ends: Vec<(u64, usize, usize, bool)> = Vec::new();
    for (of, record) in records.iter().enumerate() {
        for (number, event) in record.events.iter().enumerate() {
            ends.push((event.began_ns, of, number, false));
            if matches!(event.what, Activity::Ran { .. } | Activity::Idle) {
                ends.push((event.ended_ns, of, number, true));
            }
        }
    }
    ends.sort_by_key(|(at_ns, ..)| *at_ns);
    for (at_ns, of, number, is_end) in ends {
        let (at, record) = (Time(at_ns.saturating_sub(began_ns)), &records[of]);
        let event = &record.events[number];
        match is_end {
            true => format.end(out, at, Tracks::of(record.element).runs)?,
            false => begin(out, format, at, record, event)?,
        }
    }
    format.tail(out)?;
    out.flush()
}

fn begin(out: &mut dyn Write, format: &mut dyn Format, at: Time, record: &Record, event: &Event) -> io::Result<()> {
    let (tracks, me, run) = (Tracks::of(record.element), record.element, record.run);
    let mut details = Details::new();
    match event.what {
        Activity::Idle => format.begin(out, at, tracks.runs, "idle", &details),
        Activity::Ran { array, chare, method } => {
            let name = format!("{}.{}", record.arrays[array as usize], record.methods[method as usize]);
            let found = record.chares.binary_search_by_key(&(array, chare), |(array, chare, _)| (*array, *chare));
            let index = &record.chares[found.expect("the chares that ran have an index")].2;
            details.insert("chare".into(), index.clone().into());
            format.begin(out, at, tracks.runs, &name, &details)
        }
        Activity::Sent { to, number, bytes } => {
            details.insert("to".into(), format!("element {to}").into());
            details.insert("bytes".into(), bytes.into());
            let key = format!("r{run}.{me}.{to}.{number}");
            format.arrow(out, at, tracks.letters, Arrow::Leaves, &Label { key: &key, name: "chares", details })
        }
        Activity::Came { from, number, bytes } => {
            details.insert("from".into(), format!("element {from}").into());
            details.insert("bytes".into(), bytes.into());
            let key = format!("r{run}.{from}.{me}.{number}");
            format.arrow(out, at, tracks.letters, Arrow::Arrives, &Label { key: &key, name: "chares", details })
        }
    }
}

struct Tracks {
    runs: Track,
    letters: Track,
}

impl Tracks {
    fn of(element: u32) -> Tracks {
        let group = element + 1;
        Tracks { runs: Track { group, number: 2 * element + 1 }, letters: Track { group, number: 2 * element + 2 } }
    }
}
