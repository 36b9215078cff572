//! Log events of a session: events of `tracing`, category `gridloom.session`.
//!
//! The library sets no subscriber; that is up to the program. If the program has set none, like most C programs, warnings and
//! errors are written to standard error as plain lines.

use gridloom_core::node::LogLine;
use tracing::dispatcher::get_default;
use tracing::subscriber::NoSubscriber;

use gridloom_base::Level;

pub(crate) fn warn(text: &str) {
    match has_subscriber() {
        true => tracing::warn!(target: "gridloom.session", "{text}"),
        false => gridloom_base::stderr_line!("gridloom: {text}"),
    }
}

/// Logs for a program that has set a subscriber; others do not see it.
pub(crate) fn info(text: &str) {
    tracing::info!(target: "gridloom.session", "{text}");
}

pub(crate) fn error(text: &str) {
    match has_subscriber() {
        true => tracing::error!(target: "gridloom.session", "{text}"),
        false => gridloom_base::stderr_line!("gridloom: {text}"),
    }
}

fn has_subscriber() -> bool {
    get_default(|dispatch| !dispatch.is::<NoSubscriber>())
}

/// Forwards log lines of the client's machine. The machine repairs problems of which it warns; other problems reach the program as
/// errors.
pub(crate) fn hand_on(lines: Vec<LogLine>) {
    for line in lines {
        let level = line.level.min(Level::Info);
        gridloom_net::log::emit("client", &LogLine { level, ..line });
    }
}
