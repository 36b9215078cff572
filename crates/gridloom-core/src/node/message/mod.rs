//! Messages that nodes exchange on control connections, nested by conversation and then by receiver. A role routes the
//! enums that it receives, and names no variant of the others.
//!
//! A message contains no payload, except the arrays of a callback, which are not data. A datum is sent as a data frame
//! (a small one on the control connection, a large one on a bulk connection) and reaches the machine as
//! [`super::Input::DatumArrived`].
//!
//! ```text
//! client                 agent                 server A               server B
//!   | MapGroup ----------->|                      |                      |
//!   |<---------- GroupMapped                      |                      |
//!   | RunTasks ---------------------------------->|                      |
//!   | RunTasks ----------------------------------------------------------->|
//!   |<---------------------------------- Fetch(a) |<------------ Fetch(ab) |   sent as soon as there is memory
//!   | data a ====================================>|                      |
//!   |                                             | ab is made           |
//!   |<--------------------------------- TasksEnded | data ab ============>|
//! ```

mod catalog;
mod directory;
mod link;
mod map;
mod output;
mod records;
mod status;
mod task;

use serde::{Deserialize, Serialize};

use gridloom_base::DatumId;

pub use catalog::{
    CandidateReport, CatalogAnswer, CatalogMessage, CatalogToClient, CatalogToServer, ClientToCatalog, CopyReport,
    DamagedVersion, LinkBasis, NameEntry, ServerToCatalog, StoredVersion,
};
pub use directory::{
    DirectoryMessage, DirectoryToAgent, DirectoryToClient, DirectoryToServer, DirectoryUpdate, Registration,
};
pub use link::{LinkMessage, LinkToAgent, LinkToProber, ReceivedTransfer};
pub use map::{MapMessage, MapRequest, MapToAgent, MapToClient, Purpose};
pub use output::{OutputLine, OutputPage, OutputQuery, short_name};
pub use records::{
    AuditEvent, AuditOutcome, AuditRecord, DayUsage, LinkUse, OTHER_USERS, ServerRecords, Usage, UsagePage, UsageQuery,
    UserUsage,
};
pub use status::{ProgramWaits, ServerStatus, Stage, TaskStatus};
pub use task::{Supply, SupplyFault, TaskMessage, TaskReport, TaskTimes, TaskToClient, TaskToServer, TransferReport};

/// A message: one enum for each conversation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// Liveness and link measurement.
    Link(LinkMessage),
    /// Servers and the functions that they offer.
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

/// Between a receiver of a datum and its holder. Both may be clients or servers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DataMessage {
    /// Requests the datum. The holder sends it as soon as it has it.
    Fetch {
        datum: DatumId,
        /// See [`Supply::hops`].
        hops: u16,
        /// Asks for the datum through the storage that both servers share, if it is there.
        by_storage: bool,
    },
    /// The receiver of `Fetch` will not send the datum.
    FetchRefused { datum: DatumId, why: String },
}

impl From<DataMessage> for Message {
    fn from(message: DataMessage) -> Message {
        Message::Data(message)
    }
}
