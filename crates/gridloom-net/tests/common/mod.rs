//! Shared code of tests and examples of the slots: a library compiled on demand, signatures, and an event loop.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gridloom_base::{DatumId, Dtype, Meta, NodeId, ObjectId, TaskError, TaskId};
use gridloom_core::call::{Callback, CallbackAnswer};
use gridloom_core::graph::{Argument, CallOptions, Output, Task, TaskKind};
use gridloom_idl::expr::Expr;
use gridloom_idl::{ArrayOrder, BaseType, Body, CallArgument, Definition, Language, Mode, Param, Signature};
use gridloom_net::jobs::{JobEvent, Jobs, JobsConfig, WorkerToken};
use gridloom_net::payload::Payload;
use gridloom_net::segment::Pool;
use gridloom_net::store::Store;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

static NEXT: AtomicU64 = AtomicU64::new(1);

pub fn datum() -> DatumId {
    DatumId { client: NodeId(1), serial: NEXT.fetch_add(1, Ordering::Relaxed) }
}

/// Compiles the fixture once per process.
pub fn library() -> PathBuf {
    let directory = std::env::temp_dir();
    let path = directory.join(format!("libkernels-{}.so", std::process::id()));
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kernels.c");
        let status = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&path).arg(source).status();
        assert!(status.expect("the tests need a C compiler called cc").success());
    });
    path
}

pub fn scalar(name: &str, mode: Mode, dtype: Dtype) -> Param {
    Param::scalar(name, mode, BaseType::Number(dtype))
}

pub fn array(name: &str, mode: Mode, dtype: Dtype, dims: Vec<Expr>) -> Param {
    Param { dims, is_array: true, order: ArrayOrder::C, ..scalar(name, mode, dtype) }
}

pub fn text(name: &str, mode: Mode) -> Param {
    Param { base: BaseType::Text, ..scalar(name, mode, Dtype::Int8) }
}

pub fn file(name: &str, mode: Mode) -> Param {
    Param { base: BaseType::File, ..scalar(name, mode, Dtype::Int8) }
}

pub fn native(symbol: &str, params: Vec<Param>) -> Definition {
    let args = (0..params.len()).map(CallArgument::Param).collect();
    native_with(symbol, params, args, None, Language::C)
}

pub fn native_with(
    symbol: &str,
    params: Vec<Param>,
    args: Vec<CallArgument>,
    result: Option<(Dtype, usize)>,
    language: Language,
) -> Definition {
    Definition {
        signature: Signature {
            name: format!("k/{symbol}"),
            params,
            callbacks: vec![],
            work: None,
            uses: Vec::new(),
            about: String::new(),
        },
        body: Body::Native { language, symbol: symbol.into(), args, result },
    }
}

pub enum Arg {
    Inline(Meta, Vec<u8>),
    Datum(DatumId),
}

pub fn number(value: f64) -> Arg {
    Arg::Inline(Meta::scalar(Dtype::Float64), value.to_ne_bytes().to_vec())
}

pub fn count(value: i64) -> Arg {
    Arg::Inline(Meta::scalar(Dtype::Int64), value.to_ne_bytes().to_vec())
}

pub fn small(value: i32) -> Arg {
    Arg::Inline(Meta::scalar(Dtype::Int32), value.to_ne_bytes().to_vec())
}

pub fn string(value: &str) -> Arg {
    Arg::Inline(Meta::Text { size_bytes: value.len() as u64 }, value.as_bytes().to_vec())
}

