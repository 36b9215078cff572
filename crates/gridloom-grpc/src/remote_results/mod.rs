//! Results that are on servers instead of in the program's memory: where they belong, how they are fetched, and which stay remote.
//!
//! | file | content |
//! |---|---|
//! | `regions` | which call wrote which memory last: the interval map |
//! | `made` | a result of a mapped call |
//! | `faults` | closed pages, and threads that touch them |
//! | `guard` | the debug mode: memory with its value elsewhere |
//! | `staying` | fetching results; those that stay remote after their block |

mod faults;
mod guard;
mod mapped_result;
mod regions;
mod remaining;

pub(super) use guard::{Guard, show};
pub(super) use mapped_result::MappedResult;
pub(super) use regions::{Part, Regions, Writers};
pub(super) use remaining::{RemainingResults, fetch_parts, restore, write_if_here};
