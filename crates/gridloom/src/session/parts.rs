//! The parts of a session: each holds what the session knows of one thing. They know neither each other nor the session,
//! which passes them the events that concern them and asks them for what they know.
//!
//! | file | content |
//! |---|---|
//! | [`directory`], [`addresses`] | servers and functions, as reported by the agent; servers by address |
//! | [`calls`], [`ends`] | plain calls; ends of calls that are reported as they arrive |
//! | [`groups`], [`launches`] | records of groups; launches in progress |
//! | [`fetches`] | data that threads wait for |
//! | [`requests`], [`pending_requests`] | requests about shared names, with and without a waiting thread |
//! | [`call_backs`] | callbacks that the program has to run |
//! | [`links`], [`outputs`] | links and traffic; output of functions for operators |
//! | [`objects`] | the number of objects on each server |
//! | [`dropped`] | items that the program has dropped, to be released with the next command |

mod addresses;
mod call_backs;
mod calls;
mod directory;
mod dropped;
mod ends;
mod fetches;
mod groups;
mod launches;
mod links;
mod objects;
mod outputs;
mod pending_requests;
mod requests;

pub(super) use addresses::Addresses;
pub(super) use call_backs::{CallBacks, Next};
pub use call_backs::{CallbackHandler, GangCallback};
pub(super) use calls::{Calls, Owner};
pub(super) use directory::Directory;
pub use directory::EndTaskAnswers;
pub(super) use dropped::Dropped;
pub(super) use ends::EndNotifications;
pub(super) use fetches::Fetches;
pub use groups::UnreadErrors;
pub(super) use groups::{Groups, Retention};
pub(crate) use launches::{LaunchGroups, Launches};
pub(super) use links::Links;
pub use links::Traffic;
pub(crate) use objects::ObjectCounts;
pub(super) use outputs::Outputs;
pub(super) use pending_requests::PendingRequests;
pub(super) use requests::Requests;
