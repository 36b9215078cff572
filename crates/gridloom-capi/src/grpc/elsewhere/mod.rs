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
mod made;
mod regions;
mod staying;

pub(super) use guard::{Guard, show};
pub(super) use made::Made;
pub(super) use regions::{Found, Part, Regions};
pub(super) use staying::{Staying, bring, put_back, write_if_here};
