//! The loop of a worker: reads calls, maps their data, runs them in order, answers.
//!
//! **Promises.** A call that the server took back in time is not run. An answer leaves before the next call starts,
//! unless that call's function was quick the last time: then a few answers travel together.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use gridloom_core::base::limits::EAGER_BYTES_MAX;
use gridloom_core::base::{Meta, Order, TaskError};
use gridloom_core::idl::{ArrayOrder, Definition, Param};

use super::channel::{Inbox, Outbox, Received};
use super::convert::{Aligned, is_native, to_native};
use super::protocol::{Board, FromWorker, Place, Run, TASKS_PER_WORKER_MAX, ToWorker, Value};
use super::{ArgView, Functions, OutView, Room};
use crate::segment::{Mapping, SharedWords, sealed_file};

/// A function that took less the last time may run before the previous answer is sent: about the cost of a message.
const QUICK_NS: u64 = 20_000;

/// A worker stays awake so long for the next call, if it did not wait longer for the last one. A miss costs that once.
const AWAKE_NS_MAX: u64 = 100_000;

/// Takes the server's socket from the descriptor that the process was started with (`--fd N`), and makes sure that the
/// process does not outlive the server. Descriptor 0 is replaced by `/dev/null`, so that no function reads from it.
///
/// # Errors
/// If there is no such descriptor.
pub fn inherited(fd: i32) -> io::Result<OwnedFd> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    if fd != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a worker is given its socket as descriptor 0"));
    }
    let socket = rustix::stdio::stdin().try_clone_to_owned()?;
    // A server that died before the death signal was set left a closed socket, which `serve` notices.
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(socket)
}

/// Serves until the server closes the socket.
///
/// # Errors
/// If the socket fails, or the server says what makes no sense.
pub fn serve(socket: OwnedFd, functions: &mut dyn Functions) -> io::Result<()> {
    let mut inbox = Inbox::default();
    let mut patience = Patience { last_wait_ns: u64::MAX };
    let mut worker = Worker { outbox: Outbox::default(), cache: Cache::default(), loaded: Vec::new(), words: None };
    loop {
        while let Some((message, inline)) = inbox.next::<ToWorker>()? {
            match message {
                ToWorker::Setup(setup) => {
                    let answer = match functions.setup(&setup) {
                        Ok(()) => FromWorker::Ready,
                        Err(why) => FromWorker::Broken { why },
                    };
                    let broken = answer != FromWorker::Ready;
                    worker.outbox.push(&answer, std::iter::empty())?;
                    if broken {
                        worker.outbox.send(socket.as_fd(), true)?;
                        return Ok(());
                    }
                    worker.words = Some(SharedWords::open(inbox.take_fd()?, TASKS_PER_WORKER_MAX)?);
                }
                ToWorker::Load { function, definition } => worker.load(function, definition, functions),
                ToWorker::Forget { keys } => keys.iter().for_each(|key| worker.cache.forget(*key)),
                ToWorker::Run(run) => {
                    let inline = inline.to_vec();
                    for value in run.args.iter().chain(&run.outs) {
                        if let Place::Shared { key, new: true, len, .. } = value.place {
                            worker.cache.learn(key, inbox.take_fd()?, len);
                        }
                    }
                    if !worker.is_quick(run.function) {
                        worker.outbox.send(socket.as_fd(), true)?;
                    }
                    worker.run(run, &inline, functions)?;
                }
            }
        }
        worker.outbox.send(socket.as_fd(), true)?;
        if patience.receive(&mut inbox, socket.as_fd())? == Received::Closed {
            return Ok(());
        }
    }
}

/// How a worker waits. While calls follow one another closely it looks for the next one a little before it sleeps:
/// waking a sleeping processor costs some 30 µs on a virtual machine, ten times what a call costs.
struct Patience {
    last_wait_ns: u64,
}

