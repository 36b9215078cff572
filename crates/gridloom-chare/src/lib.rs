//! Message-driven objects (*chares*) and the scheduler of a processing element, which its owner calls directly.
//!
//! A *chare* is an object with a state and *entry methods*. It runs when a message for it has arrived, and each entry
//! method runs to completion. Many chares share a *processing element*: while one waits for a remote message, others
//! compute. Chares are organized in *arrays*, and a program addresses them by *proxies*: one chare, a section, or all
//! of an array.
//!
//! ```text
//!  entry method ──send──▶ mail of the array ──ready queue──▶ step ──▶ entry method        same element: moved, never copied
//!                 └─────▶ outbound buffer ──batch───▶ receive ──▶ mail of the array       another element: bytes
//! ```
//!
//! Source: Charm++ (L. V. Kalé, S. Krishnan, OOPSLA 1993); G. A. Koenig, L. V. Kalé, *Using message-driven objects to mask
//! latency in grid computing applications*, IPDPS 2005.
//!
//! **Promises**
//! 1. A message is delivered once, to the chare with its index, wherever that chare has moved. If batches between two
//!    elements keep their order, so do messages of one priority between two chares, as long as neither of the two
//!    moves. No other order is guaranteed.
//! 2. Of the messages that wait at an element, the one with the lowest priority number runs next; among equals, the earliest.
//! 3. A reduction completes when each chare of its array has contributed, and its result is delivered once. An ordered
//!    reduction has the same bits for any placement and any number of elements.
//! 4. Quiescence is reported when no message is waiting or in transit anywhere, and never before.
//! 5. A program that restarts from a checkpoint, on any number of elements, does what it would have done without.
//! 6. The bytes of messages from other elements that wait at an element are bounded. A chare that sends beyond the
//!    bound is paused for a while. Its element, control records and messages within an element continue.
//!
//! **Does not** use a clock, a socket or a thread. Its owner runs [`Element::step`] and carries the batches of
//! [`Element::take_batch`] to [`Element::receive`] of their elements: each once, and not necessarily in order.
//!
//! | file | contents |
//! |---|---|
//! | `id`, `shape`, `placement` | identifiers of elements and arrays, indices; the numbering of an array's chares; their initial elements |
//! | `location_table` | the location table: where the chares of an array are, as far as an element knows |
//! | `payload`, `packing`, `record` | messages and chares as bytes; the records of a batch |
//! | `value`, `contribution` | the values of reductions, and how they are combined |
//! | `mail`, `ready` | waiting messages, by array; the order in which they run |
//! | `outbound` | records waiting to be sent to other elements |
//! | `credit`, `parking`, `flow_control` | limits for messages waiting at another element; chares that have sent too much |
//! | `reduction`, `quiescence` | the two collective protocols |
//! | `balance` | load balancers, by name |
//! | `load_meter`, `decision`, `balancing` | load measurements; whether moving chares pays off; carrying out the moves |
//! | `migrations`, `migration` | migrating chares, and messages that are forwarded to them |
//! | `checkpoint`, `saving` | the state of all chares at quiescence, to restart from |
//! | `resize_state`, `resizing` | checkpoints from which the program continues with another number of elements |
//! | `buddy_checkpoints` | in-memory checkpoints, and the agreement on one after a loss |
//! | `step_report` | step reports for the element's owner: work, entry methods by name |
//! | `waiting_methods`, `awaits` | the state of waiting methods, by chare; these methods, as futures |
//! | `core`, `receive` | the state that entry methods access; handling of received batches |
//! | `chare`, `array`, `element` | the operations of entry methods; the chares; the whole element |

#![forbid(unsafe_code)]

mod array;
mod awaits;
pub mod balance;
mod balancing;
mod buddy_checkpoints;
mod chare;
mod checkpoint;
mod contribution;
mod core;
mod credit;
mod decision;
mod element;
mod error;
mod flow_control;
mod id;
mod load_meter;
mod location_table;
mod mail;
mod migration;
mod migrations;
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
mod resize_state;
mod resizing;
mod saving;
mod shape;
mod step_report;
mod value;
mod waiting_methods;

pub use awaits::{AsyncContext, Channel, Receive, ReceiveOnChannel, Reply, ReplyTo};
pub use buddy_checkpoints::{Buddies, BuddyMessage, RestartPoint};
pub use chare::{Chare, Context, Start};
pub use contribution::{Combine, Contribution, Reducer};
pub use element::{Element, Step};
pub use error::ChareError;
pub use id::{ArrayId, ChareId, Index, Pe, Priority};
pub use packing::{Migrate, Packing};
pub use payload::{Codec, Payload};
pub use placement::{Elements, Placement};
pub use proxy::{Callback, Proxy, Target};
pub use resize_state::ResizePolicy;
pub use shape::Shape;
pub use step_report::EntryMethodRun;
pub use value::Value;
