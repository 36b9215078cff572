//! The main loop of a worker: reads calls, maps their data, runs them in order, and replies.
//!
//! **Guarantees.** A call that the server withdrew in time is not run. A reply is sent before the next call starts,
//! unless that call's function was quick the last time: then a few replies are sent together.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gridloom_base::limits::EAGER_BYTES_MAX;
use gridloom_base::{Meta, TaskError};
use gridloom_core::call::CallbackAnswer;
use gridloom_core::node::version::VERSIONS;
use gridloom_idl::Definition;

use super::channel::{Inbox, Outbox, Received, file_of};
use super::incoming::Incoming;
use super::protocol::{
    FromWorker, Location, ProgressBoard, Run, SERVER_PROTOCOL_VARIABLE, TASKS_PER_WORKER_MAX, ToWorker, Value,
};
use super::values::{Buffer, Cache, Input, cannot_run, invalid, prepare};
use super::{ArgView, CallbackTarget, Functions, OutView, nested, queries};
use crate::processor_clock::process_time;
use crate::segment::SharedWords;
use crate::spin::SpinPolicy;

/// A function that took less time in its last call may run before the previous reply is sent. The time is about the
/// cost of a message.
const QUICK_NS: u64 = 20_000;

/// Takes the server's socket from the descriptor that the process was started with (`--fd N`), and ensures that the
/// process does not outlive the server. Descriptor 0 is replaced by `/dev/null`, so that no function reads from it.
///
/// # Errors
/// If the descriptor does not exist.
pub fn inherited(fd: i32) -> io::Result<OwnedFd> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    if fd != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a worker must have its socket as descriptor 0"));
    }
    let socket = rustix::stdio::stdin().try_clone_to_owned()?;
    // If the server died before the death signal was set, it left a closed socket, which `serve` notices.
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(socket)
}

/// Serves until the server closes the socket or has ended.
///
/// # Errors
/// If the socket fails, or the server sends an invalid message.
pub fn serve(socket: OwnedFd, functions: &mut dyn Functions) -> io::Result<()> {
    let (outbox, incoming) = (Arc::<Mutex<Outbox>>::default(), Arc::<Mutex<Incoming>>::default());
    nested::attach(socket.as_fd(), outbox.clone(), incoming.clone())?;
    serve_calls(&socket, outbox, &incoming, functions).or_else(|error| match error.kind() {
        // The server has ended, perhaps in the middle of a call: no reply can be delivered.
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Ok(()),
        _ => Err(error),
    })
}

fn serve_calls(
    socket: &OwnedFd,
    outbox: Arc<Mutex<Outbox>>,
    incoming: &Mutex<Incoming>,
    functions: &mut dyn Functions,
) -> io::Result<()> {
    let mut spin = SpinPolicy::new();
    let mut worker = Worker { outbox, cache: Cache::default(), loaded: Vec::new(), words: None, slowdown: 1.0 };
    if let Some(why) = other_version() {
        // The first frame is read without decoding it, since its layout is unknown, and is answered.
        receive(&mut locked(incoming).inbox, socket.as_fd(), &mut spin)?;
        locked(&worker.outbox).push(&FromWorker::Broken { why }, std::iter::empty())?;
        locked(&worker.outbox).send(socket.as_fd(), true)?;
        return Ok(());
    }
    loop {
        let mut held = match incoming.try_lock() {
            Ok(held) => held,
            // A thread of a call that has ended may hold it. Its request is answered when the server knows that the
            // call has ended.
            Err(_) => {
                locked(&worker.outbox).send(socket.as_fd(), true)?;
                locked(incoming)
            }
        };
        let Some((message, inline)) = held.next()? else {
            locked(&worker.outbox).send(socket.as_fd(), true)?;
            if receive(&mut held.inbox, socket.as_fd(), &mut spin)? == Received::Closed {
                return Ok(());
            }
            continue;
        };
        match message {
            ToWorker::Setup(setup) => {
                let answer = match functions.setup(&setup) {
                    Ok(()) => FromWorker::Ready,
                    Err(why) => FromWorker::Broken { why },
                };
                let broken = answer != FromWorker::Ready;
                locked(&worker.outbox).push(&answer, std::iter::empty())?;
                if broken {
                    locked(&worker.outbox).send(socket.as_fd(), true)?;
                    return Ok(());
                }
                worker.slowdown = setup.slowdown;
                worker.words = Some(Arc::new(SharedWords::open(held.inbox.take_fd()?.as_fd(), TASKS_PER_WORKER_MAX)?));
            }
            ToWorker::Load { function, definition } => worker.load(function, definition, functions),
            ToWorker::Forget { keys } => keys.iter().for_each(|key| worker.cache.forget(*key)),
            ToWorker::Run(run) => {
                for value in run.args.iter().chain(&run.outs) {
                    if let Location::Shared { key, new: true, len, .. } | Location::Room { key, new: true, len, .. } =
                        value.place
                    {
                        worker.cache.learn(key, held.inbox.take_fd()?, len);
                    }
                }
                if !worker.is_quick(run.function) {
                    locked(&worker.outbox).send(socket.as_fd(), true)?;
                }
                drop(held);
                worker.run(run, &inline, functions, (socket.as_fd(), incoming))?;
            }
            // For a call that has ended meanwhile without waiting for it.
            ToWorker::CalledBack { .. } | ToWorker::Session { .. } => {}
        }
    }
}