pub fn bytes_of(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

pub fn doubles(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(8).map(|chunk| f64::from_ne_bytes(chunk.try_into().unwrap())).collect()
}

pub type Outcome = Result<Vec<(DatumId, Meta)>, TaskError>;

pub fn config(
    slots: u32,
    queue_depth: u32,
    definitions: Vec<Definition>,
    libraries: Vec<PathBuf>,
    worker_program: PathBuf,
) -> JobsConfig {
    JobsConfig {
        server_name: "bench".into(),
        slots,
        definitions,
        libraries,
        worker_program,
        python: "/no/python".into(),
        modules: vec![],
        queue_depth,
        env: vec![],
        pass_env: Vec::new(),
        system_users: Default::default(),
        function_keys: None,
        slowdown: 1.0,
        limits: Default::default(),
        separation: Default::default(),
        worker_group: None,
        confinement: None,
    }
}

/// Slots with a store and a poller.
pub struct Bench {
    pub jobs: Jobs,
    pub store: Store,
    pub epoll: OwnedFd,
    /// How long the poller polls before it sleeps.
    pub awake: Duration,
    pub ended: BTreeMap<TaskId, Outcome>,
    /// The program's reply to callbacks, and the callbacks received.
    pub answer: fn(&Callback) -> CallbackAnswer,
    pub called: Vec<Callback>,
    /// The user to whom further calls belong.
    pub user: &'static str,
}

impl Bench {
    pub fn new(slots: u32, queue_depth: u32, definitions: Vec<Definition>) -> Bench {
        Bench::with(
            slots,
            queue_depth,
            definitions,
            vec![library()],
            option_env!("CARGO_BIN_EXE_gridloom-worker").unwrap_or("").into(),
        )
    }

    pub fn with(
        slots: u32,
        queue_depth: u32,
        definitions: Vec<Definition>,
        libraries: Vec<PathBuf>,
        worker_program: PathBuf,
    ) -> Bench {
        Bench::of(config(slots, queue_depth, definitions, libraries, worker_program))
    }

    pub fn of(config: JobsConfig) -> Bench {
        let jobs = Jobs::new(config);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        Bench {
            jobs,
            store: Store::new(Pool::new(256 << 20)),
            epoll,
            awake: Duration::ZERO,
            ended: BTreeMap::new(),
            answer: |_| Ok(Vec::new()),
            called: Vec::new(),
            user: "",
        }
    }

    pub fn put(&self, meta: Meta, bytes: &[u8]) -> Arg {
        let datum = datum();
        assert!(self.store.put(datum, meta, Payload::copied(bytes)));
        Arg::Datum(datum)
    }

    pub fn put_doubles(&self, values: &[f64]) -> Arg {
        self.put(Meta::array(Dtype::Float64, &[values.len() as u64]), &bytes_of(values))
    }

    pub fn start(&mut self, symbol: &str, args: Vec<Arg>, outs: Vec<Meta>) -> Arc<Task> {
        self.start_on(None, symbol, args, outs)
    }

    /// Starts a function as a method of this object.
    pub fn start_on(&mut self, object: Option<ObjectId>, symbol: &str, args: Vec<Arg>, outs: Vec<Meta>) -> Arc<Task> {
        let args = args
            .into_iter()
            .map(|arg| match arg {
                Arg::Inline(meta, bytes) => Argument::Inline { meta, bytes },
                Arg::Datum(datum) => Argument::Datum(datum),
            })
            .collect();
        let outputs = outs.into_iter().map(|meta| Output { datum: datum(), meta }).collect();
        let id = TaskId { client: NodeId(1), serial: datum().serial };
        let function = format!("k/{symbol}");
        let kind = match object {
            None => TaskKind::call(function, 0),
            Some(object) => TaskKind::method(&function, object, 0),
        };
        let options = CallOptions { user: Some(self.user.into()), ..CallOptions::default() };
        let task = Arc::new(Task { id, kind, args, outputs, work_flops: None, options });
        self.jobs.start(task.clone(), &self.store);
        task
    }

    /// Runs one round of the poller: waits for an event, unless there is one already.
    pub fn turn(&mut self) {
        self.jobs.flush();
        self.jobs.register_with(self.epoll.as_fd(), |token| token.0).unwrap();
        let events = self.jobs.take_events();
        let quiet = events.is_empty();
        for event in events {
            match event {
                JobEvent::Ended { task, outcome, .. } => {
                    assert!(self.ended.insert(task, outcome).is_none(), "{task} ended twice");
                }
                JobEvent::CallsBack(call) => {
                    let answer = (self.answer)(&call);
                    self.called.push(call.clone());
                    self.jobs.reply(call.task, answer);
                }
                JobEvent::Output(said) => panic!("{said:?}; no function of these tests says anything"),
                JobEvent::Session { task, .. } => panic!("{task} has a session; no function of these tests does"),
                JobEvent::Calling { task, .. } => panic!("{task} makes calls; no function of these tests does"),
            }
        }
        if !quiet {
            return;
        }
        let wake_in = self.jobs.wake_at().map(|at| at.saturating_duration_since(Instant::now()));
        let limit = wake_in.unwrap_or(Duration::from_secs(30));
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        let mut ready = Vec::with_capacity(16);
        let begin = Instant::now();
        while ready.is_empty() && begin.elapsed() < self.awake {
            std::thread::yield_now();
            epoll::wait(&self.epoll, spare_capacity(&mut ready), Some(&Timespec::default())).unwrap();
        }
        if ready.is_empty() {
            let count = epoll::wait(&self.epoll, spare_capacity(&mut ready), Some(&limit)).unwrap();
            assert!(count > 0 || wake_in.is_some(), "nothing happened for 30 s");
        }
        for event in ready {
            self.jobs.on_ready(WorkerToken(event.data.u64()), &self.store);
        }
    }

    pub fn wait(&mut self, task: &Task) -> Outcome {
        let limit = Instant::now() + Duration::from_secs(60);
        while !self.ended.contains_key(&task.id) {
            assert!(Instant::now() < limit, "{} did not end", task.id);
            self.turn();
        }
        self.ended.remove(&task.id).unwrap()
    }

    /// Calls a function and returns the bytes of the results.
    pub fn call(&mut self, symbol: &str, args: Vec<Arg>, outs: Vec<Meta>) -> Result<Vec<Vec<u8>>, TaskError> {
        Ok(self.call_described(symbol, args, outs)?.into_iter().map(|(_, bytes)| bytes).collect())
    }

    /// Like `call`, but also returns the descriptions of the results.
    pub fn call_described(
        &mut self,
        symbol: &str,
        args: Vec<Arg>,
        outs: Vec<Meta>,
    ) -> Result<Vec<(Meta, Vec<u8>)>, TaskError> {
        let task = self.start(symbol, args, outs);
        let made = self.wait(&task)?;
        assert_eq!(made.len(), task.outputs.len());
        let value = |(datum, meta): (DatumId, Meta)| {
            let (stored, payload) = self.store.get(&datum).unwrap();
            assert_eq!((&stored, meta.size_bytes()), (&meta, payload.size_bytes()));
            (meta, payload.bytes().to_vec())
        };
        Ok(made.into_iter().map(value).collect())
    }
}

pub fn out_scalar(dtype: Dtype) -> Meta {
    Meta::scalar(dtype)
}
