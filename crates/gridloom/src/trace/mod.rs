//! Trace of a simulation, or of a real run of processing elements. The trace of a simulation is written
//! to a file while it runs. Viewers read it: Chrome's format ([`chrome`]; Perfetto and `chrome://tracing` show it), or
//! Paje's ([`paje`]) if the file name ends in `.paje`.
//!
//! A host is a group of tracks. Each process has one track for its states and one for its messages. A server has one
//! for each slot and one for the data that it sends and receives. A link is a group too, with as many tracks as the
//! most transfers that ever shared it. A message is an arrow with its values, decoded into fields ([`decode`]).
//!
//! **Invariant:** memory holds only what has a track, and activities in progress; never finished ones.

mod chrome;
mod decode;
mod paje;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridloom_base::{NodeId, TaskId, Time};
use gridloom_flow::LinkIndex;
use gridloom_platform::{HostId, Platform};
use gridloom_sim::observe::{Lane, MessageName, Observation, Observer, State, TransferContents};
use gridloom_sim::process::ProcessId;
use serde_json::{Map, Value as Json, json};

use crate::Error;
use decode::MessageDecoder;

/// A row of the timeline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Track {
    pub(crate) group: u32,
    pub(crate) number: u32,
}

/// An end of an arrow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrow {
    Leaves,
    Arrives,
}

/// A trace format. Activities on a track end in reverse order of their beginning; times never decrease.
pub(crate) trait Format: Send {
    fn head(&mut self, out: &mut dyn Write) -> io::Result<()>;

    fn group(&mut self, out: &mut dyn Write, at: Time, group: u32, name: &str) -> io::Result<()>;

    fn track(&mut self, out: &mut dyn Write, at: Time, track: Track, name: &str) -> io::Result<()>;

    fn begin(&mut self, out: &mut dyn Write, at: Time, track: Track, name: &str, details: &Details) -> io::Result<()>;

    fn end(&mut self, out: &mut dyn Write, at: Time, track: Track) -> io::Result<()>;

    /// Marks a moment that concerns the whole simulation.
    fn mark(&mut self, out: &mut dyn Write, at: Time, track: Track, name: &str) -> io::Result<()>;

    /// Writes one end of an arrow; both ends have the same key and name.
    fn arrow(&mut self, out: &mut dyn Write, at: Time, track: Track, arrow: Arrow, label: &Label<'_>)
    -> io::Result<()>;

    fn tail(&mut self, out: &mut dyn Write) -> io::Result<()>;
}

/// Returns the format that the file name selects.
pub(crate) fn format_of(path: &Path) -> Box<dyn Format> {
    match path.extension().is_some_and(|extension| extension == "paje") {
        true => Box::new(paje::Paje::default()),
        false => Box::new(chrome::Chrome::default()),
    }
}

pub(crate) type Details = Map<String, Json>;

pub(crate) struct Label<'a> {
    pub(crate) key: &'a str,
    pub(crate) name: &'a str,
    pub(crate) details: Details,
}

/// Writes the events of a simulation to a trace file.
pub(crate) struct Tracer {
    path: PathBuf,
    out: BufWriter<File>,
    format: Box<dyn Format>,
    platform: Arc<Platform>,
    meanings: MessageDecoder,
    /// Groups already named in the file.
    groups: BTreeSet<u32>,
    tracks: u32,
    faults: Option<Track>,
    /// Indexed by process number.
    processes: Vec<ProcessTracks>,
    nodes: BTreeMap<NodeId, NodeTracks>,
    links: BTreeMap<LinkIndex, Lanes<u64>>,
    /// The links of each transfer in progress.
    transfers: BTreeMap<u64, Vec<LinkIndex>>,
}

struct ProcessTracks {
    name: String,
    states: Track,
    is_in_state: bool,
    messages: Track,
    has_messages: bool,
}

struct NodeTracks {
    name: String,
    host: HostId,
    data: Option<Track>,
    tasks: Lanes<TaskId>,
}

