//! Lines for the log of a node: what happened, how severe it is, and which peer or task it concerns.
//!
//! A state machine only creates lines. The program that drives it decides which lines are written, and where.
//!
//! **Invariant:** no peer can forge a line. [`LogLine::new`] escapes control characters in the text, which may contain
//! names that a peer has sent. The log writes the other strings quoted and escaped.

use std::borrow::Cow;
use std::fmt::Display;

use gridloom_base::escaped::escaped_line;
use gridloom_base::{Level, TaskId};
use serde::{Deserialize, Serialize};

/// The part of a node that logs a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Category {
    Agent,
    Server,
    Client,
    /// Connections.
    Net,
    /// Worker processes and the tasks that they run.
    Worker,
}

/// A line for the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogLine {
    pub level: Level,
    pub category: Category,
    /// Description of the event, without control characters.
    pub text: Cow<'static, str>,
    /// Name of another node, or its identifier.
    pub peer: Option<String>,
    /// An address of the peer.
    pub address: Option<String>,
    pub task: Option<TaskId>,
    pub why: Option<String>,
}

impl LogLine {
    /// Creates a line. Control characters in the text are escaped, as in a string of Rust.
    pub fn new(level: Level, category: Category, text: impl Into<Cow<'static, str>>) -> LogLine {
        let text = escaped_line(text.into());
        LogLine { level, category, text, peer: None, address: None, task: None, why: None }
    }

    #[must_use]
    pub fn peer(self, peer: impl Display) -> LogLine {
        LogLine { peer: Some(peer.to_string()), ..self }
    }

    #[must_use]
    pub fn address(self, address: impl Display) -> LogLine {
        LogLine { address: Some(address.to_string()), ..self }
    }

    #[must_use]
    pub fn task(self, task: TaskId) -> LogLine {
        LogLine { task: Some(task), ..self }
    }

    #[must_use]
    pub fn why(self, why: impl Display) -> LogLine {
        LogLine { why: Some(why.to_string()), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Cow<'static, str> {
        LogLine::new(Level::Info, Category::Agent, text).text
    }

    #[test]
    fn a_text_with_the_name_of_a_peer_stays_one_line() {
        let name = "x' and 'y'\n2026-01-31T12:00:00Z ERROR gridloom.agent: lost\r\x1b[2K\u{9b}\u{2028}";
        let line = LogLine::new(Level::Warning, Category::Agent, format!("server '{name}' has joined"));
        let expected =
            r"server 'x' and 'y'\n2026-01-31T12:00:00Z ERROR gridloom.agent: lost\r\u{1b}[2K\u{9b}\u{2028}' has joined";
        assert_eq!(line.text, expected);
    }

    #[test]
    fn other_texts_are_not_changed() {
        assert!(matches!(
            text(r#"a "quoted" \ text, größer, 100 µs"#),
            Cow::Borrowed(r#"a "quoted" \ text, größer, 100 µs"#)
        ));
        assert_eq!(text(""), "");
    }
}
