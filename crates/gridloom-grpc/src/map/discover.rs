//! The first run of a block: its calls become a declared graph, and its sessions end at once.
//!
//! **Invariant:** none of the program's arrays is read or written, and nothing is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::Arc;

use gridloom::data::reads_same_elements;
use gridloom::{Function, Graph, GraphArg, GraphOptions, GraphRef, Group, Handle};
use gridloom_base::{Dtype, Meta, Order};

use super::super::arguments::Item;
use super::super::call::Call;
use super::super::code::{Failed, GRPC_RPC_REFUSED, Outcome};
use super::super::graphs;
use super::super::handles::next_number;
use super::super::library::Library;
use super::super::remote_results::{MappedResult, Part, Writers};
use super::super::session::Origin;
use super::super::sessions::no_session;
use super::frame::Frame;
use super::memory_state::{MemoryState, Range};

/// Number of calls after which a block whose calls are discovered is suspected of a loop without an end.
const SUSPECT_CALLS: usize = 10_000;

/// The state of the run.
pub(crate) struct Discovery {
    graph: Graph,
    /// The first handle of a function that was made in the block.
    first_handle: u64,
    /// Why the block cannot be mapped.
    failed: Option<Failed>,
    calls: usize,
    inputs: usize,
    known: MemoryState<Writer, (Meta, GraphRef)>,
    /// Inputs that are results of earlier blocks.
    earlier: Vec<(GraphRef, Handle)>,
    results: Vec<Described>,
    /// Indices of the results that are sent to the client.
    wanted: BTreeSet<usize>,
    /// Addresses in buffers whose results stay on their servers.
    pub(super) stays: BTreeSet<usize>,
    /// True if calls that are described from now on are optional.
    pub(super) is_optional: bool,
    sessions: BTreeMap<c_int, Session>,
    /// Sessions from before the block for which the block waited.
    waited: BTreeSet<c_int>,
    /// The block's file and line.
    place: String,
    pub(super) frame: Option<Frame>,
    /// The arguments of each call.
    passed: Vec<Passed>,
    /// Memory of functions that the block has called, to which the last call writes.
    deeper: Vec<Range>,
    /// Scalars that are results, described.
    scalars: BTreeSet<String>,
}

#[derive(Clone)]
enum Writer {
    /// A call of the block, by its result's number.
    Call(usize),
    Earlier(Arc<MappedResult>),
}

struct Described {
    node: GraphRef,
    /// Form in the program's memory; `lies` is the form where it is made.
    meta: Meta,
    stored_meta: Meta,
    function: Function,
    stays: bool,
}

struct Session {
    origin: Origin,
    is_waited: bool,
    /// Memory of functions that the block has called, to which it writes.
    deeper: Vec<Range>,
}

/// The result of a block's first run.
pub(super) struct FirstRunResult {
    pub(super) graph: Graph,
    pub(super) failed: Option<Failed>,
    /// Inputs of the graph that are results of earlier blocks, by name.
    pub(super) earlier: Vec<(String, Handle)>,
    /// For each result, in the order of the calls, whether it is sent to the client.
    pub(super) wanted: Vec<bool>,
    /// Results that are not sent to the client.
    pub(super) unwanted: Vec<GraphRef>,
    pub(super) frame: Option<Frame>,
    /// The arguments of each call.
    pub(super) passed: Vec<Passed>,
}

/// Arguments of a call that are compared in the second run.
pub(super) struct Passed {
    /// Addresses of the memory that it reads or writes.
    pub(super) addresses: Vec<usize>,
    /// Values of its scalars and strings.
    pub(super) scalars: Vec<Vec<u8>>,
}

