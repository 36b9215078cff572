//! Runs callbacks of GridRPC: functions that run for the program call the program.
//!
//! On a real grid a thread of the session runs the callbacks, one at a time, as long as there are calls that may call back. In a
//! simulation the waiting thread runs them, since virtual time stands still while none waits.

use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use gridloom_base::{Meta, NodeId, TaskId};
use gridloom_core::call::{Callback, CallbackAnswer};
use gridloom_core::node::Command;
use gridloom_net::payload::Payload;
use gridloom_net::threads;

use super::{CallbackHandler, GangCallback, Next, Session};
use crate::{Error, Value};

/// Interval at which the thread checks whether it is still needed: a session that ends does not notify it.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Registers the callee of a call that is about to be sent.
pub(crate) fn expect_call_backs(session: &Session, task: TaskId, callee: CallbackHandler) -> Result<(), Error> {
    let mut state = session.state();
    state.call_backs.expect(task, callee);
    if session.is_simulated() || state.call_backs.is_served() {
        return Ok(());
    }
    let own = session.clone();
    let thread = thread::Builder::new().name("callbacks".into());
    let thread = threads::spawn(thread, move || serve(&own));
    let thread = thread.map_err(|error| {
        state.call_backs.forget(task);
        Error::Usage(format!("no thread for callbacks can be started: {error}"))
    })?;
    state.call_backs.begin_serving(thread);
    Ok(())
}

/// Registers where requests of a gang that is about to be sent are delivered.
pub(crate) fn expect_asking(session: &Session, task: TaskId, to: Sender<GangCallback>) {
    session.state().call_backs.expect_gang_requests(task, to);
}

/// Answers a gang's request, so that it continues.
pub(crate) fn answer(session: &Session, asking: &GangCallback, text: Vec<u8>) {
    let answer = Ok(vec![(Meta::Text { size_bytes: text.len() as u64 }, text)]);
    session.command(Command::CalledBack { server: asking.server, task: asking.task, answer });
}

/// Stops running callbacks, and waits for the end of one in progress, unless that callback itself calls this.
pub(crate) fn end_call_backs(session: &Session) {
    let thread = session.state().call_backs.clear();
    if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
        // The panic of a callback was already printed.
        let _ = thread.join();
    }
}

fn serve(session: &Session) {
    loop {
        match session.wait(Some(CHECK_INTERVAL), |state| state.call_backs.next()) {
            Ok(Next::Run(server, call, callee)) => run(session, server, call, &callee),
            Err(Error::TimedOut { .. }) => {}
            Ok(Next::End) => return,
            Err(_) => {
                session.state().call_backs.end_serving();
                return;
            }
        }
    }
}

/// Runs a callback and sends its result.
pub(super) fn run(session: &Session, server: NodeId, call: Callback, callee: &CallbackHandler) {
    let Callback { task, callback, values } = call;
    let value = |(meta, bytes): (_, Vec<u8>)| Value::new(meta, Payload::Inline(bytes.into()));
    let values: Result<Vec<Value>, Error> = values.into_iter().map(value).collect();
    let answer: CallbackAnswer = values.map_err(|error| error.to_string()).and_then(|values| {
        let answer = callee(task, callback, values)?;
        let bytes = |value: Value| (value.meta().clone(), value.inline_bytes().unwrap_or_default());
        Ok(answer.into_iter().map(bytes).collect())
    });
    session.command(Command::CalledBack { server, task, answer });
}