impl Patience {
    fn receive(&mut self, inbox: &mut Inbox, socket: BorrowedFd<'_>) -> io::Result<Received> {
        let begin = Instant::now();
        let mut received = inbox.receive(socket, false)?;
        while received == Received::Nothing {
            if self.last_wait_ns > AWAKE_NS_MAX || begin.elapsed().as_nanos() as u64 > AWAKE_NS_MAX {
                received = inbox.receive(socket, true)?;
                break;
            }
            // Whoever else wants this processor goes first.
            std::thread::yield_now();
            received = inbox.receive(socket, false)?;
        }
        self.last_wait_ns = begin.elapsed().as_nanos() as u64;
        Ok(received)
    }
}

struct Worker {
    outbox: Outbox,
    cache: Cache,
    loaded: Vec<Option<Loaded>>,
    words: Option<SharedWords>,
}

/// A function that may be called.
struct Loaded {
    /// Orders and modes of its parameters.
    definition: Definition,
    outcome: Result<(), String>,
    last_run_ns: u64,
}

/// Result buffers of one call, by parameter.
enum Buffer {
    Scratch(Aligned),
    Shared { key: u64, mapping: Mapping, len: usize },
    Growing(Vec<u8>),
}

impl Worker {
    fn load(&mut self, function: u32, definition: Definition, functions: &mut dyn Functions) {
        let outcome = functions.load(function, &definition);
        let index = function as usize;
        if self.loaded.len() <= index {
            self.loaded.resize_with(index + 1, || None);
        }
        self.loaded[index] = Some(Loaded { definition, outcome, last_run_ns: u64::MAX });
    }

    fn is_quick(&self, function: u32) -> bool {
        matches!(self.loaded.get(function as usize), Some(Some(loaded)) if loaded.last_run_ns < QUICK_NS)
    }

    fn run(&mut self, run: Run, inline: &[u8], functions: &mut dyn Functions) -> io::Result<()> {
        let words = self.words.take().ok_or_else(|| invalid("a call before the setup"))?;
        let board = Board(words.words());
        if board.claim(run.serial) {
            let (serial, function) = (run.serial, run.function);
            let (outcome, run_ns) = self.call(run, inline, functions);
            board.finish(serial);
            if let Some(Some(loaded)) = self.loaded.get_mut(function as usize) {
                loaded.last_run_ns = run_ns;
            }
            self.answer(serial, run_ns, outcome)?;
        } else {
            self.answer(run.serial, 0, Err(TaskError::Cancelled))?;
        }
        self.words = Some(words);
        Ok(())
    }

    /// Maps and converts the arguments, calls, and gives the results' descriptions and buffers.
    fn call(
        &mut self,
        run: Run,
        inline: &[u8],
        functions: &mut dyn Functions,
    ) -> (Result<Vec<(Meta, Buffer)>, TaskError>, u64) {
        let Some(Some(loaded)) = self.loaded.get(run.function as usize) else {
            return (Err(cannot_run("it was never loaded".into())), 0);
        };
        if let Err(why) = &loaded.outcome {
            return (Err(cannot_run(why.clone())), 0);
        }
        let params = &loaded.definition.signature.params;
        let mut buffers = Vec::with_capacity(run.outs.len());
        let result = prepare(&mut self.cache, params, &run, inline, &mut buffers).map(|inputs| {
            let args: Vec<ArgView<'_>> = inputs.iter().map(Input::view).collect();
            let mut outs: Vec<OutView<'_>> = run
                .outs
                .iter()
                .zip(&mut buffers)
                .map(|(out, buffer)| OutView { meta: out.meta.clone(), room: buffer.room() })
                .collect();
            let begin = Instant::now();
            let outcome = functions.call(run.function, &args, &mut outs);
            let run_ns = begin.elapsed().as_nanos() as u64;
            let metas: Vec<Meta> = outs.iter().map(true_meta).collect();
            (outcome.map(|()| metas), run_ns)
        });
        let (outcome, run_ns) = match result {
            Ok((outcome, run_ns)) => (outcome, run_ns),
            Err(error) => (Err(error), 0),
        };
        match outcome {
            Ok(metas) => (Ok(metas.into_iter().zip(buffers).collect()), run_ns),
            Err(error) => {
                buffers.into_iter().for_each(|buffer| self.cache.put_back(buffer));
                (Err(error), run_ns)
            }
        }
    }

