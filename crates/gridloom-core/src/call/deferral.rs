//! Calls that wait in the client until a server has a free slot.

use serde::{Deserialize, Serialize};

use crate::graph::Failures;

/// How a call waits in the client's backlog.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Deferral {
    /// True if it is sent before the calls that wait already.
    pub goes_first: bool,
    /// True if the limit for the whole call begins at once. Otherwise it begins when the call is sent.
    pub limit_begins: bool,
    /// Servers where an earlier attempt failed, or that cannot run it.
    pub failures: Failures,
}
