//! Results that are on servers instead of in the program's memory: where they belong, how they are fetched, and which stay remote.
//!
//! | file | content |
//! |---|---|
//! | `regions` | which call wrote which memory last: the interval map |
//! | `mapped_result` | a result of a mapped call |
//! | `faults` | closed pages, and threads that touch them |
//! | `own_pages` | memory whose pages can be closed without effects on anything else |
//! | `system_calls` | functions of the C library that open closed pages before the system gets them |
//! | `guard` | memory with its value elsewhere: its reads are detected, and reported in the debug mode |
//! | `remaining` | fetching results; those that stay remote after their block |

mod faults;
mod guard;
mod mapped_result;
mod own_pages;
mod regions;
mod remaining;
mod system_calls;

pub(super) use guard::{Guard, show};
pub(super) use mapped_result::MappedResult;
pub(super) use regions::{Part, Regions, Writers};
pub(super) use remaining::{RemainingResults, fetch_parts, restore, write_if_here};