/// Returns the error for a server with a different protocol version.
fn other_version() -> Option<String> {
    let (server, own) = (std::env::var(SERVER_PROTOCOL_VARIABLE).ok()?, VERSIONS.1.to_string());
    (server != own).then(|| {
        format!(
            "this server has protocol version {server}, and its worker {own}: Gridloom was updated while the server \
             was running; restart the server"
        )
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program of a call, reached through the server.
struct ServerCallbacks<'a> {
    serial: u64,
    outbox: &'a Mutex<Outbox>,
    socket: BorrowedFd<'a>,
    incoming: &'a Mutex<Incoming>,
}

impl ServerCallbacks<'_> {
    fn send_callback(&mut self, callback: u32, values: Vec<(Meta, Vec<u8>)>) -> io::Result<()> {
        let asked = FromWorker::Callback { serial: self.serial, callback, values };
        let mut outbox = locked(self.outbox);
        outbox.push(&asked, std::iter::empty())?;
        outbox.send(self.socket, true).map(drop)
    }

    fn request_callback(&mut self, callback: u32, values: Vec<(Meta, Vec<u8>)>) -> io::Result<CallbackAnswer> {
        let mut incoming = locked(self.incoming);
        self.send_callback(callback, values)?;
        incoming.await_reply(self.socket, |message, _| match message {
            ToWorker::CalledBack { serial, answer } if serial == self.serial => Ok(answer),
            other => Err(other),
        })
    }
}

impl CallbackTarget for ServerCallbacks<'_> {
    fn call_back(&mut self, callback: u32, values: Vec<(Meta, Vec<u8>)>) -> CallbackAnswer {
        self.request_callback(callback, values)
            .unwrap_or_else(|error| Err(format!("the request to the server failed: {error}")))
    }

    fn notify(&mut self, callback: u32, values: Vec<(Meta, Vec<u8>)>) {
        // A server that has ended takes its workers with it.
        let _ = self.send_callback(callback, values);
    }
}

/// Waits for the next message. Polls without sleeping while calls follow one another closely.
fn receive(inbox: &mut Inbox, socket: BorrowedFd<'_>, spin: &mut SpinPolicy) -> io::Result<Received> {
    let began = Instant::now();
    let received = loop {
        let stays = spin.yield_and_spin(began);
        let received = inbox.receive(socket, !stays)?;
        if !stays || received != Received::Nothing {
            break received;
        }
    };
    spin.note_waited(began);
    Ok(received)
}

struct Worker {
    /// Shared with the threads of the running function, which report here that they wait.
    outbox: Arc<Mutex<Outbox>>,
    cache: Cache,
    loaded: Vec<Option<Loaded>>,
    words: Option<Arc<SharedWords>>,
    slowdown: f64,
}

/// A loaded function.
struct Loaded {
    /// Defines the orders and modes of its parameters.
    definition: Definition,
    outcome: Result<(), String>,
    last_run_ns: u64,
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

