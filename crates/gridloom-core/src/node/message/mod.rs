//! What nodes say to one another on control connections, nested by conversation and then by receiver: a role routes the
//! enums that it takes and names no variant of the others.
//!
//! Payload never stands in a message, except for a callback's arrays, which are no data. A datum travels as a data frame (a
//! small one on the control connection, a large one on a bulk connection) and reaches the machine as
//! [`super::Input::DatumArrived`].
//!
//! ```text
//! client                 agent                 server A               server B
//!   | MapGroup ----------->|                      |                      |
//!   |<---------- GroupMapped                      |                      |
//!   | RunTasks ---------------------------------->|                      |
//!   | RunTasks ----------------------------------------------------------->|
//!   |<---------------------------------- Fetch(a) |<------------ Fetch(ab) |   asked as soon as there is room
//!   | data a ====================================>|                      |
//!   |                                             | ab is made           |
//!   |<--------------------------------- TasksEnded | data ab ============>|
//! ```

mod catalog;
mod directory;
mod link;
mod map;
mod output;
mod status;
mod task;

use serde::{Deserialize, Serialize};

use gridloom_base::DatumId;

pub use catalog::{
    Basis, CandidateReport, CatalogAnswer, CatalogMessage, CatalogToClient, CatalogToServer, ClientToCatalog,
    CopyReport, Held, Listed, ServerToCatalog,
};
pub use directory::{
    DirectoryMessage, DirectoryNews, DirectoryToAgent, DirectoryToClient, DirectoryToServer, Registration,
};
pub use link::{LinkMessage, LinkToAgent, LinkToProber, SeenTransfer};
pub use map::{MapMessage, MapRequest, MapToAgent, MapToClient, Purpose};
pub use output::{Output, OutputLine, OutputQuery, short_name};
pub use status::{ServerStatus, Stage, TaskStatus};
pub use task::{Supply, SupplyFault, TaskMessage, TaskReport, TaskToClient, TaskToServer, Timing, TransferReport};

/// A message: one enum for each conversation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// Liveness and the measuring of links.
    Link(LinkMessage),
    /// Which servers there are, and what they offer.
    Directory(DirectoryMessage),
    /// Plans of groups.
    Map(MapMessage),
    /// Calls and tasks of groups.
    Task(TaskMessage),
    /// Requests for data.
    Data(DataMessage),
    /// Shared names of data.
    Catalog(CatalogMessage),
}

/// Between a receiver of a datum and its holder: clients and servers alike.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DataMessage {
    /// Send the datum as soon as you have it.
    Fetch {
        datum: DatumId,
        /// See [`Supply::hops`].
        hops: u16,
        /// By the storage that both share, if it is there.
        by_storage: bool,
    },
    /// The datum will not come from here.
    FetchRefused { datum: DatumId, why: String },
}

impl From<DataMessage> for Message {
    fn from(message: DataMessage) -> Message {
        Message::Data(message)
    }
}