    fn answer(&mut self, serial: u64, run_ns: u64, outcome: Result<Vec<(Meta, Buffer)>, TaskError>) -> io::Result<()> {
        let mut buffers = Vec::new();
        let outcome = outcome.map(|made| {
            let mut values = Vec::with_capacity(made.len());
            for (meta, buffer) in made {
                let place = match &buffer {
                    Buffer::Shared { key, .. } => {
                        Place::Shared { key: *key, new: false, len: 0, offset: 0, size_bytes: meta.size_bytes() }
                    }
                    Buffer::Growing(bytes) if bytes.len() as u64 > EAGER_BYTES_MAX => {
                        Place::File { size_bytes: bytes.len() as u64 }
                    }
                    Buffer::Scratch(_) | Buffer::Growing(_) => Place::Inline { size_bytes: meta.size_bytes() as u32 },
                };
                values.push(Value { meta, place });
                buffers.push(buffer);
            }
            values
        });
        let mut inline = Vec::with_capacity(buffers.len());
        for (buffer, value) in buffers.iter().zip(outcome.iter().flatten()) {
            match (buffer, value.place) {
                (Buffer::Scratch(bytes), _) => inline.push(bytes.bytes()),
                (Buffer::Growing(bytes), Place::Inline { .. }) => inline.push(&bytes[..]),
                (Buffer::Growing(bytes), _) => self.outbox.push_fd(file_of(bytes)?),
                (Buffer::Shared { .. }, _) => {}
            }
        }
        self.outbox.push(&FromWorker::Ended { serial, run_ns, outcome }, inline.into_iter())?;
        buffers.into_iter().for_each(|buffer| self.cache.put_back(buffer));
        Ok(())
    }
}

/// An argument with its memory.
struct Input<'a> {
    meta: Meta,
    memory: InputMemory<'a>,
}

enum InputMemory<'a> {
    Copy(Aligned),
    Mapped {
        mapping: Arc<Mapping>,
        offset: usize,
        len: usize,
    },
    /// Of no bytes.
    Nothing(&'a [u8]),
}

impl Input<'_> {
    fn bytes(&self) -> &[u8] {
        match &self.memory {
            InputMemory::Copy(copy) => copy.bytes(),
            InputMemory::Mapped { mapping, offset, len } => &mapping.bytes()[*offset..*offset + *len],
            InputMemory::Nothing(bytes) => bytes,
        }
    }

    fn view(&self) -> ArgView<'_> {
        let mapping = match &self.memory {
            InputMemory::Mapped { mapping, .. } => Some(mapping.clone()),
            InputMemory::Copy(_) | InputMemory::Nothing(_) => None,
        };
        ArgView { meta: self.meta.clone(), bytes: self.bytes(), mapping }
    }
}

impl Buffer {
    fn room(&mut self) -> Room<'_> {
        match self {
            Buffer::Scratch(bytes) => Room::Fixed(bytes.bytes_mut()),
            Buffer::Shared { mapping, len, .. } => Room::Fixed(&mut mapping.bytes_mut()[..*len]),
            Buffer::Growing(bytes) => Room::Growing(bytes),
        }
    }
}

