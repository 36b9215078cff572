//! Records the activities of a processing element for a timeline: kept in memory while the program runs, and written
//! to a file at its end.
//!
//! Times are of the system's monotonic clock, which all processes of a machine share. Times of elements on servers are
//! shifted to the clock of the command that runs them.
//!
//! **Limit:** [`CHARE_EVENTS_MAX`] events. Further events are counted and not kept.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use gridloom_base::limits::CHARE_EVENTS_MAX;
use gridloom_chare::{Element, EntryMethodRun, Pe};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::Error;

/// Where elements write their records.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Records {
    #[serde(with = "gridloom_base::path_bytes")]
    pub folder: PathBuf,
    /// Number of earlier restarts of the program.
    pub run: u32,
    /// For an element on a server: its file, used instead of one in the folder, and the offset to add to its times, nanoseconds.
    #[serde(skip)]
    pub own: Option<(PathBuf, i64)>,
}

/// An activity, with its begin and end in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) what: Activity,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Activity {
    Ran {
        array: u32,
        chare: u32,
        method: u32,
    },
    /// No message was queued.
    Idle,
    /// A batch was sent or received, of `bytes`. Batches between two elements are numbered from 0.
    Sent {
        to: u32,
        number: u32,
        bytes: u32,
    },
    Came {
        from: u32,
        number: u32,
        bytes: u32,
    },
}

/// The record that an element writes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) run: u32,
    pub(crate) element: u32,
    pub(crate) site: u32,
    /// Names of arrays and entry methods, indexed by number.
    pub(crate) arrays: Vec<String>,
    pub(crate) methods: Vec<String>,
    /// Array, number and index of each chare that ran.
    pub(crate) chares: Vec<(u32, u32, String)>,
    /// Ordered by beginning.
    pub(crate) events: Vec<Event>,
    pub(crate) dropped: u64,
}

/// Records the activities of an element.
#[derive(Debug)]
pub(super) struct Timeline {
    records: Records,
    events: Vec<Event>,
    left_out: u64,
    /// Number of batches to and from each element.
    batches: Vec<[u32; 2]>,
}

/// Reads the system's monotonic clock, nanoseconds.
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * gridloom_base::time::SECOND_NS + time.tv_nsec as u64
}

impl Timeline {
    pub(super) fn new(records: Records, elements: usize) -> Timeline {
        Timeline { records, events: Vec::new(), left_out: 0, batches: vec![[0; 2]; elements] }
    }

    fn add(&mut self, began_ns: u64, ended_ns: u64, what: Activity) {
        match self.events.len() < CHARE_EVENTS_MAX {
            true => self.events.push(Event { began_ns, ended_ns, what }),
            false => self.left_out += 1,
        }
    }

    /// Records an entry method that began then and has ended. Returns the current time.
    pub(super) fn ran(&mut self, began_ns: u64, ran: Option<EntryMethodRun>) -> u64 {
        let now_ns = monotonic_ns();
        if let Some(EntryMethodRun { array, chare, method }) = ran {
            self.add(began_ns, now_ns, Activity::Ran { array: array.0, chare, method });
        }
        now_ns
    }

    /// Records that the element has been idle since then.
    pub(super) fn idled(&mut self, began_ns: u64) {
        self.add(began_ns, monotonic_ns(), Activity::Idle);
    }

    pub(super) fn sends(&mut self, to: Pe, bytes: usize) {
        let now_ns = monotonic_ns();
        let number = next(&mut self.batches[to.0 as usize][0]);
        self.add(now_ns, now_ns, Activity::Sent { to: to.0, number, bytes: bytes as u32 });
    }

    pub(super) fn receives(&mut self, from: Pe, bytes: usize) {
        let now_ns = monotonic_ns();
        let number = next(&mut self.batches[from.0 as usize][1]);
        self.add(now_ns, now_ns, Activity::Came { from: from.0, number, bytes: bytes as u32 });
    }

    /// Writes the element's record to its folder.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write(self, element: &Element) -> Result<(), Error> {
        let Timeline { records, mut events, left_out, .. } = self;
        let in_folder = (path_of(&records.folder, records.run, element.me().0), 0);
        let (path, shift_ns) = records.own.unwrap_or(in_folder);
        for event in &mut events {
            event.began_ns = event.began_ns.saturating_add_signed(shift_ns);
            event.ended_ns = event.ended_ns.saturating_add_signed(shift_ns);
        }
        let ran = events.iter().filter_map(|event| match event.what {
            Activity::Ran { array, chare, .. } => Some((array, chare)),
            Activity::Idle | Activity::Sent { .. } | Activity::Came { .. } => None,
        });
        let ran: BTreeSet<(u32, u32)> = ran.collect();
        let array = gridloom_chare::ArrayId;
        let index = |(of, chare)| (of, chare, element.index_of(array(of), chare).to_string());
        let arrays = ran.iter().last().map_or(0, |(last, _)| last + 1);
        let me = element.me();
        let record = Record {
            run: records.run,
            element: me.0,
            site: element.elements().site(me),
            arrays: (0..arrays).map(|of| element.array_name(array(of)).to_string()).collect(),
            methods: element.entry_methods().to_vec(),
            chares: ran.into_iter().map(index).collect(),
            events,
            dropped: left_out,
        };
        let bytes = postcard::to_allocvec(&record).expect("postcard into a vector fails for no such type");
        write(&path, &bytes)
    }
}

/// Stores the record of an element on a server in that folder, as if the element had written it there itself.
///
/// # Errors
/// If it cannot be written.
pub fn keep_record(folder: &Path, run: u32, element: u32, bytes: &[u8]) -> Result<(), Error> {
    write(&path_of(folder, run, element), bytes)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    fs::write(path, bytes)
        .map_err(|error| Error::Input(format!("cannot write the timeline to {}: {error}", path.display())))
}

fn next(number: &mut u32) -> u32 {
    let own = *number;
    *number = number.wrapping_add(1);
    own
}

fn path_of(folder: &Path, run: u32, element: u32) -> PathBuf {
    folder.join(format!("timeline-{run}-{element}"))
}

/// Reads the record of an element in that run; `None` if it left none.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn record_of(folder: &Path, run: u32, element: u32) -> Result<Option<Record>, Error> {
    let path = path_of(folder, run, element);
    let wrong = |why: String| Error::Input(format!("cannot read the timeline in {}: {why}", path.display()));
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| wrong(error.to_string()))?,
    };
    postcard::from_bytes(&bytes).map(Some).map_err(|error| wrong(error.to_string()))
}