impl Passed {
    pub(super) fn new(items: &[Item<'_>]) -> Passed {
        let is_memory = |item: &&Item<'_>| item.is_read() || item.is_written();
        Passed {
            addresses: items.iter().filter(is_memory).map(|item| item.range().0).collect(),
            scalars: items.iter().filter_map(|item| item.bytes.clone()).collect(),
        }
    }
}

/// For a graph that was declared before the results that it reads were made.
impl From<graphs::Described> for FirstRunResult {
    fn from(graphs::Described { graph, unwanted }: graphs::Described) -> FirstRunResult {
        let (earlier, wanted, passed) = (Vec::new(), Vec::new(), Vec::new());
        FirstRunResult { graph, failed: None, earlier, wanted, unwanted, frame: None, passed }
    }
}

impl From<FirstRunResult> for graphs::Described {
    fn from(FirstRunResult { graph, unwanted, .. }: FirstRunResult) -> graphs::Described {
        graphs::Described { graph, unwanted }
    }
}

impl FirstRunResult {
    /// Returns the calls as a mapped group; `None` if there are none.
    pub(super) fn group(&self, library: &Library, heuristic: &str) -> Outcome<Option<Group>> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        if self.graph.is_empty() {
            return Ok(None);
        }
        let mapping = library.mappings.find(heuristic)?;
        let options =
            GraphOptions { is_strict: false, inputs: self.earlier.clone(), not_fetched: self.unwanted.clone() };
        Ok(Some(library.grid.group_of(&self.graph, mapping, options)?))
    }
}

impl Discovery {
    pub(super) fn new(library: &Library, place: String) -> Discovery {
        Discovery {
            graph: Graph::new(),
            first_handle: next_number(),
            failed: None,
            calls: 0,
            inputs: 0,
            known: MemoryState::new(library.staying.all().map(Writer::Earlier)),
            earlier: Vec::new(),
            results: Vec::new(),
            wanted: BTreeSet::new(),
            stays: BTreeSet::new(),
            is_optional: false,
            sessions: BTreeMap::new(),
            waited: BTreeSet::new(),
            place,
            frame: None,
            passed: Vec::new(),
            deeper: Vec::new(),
            scalars: BTreeSet::new(),
        }
    }

    /// True if the second run needs that handle, because it was made before the block.
    pub(super) fn keeps_handle(&self, number: u64) -> bool {
        number < self.first_handle
    }