/// Tracks for overlapping activities, and the activity on each.
struct Lanes<K>(Vec<(Track, Option<K>)>);

impl<K: PartialEq> Lanes<K> {
    /// Frees the activity's track and returns it.
    fn free(&mut self, key: &K) -> Option<Track> {
        let (track, user) = self.0.iter_mut().find(|(_, user)| user.as_ref() == Some(key))?;
        *user = None;
        Some(*track)
    }
}

impl Tracer {
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn create(path: &Path, platform: Arc<Platform>) -> Result<Tracer, Error> {
        let file = File::create(path).map_err(|error| Error::Input(format!("{}: {error}", path.display())))?;
        let format = format_of(path);
        let mut tracer = Tracer {
            path: path.to_path_buf(),
            out: BufWriter::new(file),
            format,
            platform,
            meanings: MessageDecoder::default(),
            groups: BTreeSet::new(),
            tracks: 0,
            faults: None,
            processes: Vec::new(),
            nodes: BTreeMap::new(),
            links: BTreeMap::new(),
            transfers: BTreeMap::new(),
        };
        tracer.format.head(&mut tracer.out).map_err(|error| Error::Input(tracer.write_error(&error)))?;
        Ok(tracer)
    }

    fn write_error(&self, error: &io::Error) -> String {
        format!("cannot write the trace to {}: {error}", self.path.display())
    }

    fn write(&mut self, at: Time, what: &Observation<'_>) -> io::Result<()> {
        match *what {
            Observation::Process { process, spec, host } => {
                let who = format!("{}@{}", spec.function, spec.host);
                let name = [std::slice::from_ref(&who), spec.arguments.as_slice()].concat().join(" ");
                let group = self.host_group(at, host)?;
                let (states, messages) = (self.new_track(group), self.new_track(group));
                self.format.track(&mut self.out, at, states, &name)?;
                assert_eq!(process.0 as usize, self.processes.len(), "processes are told of in order");
                let tracks = ProcessTracks { name, states, is_in_state: false, messages, has_messages: false };
                self.processes.push(tracks);
                Ok(())
            }
            Observation::State { process, state } => self.state(at, process, state),
            Observation::Sent { name, from, to, letter } => {
                let mut details = Details::new();
                details.insert("to".into(), self.processes[to.0 as usize].name.clone().into());
                details.insert("message".into(), self.meanings.decode(letter));
                let track = self.messages_track(at, from)?;
                let label = Label { key: &message_key(name), name: &letter.kind, details };
                self.format.arrow(&mut self.out, at, track, Arrow::Leaves, &label)
            }
            Observation::Received { name, to, kind } => {
                let track = self.messages_track(at, to)?;
                let label = Label { key: &message_key(name), name: kind, details: Details::new() };
                self.format.arrow(&mut self.out, at, track, Arrow::Arrives, &label)
            }
            Observation::Node { node, name, host } => {
                let tracks = NodeTracks { name: name.to_string(), host, data: None, tasks: Lanes(Vec::new()) };
                self.nodes.insert(node, tracks);
                Ok(())
            }
            Observation::TaskBegins { node, task } => {
                let track = self.task_track(at, node, task.id)?;
                let mut details = Details::new();
                details.insert("task".into(), task.id.to_string().into());
                details.insert("flops".into(), json!(task.work_flops));
                let results = task.outputs.iter().map(|output| {
                    let meta = &output.meta;
                    json!(format!("{}: {} bytes", output.datum, meta.size_bytes()))
                });
                details.insert("results".into(), results.collect());
                details.insert("inputs".into(), task.inputs().map(|datum| json!(datum.to_string())).collect());
                self.format.begin(&mut self.out, at, track, task.name(), &details)
            }
            Observation::TaskEnds { node, task } => {
                match self.nodes.get_mut(&node).and_then(|tracks| tracks.tasks.free(&task)) {
                    Some(track) => self.format.end(&mut self.out, at, track),
                    None => Ok(()),
                }
            }
            Observation::Fault { fault } => {
                let track = self.faults_track(at)?;
                self.format.mark(&mut self.out, at, track, &fault.to_string())
            }
            Observation::TransferBegins { transfer, moved, size_bytes, links } => {
                self.transfer_begins(at, transfer, moved, size_bytes, links)
            }
            Observation::TransferEnds { transfer } => {
                for link in self.transfers.remove(&transfer).unwrap_or_default() {
                    let track = self.links.get_mut(&link).and_then(|lanes| lanes.free(&transfer));
                    self.format.end(&mut self.out, at, track.expect("a transfer has a track on each of its links"))?;
                }
                Ok(())
            }
            Observation::DatumArrived { transfer, to, datum } => {
                let track = self.data_track(at, to)?;
                let label =
                    Label { key: &format!("t{transfer}"), name: &format!("datum {datum}"), details: Details::new() };
                self.format.arrow(&mut self.out, at, track, Arrow::Arrives, &label)
            }
        }
    }

