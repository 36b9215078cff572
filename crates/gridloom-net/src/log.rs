//! Emits the lines of a node's log as `tracing` events, for the subscriber that the program has set, if any.

use gridloom_base::{Level, TaskError};
use gridloom_core::node::{Category, Input, LogLine};

/// Emits one event by category and level: `tracing` requires both to be constants at the call site.
macro_rules! event {
    ($line:expr, $node:expr, $($category:ident: $target:literal),*) => {
        match $line.category {
            $(Category::$category => match $line.level {
                Level::Debug => event!(@ $target, DEBUG, $line, $node),
                Level::Info => event!(@ $target, INFO, $line, $node),
                Level::Warning => event!(@ $target, WARN, $line, $node),
                Level::Error => event!(@ $target, ERROR, $line, $node),
            },)*
        }
    };
    (@ $target:literal, $level:ident, $line:expr, $node:expr) => {
        tracing::event!(
            target: $target,
            tracing::Level::$level,
            node = $node,
            peer = $line.peer.as_deref(),
            address = $line.address.as_deref(),
            task = $line.task.map(display),
            why = $line.why.as_deref(),
            "{}",
            $line.text
        )
    };
}

/// Forwards a log line of this node. The caller must not hold a lock, because the subscriber may block.
pub fn emit(node: &str, line: &LogLine) {
    event!(
        line,
        node,
        Agent: "gridloom.agent",
        Server: "gridloom.server",
        Client: "gridloom.client",
        Net: "gridloom.net",
        Worker: "gridloom.worker"
    );
}

/// Returns a warning about a connection.
pub(crate) fn warning(text: &'static str) -> LogLine {
    LogLine::new(Level::Warning, Category::Net, text)
}

/// Returns the world's own log line for an input, in addition to those of its state machine. If no subscriber wants
/// debug lines, a task costs only the load that checks this.
pub(crate) fn world_line_for(input: &Input) -> Option<LogLine> {
    let debug = |category, text| LogLine::new(Level::Debug, category, text);
    let connections = || tracing::enabled!(target: "gridloom.net", tracing::Level::DEBUG);
    match input {
        Input::TaskEnded { task, outcome: Err(error @ TaskError::Crashed { .. }), .. } => {
            let line = LogLine::new(Level::Warning, Category::Worker, "a function crashed its worker process");
            Some(line.task(*task).why(error))
        }
        Input::TaskEnded { task, outcome: Err(error @ TaskError::MemoryExceeded { .. }), .. } => {
            let line = LogLine::new(Level::Warning, Category::Worker, "a worker process exceeded its memory limit");
            Some(line.task(*task).why(error))
        }
        Input::TaskEnded {
            task,
            outcome: Err(error @ (TaskError::ProcessesExceeded { .. } | TaskError::TimeExceeded { .. })),
            ..
        } => {
            let line = LogLine::new(Level::Warning, Category::Worker, "a worker process exceeded a limit");
            Some(line.task(*task).why(error))
        }
        Input::TaskEnded { task, outcome, .. } if tracing::enabled!(target: "gridloom.worker", tracing::Level::DEBUG) => {
            Some(match outcome {
                Ok(_) => debug(Category::Worker, "a task has ended").task(*task),
                Err(error) => debug(Category::Worker, "a task has failed").task(*task).why(error),
            })
        }
        Input::PeerUp { peer, name, origin, address, .. } if connections() => {
            Some(debug(Category::Net, "connected").peer(origin.program(*peer, name)).address(address))
        }
        Input::PeerLost { peer, why, .. } if connections() => {
            Some(debug(Category::Net, "disconnected").peer(peer).why(why))
        }
        _ => None,
    }
}