    pub(super) fn call(&mut self, opened: &Call, items: &[Item<'_>]) -> Outcome<()> {
        check_results(opened, items)?;
        self.passed.push(Passed::new(items));
        self.warn_of_many_calls(opened, items);
        let is_deeper = |item: &&Item<'_>| self.frame.is_some_and(|frame| frame.is_deeper(item.range().0));
        self.deeper = items.iter().filter(|item| item.is_written()).filter(is_deeper).map(Item::range).collect();
        if self.failed.is_some() {
            return Ok(());
        }
        if is_unplanned(opened, items) {
            self.record_unplanned_call(items);
            return Ok(());
        }
        if let Err(failed) = self.describe(opened, items) {
            let why = format!("call {} of the block, of '{}'", self.calls + 1, opened.function().name());
            self.failed = Some(Failed::new(failed.code, format!("{why}: {}", failed.text)));
        }
        Ok(())
    }

    /// Warns of a loop that may wait for a result, which it does not get while calls are discovered.
    fn warn_of_many_calls(&mut self, opened: &Call, items: &[Item<'_>]) {
        const NAMED_MAX: usize = 3;
        for item in items.iter().filter(|item| item.is_written() && !item.param.is_array) {
            if self.scalars.len() < NAMED_MAX {
                let (name, (start, _)) = (&item.param.name, item.range());
                self.scalars.insert(format!("'{name}' of '{}' at {start:#x}", opened.function().name()));
            }
        }
        if self.passed.len() != SUSPECT_CALLS {
            return;
        }
        let scalars: Vec<&str> = self.scalars.iter().map(String::as_str).collect();
        let named = if scalars.is_empty() { String::new() } else { format!(", such as {}", scalars.join(", ")) };
        gridloom_base::stderr_line!(
            "gridloom: the block of grpc_map at {} has made {SUSPECT_CALLS} calls, and they are still being discovered. \
             If one of its loops ends by a result{named}, it never ends, because results have no values meanwhile: put \
             the block inside the loop",
            self.place
        );
    }

    /// Records that the program has waited for a call that was just described.
    pub(super) fn returned(&mut self) {
        for (start, bytes) in std::mem::take(&mut self.deeper) {
            self.known.regions.forget(start, bytes);
        }
    }

    fn describe(&mut self, opened: &Call, items: &[Item<'_>]) -> Outcome<()> {
        let (mut args, mut named) = (Vec::new(), Vec::new());
        for item in items.iter().filter(|item| item.param.is_input()) {
            let arg = match item.bytes.as_deref().and_then(|bytes| number_of(&item.meta, bytes)) {
                Some(number) => number,
                None if item.bytes.is_some() => self.new_input(&item.meta)?.into(),
                None => self.read(item)?,
            };
            match item.param.hidden {
                true => named.push((item.param.name.clone(), arg)),
                false => args.push(arg),
            }
        }
        let name = format!("call{}", self.calls + 1);
        let node = self.graph.call_named(&name, opened.function().name(), args, &named, self.is_optional)?;
        if let Some(server) = &opened.bound.server {
            self.graph.bind(&node, server)?;
        }
        self.calls += 1;
        let outputs: Vec<&Item<'_>> = items.iter().filter(|item| item.param.is_output()).collect();
        for item in &outputs {
            let node = if outputs.len() == 1 { node.clone() } else { node.result(&item.param.name) };
            let number = self.results.len();
            let is_deeper = self.frame.is_some_and(|frame| frame.is_deeper(item.range().0));
            let stays = item.is_written() && stays_remote(&self.stays, item) && !is_deeper;
            let (meta, lies) = (item.meta.clone(), ordered(&item.meta, item.param.order.in_memory()));
            let function = opened.function().clone();
            self.results.push(Described { node, meta, stored_meta: lies, function, stays });
            if item.is_written() {
                let (start, bytes) = item.range();
                self.known.write(start, bytes, Writer::Call(number));
            }
        }
        Ok(())
    }

    /// Returns the node of the graph for the memory that a call reads.
    fn read(&mut self, item: &Item<'_>) -> Outcome<GraphArg> {
        let (start, bytes) = item.range();
        match self.known.regions.read(start, bytes) {
            Writers::Whole(Writer::Call(number)) => {
                if let Some(arg) = self.results[number].read_as(&item.meta) {
                    return Ok(arg);
                }
            }
            Writers::Whole(Writer::Earlier(made)) => {
                if let Some(result) = made.read_as(item) {
                    return self.read_earlier(result).map(GraphArg::from);
                }
            }
            Writers::Parts(_) | Writers::Nothing => {}
        }
        self.mark_wanted(start, bytes);
        if let Some((_, node)) = self.known.passed((start, bytes)).iter().find(|(meta, _)| *meta == item.meta) {
            return Ok(node.into());
        }
        let node = self.new_input(&item.meta)?;
        self.known.passed_mut((start, bytes)).push((item.meta.clone(), node.clone()));
        Ok(node.into())
    }

    fn read_earlier(&mut self, result: Handle) -> Outcome<GraphRef> {
        let is_same = |known: &Handle| known.datum() == result.datum() && known.meta() == result.meta();
        if let Some((node, _)) = self.earlier.iter().find(|(_, known)| is_same(known)) {
            return Ok(node.clone());
        }
        let node = self.new_input(result.meta())?;
        self.earlier.push((node.clone(), result));
        Ok(node)
    }

    fn new_input(&mut self, meta: &Meta) -> Outcome<GraphRef> {
        self.inputs += 1;
        Ok(self.graph.input(&format!("input{}", self.inputs), meta.clone())?)
    }

    /// Records a call that is not part of the plan: results that it reads are sent to the client, and its results are
    /// at the client.
    fn record_unplanned_call(&mut self, items: &[Item<'_>]) {
        for (start, bytes) in items.iter().filter(|item| item.is_read() || item.is_part()).map(Item::range) {
            self.mark_wanted(start, bytes);
        }
        for (start, bytes) in items.iter().filter(|item| item.is_written()).map(Item::range) {
            self.known.forget_passed(start, bytes);
            self.known.regions.forget(start, bytes);
        }
    }

    /// Marks results in that memory as sent to the client.
    fn mark_wanted(&mut self, start: usize, bytes: usize) {
        for Part { writer, .. } in self.known.regions.parts(start, bytes) {
            if let Writer::Call(number) = writer {
                self.wanted.insert(number);
            }
        }
    }

    /// Records that the program reads the memory at an address.
    pub(super) fn fetch(&mut self, address: usize) {
        if let Some((start, bytes)) = self.known.buffer_at(address) {
            self.mark_wanted(start, bytes);
        }
    }

    /// Drops the results at an address.
    pub(super) fn forget(&mut self, address: usize) {
        if let Some((start, bytes)) = self.known.buffer_at(address) {
            self.known.regions.forget(start, bytes);
        }
    }

    /// Records that the program's next own work changes these buffers.
    pub(super) fn will_be_written(&mut self, addresses: &[usize]) {
        self.known.will_be_written(addresses);
    }

    /// Records the program's own work, which changes the announced buffers.
    pub(super) fn begin_own_work(&mut self) {
        for address in self.known.take_to_write() {
            self.forget(address);
        }
    }

    /// Ends the block's first run.
    pub(super) fn end(mut self) -> FirstRunResult {
        for Part { writer, .. } in self.known.regions.iter() {
            if let Writer::Call(number) = writer
                && !self.results[*number].stays
            {
                self.wanted.insert(*number);
            }
        }
        let mut failed = self.failed;
        for number in &self.wanted {
            if let Err(error) = self.graph.want_result(&self.results[*number].node) {
                failed.get_or_insert(error.into());
            }
        }
        let wanted: Vec<bool> = (0..self.results.len()).map(|number| self.wanted.contains(&number)).collect();
        let unwanted = self.results.into_iter().zip(&wanted).filter(|(_, is_wanted)| !**is_wanted);
        FirstRunResult {
            frame: self.frame,
            passed: self.passed,
            graph: self.graph,
            failed,
            earlier: self.earlier.into_iter().map(|(node, result)| (node.name().to_string(), result)).collect(),
            unwanted: unwanted.map(|(described, _)| described.node).collect(),
            wanted,
        }
    }
}

impl Described {
    /// Returns the result for a call that reads it in the form `wanted`, if the call then gets what the program would pass.
    fn read_as(&self, wanted: &Meta) -> Option<GraphArg> {
        if self.meta == *wanted {
            return Some((&self.node).into());
        }
        let is_view = reads_same_elements(&self.stored_meta, &self.meta, wanted)
            && self.function.can_be_read_as(&self.stored_meta, wanted);
        is_view.then(|| GraphArg::View(self.node.clone(), wanted.clone()))
    }
}

/// Returns an array in that order.
fn ordered(meta: &Meta, lies: Option<Order>) -> Meta {
    match meta {
        Meta::Array { dtype, byte_order, shape, .. } => {
            let order = lies.unwrap_or(Order::C);
            Meta::Array { dtype: *dtype, byte_order: *byte_order, order, shape: shape.clone() }
        }
        other => other.clone(),
    }
}

/// Sessions, all of which have ended.
impl Discovery {
    pub(super) fn begin_session(&mut self, opened: &Call, library: &Library) -> c_int {
        let id = library.sessions.lock().free_id();
        let deeper = std::mem::take(&mut self.deeper);
        self.sessions.insert(id, Session { origin: opened.origin(), is_waited: false, deeper });
        id
    }

    /// Returns the origin of a session, if it belongs to this run.
    pub(crate) fn origin(&self, id: c_int) -> Option<Origin> {
        self.sessions.get(&id).map(|session| session.origin)
    }

    /// Refuses ids that belong to no outstanding session.
    pub(crate) fn check(&self, ids: &[c_int], library: &Library) -> Outcome<()> {
        let table = library.sessions.lock();
        let is_open = |id: &c_int| match self.sessions.get(id) {
            Some(session) => !session.is_waited,
            None => !self.waited.contains(id) && table.open(*id).is_ok(),
        };
        ids.iter().find(|id| !is_open(id)).map_or(Ok(()), |id| Err(no_session(*id)))
    }

    /// Records that these outstanding sessions are waited for.
    pub(crate) fn wait(&mut self, ids: &[c_int]) {
        for id in ids {
            match self.sessions.get_mut(id) {
                Some(session) => {
                    session.is_waited = true;
                    self.deeper = std::mem::take(&mut session.deeper);
                    self.returned();
                }
                None => drop(self.waited.insert(*id)),
            }
        }
    }

    /// Returns all outstanding sessions, those of the block first.
    pub(crate) fn outstanding(&self, library: &Library) -> Vec<c_int> {
        let own = self.sessions.iter().filter(|(_, session)| !session.is_waited).map(|(id, _)| *id);
        let others = library.sessions.lock().all().into_iter().filter(|id| !self.waited.contains(id));
        own.chain(others).collect()
    }
}

/// True if one of these addresses is in the memory of the result.
pub(super) fn stays_remote(addresses: &BTreeSet<usize>, item: &Item<'_>) -> bool {
    let (start, bytes) = item.range();
    addresses.range(start..start + bytes).next().is_some()
}

/// True if a call cannot be part of a plan: it has an object, callbacks, remote data, files, results of unknown size,
/// or arrays that have no elements or of which a part is sent.
pub(super) fn is_unplanned(opened: &Call, items: &[Item<'_>]) -> bool {
    let is_plain = |item: &Item<'_>| match item.is_number() {
        true => item.remote.is_none() && item.whole.is_none() && (!item.param.is_array || item.meta.size_bytes() > 0),
        false => !item.param.is_output() && item.bytes.is_some(),
    };
    let calls_back = !opened.function().signature().callbacks.is_empty();
    opened.function().is_method() || calls_back || !items.iter().all(is_plain)
}

/// Refuses arguments that exceed memory, and results of one call that overlap, because the content would be undefined.
pub(super) fn check_results(opened: &Call, items: &[Item<'_>]) -> Outcome<()> {
    let is_beyond = |item: &&Item<'_>| {
        let (start, bytes) = item.range();
        isize::try_from(bytes).is_err() || start.checked_add(bytes).is_none()
    };
    if let Some(item) = items.iter().filter(|item| item.is_number()).find(is_beyond) {
        let (name, argument) = (opened.function().name(), &item.param.name);
        let text = format!("{name}: argument '{argument}' is {}, more than memory can hold", item.meta);
        return Err(Failed::new(GRPC_RPC_REFUSED, text));
    }
    let mut written: Vec<(usize, usize, &str)> = items
        .iter()
        .filter(|item| item.is_written())
        .map(|item| (item.range().0, item.range().0 + item.range().1, item.param.name.as_str()))
        .filter(|(start, end, _)| start < end)
        .collect();
    written.sort_unstable();
    match written.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        None => Ok(()),
        Some(pair) => {
            let (name, first, second) = (opened.function().name(), pair[0].2, pair[1].2);
            let text = format!(
                "{name}: results '{first}' and '{second}' are in the same memory; use separate memory for each"
            );
            Err(Failed::other(text))
        }
    }
}

/// Returns a scalar for a declared graph; `None` if graphs cannot have such scalars.
fn number_of(meta: &Meta, bytes: &[u8]) -> Option<GraphArg> {
    let dtype = match meta {
        Meta::Scalar { dtype, .. } => *dtype,
        Meta::Text { .. } => return std::str::from_utf8(bytes).ok().map(|text| GraphArg::Text(text.to_string())),
        Meta::Array { .. } | Meta::Bytes { .. } | Meta::List { .. } => return None,
    };
    macro_rules! number {
        ($type:ty) => {
            bytes.try_into().map(<$type>::from_ne_bytes).ok()
        };
    }
    match dtype {
        Dtype::Bool => Some(GraphArg::Truth(bytes.first() != Some(&0))),
        Dtype::Int8 => number!(i8).map(|number| GraphArg::Integer(number.into())),
        Dtype::Int16 => number!(i16).map(|number| GraphArg::Integer(number.into())),
        Dtype::Int32 => number!(i32).map(|number| GraphArg::Integer(number.into())),
        Dtype::Int64 => number!(i64).map(GraphArg::Integer),
        Dtype::Uint8 => number!(u8).map(|number| GraphArg::Integer(number.into())),
        Dtype::Uint16 => number!(u16).map(|number| GraphArg::Integer(number.into())),
        Dtype::Uint32 => number!(u32).map(|number| GraphArg::Integer(number.into())),
        Dtype::Uint64 => number!(u64).and_then(|number| i64::try_from(number).ok()).map(GraphArg::Integer),
        Dtype::Float32 => number!(f32).filter(|number| number.is_finite()).map(|number| GraphArg::Real(number.into())),
        Dtype::Float64 => number!(f64).filter(|number| number.is_finite()).map(GraphArg::Real),
        Dtype::Float16 | Dtype::LongDouble | Dtype::Complex64 | Dtype::Complex128 | Dtype::ComplexLongDouble => None,
    }
}
