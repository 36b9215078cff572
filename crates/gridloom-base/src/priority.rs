//! The priority of calls, and of messages to chares.

use serde::{Deserialize, Serialize};

/// The priority of a call, or of a message to a chare: lower numbers run first. The default is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Priority(pub i32);