    fn state(&mut self, at: Time, process: ProcessId, state: State<'_>) -> io::Result<()> {
        let tracks = &mut self.processes[process.0 as usize];
        let track = tracks.states;
        if std::mem::replace(&mut tracks.is_in_state, state != State::Runs) {
            self.format.end(&mut self.out, at, track)?;
        }
        let mut details = Details::new();
        let name = match state {
            State::Runs => return Ok(()),
            State::Sleeps => "sleeping",
            State::Waits { what } => {
                details.insert("for".into(), what.into());
                "waiting"
            }
            State::Computes { block, flops } => {
                details.insert("flops".into(), json!(flops));
                if let Some(block) = block {
                    details.insert("block".into(), block.into());
                }
                "computing"
            }
        };
        self.format.begin(&mut self.out, at, track, name, &details)
    }

    fn transfer_begins(
        &mut self,
        at: Time,
        transfer: u64,
        moved: TransferContents<'_>,
        size_bytes: u64,
        links: &[LinkIndex],
    ) -> io::Result<()> {
        let mut details = Details::new();
        details.insert("bytes".into(), size_bytes.into());
        let name = match moved {
            TransferContents::Letter { kind, .. } => kind.to_string(),
            TransferContents::Probe => "probe".to_string(),
            TransferContents::Datum { datum, from, to } => {
                let name = format!("datum {datum}");
                details.insert("from".into(), self.node_name(from).into());
                details.insert("to".into(), self.node_name(to).into());
                let track = self.data_track(at, from)?;
                let label = Label { key: &format!("t{transfer}"), name: &name, details: details.clone() };
                self.format.arrow(&mut self.out, at, track, Arrow::Leaves, &label)?;
                name
            }
        };
        for link in links {
            let track = self.link_track(at, *link, transfer)?;
            self.format.begin(&mut self.out, at, track, &name, &details)?;
        }
        self.transfers.insert(transfer, links.to_vec());
        Ok(())
    }

    // ---- tracks

    fn host_group(&mut self, at: Time, host: HostId) -> io::Result<u32> {
        let group = host.0 + 1;
        if self.groups.insert(group) {
            let name = format!("host {}", self.platform.hosts()[host.0 as usize].name);
            self.format.group(&mut self.out, at, group, &name)?;
        }
        Ok(group)
    }

    fn new_track(&mut self, group: u32) -> Track {
        self.tracks += 1;
        Track { group, number: self.tracks }
    }

    /// Returns the track for faults. It has a group of its own, before all hosts.
    fn faults_track(&mut self, at: Time) -> io::Result<Track> {
        if let Some(track) = self.faults {
            return Ok(track);
        }
        self.format.group(&mut self.out, at, 0, "faults")?;
        let track = self.new_track(0);
        self.faults = Some(track);
        self.format.track(&mut self.out, at, track, "faults")?;
        Ok(track)
    }

