//! Forwards the log of sessions to Python's `logging`, loggers `gridloom.session`,
//! `gridloom.client` and so on. Without a handler, `logging` writes warnings and errors to standard error.
//!
//! The library has its own copy of `tracing`, so no other library of the program sees the subscriber.

use std::fmt::{Debug, Write};

use gridloom_base::stderr_line;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Starts forwarding events to `logging`; calling it again is harmless.
pub(crate) fn start() {
    // It is already set, by an earlier import.
    let _ = tracing::subscriber::set_global_default(LoggingSubscriber);
}

struct LoggingSubscriber;

impl Subscriber for LoggingSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        let Words { text, fields } = words;
        let (category, level) = (event.metadata().target(), number(*event.metadata().level()));
        let log = |py: Python<'_>| -> PyResult<()> {
            let logger = crate::import(py, "logging")?.call_method1("getLogger", (category,))?;
            logger.call_method1("log", (level, format!("{text}{fields}"))).map(drop)
        };
        // When the interpreter shuts down, there is no logging any more. An error of a handler can be reported only here.
        match Python::try_attach(log) {
            Some(Ok(())) => {}
            Some(Err(error)) => stderr_line!("gridloom: {text}{fields} (not logged: {error})"),
            None if level >= WARNING => stderr_line!("gridloom: {text}{fields}"),
            None => {}
        }
    }

    // Gridloom emits events only, no spans.

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The value of `logging.WARNING`.
const WARNING: i32 = 30;

/// The level's number in `logging`.
fn number(level: Level) -> i32 {
    match level {
        Level::ERROR => 40,
        Level::WARN => WARNING,
        Level::INFO => 20,
        Level::DEBUG | Level::TRACE => 10,
    }
}

/// An event as text: `lost a server peer="one"`.
#[derive(Default)]
struct Words {
    text: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.text, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