    fn run(
        &mut self,
        run: Run,
        inline: &[u8],
        functions: &mut dyn Functions,
        incoming: (BorrowedFd<'_>, &Mutex<Incoming>),
    ) -> io::Result<()> {
        let words = self.words.clone().ok_or_else(|| invalid("a call before the setup"))?;
        let board = ProgressBoard(words.words());
        if board.claim(run.serial) {
            let (serial, function) = (run.serial, run.function);
            let asks = queries::begin(&words, &run);
            let (outcome, run_ns) = self.call(run, inline, functions, incoming);
            drop(asks);
            board.finish(serial);
            if let Some(Some(loaded)) = self.loaded.get_mut(function as usize) {
                loaded.last_run_ns = run_ns;
            }
            self.answer(serial, run_ns, outcome)?;
        } else {
            self.answer(run.serial, 0, Err(TaskError::Cancelled))?;
        }
        Ok(())
    }

    /// Maps and converts the arguments, calls the function, and returns the results' descriptions and buffers.
    fn call(
        &mut self,
        run: Run,
        inline: &[u8],
        functions: &mut dyn Functions,
        incoming: (BorrowedFd<'_>, &Mutex<Incoming>),
    ) -> (Result<Vec<(Meta, Buffer)>, TaskError>, u64) {
        let Some(Some(loaded)) = self.loaded.get(run.function as usize) else {
            return (Err(cannot_run("it was never loaded".into())), 0);
        };
        if let Err(why) = &loaded.outcome {
            return (Err(cannot_run(why.clone())), 0);
        }
        let signature = &loaded.definition.signature;
        let mut buffers = Vec::with_capacity(run.outs.len());
        let result = prepare(&mut self.cache, signature, &run, inline, &mut buffers).map(|inputs| {
            let args: Vec<ArgView<'_>> = inputs.iter().map(Input::view).collect();
            let mut outs: Vec<OutView<'_>> = run
                .outs
                .iter()
                .zip(&mut buffers)
                .map(|(out, buffer)| {
                    let stale = buffer.is_stale();
                    OutView { meta: out.meta.clone(), room: buffer.room(), stale }
                })
                .collect();
            let (serial, (socket, incoming)) = (run.serial, incoming);
            let mut program = ServerCallbacks { serial, outbox: &self.outbox, socket, incoming };
            let begin = Instant::now();
            let _running = nested::begin(&run);
            let call = || functions.call(run.function, &args, &mut outs, &mut program);
            let outcome = slowed(self.slowdown, call);
            end_if_forked();
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
                        let size_bytes = meta.size_bytes();
                        Location::Shared { datum: None, key: *key, new: false, len: 0, offset: 0, size_bytes }
                    }
                    Buffer::Growing(bytes) if bytes.len() as u64 > EAGER_BYTES_MAX => {
                        Location::File { size_bytes: bytes.len() as u64 }
                    }
                    Buffer::Scratch(_) | Buffer::Growing(_) => {
                        Location::Inline { size_bytes: meta.size_bytes() as u32 }
                    }
                };
                values.push(Value { meta, place });
                buffers.push(buffer);
            }
            values
        });
        let mut outbox = locked(&self.outbox);
        let mut inline = Vec::with_capacity(buffers.len());
        for (buffer, value) in buffers.iter().zip(outcome.iter().flatten()) {
            match (buffer, value.place) {
                (Buffer::Scratch(bytes), _) => inline.push(bytes.bytes()),
                (Buffer::Growing(bytes), Location::Inline { .. }) => inline.push(&bytes[..]),
                (Buffer::Growing(bytes), _) => outbox.push_fd(file_of(bytes)?),
                (Buffer::Shared { .. }, _) => {}
            }
        }
        if let Err(error) = outbox.push(&FromWorker::Ended { serial, run_ns, outcome }, inline.into_iter()) {
            let outcome = Err(cannot_run(format!("its results cannot be sent: {error}")));
            outbox.push(&FromWorker::Ended { serial, run_ns, outcome }, std::iter::empty())?;
        }
        drop(outbox);
        buffers.into_iter().for_each(|buffer| self.cache.put_back(buffer));
        Ok(())
    }
}

