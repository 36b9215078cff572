//! Calls of functions: their arguments, plain calls, and handles of results that stay where they are made.
//!
//! | file | content |
//! |---|---|
//! | [`function`] | functions of the grid: checks calls, and makes plain ones |
//! | [`arg`], [`args`] | an argument; tuples and arrays of arguments |
//! | [`mod@file`], [`memory`] | files as arguments; checks that an argument can be copied |
//! | [`pending`] | plain calls in progress |
//! | [`handle`], [`placed`], [`view`] | results; their copies on servers; results read with another description |
//! | [`results`] | the results of a call |
//! | [`submitted`] | calls with results that stay where they are made |

mod arg;
mod args;
mod file;
mod function;
mod handle;
mod memory;
mod pending;
mod placed;
mod results;
mod submitted;
mod view;

pub use arg::Arg;
pub use args::IntoArgs;
pub(crate) use file::file_argument;
pub use function::Function;
pub(crate) use function::ObjectLocation;
pub use handle::Handle;
pub(crate) use memory::admit_argument;
pub(crate) use pending::Prepared;
pub use pending::{PendingCall, TransferLimits, Watch};
pub use results::Results;
pub use submitted::Submitted;