/// Fetches the arguments and makes room for the results, those of `INOUT` parameters filled.
fn prepare<'a>(
    cache: &mut Cache,
    params: &[Param],
    run: &Run,
    inline: &'a [u8],
    buffers: &mut Vec<Buffer>,
) -> Result<Vec<Input<'a>>, TaskError> {
    let expected = (params.iter().filter(|p| p.is_input()).count(), params.iter().filter(|p| p.is_output()).count());
    if expected != (run.args.len(), run.outs.len()) {
        let (args, outs) = expected;
        let got = format!("{} arguments and {} results", run.args.len(), run.outs.len());
        return Err(refused(format!("it takes {args} arguments and gives {outs} results, the call has {got}")));
    }
    let mut inputs = Vec::with_capacity(run.args.len());
    let mut rest = inline;
    for (value, param) in run.args.iter().zip(params.iter().filter(|param| param.is_input())) {
        inputs.push(input(cache, value, wanted_order(param), &mut rest)?);
    }
    let (mut arg, mut out) = (0, 0);
    for param in params {
        if param.is_output() {
            let mut buffer = output(cache, &run.outs[out])?;
            if param.is_input() {
                fill(&inputs[arg], &run.outs[out].meta, &mut buffer)?;
            }
            buffers.push(buffer);
            out += 1;
        }
        arg += usize::from(param.is_input());
    }
    Ok(inputs)
}

fn input<'a>(
    cache: &mut Cache,
    value: &Value,
    wanted: Option<Order>,
    rest: &mut &'a [u8],
) -> Result<Input<'a>, TaskError> {
    let (bytes, mapped) = match value.place {
        Place::Inline { size_bytes } => {
            let (bytes, after) =
                rest.split_at_checked(size_bytes as usize).ok_or_else(|| refused("a value is missing".into()))?;
            *rest = after;
            (bytes, None)
        }
        Place::Shared { key, offset, size_bytes, .. } => {
            let mapping =
                cache.readable(key).map_err(|error| cannot_run(format!("cannot map an argument: {error}")))?;
            (&[][..], Some((mapping, offset as usize, size_bytes as usize)))
        }
        Place::File { .. } => return Err(refused("an argument cannot be a file".into())),
    };
    let from = match &mapped {
        Some((mapping, offset, len)) => mapping.bytes().get(*offset..*offset + *len).unwrap_or_default(),
        None => bytes,
    };
    if value.meta.checked_size_bytes() != Some(from.len() as u64) {
        return Err(refused(format!("{} bytes were sent for {}", from.len(), value.meta)));
    }
    if !is_native(&value.meta, wanted) {
        let mut copy = Aligned::zeroed(from.len());
        let meta = to_native(&value.meta, from, wanted, copy.bytes_mut()).map_err(refused)?;
        return Ok(Input { meta, memory: InputMemory::Copy(copy) });
    }
    // What is native but for a label (order of a vector, byte order of single bytes) gets the label that is wanted.
    let meta = relabelled(&value.meta, wanted);
    let memory = match mapped {
        Some((mapping, offset, len)) if offset % 64 == 0 => InputMemory::Mapped { mapping, offset, len },
        Some(_) => InputMemory::Copy(Aligned::copied(from)),
        None if from.is_empty() => InputMemory::Nothing(bytes),
        None => InputMemory::Copy(Aligned::copied(from)),
    };
    Ok(Input { meta, memory })
}

fn output(cache: &mut Cache, value: &Value) -> Result<Buffer, TaskError> {
    match (&value.meta, value.place) {
        (Meta::Text { .. } | Meta::Bytes { .. }, _) => Ok(Buffer::Growing(Vec::new())),
        (_, Place::Shared { key, size_bytes, .. }) => {
            let mapping =
                cache.take_writable(key).map_err(|error| cannot_run(format!("cannot map a result: {error}")))?;
            Ok(Buffer::Shared { key, mapping, len: size_bytes as usize })
        }
        (meta, Place::Inline { .. }) => Ok(Buffer::Scratch(Aligned::zeroed(meta.size_bytes() as usize))),
        (_, Place::File { .. }) => Err(refused("a result cannot be asked for as a file".into())),
    }
}

