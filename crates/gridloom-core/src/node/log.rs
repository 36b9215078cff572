//! Lines for the log of a node: what happened, how severe it is, and which peer or task it concerns.
//!
//! A state machine only creates lines. The program that drives it decides which lines are written, and where.
//!
//! **Invariant:** `text` is a fixed text of the program. Strings from a peer are stored in the other fields only, and
//! the log escapes those: no peer can forge a line.

use std::borrow::Cow;
use std::fmt::Display;

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
    /// Description of the event.
    pub text: Cow<'static, str>,
    /// Name of another node, or its identifier.
    pub peer: Option<String>,
    /// An address of the peer.
    pub address: Option<String>,
    pub task: Option<TaskId>,
    pub why: Option<String>,
}

impl LogLine {
    pub fn new(level: Level, category: Category, text: impl Into<Cow<'static, str>>) -> LogLine {
        LogLine { level, category, text: text.into(), peer: None, address: None, task: None, why: None }
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