/// Ends a process that the function forked and that has returned from the function: only the worker itself replies.
/// The process has a copy of the worker's state, which it must not clean up.
fn end_if_forked() {
    if nested::is_forked() {
        // SAFETY: ends the process without touching its state.
        unsafe { libc::_exit(0) }
    }
}

/// Runs `body` as if the processor were slower: afterwards waits until `slowdown` times its processor time has passed.
///
/// Threads that it runs in parallel count as one: at most the time from its beginning to its end.
fn slowed<T>(slowdown: f64, body: impl FnOnce() -> T) -> T {
    if slowdown <= 1.0 {
        return body();
    }
    let (begin, used) = (Instant::now(), process_time());
    let result = body();
    let took = begin.elapsed();
    let needed = (process_time() - used).min(took);
    std::thread::sleep(needed.mul_f64(slowdown).saturating_sub(took));
    result
}

fn true_meta(out: &OutView<'_>) -> Meta {
    let size_bytes = out.room.bytes().len() as u64;
    match &out.meta {
        Meta::Text { .. } => Meta::Text { size_bytes },
        Meta::Bytes { .. } => Meta::Bytes { size_bytes },
        Meta::List { .. } => Meta::List { size_bytes },
        Meta::Scalar { .. } | Meta::Array { .. } => out.meta.clone(),
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::{NodeId, TaskId};
    use gridloom_core::node::{SessionAction, SessionAnswer, SessionRequest, SessionResult};
    use gridloom_idl::{Body, Language, Signature};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;
    use crate::processor_clock::processor_time;
    use crate::worker::Setup;

    /// Functions that cannot be set up.
    struct Refuses;

    impl Functions for Refuses {
        fn setup(&mut self, _: &Setup) -> Result<(), String> {
            Err("no".into())
        }

        fn load(&mut self, _: u32, _: &Definition) -> Result<(), String> {
            unreachable!("it was not set up")
        }

        fn call(
            &mut self,
            _: u32,
            _: &[ArgView<'_>],
            _: &mut [OutView<'_>],
            _: &mut dyn CallbackTarget,
        ) -> Result<(), TaskError> {
            unreachable!("it was not set up")
        }
    }

    /// Held by tests that call `serve`, because a process has one worker.
    static SERVES: Mutex<()> = Mutex::new(());

    #[test]
    fn a_server_that_goes_before_the_answer_is_no_error() {
        // The worker's socket, with a message from a server that has ended.
        let abandoned = || {
            let flags = SocketFlags::CLOEXEC;
            let (server, worker) =
                rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
            let setup = Setup {
                server_name: "s".into(),
                libraries: Vec::new(),
                modules: Vec::new(),
                slowdown: 1.0,
                scratch: "s".into(),
            };
            let mut outbox = Outbox::default();
            outbox.push(&ToWorker::Setup(setup), std::iter::empty()).unwrap();
            assert!(outbox.send(server.as_fd(), true).unwrap());
            worker
        };
        assert!(
            serve_calls(&abandoned(), Arc::default(), &Mutex::default(), &mut Refuses).is_err(),
            "the answer has nowhere to go"
        );
        let _serves = locked(&SERVES);
        serve(abandoned(), &mut Refuses).unwrap();
    }

    /// Functions that leave a thread behind, which waits in its session.
    struct LeavesThread {
        /// Receives a message when the first call may end.
        may_end: std::sync::mpsc::Receiver<()>,
        thread: Option<std::thread::JoinHandle<io::Result<SessionAnswer>>>,
    }

    impl Functions for LeavesThread {
        fn setup(&mut self, _: &Setup) -> Result<(), String> {
            Ok(())
        }

        fn load(&mut self, _: u32, _: &Definition) -> Result<(), String> {
            Ok(())
        }

        fn call(
            &mut self,
            _: u32,
            _: &[ArgView<'_>],
            _: &mut [OutView<'_>],
            _: &mut dyn CallbackTarget,
        ) -> Result<(), TaskError> {
            if self.thread.is_none() {
                let request = SessionRequest { client: None, removed: Vec::new(), action: SessionAction::Open };
                let ask = move || nested::request(request, &[]).map(|(answer, _)| answer);
                self.thread = Some(std::thread::spawn(ask));
                self.may_end.recv().unwrap();
            }
            Ok(())
        }
    }

    #[test]
    fn a_call_ends_while_its_thread_waits_in_its_session() {
        let (server, worker) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let (mut inbox, mut outbox) = (Inbox::default(), Outbox::default());
        let receive = |inbox: &mut Inbox| {
            loop {
                if let Some((message, _)) = inbox.next::<FromWorker>().unwrap() {
                    return message;
                }
                let mut ready = [PollFd::new(&server, PollFlags::IN)];
                let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
                assert_eq!(poll(&mut ready, Some(&limit)).unwrap(), 1, "the worker sends nothing");
                assert_ne!(inbox.receive(server.as_fd(), true).unwrap(), Received::Closed);
            }
        };
        let send = |outbox: &mut Outbox, messages: &[ToWorker]| {
            messages.iter().for_each(|message| outbox.push(message, std::iter::empty()).unwrap());
            assert!(outbox.send(server.as_fd(), true).unwrap());
        };
        let _serves = locked(&SERVES);
        let (end, may_end) = std::sync::mpsc::channel();
        let mut functions = LeavesThread { may_end, thread: None };
        let serving = std::thread::spawn(move || {
            serve(worker, &mut functions).unwrap();
            functions.thread.unwrap().join().unwrap().unwrap()
        });
        let (words, words_fd) = SharedWords::new(TASKS_PER_WORKER_MAX).unwrap();
        let setup = Setup {
            server_name: "s".into(),
            libraries: Vec::new(),
            modules: Vec::new(),
            slowdown: 1.0,
            scratch: "s".into(),
        };
        let (name, uses) = ("k/leave".to_string(), Vec::new());
        let signature = Signature { name, params: vec![], callbacks: vec![], work: None, uses, about: String::new() };
        let body = Body::Native { language: Language::C, symbol: "leave".into(), args: vec![], result: None };
        let run = |serial| {
            ProgressBoard(words.words()).queue(serial);
            let (client, function) = (NodeId(1), 0);
            ToWorker::Run(Run {
                serial,
                function,
                simulated_at: Some(NodeId(2)),
                puts_as: TaskId { client, serial },
                program: client,
                user: "".into(),
                depth: 0,
                priority: Default::default(),
                wants_output: false,
                ranks: 0,
                gang: 0,
                args: Vec::new(),
                outs: Vec::new(),
            })
        };
        outbox.push_fd(words_fd);
        let load = ToWorker::Load { function: 0, definition: Definition { signature, body } };
        send(&mut outbox, &[ToWorker::Setup(setup), load, run(1)]);
        let ended = |serial| FromWorker::Ended { serial, run_ns: 0, outcome: Ok(Vec::new()) };
        let without_time = |message| match message {
            FromWorker::Ended { serial, outcome, .. } => FromWorker::Ended { serial, run_ns: 0, outcome },
            other => other,
        };
        assert_eq!(receive(&mut inbox), FromWorker::Ready);
        assert!(matches!(receive(&mut inbox), FromWorker::Session { serial: 1, .. }));
        end.send(()).unwrap();
        assert_eq!(without_time(receive(&mut inbox)), ended(1));
        let result = SessionResult::Ended { why: "the call has ended".into() };
        let answer = SessionAnswer { now: gridloom_base::Time::ZERO, result };
        // The answer and the next call arrive together, so the thread reads both.
        let bytes = Location::Inline { size_bytes: 0 };
        send(&mut outbox, &[ToWorker::Session { serial: 1, answer: answer.clone(), bytes }, run(2)]);
        assert_eq!(without_time(receive(&mut inbox)), ended(2));
        drop(server);
        assert_eq!(serving.join().unwrap(), answer);
    }

    #[test]
    fn a_slowed_call_takes_that_many_times_its_processor_time() {
        let begin = Instant::now();
        let used = slowed(4.0, || {
            let begin = processor_time();
            while processor_time() - begin < std::time::Duration::from_millis(5) {}
            processor_time() - begin
        });
        assert!(begin.elapsed() >= used.mul_f64(3.99), "{:?} for {used:?}", begin.elapsed());
    }
}
