//! Runs the bodies of functions in a simulation.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use gridloom_base::{Meta, NodeId, ObjectId, TaskError, TaskId};
use gridloom_core::call::CallbackAnswer;
use gridloom_core::graph::{Argument, Task};
use gridloom_core::node::SessionAnswer;
use gridloom_idl::{Body, Definition};
use gridloom_net::jobs::{BlockingJobs, Interpreter, JobsConfig, blocking};
use gridloom_net::payload::Payload;
use gridloom_net::segment::Pool;
use gridloom_net::store::Store;
use gridloom_sim::{Bodies, Halt};

use super::config::{OF_WORKERS, VARIABLE};
use crate::Error;
use crate::offer::Offer;

/// Maximum number of bodies that wait for their programs at a time. Bodies that wait in their sessions do not count.
const WAITING_BODIES_MAX: u32 = 64;

/// Runs task bodies in real worker processes, outside virtual time.
pub(super) struct RealBodies {
    jobs: BlockingJobs,
    store: Store,
    /// Functions that use shared data, as far as is known.
    sharing: BTreeSet<String>,
}

impl RealBodies {
    pub(super) fn new(offer: &Offer, worker_program: PathBuf, python: Interpreter) -> Result<RealBodies, Error> {
        let config = JobsConfig {
            server_name: "simulation".into(),
            // One body runs at a time, while others wait for answers to their callbacks.
            slots: WAITING_BODIES_MAX,
            definitions: offer.definitions.clone(),
            libraries: offer.libraries.clone(),
            worker_program,
            python,
            modules: offer.modules.clone(),
            queue_depth: 1,
            env: vec![(VARIABLE.into(), OF_WORKERS.into())],
            pass_env: vec!["*".into()],
            system_users: Default::default(),
            function_keys: None,
            slowdown: 1.0,
            limits: Default::default(),
            separation: Default::default(),
            worker_group: None,
            confinement: None,
        };
        let jobs = BlockingJobs::new(config).map_err(|error| Error::Input(format!("no worker for bodies: {error}")))?;
        let sharing = offer.definitions.iter().filter(|definition| shares(definition));
        let sharing = sharing.map(|definition| definition.signature.name.clone());
        let sharing = sharing.chain(offer.undeclared_sharing.iter().cloned()).collect();
        Ok(RealBodies { jobs, store: Store::new(Pool::new(1 << 28)), sharing })
    }

    /// Converts the worker's state, with results taken out of the store.
    fn convert_halt(&mut self, task: &Task, halt: blocking::Halt) -> Halt {
        let outcome = match halt {
            blocking::Halt::Callback(call) => return Halt::Callback(call),
            blocking::Halt::Session(request, bytes) => return Halt::Session(request, bytes),
            blocking::Halt::Ended(outcome) => outcome,
        };
        let results = outcome.map(|results| {
            let value = |(datum, meta)| {
                let bytes = self.store.get(&datum).map_or(Vec::new(), |(_, payload)| payload.bytes().to_vec());
                (meta, bytes)
            };
            results.into_iter().map(value).collect()
        });
        for datum in task.inputs().chain(task.outputs.iter().map(|output| output.datum)) {
            self.store.remove(&datum);
        }
        Halt::Ended(results)
    }
}

/// Reports whether a function declares shared data, or is in a Python module that opens sessions.
fn shares(definition: &Definition) -> bool {
    let opens_sessions = |module: &PathBuf| std::fs::read(module).is_ok_and(|text| contains(&text, b"connect("));
    let in_module = matches!(&definition.body, Body::Python { module, .. } if opens_sessions(module));
    in_module || !definition.signature.uses.is_empty()
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}

impl Bodies for RealBodies {
    fn run(&mut self, task: &Task, inputs: &[(Meta, Arc<[u8]>)]) -> Result<Vec<(Meta, Vec<u8>)>, TaskError> {
        match self.begin(NodeId(0), task, inputs) {
            Halt::Ended(outcome) => outcome,
            Halt::Callback(_) | Halt::Session(..) => {
                self.give_up(task.id);
                let (function, server) = (task.name().to_string(), "simulation".to_string());
                Err(TaskError::Refused { function, server, why: "no program is there to be called back".into() })
            }
        }
    }

    fn begin(&mut self, server: NodeId, task: &Task, inputs: &[(Meta, Arc<[u8]>)]) -> Halt {
        for (argument, (meta, bytes)) in task.args.iter().zip(inputs) {
            if let Argument::Datum(datum) = argument {
                self.store.put(*datum, meta.clone(), Payload::Inline(bytes.clone()));
            }
        }
        let halt = self.jobs.run(server, Arc::new(task.clone()), &self.store);
        self.convert_halt(task, halt)
    }

    fn go_on(&mut self, task: &Task, answer: CallbackAnswer) -> Halt {
        let halt = self.jobs.answer(task, answer, &self.store);
        self.convert_halt(task, halt)
    }

    fn begins_first(&self, task: &Task) -> bool {
        self.sharing.contains(task.name())
    }

    fn answer_session(&mut self, task: &Task, answer: SessionAnswer, bytes: &[u8]) -> Halt {
        if !self.sharing.contains(task.name()) {
            self.sharing.insert(task.name().to_string());
        }
        let halt = self.jobs.answer_session(task, answer, bytes, &self.store);
        self.convert_halt(task, halt)
    }

    fn give_up(&mut self, task: TaskId) {
        self.jobs.stop(task);
    }

    fn end_object(&mut self, object: ObjectId) {
        self.jobs.end_object(object);
    }
}
