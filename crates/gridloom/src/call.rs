//! Functions of the grid, their arguments, and plain calls.

mod arg;
mod file;
mod function;
mod memory;

pub use arg::Arg;
pub use function::{Function, Pending, TransferLimits, Watch};
pub(crate) use function::{Prepared, gives_as};
