//! What a session says beside its answers: events of `tracing`, category `gridloom.session`.
//!
//! The library sets no subscriber: that is the program's to do. Of a program that has set none, as most have in C, warnings and
//! errors go to standard error as plain lines.

use gridloom_core::node::LogLine;
use tracing::dispatcher::get_default;
use tracing::subscriber::NoSubscriber;

use gridloom_base::Level;

pub(crate) fn warn(text: &str) {
    match has_subscriber() {
        true => tracing::warn!(target: "gridloom.session", "{text}"),
        false => gridloom_base::say!("gridloom: {text}"),
    }
}

pub(crate) fn error(text: &str) {
    match has_subscriber() {
        true => tracing::error!(target: "gridloom.session", "{text}"),
        false => gridloom_base::say!("gridloom: {text}"),
    }
}

fn has_subscriber() -> bool {
    get_default(|dispatch| !dispatch.is::<NoSubscriber>())
}

/// Hands on what the client's machine has to say. It repairs what it warns of; what it cannot repair comes to the program as an
/// error.
pub(crate) fn hand_on(lines: Vec<LogLine>) {
    for line in lines {
        let level = line.level.min(Level::Info);
        gridloom_net::log::hand_on("client", &LogLine { level, ..line });
    }
}
