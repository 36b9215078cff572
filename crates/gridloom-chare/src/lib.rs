//! Message-driven objects (*chares*): the scheduler of a processing element, called in line.
//!
//! A *chare* is an object with a state and *entry methods*. It runs when a message for it is there, and each entry method runs
//! to its end. Many chares share a *processing element*: while one waits for a far message, others compute. Chares come in
//! *arrays*, and a program names them by *proxies*: one chare, a section, or all of an array.
//!
//! ```text
//!  entry method ──send──▶ mail of the array ──ready queue──▶ step ──▶ entry method        the same element: moved, never copied
//!                 └─────▶ outbound buffer ──letter──▶ receive ──▶ mail of the array       another element: bytes
//! ```
//!
//! Source: Charm++ (L. V. Kalé, S. Krishnan, OOPSLA 1993); G. A. Koenig, L. V. Kalé, *Using message-driven objects to mask
//! latency in grid computing applications*, IPDPS 2005.
//!
//! **Promises**
//! 1. A message is delivered once, to the chare that its index names, wherever that has moved. If letters between two elements
//!    keep their order, so do messages of one priority between two chares, as long as neither of the two moves. Nothing else is
//!    promised of orders.
//! 2. Of the messages that wait at an element, the one of the least priority number runs next, and of those the earliest.
//! 3. A reduction ends when each chare of its array has contributed, and its result is delivered once. An ordered one gives the
//!    same bits for any placement and any number of elements.
//! 4. Quiescence is told when no message waits or is on its way anywhere, and never before.
//! 5. A program that begins again from a checkpoint, on any number of elements, does what it would have done without.
//! 6. Messages of others that wait at an element have a bound in bytes. Past it a chare that sends more runs no further for a while; its
//!    element, control records and messages within an element go on.
//!
//! **Does not**: know a clock, a socket or a thread. Its owner runs [`Element::step`], carries the letters of
//! [`Element::take_letter`] to [`Element::receive`] of their elements, in order between two elements or not, and each once.
//!
//! | file | what it holds |
//! |---|---|
//! | `id`, `shape`, `placement` | names of elements and arrays, indices; the chares of an array, numbered; where they are |
//! | `roster` | where the chares of an array are, as far as an element knows |
//! | `payload`, `packing`, `record` | messages and chares as bytes; the records of a letter |
//! | `value`, `contribution` | what reductions combine, and how |
//! | `mail`, `ready` | messages that wait, by array; the order in which they run |
//! | `outbound` | what waits to go to other elements |
//! | `credit`, `parking`, `flow` | how much may wait at another element; chares that have sent too much |
//! | `reduction`, `quiescence` | the two collective protocols |
//! | `balance` | load balancers, by name |
//! | `meter`, `decision`, `balancing` | what chares do, measured; whether moving them pays; how it comes about |
//! | `transit`, `migration` | chares on the move, and messages that seek them |
//! | `checkpoint`, `saving` | what all chares are when all is quiet, to begin again from |
//! | `resizing` | checkpoints from which the program goes on with another number of elements |
//! | `buddies` | checkpoints in the memory of elements, and how they agree on one after a loss |
//! | `account` | what steps tell the element's owner: work, entry methods by name |
//! | `waits`, `awaits` | what methods that wait have, by chare; these methods, as futures |
//! | `core`, `receive` | what entry methods act on; what letters bring |
//! | `chare`, `array`, `element` | what an entry method may do; the chares; the whole |

#![forbid(unsafe_code)]

mod account;
mod array;
mod awaits;
pub mod balance;
mod balancing;
mod buddies;
mod chare;
mod checkpoint;
mod contribution;
mod core;
mod credit;
mod decision;
mod element;
mod error;
mod flow;
mod id;
mod mail;
mod meter;
mod migration;
mod outbound;
mod packing;
mod parking;
mod payload;
mod placement;
mod proxy;
mod quiescence;
mod ready;
mod receive;
mod record;
mod reduction;
mod resizing;
mod roster;
mod saving;
mod shape;
mod transit;
mod value;
mod waits;

pub use account::Ran;
pub use awaits::{AsyncContext, Channel, Receive, ReceiveOnChannel, Reply, ReplyTo};
pub use buddies::{Agreed, Buddies, Note};
pub use chare::{Chare, Context, Start};
pub use contribution::{Combine, Contribution, Reducer};
pub use element::{Element, Step};
pub use error::ChareError;
pub use id::{ArrayId, ChareId, Index, Pe, Priority};
pub use packing::{Migrate, Packing};
pub use payload::{Codec, Payload};
pub use placement::{Elements, Placement};
pub use proxy::{Callback, Proxy, Target};
pub use resizing::Resize;
pub use shape::Shape;
pub use value::Value;