    fn messages_track(&mut self, at: Time, process: ProcessId) -> io::Result<Track> {
        let tracks = &mut self.processes[process.0 as usize];
        if !std::mem::replace(&mut tracks.has_messages, true) {
            let name = format!("{}: messages", tracks.name);
            self.format.track(&mut self.out, at, tracks.messages, &name)?;
        }
        Ok(tracks.messages)
    }

    fn node_name(&self, node: NodeId) -> String {
        self.nodes.get(&node).map_or_else(|| node.to_string(), |tracks| tracks.name.clone())
    }

    fn data_track(&mut self, at: Time, node: NodeId) -> io::Result<Track> {
        let tracks = self.nodes.get(&node).expect("nodes are told of before what they do");
        let (name, host) = (format!("{}: data", tracks.name), tracks.host);
        if let Some(track) = tracks.data {
            return Ok(track);
        }
        let group = self.host_group(at, host)?;
        let track = self.new_track(group);
        self.nodes.get_mut(&node).expect("found above").data = Some(track);
        self.format.track(&mut self.out, at, track, &name)?;
        Ok(track)
    }

    fn task_track(&mut self, at: Time, node: NodeId, task: TaskId) -> io::Result<Track> {
        let tracks = self.nodes.get_mut(&node).expect("nodes are told of before what they do");
        if let Some((track, user)) = tracks.tasks.0.iter_mut().find(|(_, user)| user.is_none()) {
            *user = Some(task);
            return Ok(*track);
        }
        let (name, host) = (format!("{}: slot {}", tracks.name, tracks.tasks.0.len() + 1), tracks.host);
        let group = self.host_group(at, host)?;
        let track = self.new_track(group);
        self.nodes.get_mut(&node).expect("found above").tasks.0.push((track, Some(task)));
        self.format.track(&mut self.out, at, track, &name)?;
        Ok(track)
    }

    fn link_track(&mut self, at: Time, link: LinkIndex, transfer: u64) -> io::Result<Track> {
        let lanes = self.links.entry(link).or_insert_with(|| Lanes(Vec::new()));
        if let Some((track, user)) = lanes.0.iter_mut().find(|(_, user)| user.is_none()) {
            *user = Some(transfer);
            return Ok(*track);
        }
        let number = lanes.0.len() + 1;
        let group = self.platform.hosts().len() as u32 + 1 + link.0;
        if self.groups.insert(group) {
            let name = format!("link {}", self.platform.links()[link.0 as usize].name);
            self.format.group(&mut self.out, at, group, &name)?;
        }
        let track = self.new_track(group);
        self.links.get_mut(&link).expect("made above").0.push((track, Some(transfer)));
        self.format.track(&mut self.out, at, track, &format!("transfer {number}"))?;
        Ok(track)
    }

    /// Ends all activities in progress.
    fn end_all(&mut self, at: Time) -> io::Result<()> {
        let states = self.processes.iter().filter(|tracks| tracks.is_in_state).map(|tracks| tracks.states);
        let tasks = self.nodes.values().flat_map(|tracks| &tracks.tasks.0);
        let tasks = tasks.filter(|(_, task)| task.is_some()).map(|(track, _)| *track);
        let transfers = self.links.values().flat_map(|lanes| &lanes.0);
        let transfers = transfers.filter(|(_, transfer)| transfer.is_some()).map(|(track, _)| *track);
        for track in states.chain(tasks).chain(transfers) {
            self.format.end(&mut self.out, at, track)?;
        }
        self.format.tail(&mut self.out)?;
        self.out.flush()
    }
}

impl Observer for Tracer {
    fn observe(&mut self, at: Time, what: &Observation<'_>) -> Result<(), String> {
        self.write(at, what).map_err(|error| self.write_error(&error))
    }

    fn finish(&mut self, at: Time) -> Result<(), String> {
        self.end_all(at).map_err(|error| self.write_error(&error))
    }
}

fn message_key(MessageName { connection, end, lane, number }: MessageName) -> String {
    match lane {
        Lane::Bulk => format!("m{connection}.{end}.{number}"),
        Lane::Urgent => format!("m{connection}.{end}.u{number}"),
    }
}