/// Copies the old value of an `INOUT` parameter into the room of the new one.
fn fill(old: &Input<'_>, meta: &Meta, buffer: &mut Buffer) -> Result<(), TaskError> {
    if let Buffer::Growing(bytes) = buffer {
        bytes.extend_from_slice(old.bytes());
        return Ok(());
    }
    let Room::Fixed(to) = buffer.room() else { return Ok(()) };
    if old.bytes().len() != to.len() {
        return Err(refused(format!("argument {} is updated in place to {meta}, of another size", old.meta)));
    }
    let wanted = match meta {
        Meta::Array { order, .. } => Some(*order),
        Meta::Scalar { .. } | Meta::Text { .. } | Meta::Bytes { .. } => None,
    };
    to_native(&old.meta, old.bytes(), wanted, to).map_err(refused)?;
    Ok(())
}

fn true_meta(out: &OutView<'_>) -> Meta {
    let size_bytes = out.room.bytes().len() as u64;
    match &out.meta {
        Meta::Text { .. } => Meta::Text { size_bytes },
        Meta::Bytes { .. } => Meta::Bytes { size_bytes },
        Meta::Scalar { .. } | Meta::Array { .. } => out.meta.clone(),
    }
}

/// The memory order that a parameter asks for.
pub(crate) fn wanted_order(param: &Param) -> Option<Order> {
    match param.order {
        ArrayOrder::C => Some(Order::C),
        ArrayOrder::F => Some(Order::F),
        ArrayOrder::Any => None,
    }
}

/// The description with this machine's byte order and the order wanted.
pub(crate) fn relabelled(meta: &Meta, wanted: Option<Order>) -> Meta {
    let mut meta = meta.clone();
    match &mut meta {
        Meta::Scalar { byte_order, .. } => *byte_order = gridloom_core::base::ByteOrder::NATIVE,
        Meta::Array { byte_order, order, .. } => {
            *byte_order = gridloom_core::base::ByteOrder::NATIVE;
            *order = wanted.unwrap_or(*order);
        }
        Meta::Text { .. } | Meta::Bytes { .. } => {}
    }
    meta
}

fn file_of(bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd = sealed_file((bytes.len() as u64).next_multiple_of(4096))?;
    Mapping::read_write(fd.as_fd(), bytes.len() as u64)?.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    Ok(fd)
}

/// Mappings of the server's memory, kept until the server says to forget them.
#[derive(Default)]
struct Cache(BTreeMap<u64, Cached>);

struct Cached {
    fd: OwnedFd,
    len: u64,
    readable: Option<Arc<Mapping>>,
    writable: Option<Mapping>,
}

impl Cache {
    fn learn(&mut self, key: u64, fd: OwnedFd, len: u64) {
        self.0.insert(key, Cached { fd, len, readable: None, writable: None });
    }

    fn forget(&mut self, key: u64) {
        self.0.remove(&key);
    }

    fn readable(&mut self, key: u64) -> io::Result<Arc<Mapping>> {
        let cached = self.0.get_mut(&key).ok_or_else(|| invalid("unknown memory"))?;
        if let Some(mapping) = &cached.readable {
            return Ok(mapping.clone());
        }
        let mapping = Arc::new(Mapping::read_only(cached.fd.as_fd(), cached.len)?);
        cached.readable = Some(mapping.clone());
        Ok(mapping)
    }

    fn take_writable(&mut self, key: u64) -> io::Result<Mapping> {
        let cached = self.0.get_mut(&key).ok_or_else(|| invalid("unknown memory"))?;
        match cached.writable.take() {
            Some(mapping) => Ok(mapping),
            None => Mapping::read_write(cached.fd.as_fd(), cached.len),
        }
    }

    fn put_back(&mut self, buffer: Buffer) {
        if let Buffer::Shared { key, mapping, .. } = buffer
            && let Some(cached) = self.0.get_mut(&key)
        {
            cached.writable = Some(mapping);
        }
    }
}

fn cannot_run(why: String) -> TaskError {
    TaskError::CannotRun { function: String::new(), server: String::new(), why }
}

fn refused(why: String) -> TaskError {
    TaskError::Refused { function: String::new(), server: String::new(), why }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
